"""Two servers, one per lane, that have to give the same answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.raw_http import RawConnection
from support.server_process import ServerProcess


@dataclass
class Lanes:
    fast: ServerProcess
    asgi: ServerProcess

    def both(self, talk: Callable[[RawConnection], bytes]) -> bytes:
        """What the lanes answer to the same talk; it must be the same."""
        answers = []
        for server in (self.fast, self.asgi):
            with RawConnection(server.url) as connection:
                answers.append(without_times(talk(connection)))
        assert answers[0] == answers[1], (
            f"\nfast: {_difference(answers[0], answers[1])}\nasgi: {_difference(*answers[::-1])}"
        )
        return answers[0]


def _difference(one: bytes, other: bytes) -> bytes:
    """The part of ``one`` around the first byte that differs."""
    at = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return one[max(0, at - 200) : at + 100]


def without_times(answer: bytes) -> bytes:
    answer = re.sub(rb'("(?:[a-z_]+_ms)":)[0-9.]+', rb"\1T", answer)
    answer = re.sub(rb"\b1[0-9]{12}\b", b"T", answer)
    # The numbers of the leases of consumer groups begin at the time.
    answer = re.sub(rb'("lease":)1[0-9]{15}', rb"\1T", answer)
    answer = re.sub(rb"(?i)date: [^\r]+", b"date: T", answer)
    # The priority of a log that chooses it itself follows the age of its last write.
    answer = re.sub(rb'("effective_priority":)-?[0-9]+', rb"\1T", answer)
    # Times have more digits or fewer, and so have the lengths of bodies.
    return re.sub(rb"(?i)content-length: [0-9]+", b"content-length: N", answer)


@contextmanager
def both_lanes(directory: Path, **options: Any) -> Iterator[Lanes]:
    """Two servers that differ in nothing but the lane. ``options`` are those of :class:`ServerProcess`."""
    servers = [ServerProcess(directory / name, fast_lane=name == "fast", **options) for name in ("fast", "asgi")]
    try:
        yield Lanes(*(server.start() for server in servers))
    finally:
        for server in servers:
            server.end()


def send(*requests: bytes, piece: int = 0) -> Callable[[RawConnection], bytes]:
    """Send requests one after the other, each once the last one is answered."""

    def talk(connection: RawConnection) -> bytes:
        answers = b""
        for one in requests:
            connection.send(one, piece)
            head, body = connection.answer(has_body=not one.startswith(b"HEAD"))
            answers += head + b"\r\n\r\n" + body
        return answers

    return talk

"""Which logs to process."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from strandline.history.log_info import LogInfo


class UnknownLogs(Exception):
    """Named logs do not exist."""


class Chosen(msgspec.Struct, frozen=True):
    """Which logs to process: the named ones, those with the prefix, or all. Internal logs are never included."""

    logs: Sequence[str] = ()
    prefix: str = ""


EVERYTHING = Chosen()


def choose(logs: list[LogInfo], chosen: Chosen) -> list[LogInfo]:
    """Raises UnknownLogs if a named log does not exist."""
    missing = set(chosen.logs) - {info.name for info in logs}
    if missing:
        raise UnknownLogs(f"logs not found: {', '.join(sorted(missing))}")
    if chosen.logs:
        logs = [info for info in logs if info.name in set(chosen.logs)]
    return [info for info in logs if info.name.startswith(chosen.prefix)]


def wall_clock() -> int:
    return int(time.time() * 1000)

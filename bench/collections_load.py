"""Requests of the collections protocol, signed in advance, and the connections that send them.

Signing costs the client as much as verifying costs the server. Every request is therefore encoded before the clock
starts, with the proof of the author and the signature of the request. After that, only bytes are sent and received.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from statistics import median
from typing import NamedTuple

import msgspec

from bench.collections_peers import COLLECTIONS, OPEN, Side
from bench.streams_load import ANSWER_SECONDS, Answer, Line, Refused
from bench.topics_server import HOST, Server
from bench.workload import payloads
from strandline.signing import author_proofs, certificates, signed_requests
from strandline.signing.keys import KemKey, Signer

#: The size of the data of one element.
PAYLOAD = 150
#: The published servers refuse more than 4096 requests of one key in ten minutes, so the key changes before.
PER_KEY = 4000

#: The seconds before a request to a busy server is repeated.
PAUSE_SECONDS = 0.1

_ELEMENT = b'{"data":%b,"authorPubkey":"%b","authorSignature":"%b"}'


class Load(NamedTuple):
    """The result of a number of requests."""

    requests: int
    seconds: float
    p50: float
    #: Processor time of this process per second. Close to 1, the client was the limit.
    busy: float


class Author:
    """A device whose certificate allows all operations in all collections."""

    def __init__(self) -> None:
        self.signer = Signer.generate()
        scope = {"ops": ["read", "write", "list"], "collections": list(COLLECTIONS), "paths": ["**"]}
        # An hour ago, because the clocks of client and server can differ.
        now_s = int(time.time()) - 3600
        cert = certificates.mint_device(self.signer, self.signer.public, KemKey.generate().public, scope, now_s=now_s)
        self._authorization = certificates.SCHEME + certificates.encode(cert)

    def element(self, document: str, data: bytes) -> bytes:
        """The body of an append with the proof of its author."""
        proof = author_proofs.sign(self.signer, document, msgspec.json.decode(data))
        return _ELEMENT % (data, proof.public_key.encode(), proof.signature.encode())

    def request(self, server: Server, method: str, target: str, body: bytes) -> bytes:
        """The bytes of a signed request, which is valid once and for five minutes."""
        host = f"{HOST}:{server.port}"
        signed = signed_requests.sign(self.signer, method, target, host, body, int(time.time() * 1000))
        return _request(server, method, target, body, {"authorization": self._authorization, **signed})


class Authors:
    """Authors in turn, each for as many requests as the published servers accept from one key."""

    def __init__(self) -> None:
        self._made = count()
        self._author = Author()

    def next(self) -> Author:
        if next(self._made) % PER_KEY == PER_KEY - 1:
            self._author = Author()
        return self._author


class Requests:
    """Makes requests for one side."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._authors = Authors()
        self._numbers = count()

    def appends(self, document: str, number: int, *, signed: bool) -> list[bytes]:
        """Appends to a document, ``collection/name``, each with different data."""
        data, server = payloads(PAYLOAD), self.side.server
        chosen = [data[next(self._numbers) % len(data)] for _ in range(number)]
        if not signed:
            return [_request(server, "POST", f"/{OPEN}/push/{document}", b'{"data":%b}' % each, {}) for each in chosen]
        made = []
        for each in chosen:
            author = self._authors.next()
            made.append(author.request(server, "POST", f"/push/{document}", author.element(document, each)))
        return made

    def pulls(self, document: str, bounds: str, number: int, *, signed: bool) -> list[bytes]:
        server, target = self.side.server, f"/pull/{document}?{bounds}"
        if not signed:
            return [_request(server, "GET", f"/{OPEN}{target}", b"", {})] * number
        return [self._authors.next().request(server, "GET", target, b"") for _ in range(number)]


def elements(document: str, number: int) -> Iterator[bytes]:
    """Data and proofs of a number of elements, as bodies of appends. Few of them differ, because signing is slow."""
    author = Author()
    made = [author.element(document, data) for data in payloads(PAYLOAD)[: min(number, 1000)]]
    for at in range(number):
        yield made[at % len(made)]


def filling(side: Side, document: str, number: int) -> Iterator[bytes]:
    """Appends to a document in the open namespace, with elements as signed appends would have stored them."""
    for body in elements(document, number):
        yield _request(side.server, "POST", f"/{OPEN}/push/{document}", body, {})


def send(
    server: Server, prepared: Sequence[bytes], connections: int, limit: float | None = None, *, patient: bool = False
) -> Load:
    """Send all requests, one at a time on each connection, or as many as possible within ``limit`` seconds. All of them
    must succeed. With ``patient``, requests that a busy server refused are sent again."""
    rest = iter(prepared)
    clock, seconds = time.perf_counter, []
    with ExitStack() as stack:
        lines = [stack.enter_context(Line(server)) for _ in range(min(connections, len(prepared)))]
        used, began = time.process_time(), clock()
        sent: dict[Line, float] = {}
        last: dict[Line, bytes] = dict(zip(lines, rest, strict=False))
        for line in lines:
            line.send_bytes(last[line])
            sent[line] = clock()
        while sent:
            for line in _answered(list(sent)):
                answer = line.receive()
                if answer.status == 429 and patient:
                    time.sleep(PAUSE_SECONDS)
                    line.send_bytes(last[line])
                    continue
                _succeeded(answer)
                now = clock()
                seconds.append(now - sent.pop(line))
                following = None if limit is not None and now - began > limit else next(rest, None)
                if following is not None:
                    line.send_bytes(following)
                    sent[line], last[line] = now, following
        took = clock() - began
        return Load(len(seconds), took, median(seconds), (time.process_time() - used) / took)


def _answered(lines: list[Line]) -> Sequence[Line]:
    # A single connection needs no selector: it waits in its read.
    return lines if len(lines) == 1 else select.select(lines, (), (), ANSWER_SECONDS)[0]


def ask(server: Server, request: bytes) -> Answer:
    with Line(server) as line:
        line.send_bytes(request)
        return _succeeded(line.receive())


def _succeeded(answer: Answer) -> Answer:
    if answer.status != 200:
        raise Refused("one of many", answer)
    return answer


def _request(server: Server, method: str, target: str, body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"host: {HOST}:{server.port}"]
    if method == "POST":
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body

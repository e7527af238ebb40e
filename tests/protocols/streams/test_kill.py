"""A server that is killed again and again under appends, producers, forks and closes, always on the same directory.

What was acknowledged is there afterwards, once and in order. What was not answered happened whole or not at all, and a
producer that asks again finds out which.
"""

from __future__ import annotations

import http.client
import json
import os
from random import Random
from typing import Any

from support.kill_load import Actor, Gone, Round
from support.server_process import ServerProcess, StartServer
from support.streams_client import JSON, StreamsClient

from strandline.protocols.streams.offsets import decode, encode

ROUNDS = 20 if os.environ.get("STRANDLINE_LONG") == "1" else 3
SEED = 35
#: A round ends after so many acknowledgements, drawn at random, and at the latest after so many seconds.
ACKNOWLEDGEMENTS = (100, 800)
ROUND_SECONDS = 2.0
END_SECONDS = 30.0


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.body = response.read()
        self.offset = decode(response.headers.get("stream-next-offset", ""))


def ask(actor: Actor, method: str, name: str, values: list[Any] | None = None, **headers: str) -> Answer:
    """Ask over the actor's connection; the server may be killed meanwhile."""
    sent = {"content-type": JSON, **{key.replace("_", "-"): value for key, value in headers.items()}}
    try:
        actor.line.http.request(method, f"/v1/stream/{name}", None if values is None else json.dumps(values), sent)
        answer = Answer(actor.line.http.getresponse())
    except (OSError, http.client.HTTPException) as error:
        if not actor.round.dying.is_set():
            raise AssertionError(f"{method} {name}: {error!r} from a server that was not killed") from error
        raise Gone from None
    assert answer.status in (200, 201, 204), f"{method} {name}: {answer.status} {answer.body!r}"
    return answer


class Plain:
    """A stream that several append to without numbers: what is in doubt may be there or not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acked: dict[int, Any] = {}
        self.sent: set[str] = set()

    def step(self, actor: Actor) -> None:
        payloads = actor.payloads()
        self.sent.update(payload["id"] for payload in payloads)
        answer = ask(actor, "POST", self.name, payloads)
        assert answer.offset is not None
        for seq, payload in enumerate(payloads, answer.offset - len(payloads) + 1):
            assert self.acked.setdefault(seq, payload) == payload, f"seq {seq} was handed out twice"

    def check(self, streams: StreamsClient) -> None:
        values = streams.values(self.name)
        for seq, payload in self.acked.items():
            assert values[seq - 1] == payload, f"{self.name}: {seq} was acknowledged and is another one"
        ids = [value["id"] for value in values]
        assert len(set(ids)) == len(ids), f"{self.name}: a record is there twice"
        assert self.sent.issuperset(ids)


class Producing:
    """A producer that goes on with what was not answered, over all lives of the server: everything once, in order."""

    def __init__(self, name: str, id: str) -> None:
        self.name = name
        self.id = id
        self.made: list[Any] = []
        self.seq = 0
        self.pending: list[Any] | None = None

    def step(self, actor: Actor) -> None:
        repeated = self.pending is not None
        if self.pending is None:
            self.pending = [{**payload, "producer": self.id} for payload in actor.payloads()]
        numbers = {"producer_id": self.id, "producer_epoch": "0", "producer_seq": str(self.seq)}
        answer = ask(actor, "POST", self.name, self.pending, **numbers)
        assert answer.status == 200 or (repeated and answer.status == 204)
        self.made += self.pending
        self.seq, self.pending = self.seq + 1, None
        if actor.random.random() < 0.2:
            # Even what was acknowledged may be sent again.
            again = ask(actor, "POST", self.name, [{"id": "never"}], **numbers)
            assert again.status == 204

    def check(self, streams: StreamsClient) -> None:
        values = [value for value in streams.values(self.name) if value["producer"] == self.id]
        assert values[: len(self.made)] == self.made, f"{self.name}: what {self.id} made is not there, or not in order"
        assert values[len(self.made) :] in ([], self.pending), f"{self.name}: {self.id} never made this"


class Closing:
    """Streams that get a few records and are closed with their last append."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: By stream: what it holds for sure, what it may hold besides, and whether the close was acknowledged.
        self.streams: dict[str, tuple[list[Any], list[Any], bool]] = {}

    def step(self, actor: Actor) -> None:
        stream = f"{self.name}.{actor.key()}"
        first, last = actor.payloads(), actor.payloads()
        self.streams[stream] = [], first, False
        ask(actor, "PUT", stream, first)
        self.streams[stream] = first, last, False
        ask(actor, "POST", stream, last, stream_closed="true")
        self.streams[stream] = first + last, [], True

    def check(self, streams: StreamsClient) -> None:
        for stream, (sure, doubtful, closed) in self.streams.items():
            response = streams.request("GET", stream)
            if response.status_code == 404:
                assert not sure, f"{stream} was made and is gone"
                continue
            values = response.json()
            # A stream is made with its first records, or not at all.
            assert values == sure + doubtful or (sure and values == sure), stream
            is_closed = response.headers.get("stream-closed") == "true"
            # The last append and the close are one thing.
            assert is_closed == (closed or bool(sure and values == sure + doubtful)), stream


class Forking:
    """Forks of a stream that is appended to all the time, with something of their own; some are deleted again."""

    def __init__(self, source: Plain) -> None:
        self.source = source
        self.forks: dict[str, tuple[int, list[Any]]] = {}
        self.deleted: set[str] = set()

    def step(self, actor: Actor) -> None:
        name = f"fork.{actor.key()}"
        known = list(self.source.acked)[-50:]
        through = actor.random.choice(known) if known else 0
        own = actor.payloads()
        forked = {"stream_forked_from": f"/v1/stream/{self.source.name}", "stream_fork_offset": encode(through)}
        ask(actor, "PUT", name, own, **forked)
        self.forks[name] = through, own
        if len(self.forks) > 5 and actor.random.random() < 0.5:
            victim = actor.random.choice(list(self.forks))
            del self.forks[victim]
            ask(actor, "DELETE", victim)
            self.deleted.add(victim)

    def check(self, streams: StreamsClient) -> None:
        values = streams.values(self.source.name)
        for name, (through, own) in list(self.forks.items())[-10:]:
            assert streams.values(name) == values[:through] + own, f"{name} is not what was forked"
        for name in self.deleted:
            assert streams.request("HEAD", name).status_code == 404, f"{name} came back"


def test_a_killed_server_keeps_what_it_said(start_server: StartServer) -> None:
    random = Random(SEED)
    # Journals are small, so that it is sealing all the time.
    server: ServerProcess = start_server(journal_bytes=50_000)
    streams = StreamsClient(server.url)
    plain = Plain("plain")
    producers = [Producing("produced", id) for id in ("p", "q")]
    parts = [plain, *producers, Closing("closing"), Forking(plain)]
    for name in ("plain", "produced"):
        streams.create(name)
    streams.close()
    for number in range(ROUNDS):
        round = Round(server.url, number, random.randint(*ACKNOWLEDGEMENTS))
        actors = [Actor(round, f"actor{at}", part.step) for at, part in enumerate([*parts, plain])]
        for actor in actors:
            actor.start()
        round.wait(ROUND_SECONDS)
        round.dying.set()
        server.kill()
        for actor in actors:
            actor.join(END_SECONDS)
            assert not actor.is_alive(), f"{actor.name} does not end"
        assert round.failures == []
        server.close_clients()
        streams = StreamsClient(server.start().url)
        for part in parts:
            part.check(streams)
        streams.close()
    assert plain.acked
    assert all(producer.made for producer in producers)

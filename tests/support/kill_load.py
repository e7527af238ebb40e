"""Clients that go on until the server is killed under them, and remember what they were told.

An operation whose answer did not come is in doubt: it may have happened or not, but never half, and never twice.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from random import Random
from time import sleep
from typing import Any
from urllib.parse import urlsplit

import msgspec

#: Longer than anything takes, unless it never happens.
ANSWER_SECONDS = 30.0


class Gone(Exception):
    """The server was killed under a request: whether it was done is not known."""


class Round:
    """One life of the server: how much was acknowledged in it, and what must not have happened."""

    def __init__(self, url: str, number: int, wanted: int) -> None:
        self.url = url
        self.number = number
        #: Set right before the server is killed: until then no connection may break.
        self.dying = threading.Event()
        self.failures: list[str] = []
        self._missing = wanted
        self._enough = threading.Event()
        self._lock = threading.Lock()

    def acknowledged(self) -> None:
        with self._lock:
            self._missing -= 1
            if not self._missing:
                self._enough.set()

    def wait(self, seconds: float) -> None:
        """Until as many as wanted were acknowledged; on a slow machine, until the time is up."""
        self._enough.wait(seconds)

    def fail(self, what: str) -> None:
        self.failures.append(what)


class Line:
    """One keep-alive connection."""

    def __init__(self, round: Round) -> None:
        self._round = round
        address = urlsplit(round.url)
        assert address.hostname is not None
        self.http = http.client.HTTPConnection(address.hostname, address.port, timeout=ANSWER_SECONDS)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of a success. A server that is busy is asked again: it said that it did nothing."""
        while True:
            try:
                content = None if body is None else msgspec.json.encode(body)
                self.http.request(method, path, content, {"content-type": "application/json"})
                response = self.http.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                if not self._round.dying.is_set():
                    raise AssertionError(f"{method} {path}: {error!r} from a server that was not killed") from error
                raise Gone from None
            if response.status == 429:
                sleep(0.01)
                continue
            assert response.status in (200, 201), f"{method} {path}: {response.status} {answer!r}"
            return msgspec.json.decode(answer)

    def write(self, topic: str, payloads: list[Any], key: str | None = None) -> Any:
        body: dict[str, Any] = {"records": [{"data": payload} for payload in payloads]}
        if key is not None:
            body["idempotency_key"] = key
        return self.call("POST", f"/v0/topics/{topic}", body)


class Written:
    """What was written to one topic, over all lives of the server. Every payload is another one."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.lock = threading.Lock()
        #: By seq, as acknowledged.
        self.acked: dict[int, Any] = {}
        self.sent: set[str] = set()
        #: First seq and payloads of acknowledged writes, by idempotency key.
        self.by_key: dict[str, tuple[int, list[Any]]] = {}
        self.doubtful: dict[str, list[Any]] = {}

    def write(self, line: Line, payloads: list[Any], key: str | None) -> None:
        with self.lock:
            self.sent.update(payload["id"] for payload in payloads)
            if key is not None:
                self.doubtful[key] = payloads
        self.note(line.write(self.topic, payloads, key), payloads, key)

    def note(self, answer: Any, payloads: list[Any], key: str | None) -> None:
        first = answer["first_seq"]
        assert answer["last_seq"] == first + len(payloads) - 1
        with self.lock:
            for seq, payload in enumerate(payloads, first):
                assert self.acked.setdefault(seq, payload) == payload, f"{self.topic}: seq {seq} was handed out twice"
            if key is not None:
                self.by_key[key] = (first, payloads)
                self.doubtful.pop(key, None)

    @property
    def head(self) -> int:
        with self.lock:
            return max(self.acked, default=0)


class Jobs(Written):
    """A queue: what was put into it, and what became of it."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.done: set[int] = set()
        #: Acks that were not answered yet, or never: two workers may believe that they hold the same job.
        self._unanswered: list[list[int]] = []
        #: Held for long by the one who never lets go, as acknowledged.
        self.held: set[int] = set()

    def claim(self, line: Line, node: str, count: int, lease_ms: int) -> list[int]:
        with self.lock:
            done, held = set(self.done), set(self.held)
        body = {"node": node, "max": count, "lease_ms": lease_ms}
        seqs = [job["$seq"] for job in line.call("POST", f"/v0/topics/{self.topic}/claim", body)["claimed"]]
        assert not done.intersection(seqs), f"{self.topic}: done and handed out again: {done.intersection(seqs)}"
        assert not held.intersection(seqs), f"{self.topic}: held and handed out: {held.intersection(seqs)}"
        return seqs

    def ack(self, line: Line, node: str, seqs: list[int]) -> list[int]:
        """Returns those that were not the worker's any more."""
        with self.lock:
            self._unanswered.append(seqs)
        answer = line.call("POST", f"/v0/topics/{self.topic}/ack", {"node": node, "seqs": seqs})
        skipped: list[int] = answer["skipped"]
        with self.lock:
            self._unanswered.remove(seqs)
            self.done.update(set(seqs) - set(skipped))
            self.held.difference_update(seqs)
        return skipped

    @property
    def maybe_done(self) -> set[int]:
        return {seq for seqs in self._unanswered for seq in seqs}


# --- who does what ---------------------------------------------------------------------------------------------------


class Actor(threading.Thread):
    """Takes one step after the other until the server is gone."""

    def __init__(self, round: Round, name: str, step: Callable[[Actor], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.round = round
        self.random = Random(f"{name}.{round.number}")
        self.line = Line(round)
        self.steps = 0
        self._step = step

    def run(self) -> None:
        try:
            while True:
                self.steps += 1
                self._step(self)
                self.round.acknowledged()
        except Gone:
            pass
        except Exception as error:
            self.round.fail(f"{self.name}: {error!r}")
        finally:
            self.line.http.close()

    def payloads(self, most: int = 4) -> list[Any]:
        """Payloads that nobody else has; some are long, so that journals fill up."""
        count = self.random.randint(1, most)
        start = f"{self.round.number}.{self.name}.{self.steps}"
        return [{"id": f"{start}.{at}", "pad": "x" * self.random.choice((0, 20, 600))} for at in range(count)]

    def key(self) -> str:
        return f"{self.round.number}.{self.name}.{self.steps}"


def writing(*topics: Written) -> Callable[[Actor], None]:
    """Every other write has an idempotency key."""

    def step(actor: Actor) -> None:
        written = actor.random.choice(topics)
        written.write(actor.line, actor.payloads(), actor.key() if actor.steps % 2 else None)

    return step


def writing_pairs(first: Written, second: Written) -> Callable[[Actor], None]:
    """The same records to two topics in one step."""

    def step(actor: Actor) -> None:
        payloads = actor.payloads()
        for written in (first, second):
            with written.lock:
                written.sent.update(payload["id"] for payload in payloads)
        records = [{"data": payload} for payload in payloads]
        writes = [{"topic": written.topic, "records": records} for written in (first, second)]
        actor.line.call("POST", "/v0/write", {"writes": writes})

    return step


def working(*queues: Jobs) -> Callable[[Actor], None]:
    """Claims for a short time; then acks, gives back, or forgets what it holds."""

    def step(actor: Actor) -> None:
        jobs, random, node = actor.random.choice(queues), actor.random, actor.name
        seqs = jobs.claim(actor.line, node, random.randint(1, 6), lease_ms=300)
        if not seqs:
            return
        fate = random.random()
        if fate < 0.6:
            jobs.ack(actor.line, node, seqs)
        elif fate < 0.9:
            body = {"node": node, "seqs": seqs, "delay_ms": random.choice((0, 0, 50))}
            actor.line.call("POST", f"/v0/topics/{jobs.topic}/nack", body)

    return step


def holding(jobs: Jobs, node: str) -> Callable[[Actor], None]:
    """Claims for a very long time, and seldom acks: leases that have to outlive the server."""

    def step(actor: Actor) -> None:
        if actor.steps % 8 == 0 and jobs.held:
            assert jobs.ack(actor.line, node, [min(jobs.held)]) == [], f"{jobs.topic}: a lease was lost"
        seqs = jobs.claim(actor.line, node, 1, lease_ms=3_600_000)
        with jobs.lock:
            jobs.held.update(seqs)
        sleep(0.02)

    return step


class Committed:
    """Where a named consumer said it is."""

    def __init__(self, written: Written, consumer: str) -> None:
        self.written = written
        self.path = f"/v0/topics/{written.topic}/consumers/{consumer}"
        self.sent = self.acked = 0

    def step(self, actor: Actor) -> None:
        self.sent = max(self.sent, self.written.head)
        answer = actor.line.call("PUT", self.path, {"seq": self.sent})
        assert answer["seq"] == self.sent
        self.acked = self.sent


class Watched:
    """What one watcher got of a topic, over all lives of the server: it always goes on from its last cursor."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.got: dict[int, Any] = {}
        self.last = 0
        self._cursor: str | None = None

    def step(self, actor: Actor) -> None:
        """Read events until there are no more; a session belongs to one life of the server."""
        body: dict[str, Any] = {"topics": {self.topic: {"from_seq": 0}}}
        if self._cursor is not None:
            body["cursor"] = self._cursor
        path = actor.line.call("POST", "/v0/watch", body)["stream_url"]
        try:
            actor.line.http.request("GET", path, headers={"accept": "text/event-stream"})
            response = actor.line.http.getresponse()
            assert response.status == 200
            fields: dict[str, str] = {}
            while line := response.readline():
                if line == b"\n":
                    self._take(fields)
                    fields = {}
                else:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    fields[name] = value
        except (OSError, http.client.HTTPException) as error:
            if not actor.round.dying.is_set():
                raise AssertionError(f"{error!r} from a server that was not killed") from error
        assert actor.round.dying.is_set(), "the server ended a stream"
        raise Gone

    def _take(self, fields: dict[str, str]) -> None:
        kind = fields.get("event")
        assert kind != "tombstone", f"{self.topic}: {fields}"
        if kind != "record":
            return
        frame = msgspec.json.decode(fields["data"])
        for record in frame["records"]:
            assert record["$seq"] == self.last + 1, f"{self.topic}: {record['$seq']} was delivered after {self.last}"
            self.last = record["$seq"]
            self.got[self.last] = record["data"]
        assert frame["to_seq"] == self.last
        self._cursor = fields["id"]

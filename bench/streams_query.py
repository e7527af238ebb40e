"""Filters, searches, aggregates and lists, next to the peer that has them too."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from bench.measure import Effort, Row, Sample, in_rounds, single
from bench.streams_load import Answer, Line, Refused, array, attempted, pages, send_all
from bench.streams_peers import Side

GROUP = "streams"
RECORDS = 1_000_000
BATCH = 1000
STREAMS = 100_000
PAGE = 1000
#: Rounds, which are few because a turn takes many seconds on the slower side.
ROUNDS = 3
#: The maximum time to wait until the peer has indexed all records.
INDEX_SECONDS = 600.0
POLL_SECONDS = 1.0
#: The maximum time to create streams, which is not measured. The slower side creates as many as it can.
MAKING_SECONDS = 300.0
MAKERS = 32

PATH = "/v1/stream/requests"
FIRST = 1_780_000_000_000
#: Milliseconds from one record to the next.
STEP = 10
USERS = 20_000
WORDS = (
    *("order", "paid", "sent", "cart", "login", "click", "view", "share", "error", "retry", "done", "stock", "price"),
    *("label", "queue", "index", "alpha", "delta", "gamma", "omega", "north", "south", "east", "west", "red", "green"),
    *("blue", "amber", "first", "second", "third", "fourth"),
)


def _field(kind: str, **flags: Any) -> dict[str, Any]:
    return {"kind": kind, **flags}


FIELDS = {
    "at": _field("date", exact=True, column=True, sortable=True),
    "service": _field("keyword", exact=True, prefix=True),
    "user": _field("keyword", exact=True),
    "status": _field("integer", exact=True, column=True, sortable=True),
    "latency": _field("float", column=True, aggregatable=True),
    "note": _field("text", analyzer="unicode_word_v1", positions=True),
}
REGISTRY = {
    "schema": {"type": "object"},
    "search": {
        "primaryTimestampField": "at",
        "defaultFields": [{"field": "note"}],
        "fields": {
            name: {**field, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}]} for name, field in FIELDS.items()
        },
        "rollups": {
            "requests": {
                "dimensions": ["service"],
                "intervals": ["1h"],
                "measures": {
                    "requests": {"kind": "count"},
                    "latency": {"kind": "summary", "field": "latency", "histogram": "log2_v1"},
                },
            }
        },
    },
}


def run(ours: Side, peer: Side, effort: Effort) -> Iterator[Row]:
    records = effort.scaled(RECORDS, BATCH) // BATCH * BATCH
    for side in (ours, peer):
        _fill(side, records)
        _wait_for_indexes(side)
    rounds = min(effort.rounds, ROUNDS)
    for question in _questions(records):
        yield from attempted(question.name, _asked(question, ours, peer, rounds))
    yield from attempted("listing", _listing(ours, peer, effort, rounds))


# --- the stream ----------------------------------------------------------------------------------------------------


def _batches(records: int) -> Iterator[bytes]:
    """The same for every side."""
    rng = random.Random(records)
    for first in range(0, records, BATCH):
        yield array(_record(rng, number) for number in range(first, first + BATCH))


def _record(rng: random.Random, number: int) -> bytes:
    return msgspec.json.encode(
        {
            "at": FIRST + number * STEP,
            "service": f"service-{rng.randrange(20)}",
            "user": f"user-{rng.randrange(USERS)}",
            "status": rng.choice((200, 200, 200, 404, 503)),
            "latency": round(rng.expovariate(0.05), 2) + 0.01,
            "note": " ".join(rng.choices(WORDS, k=5)),
        }
    )


def _fill(side: Side, records: int) -> None:
    with Line(side.server) as line:
        line.call("PUT", PATH)
        line.call("POST", f"{PATH}/_schema", msgspec.json.encode(REGISTRY))
        for body in _batches(records):
            while True:
                answer = line.request("POST", PATH, body)
                if answer.status != 429:
                    break
                time.sleep(POLL_SECONDS)
            if answer.status != 204:
                raise Refused("filling", answer)


def _wait_for_indexes(side: Side) -> None:
    """Wait until a search covers all records and reads only indexed ones."""
    deadline = time.monotonic() + INDEX_SECONDS
    with Line(side.server) as line:
        while time.monotonic() < deadline:
            answer = _post(line, "_search", {"q": "user:none"})
            complete = answer.header(b"search-coverage-complete") == "true"
            if answer.status == 200 and complete and answer.header(b"search-scanned-segments") == "0":
                return
            time.sleep(POLL_SECONDS)
    print(f"streams: {side.name} did not index everything within {INDEX_SECONDS:.0f} s", file=sys.stderr)


def _post(line: Line, what: str, body: Any) -> Answer:
    return line.request("POST", f"{PATH}/{what}", msgspec.json.encode(body))


# --- questions -----------------------------------------------------------------------------------------------------


class Question(NamedTuple):
    name: str
    #: Sends the n-th query, and returns the values that must be equal on both sides, or None if it timed out.
    ask: Callable[[Line, int], Any]


def _questions(records: int) -> Iterator[Question]:
    of = f"{records:,} records"
    until = FIRST + records * STEP
    yield Question(f"filter= over {of}, one in {USERS:,} matches", _filter)
    searches: dict[str, Callable[[int], str]] = {
        f"one user of {USERS:,}": lambda number: f"user:user-{number}",
        "service and status": lambda number: f"service:service-{number % 20} status:503",
        "range": lambda number: f"latency:>{100 + number}",
        "phrase": lambda number: f'note:"{WORDS[number % len(WORDS)]} error"',
        "two words, by score": lambda number: f"{WORDS[number % len(WORDS)]} retry",
    }
    for name, query in searches.items():
        yield Question(f"_search over {of}: {name}", _search(query))
    whole = {"rollup": "requests", "interval": "1h", "from": FIRST, "to": until}
    aggregates: dict[str, dict[str, Any]] = {
        "by service": {**whole, "group_by": ["service"]},
        "of one status, which is not a dimension": {**whole, "q": "status:503"},
        "between two odd moments": {**whole, "from": FIRST + 1234, "to": until - 1234, "group_by": ["service"]},
    }
    for name, request in aggregates.items():
        yield Question(f"_aggregate over {of}: {name}", _aggregate(request))


def _filter(line: Line, number: int) -> Any:
    wanted = quote(f"user:user-{number}")
    try:
        return sum(page.body.count(b'"user":') for page in pages(line, PATH, f"&filter={wanted}"))
    except Refused as refusal:
        if refusal.status == 408:
            return None
        raise


def _search(query: Callable[[int], str]) -> Callable[[Line, int], Any]:
    def ask(line: Line, number: int) -> Any:
        found = _successful(_post(line, "_search", {"q": query(number), "size": 50}))
        return None if found is None else len(found["hits"])

    return ask


def _aggregate(request: dict[str, Any]) -> Callable[[Line, int], Any]:
    def ask(line: Line, number: int) -> Any:
        found = _successful(_post(line, "_aggregate", request))
        if found is None:
            return None
        groups = [group for bucket in found["buckets"] for group in bucket["groups"]]
        return len(groups), sum(group["measures"]["requests"]["count"] for group in groups)

    return ask


def _successful(answer: Answer) -> Any:
    if answer.status == 408:
        return None
    if answer.status != 200:
        raise Refused("a question", answer)
    return answer.json()


def _asked(question: Question, ours: Side, peer: Side, rounds: int) -> Iterator[Row]:
    answers: dict[str, list[Any]] = {}
    turns = [_turn(side, question, answers.setdefault(side.name, [])) for side in (ours, peer)]
    measured = in_rounds(turns[0], turns[1], rounds)
    peer_is = peer.name
    if None in answers[peer.name]:
        peer_is += ", which timed out"
    for mine, other in zip(answers[ours.name], answers[peer.name], strict=True):
        if mine is None or (other is not None and mine != other):
            print(f"streams: {question.name}: {mine} here, {other} from {peer.name}", file=sys.stderr)
    yield measured.beside_peer(GROUP, question.name, "ms", peer_is, 1.0)


def _turn(side: Side, question: Question, answers: list[Any]) -> Callable[[], Sample]:
    # A different value each time, so that no side answers from a cache.
    numbers = count(7)

    def turn() -> Sample:
        number = next(numbers)
        with Line(side.server) as line:
            start = time.perf_counter()
            answers.append(question.ask(line, number))
            return Sample(1, time.perf_counter() - start)

    return turn


# --- listing -------------------------------------------------------------------------------------------------------


def _listing(ours: Side, peer: Side, effort: Effort, rounds: int) -> Iterator[Row]:
    wanted = effort.scaled(STREAMS, 100)
    made = _make_streams(peer, wanted)
    send_all(ours.server, (("PUT", _name(number), b"") for number in range(made)), MAKERS)
    measured = in_rounds(_lister(ours, made), _lister(peer, made), rounds)
    yield measured.beside_peer(GROUP, f"{made:,} streams listed, {PAGE:,} a page", "ms", peer.name, 1.0)
    if made == wanted:
        return
    print(f"streams: {peer.name} made {made:,} streams in {MAKING_SECONDS:.0f} s", file=sys.stderr)
    send_all(ours.server, (("PUT", _name(number), b"") for number in range(made, wanted)), MAKERS)
    sample = _lister(ours, wanted)()
    yield single(GROUP, f"{wanted:,} streams listed, {PAGE:,} a page", "ms", sample.seconds * 1000)


def _make_streams(side: Side, wanted: int) -> int:
    """Create as many streams as possible in the time. Returns their number."""
    deadline = time.monotonic() + MAKING_SECONDS
    made = 0

    def requests() -> Iterator[tuple[str, str, bytes]]:
        nonlocal made
        while made < wanted and time.monotonic() < deadline:
            made += 1
            yield "PUT", _name(made - 1), b""

    send_all(side.server, requests(), MAKERS)
    return made


def _name(number: int) -> str:
    return f"/v1/stream/listed-{number:06}"


def _lister(side: Side, least: int) -> Callable[[], Sample]:
    def turn() -> Sample:
        with Line(side.server) as line:
            start = time.perf_counter()
            found = 0
            for offset in count(0, PAGE):
                body = line.call("GET", f"/v1/streams?limit={PAGE}&offset={offset}").body
                names = body.count(b'"name":')
                found += names
                if names < PAGE:
                    break
            seconds = time.perf_counter() - start
        if found < least:
            raise RuntimeError(f"{side.name}: {found} streams were listed, there are at least {least}")
        return Sample(1, seconds)

    return turn

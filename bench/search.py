"""Index files next to tantivy and SQLite FTS5: the same documents, indexed and searched by all three in one run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import quantiles

import numpy as np

from bench.measure import Effort, Figure, Row, Target, Unit, single
from bench.search_documents import USERS, Zipf, documents, vocabulary
from bench.search_sides import Asked, Http, Question, Side, Sqlite, Strandline, Tantivy
from bench.workload import directory

GROUP = "search"
#: The number of questions of a kind, and the maximum time for them on one side.
QUESTIONS = 200
SECONDS = 90.0
#: The highest median and 99th percentile over HTTP, in milliseconds.
TARGETS = {"words": (20, 50), "phrase": (20, 50), "equality": (5, 50), "prefix": (5, 50), "range": (5, 50)}
NAMES = {
    "words": "two words, the best 10",
    "phrase": "a phrase of two words, the best 10",
    "equality": "one user of 100,000, the newest 10",
    "prefix": "a prefix of users, the newest 10",
    "range": "a range of a float, the newest 10",
}


def run(root: Path, effort: Effort) -> Iterator[Row]:
    total = effort.scaled(effort.documents, 10_000)
    with directory(root, "search") as base:
        ours = Strandline(base / "data", total)
        sides: list[Side] = [ours, Tantivy(base / "tantivy"), Sqlite(base / "sqlite.db")]
        try:
            yield from _built(ours, sides, total)
            yield from _asked(ours.serve(), sides, total, effort)
        finally:
            for side in sides:
                side.close()


def _built(ours: Strandline, sides: Sequence[Side], total: int) -> Iterator[Row]:
    """All sides index every batch in turn. Their rates are per second of processor time."""
    seconds, raw = dict.fromkeys((side.name for side in sides), 0.0), 0
    for batch in documents(total):
        raw += sum(map(len, batch))
        ours.store(batch)
        for side in sides:
            start = time.process_time()
            side.add(batch)
            seconds[side.name] += time.process_time() - start
    for side in sides:
        start = time.process_time()
        side.finish()
        seconds[side.name] += time.process_time() - start
    of = f"{total:,} documents of {raw / total:.0f} bytes"
    for peer in sides[1:]:
        rates = total / seconds[ours.name], total / seconds[peer.name]
        yield _beside(f"{of}: indexed per second of processor time", "records/s", rates, peer, 100_000)
    for peer in sides[1:]:
        shares = ours.size() / raw * 100, peer.size() / raw * 100
        yield _beside(f"{of}: size of the index, as a share of the documents", "%", shares, peer, 50)


def _beside(name: str, unit: Unit, figures: tuple[float, float], peer: Side, target: float) -> Row:
    mine, other = figures
    return Row(
        group=GROUP,
        name=name,
        unit=unit,
        result=Figure.of([mine]),
        rounds=1,
        peer_is=peer.name,
        peer=Figure.of([other]),
        times_peer=Figure.of([mine / other]),
        target=Target(target, unit),
    )


def _questions(count: int) -> Iterator[list[Question]]:
    words, rng = vocabulary(), np.random.default_rng(11)
    # Words as frequent as in the documents, so that frequent words come up often.
    pairs = [[words[rank] for rank in pair] for pair in Zipf(99).ranks(2 * count).reshape(-1, 2).tolist()]
    yield [Question("words", pair) for pair in pairs]
    yield [Question("phrase", pair) for pair in pairs]
    yield [Question("equality", [f"user-{user}"]) for user in rng.integers(0, USERS, count).tolist()]
    yield [Question("prefix", [f"user-{user}"]) for user in rng.integers(10, 1000, count).tolist()]
    yield [Question("range", [f"{60 + number % 60}.5"]) for number in range(count)]


def _asked(http: Http, sides: Sequence[Side], total: int, effort: Effort) -> Iterator[Row]:
    for questions in _questions(effort.scaled(QUESTIONS, 20)):
        times, hits = {}, {}
        used = http.server.processor_seconds()
        for side in (http, *sides):
            side.ask(questions[0])
            clock = time.perf_counter if side is http else time.process_time
            times[side.name], hits[side.name] = _timed(side, questions, clock)
            if side is http:
                used = (http.server.processor_seconds() - used) / (len(hits[http.name]) + 1)
        kind, served, mine = questions[0].kind, times[http.name], times[sides[0].name]
        name = f"{NAMES[kind]}, of {total:,}"
        for text, value, limit in zip(("p50", "p99"), (served.median, served.high), TARGETS[kind], strict=True):
            yield single(GROUP, f"{name}, over HTTP: {text}", "ms", value, target=Target(limit, "ms"))
        yield single(GROUP, f"{name}, over HTTP: processor time of the server, on average", "ms", used * 1000)
        for peer in sides[1:]:
            _compare(kind, hits[http.name], hits[peer.name], peer)
            other = times[peer.name]
            yield Row(
                group=GROUP,
                name=f"{name}, in process: processor time, p50 (lowest to p99)",
                unit="ms",
                result=mine,
                rounds=len(questions),
                peer_is=peer.name,
                peer=other,
                times_peer=Figure(mine.median / other.median, mine.low / other.low, mine.high / other.high),
            )


def _timed(side: Asked, questions: Sequence[Question], clock: Callable[[], float]) -> tuple[Figure, list[int]]:
    times, hits = [], []
    end = time.monotonic() + SECONDS
    for question in questions:
        start = clock()
        hits.append(side.ask(question))
        times.append((clock() - start) * 1000)
        if time.monotonic() > end:
            print(f"search: {side.name}: {question.kind}: stopped after {len(times)} questions", file=sys.stderr)
            break
    percentiles = quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
    return Figure(percentiles[49], min(times), percentiles[98]), hits


def _compare(kind: str, mine: list[int], others: list[int], peer: Side) -> None:
    """All sides must find the same number of records."""
    different = sum(one != other for one, other in zip(mine, others, strict=False))
    if different:
        print(f"search: {peer.name}: {kind}: {different} questions have another number of hits", file=sys.stderr)

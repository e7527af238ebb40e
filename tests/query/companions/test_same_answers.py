"""Whatever companions of the lake and index files of the data directory cover, and whatever became of the records
since: answers are those there are without."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.companion_lake import CompanionBed, companion_bed
from support.indexed_log import small_files
from support.searched_log import ROOM, encode

from strandline.query.index_files.directory import IndexDirectory
from strandline.query.index_files.indexer import Indexer
from strandline.query.searcher import Searcher

START = 1_767_225_600_000
WORDS = ["red", "green", "gold", "Grün", "greenish", "re", "x1", "x2"]
QUERIES = [
    "status:503",
    "status:>=404",
    'took:<"-1"',
    "took:>=0.5",
    "ok:true",
    "NOT ok:true",
    "has:tag",
    "svc:w*",
    "tag:t1*",
    "tag:t17",
    "red",
    "gre*",
    "note:gre*",
    "web",
    'note:"red green"',
    'note:"green re*"',
    "note:red title:gold",
    "red OR status:200",
    "red gold",
    "-red",
    "note:red AND NOT tag:t1",
    'status:"1208925819614629174706176"',
    "nowhere",
]
SORTS: list[list[str]] = [
    [],
    ["offset:asc"],
    ["status:asc"],
    ["status", "took:asc"],
    ["service", "offset:asc"],
    ["tag:asc"],
    ["at:asc"],
    ["ok", "_score:asc"],
]
GROUPS = [[], ["service"], ["ok"], ["ok", "status"], ["service", "ok", "status"]]


def payload(pick: Random, number: int) -> bytes:
    if pick.random() < 0.05:
        return pick.choice([b"5", b'"text"', b"[1,2]", b"not JSON"])
    document: dict[str, Any] = {
        "at": pick.choice([START + number * 700, START + number * 700, [START, START + 1], None]),
        "status": pick.choice([200, 200, 404, 503, 503, "503", 2**80, -(2**70), None, [404, 200]]),
        "took": pick.choice([0.5, 0.25, 1.75, 1024, -64.5, 3, pick.random() * 100]),
    }
    if pick.random() < 0.8:
        document["service"] = pick.choice(["Api", "web", "db", "wéb"])
    if pick.random() < 0.8:
        document["tags"] = pick.choice([f"t{pick.randrange(400)}", ["t1", f"t{pick.randrange(20)}"], "ignored"])
    if pick.random() < 0.7:
        document["ok"] = pick.choice([True, False, "true"])
    document["note"] = " ".join(pick.choices(WORDS, k=pick.randrange(7)))
    if pick.random() < 0.3:
        document["deep"] = {"title": pick.choice([["red gold", "gold"], "gold", "x1 gold", 7])}
    if pick.random() < 0.5:
        document["p"] = {"count": 2, "sum": 3.5, "min": 1, "max": 2.5, "buckets": {"1": pick.randrange(3), "2": 1}}
    return encode(document)


class Play:
    """One course of events, by chance."""

    def __init__(self, bed: CompanionBed, seed: int) -> None:
        self.bed = bed
        self.pick = Random(seed)
        self.number = 0
        #: Seqs up to here are covered.
        self.covered = 0
        files = IndexDirectory(bed.engine.disk)
        bed.covered = bed.searcher = Searcher(ROOM, [files, bed.shelf])
        self.indexer = Indexer(bed.engine, bed.covered, files, lambda _: (bed.config, bed.versions))
        self.hidden: list[int] = []

    def append(self) -> None:
        count = self.pick.choice([1, 3, 40, 300])
        self.bed.append_raw(*(payload(self.pick, self.number + each) for each in range(count)))
        self.number += count

    def cover(self) -> None:
        head = self.bed.log.head
        if head > self.covered:
            last = self.pick.choice([head, self.pick.randint(self.covered + 1, head)])
            # Sometimes one is left out.
            first = self.covered + 1 if self.pick.random() < 0.8 else self.pick.randint(self.covered + 1, last)
            self.bed.cover((first, last))
            self.covered = last

    def merge(self) -> None:
        entries = sorted(self.bed.listed(), key=lambda entry: entry.info.first)
        for before, behind in pairwise(entries):
            if behind.info.first == before.info.last + 1:
                standing = self.bed.standing() if self.pick.random() < 0.5 else None
                self.bed.merge([before, behind], live=standing)
                return

    def index(self) -> None:
        self.bed.engine.seal()
        self.indexer.work()

    def remove(self) -> None:
        seqs = self.some()
        if seqs:
            self.bed.log.delete(seqs=seqs).wait()

    def hide(self) -> None:
        self.hidden = self.some()
        if self.hidden:
            self.bed.log.hide(seqs=self.hidden).wait()

    def restore(self) -> None:
        if self.hidden:
            self.bed.log.restore(seqs=self.hidden).wait()

    def amend(self) -> None:
        for seq in self.some()[:2]:
            page = self.bed.log.read(seq - 1, 1)
            if page.seqs == [seq]:
                self.bed.log.amend(seq, payload(self.pick, seq)).wait()

    def some(self) -> list[int]:
        head = self.bed.log.head
        return sorted({self.pick.randint(1, head) for _ in range(self.pick.choice([1, 5, 60]))}) if head else []


ACTS = ["append", "append", "cover", "cover", "index", "merge", "remove", "hide", "restore", "amend"]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.lists(st.sampled_from(ACTS), min_size=3, max_size=12))
def test_answers_are_the_same_with_companions_and_without(
    monkeypatch: pytest.MonkeyPatch, seed: int, acts: list[str]
) -> None:
    small_files(monkeypatch)
    with TemporaryDirectory() as path, companion_bed(Path(path)) as logs:
        play = Play(logs, seed)
        for act in ["append", *acts]:
            getattr(play, act)()
            if play.pick.random() < 0.3:
                compare(logs, play.pick, 2)
        compare(logs, play.pick, 8)


def compare(logs: CompanionBed, pick: Random, count: int) -> None:
    for _ in range(count):
        query, sort, size = pick.choice(QUERIES), pick.choice(SORTS), pick.choice([3, 50, 500])
        found = searched(logs, query, sort, size)
        with logs.without_companions():
            assert alike(searched(logs, query, sort, size), found), (query, sort, size)
    for _ in range(count // 2):
        body = aggregation(pick)
        groups = aggregated(logs, body)
        with logs.without_companions():
            assert alike(aggregated(logs, body), groups), body


def searched(logs: CompanionBed, query: str, sort: list[str], size: int) -> Any:
    result = logs.search(query, sort=sort, size=size)
    assert result.coverage.complete
    hits = [(hit.seq, hit.score, hit.fields) for hit in result.hits]
    return hits, logs.pages(query, sort=sort, size=size) if size > 3 else ()


def aggregation(pick: Random) -> dict[str, Any]:
    first = START + pick.choice([0, -5000, 1000, pick.randrange(-3000, 60_000)])
    end = first + pick.choice([1, 1000, 60_000, 10_000_000, pick.randrange(1, 300_000)])
    rollup = pick.choice(["requests", "requests", "parts"])
    body = {"rollup": rollup, "from": first, "to": end, "interval": "1s"}
    if rollup == "requests":
        body |= {"interval": pick.choice(["1s", "1m"]), "group_by": pick.choice(GROUPS)}
        if pick.random() < 0.4:
            body["measures"] = pick.choice([["requests"], ["errors", "latency"], ["codes"]])
    elif pick.random() < 0.5:
        body["group_by"] = ["service"]
    if pick.random() < 0.2:
        body["q"] = pick.choice(["red", "status:200"])
    return body


def aggregated(logs: CompanionBed, body: dict[str, Any]) -> Any:
    result = logs.aggregate(**body)
    assert result.coverage.complete
    return [
        (bucket.start_ms, bucket.end_ms, [(group.key, group.measures) for group in bucket.groups])
        for bucket in result.buckets
    ]


def alike(one: Any, other: Any) -> bool:
    """Equal, but for the rounding of floats."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, float) or isinstance(other, float):
        return bool(one == pytest.approx(other, rel=1e-9, abs=1e-9))
    return bool(one == other)

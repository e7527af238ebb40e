"""An index: brought up to date by whoever asks, one at a time, never wrong for anybody."""

from __future__ import annotations

import threading
from itertools import pairwise
from time import perf_counter

import msgspec
import numpy as np
import pytest
from support.searched_log import CONFIG, PATIENCE_SECONDS, Bed

from strandline.query import index as indexing
from strandline.query.chunk import Chunk
from strandline.query.index import Index, plan_of

VERSIONS = [(1, 1)]


def index_of(logs: Bed) -> Index:
    return Index(logs.log, plan_of(CONFIG))


def cover(index: Index, logs: Bed) -> indexing.Cover:
    return index.cover(VERSIONS, logs.log.head, perf_counter() + PATIENCE_SECONDS)[0]


def test_chunks_are_few_and_have_every_record_once(logs: Bed) -> None:
    index = index_of(logs)
    for number in range(300):
        logs.append({"status": number})
        found = cover(index, logs)
        assert len(found.chunks) <= 10
    assert np.concatenate([chunk.seqs for chunk in found.chunks]).tolist() == list(range(1, 301))
    sizes = [len(chunk) for chunk in found.chunks]
    assert all(one > 2 * next_one for one, next_one in pairwise(sizes))


def test_chunks_do_not_grow_without_end(logs: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "MAX_CHUNK_ROWS", 50)
    monkeypatch.setattr(indexing, "BATCH_ROWS", 20)
    logs.append(*[{"status": number} for number in range(333)])
    found = cover(index_of(logs), logs)
    assert max(len(chunk) for chunk in found.chunks) <= 50
    assert sum(len(chunk) for chunk in found.chunks) == 333


def test_only_what_is_new_is_read(logs: Bed) -> None:
    index = index_of(logs)
    logs.append({"status": 1}, {"status": 2})
    assert index.cover(VERSIONS, 2, perf_counter() + PATIENCE_SECONDS)[1].records == 2
    assert index.cover(VERSIONS, 2, perf_counter() + PATIENCE_SECONDS)[1].records == 0
    logs.append({"status": 3})
    assert index.cover(VERSIONS, 3, perf_counter() + PATIENCE_SECONDS)[1].records == 1


def test_what_was_indexed_before_the_time_was_up_stays(logs: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "BATCH_ROWS", 10)
    logs.append(*[{"status": number} for number in range(35)])
    ticks = iter(range(1000))
    monkeypatch.setattr(indexing, "perf_counter", lambda: next(ticks))
    index = index_of(logs)
    reached = []
    for _ in range(20):
        found, progress = index.cover(VERSIONS, 35, next(ticks) + 4)
        reached.append(found.through)
        assert progress.records <= 20
    assert reached == sorted(reached)
    assert 0 < reached[0] < 35
    assert reached[-1] == 35


def test_somebody_who_cannot_wait_for_the_one_at_work_gets_what_there_is(logs: Bed) -> None:
    index = index_of(logs)
    logs.append({"status": 1})
    cover(index, logs)
    logs.append({"status": 2})
    with index._extending:
        found, progress = index.cover(VERSIONS, 2, perf_counter() - 1)
    assert (found.through, progress.records) == (1, 0)


def test_searches_while_records_are_appended_find_all_that_was_there_when_they_began(logs: Bed) -> None:
    total, errors, done = 400, [], threading.Event()

    def search() -> None:
        try:
            while not done.is_set():
                before = logs.log.head
                result = logs.search("has:status", sort=["offset:asc"], size=500)
                seqs = [hit.seq for hit in result.hits]
                assert seqs == list(range(1, len(seqs) + 1))
                assert len(seqs) >= before
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(0, total, 4):
        logs.append(*[{"status": number + each, "note": f"word{number}"} for each in range(4)])
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(logs.seqs("has:status", size=500)) == total


def test_the_plan_is_what_is_indexed_and_nothing_else() -> None:
    plan = plan_of(CONFIG)
    names = [field.name for field in plan.fields]
    assert names[: len(CONFIG.fields)] == sorted(CONFIG.fields)
    assert names[len(CONFIG.fields) :] == ["=/p/count", "=/p/max", "=/p/min", "=/p/sum"]
    assert plan.histograms == ("/p/buckets",)
    assert hash(plan) == hash(plan_of(CONFIG))


def test_a_log_that_evicts_is_not_indexed_anew(logs: Bed) -> None:
    log = logs.log
    log.configure(msgspec.structs.replace(log.config, cap_records=10)).wait()
    index = index_of(logs)
    for number in range(1, 41):
        logs.append({"status": number})
        found, progress = index.cover(VERSIONS, log.head, perf_counter() + PATIENCE_SECONDS)
        assert progress.records == 1
        rows = [seq for chunk in found.chunks for seq, gone in zip(chunk.seqs, marks(chunk), strict=True) if not gone]
        assert rows == list(range(max(1, number - 9), number + 1))
    assert sum(len(chunk) for chunk in found.chunks) < 40


def marks(chunk: Chunk) -> list[bool]:
    return [False] * len(chunk) if chunk.gone is None else chunk.gone.tolist()

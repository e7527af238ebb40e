from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import fill, make, opened

from strandline.engine import Batch, Log
from strandline.engine.errors import UnknownLog
from strandline.engine.reads.keys import KeyCount, key_counts_of, keys_of
from strandline.engine.segments import segment
from strandline.engine.segments.segment import Segment

KEYS = ["a", "aa", "b", "ß", "\U0001f600", "z:1", "z:2"]
keys = st.none() | st.sampled_from(KEYS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(keys, min_size=1, max_size=6)),
        st.tuples(st.sampled_from(["delete", "hide"]), st.sampled_from(KEYS)),
        st.tuples(st.just("delete before"), st.integers(1, 20)),
        st.tuples(st.sampled_from(["seal", "fork", "merge"]), st.none()),
    ),
    max_size=14,
)


def paged(log: Log, limit: int) -> Iterator[str]:
    after: str | None = None
    while True:
        page = keys_of(log, after, limit)
        yield from page.keys
        if not page.has_more:
            return
        after = page.keys[-1]


def counted(log: Log, limit: int) -> Iterator[tuple[str, KeyCount]]:
    after: str | None = None
    while page := key_counts_of(log, after, limit):
        yield from page
        after = page[-1][0]


def reference(records: list[tuple[str, int]]) -> list[tuple[str, KeyCount]]:
    by_key: dict[str, list[int]] = {}
    for key, seq in records:
        by_key.setdefault(key, []).append(seq)
    return [(key, KeyCount(len(seqs), seqs[-1])) for key, seqs in sorted(by_key.items())]


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, 4))
def test_they_are_those_of_the_records_that_readers_see(steps: list[tuple[str, object]], limit: int) -> None:
    with TemporaryDirectory() as path, opened(Path(path)) as engine:
        log, other = make(engine), make(engine, "b")
        for number, (what, value) in enumerate(steps):
            if what == "append":
                assert isinstance(value, list)
                log.append(Batch([b"x"] * len(value), value)).wait()
                other.append(Batch([b"y"], ["other"])).wait()
            elif what == "delete before":
                assert isinstance(value, int)
                log.delete(before=value).wait()
            elif what in ("delete", "hide"):
                getattr(log, what)(key=value).wait()
            elif what == "seal":
                engine.seal()
            elif what == "merge":
                engine.maintain()
            else:
                log = engine.fork(f"fork{number}", log, log.head // 2).wait()
        seen = {record.key for record in log.read(limit=1000) if record.key is not None}
        assert list(paged(log, limit)) == sorted(seen)
        records = [(record.key, record.seq) for record in log.read(limit=1000) if record.key is not None]
        assert list(counted(log, limit)) == reference(records)


def test_what_was_looked_at_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, "1", "2", key="a")
        engine.seal()
        fill(log, "3", key="b")
        page = keys_of(log, None, 10)
        assert (page.keys, page.has_more, page.segments, page.tail_records) == (["a", "b"], False, 1, 1)


def test_a_key_with_very_many_records_is_passed_in_a_few_steps(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="memory")
        log.append(Batch([b"x"] * 40_000, ["b"] * 40_000)).wait()
        log.append(Batch([b"x"] * 3, ["a", "c", None])).wait()
        engine.seal()
        assert keys_of(log, None, 10).keys == ["a", "b", "c"]
        assert keys_of(log, "a", 10).keys == ["b", "c"]
        assert keys_of(log, "bb", 10).keys == ["c"]
        assert keys_of(log, "c", 10).keys == []


@pytest.mark.parametrize("scanned", [1, segment.SCANNED_BLOCKS])
def test_keys_over_many_blocks_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scanned: int) -> None:
    monkeypatch.setattr(segment, "SCANNED_BLOCKS", scanned)
    monkeypatch.setattr(segment, "KEPT_BLOCKS", 2)
    chance = Random(1)
    # Some keys have rows in every block, some in one, and of some all rows follow those of the key before them.
    names = [chance.choice([*(["many"] * 20), f"some{chance.randrange(50)}", None]) for _ in range(3_000)]
    names += [f"then{number // 7:02}" for number in range(500)]
    with opened(tmp_path) as engine:
        log, other = make(engine, durability="memory"), make(engine, "b")
        for start in range(0, len(names), 100):
            log.append(Batch([b"x" * 1_000] * len(names[start : start + 100]), names[start : start + 100])).wait()
            other.append(Batch([b"y"], ["other"])).wait()
        engine.seal()
        records = [(key, seq) for seq, key in enumerate(names, 1) if key is not None]
        assert list(counted(log, 7)) == reference(records)
        log.delete(before=1_500).wait()
        assert list(counted(log, 7)) == reference([(key, seq) for key, seq in records if seq >= 1_500])


def test_a_page_reads_the_blocks_of_its_keys_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    batch = Segment.batch

    def noted(self: Segment, index: int, columns: tuple[str, ...]) -> Any:
        read.append(index)
        return batch(self, index, columns)

    monkeypatch.setattr(Segment, "batch", noted)
    chance = Random(1)
    with opened(tmp_path) as engine:
        log = make(engine, durability="memory")
        for _ in range(100):
            keys = [f"customer-{chance.randrange(1_000)}" for _ in range(500)]
            log.append(Batch([b"x" * 1_000] * len(keys), keys)).wait()
        engine.seal()
        blocks = len(engine.store.segment(log.book.runs[0].segment).blocks)
        assert blocks > 150
        read.clear()
        assert len(key_counts_of(log, None, 50)) == 50
        assert len(read) == len(set(read)) < blocks / 4


def test_a_dropped_log_has_none(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.drop().wait()
        with pytest.raises(UnknownLog):
            keys_of(log, None, 10)

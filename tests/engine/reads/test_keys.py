from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import fill, make, opened

from strandline.engine import Batch, Log
from strandline.engine.errors import UnknownLog
from strandline.engine.reads.keys import keys_of

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


def test_a_dropped_log_has_none(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.drop().wait()
        with pytest.raises(UnknownLog):
            keys_of(log, None, 10)

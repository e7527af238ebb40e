"""Reading a log from its end, finding the last record of a key, and finding a time."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import NOW, fill, make, opened

from strandline.engine import Batch, Engine, Log, ManualClock, Options
from strandline.engine.errors import BadRequest

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9)),
        st.tuples(st.just("hide"), st.lists(st.integers(1, 40), min_size=1, max_size=6)),
        st.tuples(st.just("delete"), st.lists(st.integers(1, 40), min_size=1, max_size=6)),
        st.tuples(st.just("cut"), st.integers(1, 20)),
        st.tuples(st.just("amend"), st.integers(1, 40)),
        st.tuples(st.just("seal"), st.none()),
        st.tuples(st.just("fork"), st.integers(0, 40)),
    ),
    max_size=14,
)


def play(engine: Engine, actions: list) -> Log:
    log, forks = make(engine, "log"), 0
    for what, value in actions:
        if what == "append":
            log.append(Batch([b"%d" % (log.next_seq + at) for at in range(value)], keys=[str(value)] * value)).wait()
        elif what == "hide":
            log.hide(seqs=value).wait()
        elif what == "delete":
            log.delete(seqs=value).wait()
        elif what == "cut":
            log.delete(before=value).wait()
        elif what == "amend" and value in log.read(limit=1000).seqs:
            if log.base is None or value > log.base[1]:
                log.amend(value, b"amended %d" % value).wait()
        elif what == "seal":
            engine.seal()
        elif what == "fork":
            forks += 1
            log = engine.fork(f"fork {forks}", log, min(value, log.head)).wait()
    return log


@settings(deadline=None, max_examples=120)
@given(actions=ACTIONS, limit=st.integers(1, 12), budget=st.none() | st.integers(1, 40))
def test_pages_from_the_end_are_the_log_backwards(actions: list, limit: int, budget: int | None) -> None:
    with TemporaryDirectory() as directory, opened(Path(directory)) as engine:
        log = play(engine, actions)
        whole = list(log.read(limit=1000))
        found: list = []
        before = None
        while True:
            page = log.read_back(before, limit, max_bytes=budget)
            records = list(page)
            assert len(records) <= limit
            assert budget is None or len(records) <= 1 or sum(len(record.data) for record in records) <= budget
            assert page.caught_up or records, "an empty page ends it"
            found = records + found
            if page.caught_up:
                break
            before = records[0].seq
        assert found == whole
        for key in {record.key for record in whole}:
            assert key is not None
            last = log.find_key(key)
            assert last is not None
            assert last >= max(record.seq for record in whole if record.key == key)


def test_a_hidden_record_is_found_by_its_key_and_a_deleted_one_is_not(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log")
        log.append(Batch([b"1", b"2", b"3"], keys=["a", "b", "a"])).wait()
        for _ in range(2):
            assert (log.find_key("a"), log.find_key("b"), log.find_key("c")) == (3, 2, None)
            assert log.find_key_resident("c") == (True, None)
            engine.seal()
        log.hide(seqs=[3]).wait()
        assert log.find_key("a") == 3
        log.delete(seqs=[3]).wait()
        assert log.find_key("a") == 1
        log.delete(before=3).wait()
        assert log.find_key("a") is None


def test_what_is_on_the_disk_is_not_waited_for_unless_asked(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log")
        log.append(Batch([b"1", b"2"], keys=["a", "b"])).wait()
        engine.seal()
    with opened(tmp_path) as engine:
        log = engine.log("log")
        assert log.read_back_resident() is None
        assert log.find_key_resident("a") == (False, None)
        assert log.read_back(limit=1).data == [b"2"]
        assert log.find_key("a") == 1


def test_an_empty_log_has_an_empty_page(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        page = make(engine, "log").read_back()
        assert (len(page), page.caught_up) == (0, True)
        assert make(engine, "other").last_ts == 0


@pytest.mark.parametrize(("before", "limit", "budget"), [(-1, 1, None), (None, 0, None), (None, 1, 0)])
def test_what_cannot_be_asked_is_refused(tmp_path: Path, before: int | None, limit: int, budget: int | None) -> None:
    with opened(tmp_path) as engine, pytest.raises(BadRequest):
        make(engine, "log").read_back(before, limit, max_bytes=budget)


def test_a_time_is_found_in_a_long_sealed_log_with_a_look_at_few_blocks(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with Engine.open(tmp_path, Options(), clock=clock, background=False) as engine:
        log = make(engine, "log")
        for at in range(200):
            log.append(Batch([b"x" * 1000] * 100), ts=NOW + at).wait()
        engine.seal()
    with Engine.open(tmp_path, Options(), clock=clock, background=False) as engine:
        log = engine.log("log")
        loaded: list[int] = []
        load = engine.store.load
        engine.store.load = lambda id, index: loaded.append(index) or load(id, index)  # type: ignore[method-assign]
        page = log.read(since=NOW + 150, limit=10)
        assert (page.seqs[0], page.ts[0]) == (15_001, NOW + 150)
        assert len(set(loaded)) < 12
        blocks = len(engine.store.segment(next(iter(engine.store.ids()))).blocks)
        assert blocks > 40
    with Engine.open(tmp_path, Options(), clock=clock, background=False) as engine:
        log = engine.log("log")
        fill(log, "new")
        assert [log.read(since=NOW + at, limit=1).seqs for at in (0, 1, 199)] == [[1], [101], [19_901]]


def test_hiding_and_restoring_a_long_sealed_log_loads_next_to_nothing_of_it(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log")
        for _ in range(20):
            log.append(Batch([b"x" * 1000] * 500, metas=[b"meta"] * 500)).wait()
        engine.seal()
        size = log.state().size
        loaded: list[int] = []
        load = engine.store.load
        engine.store.load = lambda id, index: loaded.append(index) or load(id, index)  # type: ignore[method-assign]
        assert log.hide(before=log.next_seq).wait().size == size
        assert log.restore(before=log.next_seq).wait().size == size
        log.amend(7, b"other").wait()
        assert log.hide(before=9_000).wait().count == 8_999
        assert log.restore(seqs=[7]).wait().size == len(b"othermeta")
        assert log.state().size == 1_001 * 1004 + len(b"othermeta")
        assert len(set(loaded)) <= 3

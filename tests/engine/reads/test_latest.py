"""The last record of every key: found after anything that can happen to a log, and right for whoever reads on."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Batch, Engine, Log, ManualClock, Options, Record
from strandline.engine.errors import UnknownLog
from strandline.engine.reads import latest as module
from strandline.engine.reads.latest import Latests
from strandline.engine.segments import writer


def put(log: Log, *pairs: str) -> None:
    """``a=1``: a record with the key a and the data 1; ``1``: one without a key."""
    for pair in pairs:
        key, _, data = pair.rpartition("=")
        log.append(Batch.of(data.encode(), key=key or None)).wait()


def latest(log: Log, **query: object) -> list[str]:
    return [record.data.decode() for record in log.read_latest(**query)]  # type: ignore[arg-type]


def test_only_the_last_record_of_each_key_is_read_in_order(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        put(log, "a=1", "b=2", "none", "a=3", "c=4", "b=5")
        for _ in range(3):
            assert latest(log) == ["3", "4", "5"]
            engine.seal()
        put(log, "c=6", "more")
        assert latest(log) == ["3", "5", "6"]
        page = log.read_latest()
        assert (page.next_after, page.head, page.caught_up) == (8, 8, True)
    with opened(tmp_path) as engine:
        assert latest(engine.log("a")) == ["3", "5", "6"]


def test_a_log_without_keys_has_no_last_records(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        assert latest(log) == []
        fill(log, "1", "2")
        page = log.read_latest()
        assert (list(page), page.next_after, page.caught_up) == ([], 2, True)


def test_when_the_last_record_goes_the_one_before_it_is_the_last(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        put(log, "a=1", "a=2", "b=3", "a=4")
        for sealed in (False, True):
            if sealed:
                engine.seal()
            assert latest(log) == ["3", "4"]
            log.hide(seqs=[4]).wait()
            assert latest(log) == ["2", "3"]
            log.restore(seqs=[4]).wait()
        log.delete(seqs=[4]).wait()
        assert latest(log) == ["2", "3"]
        log.delete(key="a").wait()
        assert latest(log) == ["3"]


def test_what_caps_and_time_take_is_gone_and_told(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, ttl_ms=100)
        put(log, "a=1", "b=2")
        assert latest(log) == ["1", "2"]
        clock.advance(80)
        put(log, "b=3")
        clock.advance(80)
        page = log.read_latest()
        assert [record.data for record in page] == [b"3"]
        assert page.tombstone is not None
        assert page.tombstone.reason == "ttl"
        put(log, "a=4")
        assert latest(log) == ["3", "4"]


def test_amended_data_is_read(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        put(log, "a=1", "b=2")
        assert latest(log) == ["1", "2"]
        log.amend(1, b"other").wait()
        assert latest(log) == ["other", "2"]


def test_filters_choose_among_the_last_records(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        put(log, "a=1", "ab=2", "b=3", "a=4", "ab=5")
        assert latest(log, key="a") == ["4"]
        assert latest(log, key="b") == ["3"]
        assert latest(log, key="nobody") == []
        assert latest(log, key_prefix="a") == ["4", "5"]
        assert latest(log, after=3) == ["4", "5"]
        log.append(Batch([b"6"], ["b"], ["n"])).wait()
        assert latest(log, without_nodes=["n"]) == ["4", "5"]


def test_a_fork_has_the_last_records_of_both_parts(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = make(engine, "source")
        put(source, "a=1", "b=2", "c=3")
        fork = engine.fork("fork", source, 2).wait()
        put(fork, "a=own", "d=4")
        put(source, "a=later")
        assert latest(fork) == ["2", "own", "4"]
        engine.seal()
        put(fork, "e=5")
        assert latest(fork) == ["2", "own", "4", "5"]
        source.delete(seqs=[2]).wait()
        assert latest(fork) == ["own", "4", "5"]


def test_what_is_known_is_kept_up_without_a_second_look_at_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        put(log, *(f"k{n}={n}" for n in range(50)))
        engine.seal()
        assert len(latest(log)) == 50
        put(log, "k7=new", "k99=new")
        changes = (lambda: put(log, "k8=new"), lambda: log.delete(before=5).wait(), lambda: log.delete(seqs=[8]).wait())
        for change, count in zip(changes, (51, 47, 47), strict=True):
            change()
            with monkeypatch.context() as patch:
                patch.setattr(engine.store, "segment", lambda id: pytest.fail("looked again"))
                assert len(engine.latests.of(log).seqs) == count


def test_a_reader_on_an_event_loop_does_not_wait(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        put(log, "a=1", "a=2")
        assert log.read_latest_resident() is None
        log.read_latest()
        page = log.read_latest_resident()
        assert page is not None
        assert page.seqs == [2]
        put(log, "b=3")
        assert log.read_latest_resident() is None


def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        latests = Latests(max_bytes=1)
        logs = [make(engine, name) for name in "abc"]
        for log in logs:
            put(log, "k=1")
            latests.of(log)
        assert [latests.resident(log) is None for log in logs] == [True, True, False]


def test_large_logs_are_gone_through_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_RECORDS", 3)
    monkeypatch.setattr(writer, "BLOCK_ROWS", 4)
    with opened(tmp_path) as engine:
        log = make(engine)
        for count in (20, 7, 1, 30):
            data = [b"%d" % number for number in range(count)]
            log.append(Batch(data, [f"k{number % 9}" if number % 4 else None for number in range(count)])).wait()
            engine.seal()
        expected = {record.key: record.seq for record in log.read() if record.key is not None}
        assert engine.latests.of(log).seqs.tolist() == sorted(expected.values())


def test_a_dropped_log_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        put(log, "a=1")
        log.read_latest()
        log.drop().wait()
        for read in (log.read_latest, log.read_latest_resident):
            with pytest.raises(UnknownLog):
                read()


# --- the law -------------------------------------------------------------------------------------------------------

keys = st.sampled_from(["a", "b", "c", "d", None])
appends = st.lists(keys, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    begin=st.lists(keys, max_size=20),
    meanwhile=st.lists(st.tuples(appends, st.booleans(), st.booleans()), max_size=12),
    limit=st.integers(1, 3),
)
def test_whoever_reads_on_plainly_has_the_last_value_of_every_key(
    begin: list[str | None],
    meanwhile: list[tuple[list[str | None], bool, bool]],
    limit: int,
) -> None:
    """No matter what is appended, sealed and compacted between any two pages."""
    path = Path(mkdtemp())
    engine = Engine.open(path, Options(compact_after_ms=0), clock=ManualClock(NOW), background=False)
    log = make(engine, compact=True)
    put(log, *(f"{key or ''}={number}" for number, key in enumerate(begin)))
    table: dict[str, bytes] = {}
    after, in_view, written = 0, True, len(begin)

    def take(records: list[Record]) -> None:
        table.update({record.key: record.data for record in records if record.key is not None})

    for batch, seal, compact in [*meanwhile, ([], False, False)]:
        page = log.read_latest(after, limit) if in_view else log.read(after, limit)
        take(list(page))
        after, in_view = page.next_after, in_view and not page.caught_up
        for key in batch:
            put(log, f"{key or ''}={written}")
            written += 1
        if seal:
            engine.seal()
        if compact:
            engine.compact()
    while in_view:
        page = log.read_latest(after, limit)
        take(list(page))
        after, in_view = page.next_after, not page.caught_up
    page = log.read(after, 1000)
    take(list(page))
    assert page.caught_up
    assert table == {record.key: record.data for record in log.read(0, 1000) if record.key is not None}
    assert texts(log, after=after) == [record.data.decode() for record in page]
    engine.close()

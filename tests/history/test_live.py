from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.engine import Batch, Config, Engine, Log, ManualClock, Options
from strandline.engine.errors import UnknownLog
from strandline.history import live
from strandline.history.live import sweep
from strandline.history.pieces import EVERYTHING, Where, projected
from strandline.history.record_schema import RECORDS

NOW = 1_700_000_000_000
COLUMNS = ("seq", "key", "node", "meta", "data")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path, clock=ManualClock(NOW), background=False) as engine:
        yield engine


def rows(log: Log, after: int = 0, through: int | None = None, where: Where = EVERYTHING, **sizes: int) -> list[Any]:
    found: list[Any] = []
    for batch in sweep(log, after, log.head if through is None else through, where, **sizes):
        assert batch.schema == RECORDS
        batch.validate(full=True)
        assert 0 < batch.num_rows <= sizes.get("batch_rows", 1 << 20)
        assert set(batch.column("log").to_pylist()) == {log.name}
        assert set(batch.column("epoch").to_pylist()) == {log.epoch}
        found += zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
    return found


def read(log: Log, **query: Any) -> list[Any]:
    """The same, one record after the other."""
    page = log.read(limit=10_000, **query)
    return list(zip(page.seqs, page.keys, page.nodes, page.metas, page.data, strict=True))


def test_sealed_records_and_those_in_memory_come_in_order(engine: Engine) -> None:
    log = engine.create("log").wait()
    for number in range(6):
        log.append(Batch([b"%d" % number] * 3, keys=["a", None, "b"], metas=[None, b"m", b""])).wait()
        if number in (1, 3):
            engine.seal()
    log.append(Batch([b"last"], nodes=["n"])).wait()
    assert rows(log) == read(log)
    assert rows(log, batch_rows=2) == read(log)
    assert rows(log, after=4, through=11, batch_rows=1) == [row for row in read(log) if 4 < row[0] <= 11]
    assert rows(log, after=19) == []


def test_times_are_microseconds_and_bound_what_is_read(engine: Engine) -> None:
    log = engine.create("log").wait()
    for number in range(4):
        log.append(Batch([b"x", b"y"]), ts=NOW + number * 10).wait()
        if number == 1:
            engine.seal()
    table = pa.Table.from_batches(list(sweep(log, 0, log.head)))
    assert table.column("ts").cast(pa.int64()).to_pylist() == [
        (NOW + number * 10) * 1000 for number in range(4) for _ in "xy"
    ]
    assert [row[0] for row in rows(log, where=Where(since=NOW + 10, until=NOW + 30))] == [3, 4, 5, 6]
    assert [row[0] for row in rows(log, where=Where(since=NOW + 11))] == [5, 6, 7, 8]
    assert rows(log, where=Where(until=NOW)) == []
    assert [row[0] for row in rows(log, after=3, where=Where(until=NOW + 11))] == [4]


def test_a_batch_is_bounded_by_bytes_but_for_a_record_that_is_larger(engine: Engine) -> None:
    log = engine.create("log").wait()
    log.append(Batch([b"x" * 1000] * 50)).wait()
    log.append(Batch([b"y" * 9000])).wait()
    for _ in range(2):
        sizes = [batch.num_rows for batch in sweep(log, 0, log.head, batch_bytes=5000)]
        assert sum(sizes) == 51
        assert max(sizes) <= 51
        engine.seal()
    assert [batch.num_rows for batch in sweep(log, 0, log.head, batch_rows=20)] == [20, 20, 11]


def test_what_is_deleted_hidden_or_amended_is_as_readers_see_it(engine: Engine) -> None:
    log = engine.create("log").wait()
    for part in range(2):
        log.append(Batch([b"%d" % part] * 10)).wait()
        log.delete(seqs=[part * 10 + seq for seq in (1, 4, 5)]).wait()
        log.hide(seqs=[part * 10 + 7]).wait()
        log.amend(part * 10 + 8, b"changed").wait()
        assert rows(log) == read(log)
        engine.seal()
        assert rows(log) == read(log)
    log.delete(seqs=[12]).wait()
    log.amend(13, b"late").wait()
    assert rows(log, batch_rows=4) == read(log)


def test_a_fork_has_what_it_shares_under_its_own_name(engine: Engine) -> None:
    source = engine.create("source").wait()
    source.append(Batch([b"1", b"2", b"3"])).wait()
    fork = engine.fork("fork", source, 2).wait()
    fork.append(Batch([b"own"])).wait()
    engine.seal()
    source.delete(seqs=[1]).wait()
    assert [(row[0], row[-1]) for row in rows(fork)] == [(2, b"2"), (3, b"own")]


def test_a_key_is_found_through_its_index(engine: Engine) -> None:
    log = engine.create("log").wait()
    for number in range(4):
        log.append(Batch([b"%d" % number] * 3, keys=["a", "b", None])).wait()
        if number == 1:
            engine.seal()
    assert rows(log, where=Where(key="b")) == read(log, key="b")
    assert [row[0] for row in rows(log, after=2, through=8, where=Where(key="b"))] == [5, 8]
    assert rows(log, where=Where(key="absent")) == []


def test_what_is_merged_meanwhile_is_found_where_it_is_now(engine: Engine) -> None:
    log = engine.create("log").wait()
    for number in range(3):
        log.append(Batch([b"%d" % number] * 4)).wait()
        engine.seal()
    expected = read(log)
    segments = {run.segment for run in log.book.runs}
    batches = sweep(log, 0, log.head, batch_rows=2)
    found = next(batches).column("seq").to_pylist()
    log.append(Batch([b"3"])).wait()
    for _ in range(3):
        engine.seal()
        engine.maintain()
        log.append(Batch([b"more"])).wait()
    assert not segments & {run.segment for run in log.book.runs}
    for batch in batches:
        found += batch.column("seq").to_pylist()
    assert found == [row[0] for row in expected]


def test_a_log_that_is_dropped_meanwhile_is_not_read_on(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_SEQS", 2)
    log = engine.create("log").wait()
    log.append(Batch([b"x"] * 10)).wait()
    batches = sweep(log, 0, 10, batch_rows=2)
    next(batches)
    log.drop().wait()
    with pytest.raises(UnknownLog):
        next(batches)


def test_what_time_has_taken_is_not_there(engine: Engine) -> None:
    log = engine.create("log", Config(ttl_ms=1000)).wait()
    log.append(Batch([b"old"]), ts=NOW - 900).wait()
    log.append(Batch([b"new"])).wait()
    clock = engine._clock
    assert isinstance(clock, ManualClock)
    clock.advance(200)
    assert [row[-1] for row in rows(log)] == [b"new"]


SEQS = st.lists(st.integers(1, 40), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 8)),
        st.tuples(st.sampled_from(["delete", "hide", "restore"]), SEQS),
        st.tuples(st.just("before"), st.integers(1, 20)),
        st.tuples(st.just("amend"), st.integers(1, 40)),
        st.tuples(st.just("seal"), st.none()),
    ),
    max_size=14,
)


def act(engine: Engine, log: Log, what: str, argument: Any) -> None:
    if what == "append":
        keys = [("a", None, "b")[row % 3] for row in range(argument)]
        log.append(Batch([b"%d" % row for row in range(argument)], keys=keys)).wait()
    elif what == "seal":
        engine.seal()
    elif what == "before":
        log.delete(before=argument).wait()
    elif what != "amend":
        getattr(log, what)(seqs=argument).wait()
    elif log.book.has(argument, engine.store):
        log.amend(argument, b"amended").wait()


@given(
    steps=STEPS,
    capped=st.sampled_from([0, 12]),
    after=st.integers(0, 10),
    through=st.integers(0, 40),
    batch_rows=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_it_is_what_readers_get(
    steps: list[tuple[str, Any]], capped: int, after: int, through: int, batch_rows: int
) -> None:
    with TemporaryDirectory() as path, Engine.open(path, Options(), clock=ManualClock(NOW), background=False) as engine:
        log = engine.create("log", Config(cap_records=capped)).wait()
        for what, argument in steps:
            act(engine, log, what, argument)
        through = min(through, log.head)
        expected = [row for row in all_of(log) if after < row[0] <= through]
        assert rows(log, after, through, batch_rows=batch_rows) == expected
        of_key = [row for row in expected if row[1] == "a"]
        assert rows(log, after, through, Where(key="a"), batch_rows=batch_rows) == of_key


def all_of(log: Log) -> list[Any]:
    """A page ends where records are lost."""
    found: list[Any] = []
    after = 0
    while after < log.head:
        page = log.read(after, 10_000)
        found += zip(page.seqs, page.keys, page.nodes, page.metas, page.data, strict=True)
        after = page.next_after
    return found


def test_columns_can_be_left_out_wherever_the_records_are(engine: Engine) -> None:
    log = engine.create("log").wait()
    for number in range(4):
        log.append(Batch([b"%d" % number, b"x"], keys=["a", None], nodes=[None, "n"], metas=[b"m", None])).wait()
        if number == 1:
            engine.seal()
    log.amend(2, b"amended").wait()
    everything = [row for batch in sweep(log, 0, 8) for row in batch.to_pylist()]
    for where in (EVERYTHING, Where("a"), Where(since=NOW, until=NOW + 1)):
        whole = [row for batch in sweep(log, 0, 8, where) for row in batch.to_pylist()]
        assert whole == [row for row in everything if where.key in (None, row["key"])]
        for columns in (["seq"], ["key", "log"], ["ts", "seq"], ["data", "epoch"], ["meta"], ["node"], RECORDS.names):
            schema = projected(columns)
            found = [row for batch in sweep(log, 0, 8, where, schema=schema) for row in batch.to_pylist()]
            assert found == [{name: row[name] for name in schema.names} for row in whole]
    with pytest.raises(ValueError, match="unknown column 'payload'; the columns of records are log, epoch"):
        projected(["seq", "payload"])

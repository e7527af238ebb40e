from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command_line import app
from support.file_systems import read_only
from typer.testing import CliRunner

from strandline.engine import Batch, Config, Engine, Log, Options
from strandline.engine.errors import NoDataDirectory, UnknownLog
from strandline.engine.reads.directory_view import VIEWS
from strandline.history.directory import DirectoryHistory, KnownLogs
from strandline.history.pieces import SegmentPiece, Where
from strandline.history.record_schema import RECORDS


def rows_of(history: DirectoryHistory, name: str, **kwargs: Any) -> list[tuple[int, str | None, bytes]]:
    """What the pieces of a log hold, after they went through the form in which they travel."""
    log = history.log(name)
    found = []
    last = 0
    for piece in history.pieces(log, kwargs.pop("after", 0), kwargs.pop("through", log.head), 3, **kwargs):
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(piece), type=SegmentPiece)
        assert again == piece
        assert piece.first > last
        last = piece.last
        for batch in again.read(batch_rows=2):
            assert batch.schema == RECORDS
            batch.validate(full=True)
            assert batch.num_rows <= 2
            assert set(batch.column("log").to_pylist()) <= {name}
            assert set(batch.column("epoch").to_pylist()) <= {log.epoch}
            found += zip(*(batch.column(each).to_pylist() for each in ("seq", "key", "data")), strict=True)
    return found


def as_read(log: Log) -> list[tuple[int, str | None, bytes]]:
    return [(record.seq, record.key, record.data) for record in log.read(0, 10_000)]


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    with Engine.open(tmp_path / "data", background=False) as engine:
        yield engine


def history_of(engine: Engine) -> DirectoryHistory:
    return DirectoryHistory(engine.disk.local_path(""))


def test_everything_that_was_acknowledged_is_there_sealed_or_not(engine: Engine) -> None:
    orders = engine.create("orders", Config(durability="fsync")).wait()
    orders.append(Batch([b"1", b"2"], keys=["a", None], nodes=["n", None], metas=[None, b"m"])).wait()
    engine.seal()
    orders.append(Batch([b"3"])).wait()
    history = history_of(engine)
    assert rows_of(history, "orders") == [(1, "a", b"1"), (2, None, b"2"), (3, None, b"3")]
    batches = [batch for piece in history.pieces(history.log("orders"), 0, 3, 10) for batch in piece.read()]
    table = pa.Table.from_batches(batches)
    assert table.column("node").to_pylist() == ["n", None, None]
    assert table.column("meta").to_pylist() == [None, b"m", None]
    assert [int(ts.timestamp() * 1000) for ts in table.column("ts").to_pylist()] == [r.ts for r in orders.read(0, 10)]
    history.close()


def test_a_view_shows_one_moment_however_the_directory_changes(engine: Engine) -> None:
    log = engine.create("log").wait()
    for number in range(5):
        log.append(Batch([b"%d" % number] * 10)).wait()
        engine.seal()
    log.append(Batch([b"tail"])).wait()
    before = as_read(log)
    history = history_of(engine)
    log.append(Batch([b"later"])).wait()
    log.delete(before=40).wait()
    for _ in range(3):
        log.append(Batch([b"more"])).wait()
        engine.seal()
    engine.maintain()
    assert rows_of(history, "log") == before
    assert history.log("log").head == 51
    history.close()


def test_nothing_is_left_behind_by_a_view_or_by_one_that_died(engine: Engine, tmp_path: Path) -> None:
    engine.create("log").wait().append(Batch([b"1"])).wait()
    engine.seal()
    views = tmp_path / "data" / VIEWS
    history = history_of(engine)
    assert len(list(views.iterdir())) == 1
    dead = views / "dead"
    dead.mkdir()
    (dead / "LOCK").touch()
    another = history_of(engine)
    assert len(list(views.iterdir())) == 2
    history.close()
    another.close()
    assert list(views.iterdir()) == []


def test_a_directory_that_cannot_be_written_to_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with (
        Engine.open(tmp_path / "data", background=False) as engine,
        read_only(tmp_path / "data", tmp_path / "seen") as seen,
    ):
        log = engine.create("log").wait()
        log.append(Batch([b"1", b"2"])).wait()
        engine.seal()
        log.append(Batch([b"3", b"4"], keys=["a", "b"])).wait()
        expected = as_read(log)
        history = DirectoryHistory(seen)
        assert len(list(temporary.iterdir())) == 1
        # Whatever the server does meanwhile, and whatever files it removes.
        log.append(Batch([b"5"])).wait()
        engine.seal()
        log.delete(before=4).wait()
        engine.seal()
        assert rows_of(history, "log") == expected
        history.close()
        assert not (tmp_path / "data" / VIEWS).exists()
        assert list(temporary.iterdir()) == []


def test_sql_reads_a_directory_that_cannot_be_written_to(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        log = engine.create("log").wait()
        log.append(Batch([b'{"n":1}'])).wait()
        engine.seal()
        log.append(Batch([b'{"n":2}'])).wait()
    with read_only(tmp_path / "data", tmp_path / "seen") as seen:
        result = CliRunner().invoke(app, ["sql", "select count(*) as n from log", "--data", str(seen), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"n": 2}


def test_ranges_times_and_keys_are_looked_for(engine: Engine) -> None:
    log = engine.create("log").wait()
    for number in range(12):
        log.append(Batch([b"%d" % number], keys=["even" if number % 2 == 0 else "odd"]), ts=1000 + number).wait()
        if number in (3, 7):
            engine.seal()
    history = history_of(engine)
    assert [row[0] for row in rows_of(history, "log", after=2, through=9)] == list(range(3, 10))
    assert [row[0] for row in rows_of(history, "log", where=Where(key="odd"))] == [2, 4, 6, 8, 10, 12]
    assert rows_of(history, "log", where=Where(key="none")) == []
    times = [record.ts for record in log.read(0, 100)]
    assert [row[0] for row in rows_of(history, "log", where=Where(since=times[5], until=times[9]))] == [6, 7, 8, 9]
    history.close()


def test_a_fork_has_what_it_shares_unless_only_its_own_is_wanted(engine: Engine) -> None:
    source = engine.create("source").wait()
    source.append(Batch([b"1", b"2", b"3"])).wait()
    engine.seal()
    fork = engine.fork("fork", source, 2).wait()
    fork.append(Batch([b"own"])).wait()
    source.delete(seqs=[1]).wait()
    history = history_of(engine)
    assert rows_of(history, "fork") == [(2, None, b"2"), (3, None, b"own")]
    assert rows_of(history, "fork", own=True) == [(3, None, b"own")]
    base = history.log("fork").base
    assert base is not None
    assert (base.epoch, base.through) == (source.epoch, 2)
    history.close()


def test_what_is_in_the_cold_tier_is_read_from_there(tmp_path: Path) -> None:
    cold = str(tmp_path / "cold")
    options = Options(cold_url=cold, hot_segments=0)
    with Engine.open(tmp_path / "data", options, background=False) as engine:
        log = engine.create("log").wait()
        log.append(Batch([b"1", b"2"])).wait()
        engine.seal()
        engine.maintain()
        log.append(Batch([b"3"])).wait()
        assert not list((tmp_path / "data" / "segments").iterdir())
        history = DirectoryHistory(tmp_path / "data", cold)
        assert rows_of(history, "log") == as_read(log)
        history.close()


def test_the_files_are_enough_when_no_server_runs(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        engine.create("log").wait().append(Batch([b"1"])).wait()
    history = DirectoryHistory(tmp_path / "data")
    assert rows_of(history, "log") == [(1, None, b"1")]
    assert [log.name for log in history.logs()] == ["log"]
    with pytest.raises(UnknownLog):
        history.log("other")
    history.close()
    with pytest.raises(NoDataDirectory):
        DirectoryHistory(tmp_path)


Step = Callable[[Engine, Log], object]
keys = st.sampled_from(["a", "b", None])
steps: st.SearchStrategy[Step] = st.one_of(
    st.lists(keys, min_size=1, max_size=5).map(
        lambda ks: lambda engine, log: log.append(Batch([b"x%d" % len(ks)] * len(ks), keys=ks))
    ),
    st.just(lambda engine, log: engine.seal()),
    st.integers(0, 12).map(lambda n: lambda engine, log: log.delete(before=n)),
    st.lists(st.integers(1, 20), max_size=4).map(lambda s: lambda engine, log: log.delete(seqs=s)),
    st.just(lambda engine, log: log.delete(key="a")),
    st.lists(st.integers(1, 20), max_size=4).map(lambda s: lambda engine, log: log.hide(seqs=s)),
    st.lists(st.integers(1, 20), max_size=4).map(lambda s: lambda engine, log: log.restore(seqs=s)),
    st.integers(1, 20).map(lambda n: lambda engine, log: _amend(log, n)),
)


def _amend(log: Log, seq: int) -> None:
    page = log.read(seq - 1, 1)
    if page.seqs == [seq]:
        log.amend(seq, b"amended").wait()


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=14), st.sampled_from(["disk", "fsync"]), st.integers(0, 6))
def test_a_view_shows_what_readers_see(changes: list[Step], durability: Any, cap: int) -> None:
    with TemporaryDirectory() as directory, Engine.open(directory, background=False) as engine:
        log = engine.create("log", Config(durability=durability, cap_records=cap)).wait()
        for change in changes:
            change(engine, log)
        engine.flush()
        history = DirectoryHistory(directory)
        try:
            assert rows_of(history, "log") == as_read(log)
            info, state = history.log("log"), log.state()
            assert (info.head, info.earliest, info.floor) == (state.head, state.earliest, state.evict_floor)
            standing = history.standing(info)
            assert all(any(a <= seq <= b for a, b in standing) for seq, _, _ in as_read(log))
        finally:
            history.close()


@pytest.mark.parametrize("seed", range(6))
def test_histories_that_share_what_they_know_see_what_a_new_one_sees(tmp_path: Path, seed: int) -> None:
    rng, known = random.Random(seed), KnownLogs()
    engine = Engine.open(tmp_path, background=False)
    names: list[str] = []
    for step in range(60):
        name = rng.choice(names) if names else ""
        kind = rng.choice(
            ["create", "append", "append", "delete", "hide", "amend", "note", "configure", "fork", "drop"]
        )
        if kind == "create" or not names:
            config = Config(cap_records=rng.choice([0, 3]), durability=rng.choice(["disk", "fsync", "ephemeral"]))
            names.append(engine.create(f"log {step}", config).wait().name)
            continue
        log = engine.log(name)
        if kind == "append":
            log.append(Batch([b"%d" % step] * rng.randrange(1, 4))).wait()
        elif kind == "amend" and log.head and log.book.has(log.head, engine.store):
            log.amend(log.head, b"amended").wait()
        elif kind == "delete":
            log.delete(before=log.head).wait()
        elif kind == "hide":
            log.hide(seqs=[log.head]).wait()
        elif kind == "note":
            log.note({"x": step}).wait()
        elif kind == "configure" and log.config.durability != "ephemeral":
            log.configure(Config(cap_records=rng.choice([0, 2]))).wait()
        elif kind == "fork" and log.config.durability != "ephemeral":
            names.append(engine.fork(f"fork {step}", log, log.head).wait().name)
        elif kind == "drop" and not log.forks:
            log.drop().wait()
            names.remove(name)
        if rng.random() < 0.15:
            engine.seal()
        if rng.random() < 0.1:
            engine.close()
            engine = Engine.open(tmp_path, background=False)
        if rng.random() < 0.5:
            assert _seen(tmp_path, known) == _seen(tmp_path, None)
    engine.close()


def _seen(path: Path, known: KnownLogs | None) -> list[object]:
    history = DirectoryHistory(path, known=known)
    try:
        return [(info, history.standing(info), rows_of(history, info.name)) for info in history.logs()]
    finally:
        history.close()

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lake_rounds import Bed, Heard, append, by_key, check_typed, derived, install, parquet_bytes, text_schema
from support.local_tasks import work_here
from support.object_store import object_store
from support.server_process import StartServer
from support.tables_client import POLLS, TablesClient
from support.topics_client import Client, eventually

from strandline.engine import Engine, Log
from strandline.history.directory import DirectoryHistory
from strandline.history.remote import ServerHistory
from strandline.history.source import open_history
from strandline.lake import layout, typed_tables
from strandline.lake.erasures import ErasureEvents
from strandline.lake.fence import BELONGING, LakeOfAnother
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.lake.table import TableSnapshot
from strandline.lake.transaction_log import BrokenLog
from strandline.pipeline.chosen_logs import Chosen, UnknownLogs
from strandline.pipeline.run import run_round
from strandline.schema.registry import Registry


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


def test_a_round_over_nothing_is_none(bed: Bed) -> None:
    result = bed.round()
    assert result.records == {}
    assert bed.heard.last_lag.logs == 0


def test_only_what_is_chosen_is_brought_to_the_lake(bed: Bed) -> None:
    for name in ("a1", "a2", "b1", "b2"):
        append(bed.log(name), name)
    append(bed.log("volatile", durability="ephemeral"), "gone tomorrow")
    bed.log("a1-2")
    bed.engine.log("b2").delete(seqs=[1]).wait()
    bed.round(chosen=Chosen(["b1"]))
    assert [row["log"] for row in bed.rows()] == ["b1"]
    bed.round(chosen=Chosen(prefix="a"))
    assert [row["log"] for row in bed.rows()] == ["a1", "a2", "b1"]
    with pytest.raises(UnknownLogs, match="nowhere"):
        bed.round(chosen=Chosen(["a1", "nowhere"]))
    bed.round()
    assert [row["log"] for row in bed.rows()] == ["a1", "a2", "b1"]
    assert {lag.log for lag in bed.heard.rows} == {"a1", "a1-2", "a2", "b1", "b2"}
    assert bed.heard.last_lag.behind == 0
    assert bed.heard.problems == []


def test_lag_tells_how_far_each_table_has_each_log(bed: Bed) -> None:
    append(bed.log("a"), "1", "2", key="x")
    append(bed.log("b"), "1")
    bed.round(chosen=Chosen(["a"]))
    lags = {lag.log: lag for lag in bed.heard.rows}
    assert lags["a"].covered == {"records": 2, "latest": 2, "keys": 2}
    assert (lags["a"].behind, lags["b"].behind) == (0, 1)


def test_a_lake_belongs_to_one_data_directory(bed: Bed, tmp_path: Path) -> None:
    bed.round()
    with Engine.open(tmp_path / "other", background=False):
        pass
    history = DirectoryHistory(tmp_path / "other")
    with pytest.raises(LakeOfAnother, match="has the records of the data directory"):
        run_round(None, history, bed.lake, Silent())  # type: ignore[arg-type]
    history.close()
    bed.lake.write(BELONGING, b"?")
    with pytest.raises(LakeOfAnother, match="is invalid"):
        bed.round()
    bed.lake.write(BELONGING, b'{"directory":"x","format":99}')
    with pytest.raises(LakeOfAnother, match="format 99"):
        bed.round()


@pytest.mark.parametrize("hint", [None, b""])
def test_a_round_goes_on_though_the_hint_at_the_last_checkpoint_is_lost(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, hint: bytes | None
) -> None:
    """Old commits are cleaned up, and what they said is in checkpoints alone."""
    monkeypatch.setattr("strandline.lake.table.CHECKPOINT_INTERVAL", 2)
    log = bed.log()
    # How far this log has come is in a checkpoint alone.
    append(bed.log("quiet"), "once")
    for number in range(3):
        append(log, f"{number}", key="x")
        bed.round()
    for table in ("records", "latest", "keys"):
        folder = bed.path / "lake" / table / "_delta_log"
        last = max(int(path.name[:20]) for path in folder.glob("*.checkpoint.parquet"))
        for path in folder.glob("*.json"):
            if int(path.name[:20]) < last:
                path.unlink()
        (folder / "_last_checkpoint").unlink()
        if hint is not None:
            (folder / "_last_checkpoint").write_bytes(hint)
    append(log, "3", key="x")
    bed.round()
    assert bed.data() == ["0", "1", "2", "3"]
    assert bed.data("quiet") == ["once"]
    assert by_key(bed) == derived(bed.rows())


def test_a_round_never_starts_from_zero_where_progress_cannot_be_read(bed: Bed) -> None:
    log = bed.log()
    append(log, "1")
    bed.round()
    append(log, "2")
    next((bed.path / "lake" / "records" / "_delta_log").glob("*0.json")).unlink()
    with pytest.raises(BrokenLog, match="records is incomplete: the commits of versions 0 are missing"):
        bed.round()


class Killed(BaseException):
    """The process ended here."""


#: What may happen to a log, and rounds: whole ones, and ones that are killed around their n-th commit.
things = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("ab"), st.sampled_from(["x", "y", "z", None]), st.integers(1, 3)),
    st.tuples(st.just("append"), st.sampled_from("ab"), st.sampled_from(["x", "y", "z", None]), st.integers(1, 3)),
    st.tuples(st.sampled_from(["delete", "hide", "restore"]), st.sampled_from("ab"), st.sampled_from("xyz"), st.none()),
    st.tuples(st.sampled_from(["delete", "hide", "restore"]), st.sampled_from("ab"), st.none(), st.integers(1, 12)),
    st.tuples(st.just("trim"), st.sampled_from("ab"), st.none(), st.integers(1, 8)),
    st.tuples(st.just("amend"), st.sampled_from("ab"), st.none(), st.integers(1, 12)),
    st.tuples(st.just("drop"), st.sampled_from("ab"), st.none(), st.none()),
    st.tuples(st.just("schema"), st.sampled_from("ab"), st.none(), st.none()),
    st.tuples(st.just("schema"), st.sampled_from("ab"), st.none(), st.none()),
    st.tuples(st.just("no schema"), st.sampled_from("ab"), st.none(), st.none()),
    st.tuples(st.just("seal"), st.none(), st.none(), st.none()),
    st.tuples(st.just("round"), st.none(), st.none(), st.none()),
    st.tuples(st.just("killed"), st.none(), st.booleans(), st.integers(1, 12)),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(things, max_size=25))
def test_whatever_happens_the_lake_is_what_the_logs_are(tmp_path_factory: pytest.TempPathFactory, story: list) -> None:  # type: ignore[type-arg]
    """Rounds may be killed before or after any commit, and are simply made again."""
    with pytest.MonkeyPatch.context() as patch:
        work_here(patch)
        patch.setattr("strandline.pipeline.records.MIN_ITEM_ROWS", 4)
        patch.setattr("strandline.lake.key_files.BUCKET_ROWS", 2)
        patch.setattr("strandline.pipeline.table_upkeep.FILES_PER_TIER", 3)
        patch.setattr("strandline.lake.erasures.MANY_KEYS", 2)
        bed = Bed(tmp_path_factory.mktemp("story"))
        try:
            for number, (what, name, key, count) in enumerate(story):
                happen(bed, number, what, name, key, count)
            bed.round()
            expected = [
                (name, record.seq, record.key, record.data.decode())
                for name in bed.engine.names()
                if not name.startswith("__")
                for record in bed.engine.log(name).read(0, 1000)
            ]
            rows = bed.rows()
            assert [(row["log"], row["seq"], row["key"], row["data"]) for row in rows] == expected
            assert by_key(bed) == derived(rows)
            check_typed(bed)
            assert bed.heard.last_lag.behind == 0
            assert bed.heard.problems == []
        finally:
            bed.close()


def happen(bed: Bed, number: int, what: str, name: str, key: str, count: int) -> None:
    if what == "seal":
        bed.engine.seal()
    elif what == "round":
        bed.round()
    elif what == "killed":
        killed_round(bed, count, before=bool(key))
    else:
        log = bed.engine.find(name) or bed.log(name)
        if what == "append":
            append(log, *(f'{{"v":"{number}-{each}"}}' for each in range(count)), key=key)
        elif what == "schema":
            next_schema(log)
        elif what == "no schema":
            log.note({"registry": None}).wait()
        elif what == "drop":
            log.drop().wait()
        elif what == "trim":
            log.delete(before=count).wait()
        elif what == "amend":
            if any(record.seq == count for record in log.read(0, 1000)):
                log.amend(count, f"amended {number}".encode()).wait()
        elif key is not None:
            getattr(log, what)(key=key).wait()
        else:
            getattr(log, what)(seqs=[count]).wait()


def next_schema(log: Log) -> None:
    """The first schema, one with another name for a property, and then with another property each."""
    stored = log.notes.get("registry")
    version = 0 if stored is None else Registry.load(stored).current_version
    if version == 0:
        install(log, text_schema("v"))
    elif version == 1:
        install(log, text_schema("w"), [{"op": "rename", "from": "/v", "to": "/w"}])
    else:
        names = ["w", *(f"x{number}" for number in range(2, version + 1))]
        add = {"op": "add", "path": f"/x{version}", "schema": {"type": "string"}, "default": "new"}
        install(log, text_schema(*names), [add])


def killed_round(bed: Bed, commits: int, *, before: bool) -> None:
    """A round that comes to its n-th commit, and no further."""
    real = TableSnapshot.commit
    left = commits

    def commit(table: TableSnapshot, **changes: object) -> int:
        nonlocal left
        left -= 1
        if left == 0 and before:
            raise Killed
        version = real(table, **changes)  # type: ignore[arg-type]
        if left == 0:
            raise Killed
        return version

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableSnapshot, "commit", commit)
        try:
            bed.round()
        except Killed:
            pass


def test_a_round_by_url_is_as_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_server: StartServer) -> None:
    """A record that is deleted while the server runs goes from the lake as well."""
    work_here(monkeypatch)
    server = start_server(pipeline="off", declare=POLLS)
    lake = Lake.at(tmp_path / "lake")
    heard = Heard()
    client = TablesClient(server.url)

    def round() -> list[tuple[str, int, str | None, str]]:
        history = open_history(url=server.url)
        run_round(None, history, lake, heard)  # type: ignore[arg-type]
        history.close()
        rows = layout.records(lake).open().to_pyarrow_table().to_pylist()
        found = sorted((row["log"], row["seq"], row["key"], row["data"]) for row in rows)
        return [row for row in found if row[0] == "orders"]

    def typed(name: str) -> list[dict[str, Any]]:
        rows = typed_tables.typed_table(lake, name).open().to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: row["seq"])

    Client.write(client, "orders", [{"data": number, "tag": "x"} for number in range(3)])
    client.call("PUT", "/v1/stream/events", status=201, headers={"content-type": "application/json"})
    client.call("POST", "/v1/stream/events/_schema", {"schema": text_schema("v")})
    client.call("POST", "/v1/stream/events", [{"v": "1"}, {"v": "2"}], status=204)
    client.append("poll", "room", {"title": "Where?"})
    assert round() == [("orders", seq, "x", str(seq - 1)) for seq in (1, 2, 3)]
    client.delete("orders", before_seq=2)
    # The event shows once it is durable.
    eventually(lambda: ErasureEvents(ServerHistory(server.url)).head)
    Client.write(client, "orders", [{"data": 3}])
    assert [row["v"] for row in typed("events")] == ["1", "2"]
    assert [(row["parent"], row["title"]) for row in typed("poll")] == [("room", "Where?")]
    assert round() == [("orders", 2, "x", "1"), ("orders", 3, "x", "2"), ("orders", 4, None, "3")]
    assert heard.problems == []
    client.close()


def test_a_lake_in_an_object_store_is_as_good(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.pipeline.table_upkeep.FILES_PER_TIER", 3)
    log = bed.log()
    with object_store("lake") as options:
        bed.lake = Lake.at("s3://lake/some/where", **options)
        for number in range(3):
            append(log, f"record-{number}", f"again-{number}", key=f"key-{number}")
            bed.round()
        assert len(bed.table("records").files()) == 1
        log.delete(key="key-1").wait()
        bed.round()
        assert bed.data() == ["record-0", "again-0", "record-2", "again-2"]
        assert by_key(bed) == derived(bed.rows())
        for name in bed.lake.names(""):
            raw = bed.lake.read(name) or b""
            assert b"key-1" not in raw, name
            assert not name.endswith(".parquet") or b"key-1" not in parquet_bytes(pa.BufferReader(raw)), name

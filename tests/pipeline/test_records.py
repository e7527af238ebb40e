from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.lake_rounds import Bed, append
from support.local_tasks import work_here

from strandline.engine import Batch, Config
from strandline.lake import record_files
from strandline.lake.reporter import TaskFailed
from strandline.pipeline import records, table_upkeep
from strandline.schema.registry import Registry


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


def test_a_record_is_in_the_lake_with_everything_it_has(bed: Bed) -> None:
    log = bed.log()
    log.append(Batch([b'{"x":1}', b"\xff\x00"], keys=["k", None], nodes=["n", None], metas=[b"\xffm", None])).wait()
    bed.engine.seal()
    append(log, "later")
    bed.round()
    first, second, third = bed.rows()
    ts = next(iter(log.read(0, 1))).ts
    assert int(first.pop("ts").timestamp() * 1000) == ts
    assert first == {
        "log": "a", "epoch": log.epoch, "seq": 1, "key": "k", "node": "n", "meta": b"\xffm", "version": 0,
        "data": '{"x":1}', "bytes": None,
    }  # fmt: skip
    assert (second["data"], second["bytes"], second["key"]) == (None, b"\xff\x00", None)
    assert third["data"] == "later"


def test_what_is_in_the_lake_is_not_read_again(bed: Bed) -> None:
    log = bed.log()
    append(log, "1", "2")
    assert bed.round().records["records"] == 2
    files = {file.path for file in bed.table("records").files()}
    assert "records" not in bed.round().records
    append(log, "3")
    assert bed.round().records["records"] == 1
    assert files < {file.path for file in bed.table("records").files()}
    assert bed.data() == ["1", "2", "3"]


def test_what_a_cap_has_taken_since_stays_in_the_lake(bed: Bed) -> None:
    log = bed.log(cap_records=2)
    append(log, "1", "2", key="x")
    bed.round()
    append(log, "3", key="y")
    append(log, "4", key="y")
    bed.round()
    assert [record.data for record in log.read(0, 9)] == [b"3", b"4"]
    assert bed.data() == ["1", "2", "3", "4"]
    assert [row["count"] for row in bed.rows("keys")] == [2, 2]


def test_of_a_fork_the_lake_has_its_own_records(bed: Bed) -> None:
    source = bed.log("source")
    append(source, "s1", "s2", "s3")
    fork = bed.engine.fork("fork", source, 2).wait()
    bed.round()
    assert bed.data("fork") == []
    append(fork, "f3")
    bed.round()
    assert bed.data("source") == ["s1", "s2", "s3"]
    assert [(row["seq"], row["data"]) for row in bed.rows() if row["log"] == "fork"] == [(3, "f3")]
    assert bed.heard.last_lag.behind == 0


def test_a_log_that_is_made_anew_under_its_name_is_another_one(bed: Bed) -> None:
    append(bed.log(), "old")
    bed.round()
    bed.engine.log("a").drop().wait()
    append(bed.log(), "new")
    bed.round()
    assert bed.data() == ["new"]


def test_records_have_the_version_that_their_schema_had(bed: Bed) -> None:
    log = bed.log()
    append(log, "1", "2")
    registry = Registry("a", 2, boundaries=((0, 1), (2, 2)), schemas={1: {"type": "object"}, 2: {"type": "object"}})
    log.note({"registry": registry.stored()}).wait()
    append(log, "3")
    bed.round()
    assert [row["version"] for row in bed.rows()] == [1, 1, 2]


def test_many_small_logs_share_a_file(bed: Bed) -> None:
    for number in range(50):
        append(bed.log(f"log-{number:02}"), "x", "y")
    bed.engine.seal()
    for number in range(50):
        append(bed.engine.log(f"log-{number:02}"), "z")
    bed.round()
    (file,) = bed.table("records").files()
    assert file.rows == 150
    found = bed.table("records").open().to_pyarrow_table(columns=["log", "seq"]).to_pylist()
    assert found == sorted(found, key=lambda row: (row["log"], row["seq"]))


def test_a_large_log_is_spread_over_items_and_files(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MIN_ITEM_ROWS", 10)
    monkeypatch.setattr(records, "MAX_ITEM_ROWS", 10)
    monkeypatch.setattr(table_upkeep, "FILES_PER_TIER", 100)
    append(bed.log(), *(str(number) for number in range(100)))
    append(bed.log("b"), "b")
    bed.round()
    assert sorted(file.rows for file in bed.table("records").files()) == [1, *[10] * 10]
    assert bed.data() == [str(number) for number in range(100)]
    assert bed.data("b") == ["b"]


def test_large_payloads_close_a_file_early(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "FILE_BYTES", 1)
    monkeypatch.setattr(record_files, "GROUP_BYTES", 1)
    monkeypatch.setattr(record_files, "FEW_BYTES", 1)
    log = bed.log()
    append(log, "1")
    bed.engine.seal()
    append(log, "2")
    bed.round()
    assert [file.rows for file in bed.table("records").files()] == [1, 1]


def test_nothing_is_left_of_files_when_the_disk_is_full(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    append(bed.log(), "1")
    bed.round()
    append(bed.engine.log("a"), "2")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("strandline.lake.files.FileWriter.write", full)
        with pytest.raises(TaskFailed, match="No space left"):
            bed.round()
    assert bed.data() == ["1"]
    assert len(list((bed.path / "lake" / "records").glob("*.parquet"))) == 1
    bed.round()
    assert bed.data() == ["1", "2"]


def test_a_log_that_cannot_be_read_stays_before_the_damage_and_the_others_go_on(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pieces behind the damage are in other items, which have files of other logs."""
    monkeypatch.setattr(records, "MIN_ITEM_ROWS", 3)
    monkeypatch.setattr(records, "MAX_ITEM_ROWS", 3)
    poor, rich = bed.log("m"), bed.log("n")
    append(bed.log("l"), "l1")
    append(poor, "m1", "m2")
    bed.engine.seal()
    append(poor, "m3")
    append(rich, "n1")
    bed.engine.seal()
    append(poor, "m4", "m5")
    append(rich, "n2")
    bed.engine.seal()
    (segment,) = [path for path in (bed.path / "data" / "segments").iterdir() if b"m3" in plain(path)]
    sound = segment.read_bytes()
    damaged = bytearray(sound)
    # Blocks begin behind the schema, at a place which is a multiple of eight.
    damaged[len(damaged) // 3] ^= 0xFF
    segment.write_bytes(damaged)
    bed.round()
    assert bed.data("l") == ["l1"]
    assert bed.data("m") == ["m1", "m2"]
    problems = {(stage, log, seq) for stage, log, seq, _ in bed.heard.problems}
    assert ("records", "m", 3) in problems
    lags = {lag.log: lag.covered["records"] for lag in bed.heard.rows}
    assert lags["m"] == 2
    segment.write_bytes(sound)
    bed.round()
    assert bed.data("m") == ["m1", "m2", "m3", "m4", "m5"]
    assert bed.data("n") == ["n1", "n2"]
    assert bed.heard.last_lag.behind == 0


def plain(path: Path) -> bytes:
    with pa.memory_map(str(path)) as source:
        return repr(pa.ipc.open_file(source).read_all().to_pylist()).encode()


def test_a_log_that_ends_before_what_the_lake_has_is_told(bed: Bed) -> None:
    append(bed.log(), "1")
    bed.round()
    epoch = bed.engine.log("a").epoch
    bed.table("records").snapshot().commit(progress={str(epoch): 7})
    bed.round()
    assert ("records", "a", 1) in {problem[:3] for problem in bed.heard.problems}


def test_a_configuration_is_nothing_to_be_read(bed: Bed) -> None:
    log = bed.log()
    log.configure(Config(cap_records=5)).wait()
    assert bed.round().records == {}

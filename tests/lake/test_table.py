from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.lake.files import DataFile, FileWriter, write_file
from strandline.lake.location import Lake
from strandline.lake.table import CHECKPOINT_INTERVAL, LakeTable

SCHEMA = pa.schema(
    [("log", pa.string()), ("seq", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("data", pa.string())]
)


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    return LakeTable(Lake.at(tmp_path / "lake"), "things", SCHEMA)


def rows(*seqs: int) -> Any:
    return pa.table(
        {
            "log": ["a"] * len(seqs),
            "seq": list(seqs),
            "ts": [seq * 1001 for seq in seqs],
            "data": [f"payload-{seq}" for seq in seqs],
        },
        schema=SCHEMA,
    )


def write(table: LakeTable, *seqs: int) -> DataFile:
    file = write_file(table.lake, table.name, SCHEMA, [rows(*seqs)])
    assert file is not None
    return file


def seqs(table: LakeTable) -> list[int]:
    return sorted(table.open().to_pyarrow_table().column("seq").to_pylist())


def test_a_table_that_was_never_committed_to_is_empty(table: LakeTable) -> None:
    assert not table.exists
    assert table.files() == []
    assert table.progress() == {}


def test_a_commit_adds_removes_and_moves_progress_in_one_step(table: LakeTable) -> None:
    table.snapshot().commit(add=[write(table, 1, 2), write(table, 3)], progress={"7": 3, "8": 0})
    assert seqs(table) == [1, 2, 3]
    assert table.progress() == {"7": 3, "8": 0}
    first = next(file for file in table.files() if file.rows == 2)
    assert first.bounds["seq"] == (1, 2)
    version = table.snapshot().commit(add=[write(table, 4)], remove=[first], progress={"7": 4})
    assert version == table.open().version()
    assert seqs(table) == [3, 4]
    assert table.progress() == {"7": 4, "8": 0}
    assert table.open().transaction_version("7") == 4


def test_what_was_written_and_not_committed_is_not_there(table: LakeTable) -> None:
    table.snapshot().commit(add=[write(table, 1)])
    write(table, 2)
    assert seqs(table) == [1]


def test_progress_is_found_behind_checkpoints_of_the_transaction_log(table: LakeTable) -> None:
    for number in range(CHECKPOINT_INTERVAL + 3):
        table.snapshot().commit(progress={str(number % 7): number})
    assert (Path(table.lake.url) / "things" / "_delta_log" / "_last_checkpoint").exists()
    opened = table.open()
    assert table.progress() == {str(app): opened.transaction_version(str(app)) for app in range(7)}


def test_statistics_tell_nothing_of_payloads(table: LakeTable) -> None:
    table.snapshot().commit(add=[write(table, 1, 2)])
    for file in (Path(table.lake.url) / "things" / "_delta_log").iterdir():
        assert b"payload-1" not in file.read_bytes()
    # Also where the library writes the file.
    table.open().optimize.compact()
    for file in (Path(table.lake.url) / "things" / "_delta_log").iterdir():
        assert b"payload-1" not in file.read_bytes()


def test_a_file_without_rows_leaves_nothing(table: LakeTable) -> None:
    assert write_file(table.lake, table.name, SCHEMA, []) is None

    def failing() -> Any:
        yield rows(1)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        write_file(table.lake, table.name, SCHEMA, failing())
    assert not list((Path(table.lake.url) / "things").rglob("*.parquet"))


def test_files_of_a_partition(tmp_path: Path) -> None:
    schema = pa.schema([("bucket", pa.int32()), ("seq", pa.int64())])
    table = LakeTable(Lake.at(tmp_path), "parts", schema, ["bucket"])
    writer = FileWriter(table.lake, "parts", pa.schema([("seq", pa.int64())]), {"bucket": "3"})
    writer.write(pa.table({"seq": [1, 2]}))
    table.snapshot().commit(add=[writer.close()])
    assert table.open().to_pyarrow_table().to_pylist() == [{"bucket": 3, "seq": 1}, {"bucket": 3, "seq": 2}]
    (file,) = table.files()
    assert file.partition == {"bucket": "3"}
    table.snapshot().commit(remove=[file])
    assert table.files() == []


def test_a_lake_is_a_value_that_knows_its_files(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake", endpoint="x")
    assert Lake(lake.url, lake.options) == lake
    assert lake.read("a/b") is None
    lake.write("a/b", b"1")
    lake.write("a/b", b"2")
    assert lake.read("a/b") == b"2"
    assert list(lake.names("a/")) == ["a/b"]
    lake.remove(["a/b", "a/c"])
    assert lake.names("a/") == {}


def test_progress_read_before_is_completed_by_newer_commits_of_the_same_table_only(
    table: LakeTable, tmp_path: Path
) -> None:
    table.snapshot().commit(progress={"1": 5, "2": 7})
    assert table.progress() == {"1": 5, "2": 7}
    # Another process commits: this one has read the versions before.
    for seq in range(8, 12):
        table.snapshot().commit(progress={"2": seq})
    earlier = table.snapshot()
    table.snapshot().commit(progress={"3": 1})
    assert table.progress() == {"1": 5, "2": 11, "3": 1}
    assert earlier.progress() == {"1": 5, "2": 11}
    # A table that is created again has the same versions, but not the same commits.
    shutil.rmtree(tmp_path / "lake" / "things")
    for seq in range(6):
        table.snapshot().commit(progress={"9": seq})
    assert table.progress() == {"9": 5}

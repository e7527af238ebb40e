from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.lake.fence import FOLDER, Fence, LakeInUse, take_fence
from strandline.lake.files import DataFile, write_file
from strandline.lake.location import Lake
from strandline.lake.table import LakeTable, TableMoved

SCHEMA = pa.schema([("seq", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def now() -> int:
    return 1_000


def records(lake: Lake) -> LakeTable:
    return LakeTable(lake, "records", SCHEMA)


def written(lake: Lake, seq: int) -> list[DataFile]:
    file = write_file(lake, "records", SCHEMA, [pa.table({"seq": [seq]}, schema=SCHEMA)])
    assert file is not None
    return [file]


def seqs(lake: Lake) -> list[int]:
    return sorted(records(lake).open().to_pyarrow_table().column("seq").to_pylist())


def test_an_older_driver_commits_nothing_after_a_newer_one_has_the_lake(lake: Lake) -> None:
    with take_fence(lake, now) as older:
        plan = records(lake).snapshot(older)
        plan.commit(add=written(lake, 1), progress={"7": 1})
        later = records(lake).snapshot(older)
        older.check()
        with take_fence(lake, now) as newer:
            assert newer.number == older.number + 1
            for each in (plan, later, records(lake).snapshot(newer)):
                assert each.progress() == {"7": 1}
            for each in (plan, later):
                with pytest.raises(LakeInUse, match=f"taken over by process {os.getpid()} on {socket.gethostname()}"):
                    each.commit(add=written(lake, 2), progress={"7": 2})
            with pytest.raises(LakeInUse, match="this pipeline has number 1, and the highest is 2"):
                older.check()
            records(lake).snapshot(newer).commit(add=written(lake, 2), progress={"7": 2})
            newer.check()
    assert seqs(lake) == [1, 2]
    assert records(lake).progress() == {"7": 2}


def test_a_driver_that_ended_need_not_be_kept_out(lake: Lake) -> None:
    with take_fence(lake, now) as fence:
        records(lake).snapshot(fence).commit(add=written(lake, 1), progress={"7": 1})
    version = records(lake).snapshot().version
    with take_fence(lake, now):
        assert records(lake).snapshot().version == version
    assert len(lake.names(f"{FOLDER}/")) == 1, "numbers of drivers before it are cleared away"


def test_a_driver_that_was_killed_while_it_took_over_has_kept_nobody_out(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with take_fence(lake, now) as first, ExitStack() as stack:
        plan = records(lake).snapshot(first)
        plan.commit(add=written(lake, 1), progress={"7": 1})
        with monkeypatch.context() as patch:
            patch.setattr(Fence, "take_over", lambda fence: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                stack.enter_context(take_fence(lake, now))
        with take_fence(lake, now) as third:
            assert third.number == 3
            with pytest.raises(LakeInUse):
                plan.commit(add=written(lake, 2), progress={"7": 2})
    assert seqs(lake) == [1]


def test_an_older_driver_that_creates_a_table_puts_nothing_into_it(lake: Lake) -> None:
    """The newer one has looked before there was the table, and could not move it."""
    with take_fence(lake, now) as older:
        plan = records(lake).snapshot(older)
        with take_fence(lake, now) as newer:
            planned = records(lake).snapshot(newer)
            with pytest.raises(LakeInUse):
                plan.commit(add=written(lake, 1), progress={"7": 1})
            with pytest.raises(TableMoved):
                planned.commit(add=written(lake, 1), progress={"7": 1})
            records(lake).snapshot(newer).commit(add=written(lake, 1), progress={"7": 1})
    assert seqs(lake) == [1]


def test_another_engine_is_no_other_driver(lake: Lake) -> None:
    with take_fence(lake, now) as fence:
        for seq in (1, 2):
            records(lake).snapshot(fence).commit(add=written(lake, seq), progress={"7": seq})
        plan = records(lake).snapshot(fence)
        records(lake).open().optimize.compact()
        with pytest.raises(TableMoved, match="prepared, but the table is at version 3"):
            plan.commit(add=written(lake, 3), progress={"7": 3})
        records(lake).snapshot(fence).commit(add=written(lake, 3), progress={"7": 3})
    assert seqs(lake) == [1, 2, 3]


def test_an_older_driver_removes_no_files(lake: Lake) -> None:
    with take_fence(lake, now) as older, take_fence(lake, now):
        lake.write("records/new.parquet", b"?")
        with pytest.raises(LakeInUse):
            older.remove(["records/new.parquet"])
    assert lake.read("records/new.parquet") == b"?"


def test_a_driver_whose_number_is_gone_stops(lake: Lake) -> None:
    with take_fence(lake, now) as fence:
        lake.remove(list(lake.names(f"{FOLDER}/")))
        with pytest.raises(LakeInUse, match="the highest is none"):
            fence.check()

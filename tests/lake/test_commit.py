"""Several writers on one table: a commit is made on top of what it was planned from, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import table_writer
from support.object_store import object_store
from support.table_writer import SCHEMA, Writer, table_of

from strandline.lake.files import write_file
from strandline.lake.location import Lake
from strandline.lake.table import TableSnapshot


def held(lake: Lake) -> list[tuple[str, int]]:
    rows = table_of(lake).open().to_pyarrow_table().to_pylist()
    return sorted((row["log"], row["seq"]) for row in rows)


def check(lake: Lake) -> None:
    """Every seq up to the progress is there, once."""
    progress = table_of(lake).progress()
    assert held(lake) == [(log, seq) for log in sorted(progress) for seq in range(1, progress[log] + 1)]


moves = st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from(["look", "commit", "optimize"])), max_size=14)


@settings(deadline=None, max_examples=15)
@given(moves)
def test_writers_in_any_order_never_write_a_row_twice(tmp_path_factory: pytest.TempPathFactory, story: list) -> None:  # type: ignore[type-arg]
    """Two writers of the same log and one of another, whose looks and commits come in any order, while another engine
    puts files together."""
    lake = Lake.at(tmp_path_factory.mktemp("story"))
    writers = [Writer(lake, "a"), Writer(lake, "a"), Writer(lake, "b")]
    assert writers[0].commit()
    for who, what in story:
        if what == "look":
            writers[who].look()
        elif what == "commit":
            writers[who].commit()
        else:
            table_of(lake).open().optimize.compact()
        check(lake)


def test_a_commit_after_another_one_is_refused_and_planned_again(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    one, other = Writer(lake), Writer(lake)
    one.look()
    other.look()
    assert one.commit()
    assert not other.commit(), "both have planned the first rows of a table that did not exist"
    other.look()
    assert one.commit()
    assert not other.commit()
    assert other.commit(), "it has planned again"
    assert not one.commit()
    assert held(lake) == [("a", seq) for seq in range(1, 7)]


def test_a_failure_that_is_no_conflict_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake.exceptions import CommitFailedError

    lake = Lake.at(tmp_path)
    assert Writer(lake).commit()
    snapshot = table_of(lake).snapshot()

    def fail(*_: object, **__: object) -> None:
        raise CommitFailedError("no")

    monkeypatch.setattr("deltalake.DeltaTable.create_write_transaction", fail)
    with pytest.raises(CommitFailedError):
        snapshot.commit(progress={"a": 9})


def test_rows_that_depend_on_nothing_are_added_whatever_else_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.at(tmp_path)
    rival = Writer(lake, "b")
    assert rival.commit()
    real = TableSnapshot.commit
    disturbed = 0

    def commit(snapshot: TableSnapshot, **changes: object) -> int:
        nonlocal disturbed
        if disturbed < 3:
            disturbed += 1
            real(table_of(lake).snapshot(), progress={"b": 2 + disturbed})
        return real(snapshot, **changes)  # type: ignore[arg-type]

    file = write_file(lake, "things", SCHEMA, [pa.table({"log": ["a"], "seq": [1]}, schema=SCHEMA)])
    assert file is not None
    monkeypatch.setattr(TableSnapshot, "commit", commit)
    table_of(lake).append([file])
    assert ("a", 1) in held(lake)
    assert disturbed == 3


# --- processes -------------------------------------------------------------------------------------------------------


def race(lake: Lake, tries: int) -> list[int]:
    """Two processes that commit the same log to the same table at the same time; how often each succeeded."""
    command = [sys.executable, table_writer.__file__, lake.url, json.dumps(lake.options), str(tries)]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("\n")
            racer.stdin.flush()
        return [int(racer.communicate(timeout=60)[0]) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()


@pytest.fixture(params=["directory", "object store"])
def shared_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    if request.param == "directory":
        yield Lake.at(tmp_path / "lake")
        return
    with object_store("lake") as options:
        yield Lake.at("s3://lake/some/where", **options)


def test_two_processes_at_once_never_write_a_row_twice(shared_lake: Lake) -> None:
    won = race(shared_lake, 5)
    assert sum(won) >= 5, "at least one of two commits on top of the same version succeeds"
    assert table_of(shared_lake).progress() == {"a": 2 * sum(won)}
    check(shared_lake)
    # Each of them begins with a table that does not exist, and one creates it.
    assert table_of(shared_lake).snapshot().version == sum(won)
    # The same of a file that only one can create.
    assert shared_lake.create("drivers/1", b"one")
    assert not shared_lake.create("drivers/1", b"other")
    assert shared_lake.read("drivers/1") == b"one"
    assert list(shared_lake.names("drivers/")) == ["drivers/1"]

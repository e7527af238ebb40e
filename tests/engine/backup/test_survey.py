"""What a pool has, without reading its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.object_store import object_store

from strandline.engine import Batch, Engine
from strandline.engine.backup import NoBackup, backup, list_backups, survey
from strandline.engine.backup import survey as module_function
from strandline.engine.backup.pool import Pool

assert module_function is survey


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data", seal=True)
    return tmp_path / "data"


def write(data: Path, *, seal: bool = False) -> None:
    with Engine.open(data, background=False) as engine:
        log = engine.find("a") or engine.create("a").wait()
        log.append(Batch([b"x" * 100] * 10)).wait()
        if seal:
            engine.seal()


def test_the_newest_backup_is_first_and_only_new_files_count_as_new(data: Path, tmp_path: Path) -> None:
    pool = str(tmp_path / "pool")
    first = backup(data, pool)
    write(data)
    second = backup(data, pool)
    found = survey(pool)
    assert [one.name for one in found.backups] == [second.name, first.name]
    assert found.total == 2
    newest, oldest = found.backups
    assert (newest.files, newest.bytes) == (second.files, second.bytes)
    assert (newest.segments, newest.sealed_records) == (1, 10)
    assert oldest.new_bytes == oldest.bytes
    assert newest.new_bytes == second.copied_bytes < newest.bytes
    assert [one.missing_files for one in found.backups] == [0, 0]
    assert all(one.verified_at is not None and one.verified_at <= newest.time for one in found.backups)
    assert found.intervals == list_backups(pool).intervals
    assert found.bytes == sum(
        sum(Pool(pool).sizes(folder).values()) for folder in ("segments", "checkpoints", "journal")
    )
    assert found.damaged == []


def test_files_that_are_gone_or_cut_are_missing(data: Path, tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    backup(data, str(pool))
    (segment,) = (pool / "segments").iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    for journal in (pool / "journal").iterdir():
        journal.unlink()
    (found,) = survey(str(pool)).backups
    assert found.missing_files == 2


def test_a_damaged_description_is_named(data: Path, tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    backup(data, str(pool))
    (description,) = (pool / "backups").iterdir()
    description.write_bytes(description.read_bytes().replace(b'"version":1', b'"version":7'))
    found = survey(str(pool))
    assert (found.backups, found.total) == ([], 1)
    assert description.name in found.damaged[0]


def test_a_slow_store_gets_no_further_request(data: Path, tmp_path: Path) -> None:
    pool = str(tmp_path / "pool")
    names = []
    for _ in range(3):
        names.append(backup(data, pool).name)
    times = iter([0.0, 100.0, 100.0, 100.0])
    found = survey(pool, seconds=10, clock=lambda: next(times))
    # The newest one in any case.
    assert [one.name for one in found.backups] == names[-1:]
    assert (found.total, found.files, found.backups[0].missing_files) == (3, None, None)


def test_a_directory_that_does_not_exist_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(NoBackup):
        survey(str(tmp_path / "nothing"))
    found = survey(str(tmp_path))
    assert (found.backups, found.total, found.intervals, found.damaged) == ([], 0, [], [])


def test_an_object_store_is_listed_page_by_page(data: Path) -> None:
    with object_store("backups") as options:
        report = backup(data, "s3://backups/here", options=options)
        found = survey("s3://backups/here", options=options)
        assert (found.total, found.files, found.backups[0].missing_files) == (1, report.files, 0)
        assert survey("s3://backups/there", options=options).total == 0

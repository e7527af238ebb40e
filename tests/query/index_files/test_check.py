from __future__ import annotations

from pathlib import Path

import pytest
from support.indexed_log import indexed_bed, small_files

from strandline.engine.disk import LocalDisk
from strandline.engine.verify.directory_check import Report, verify
from strandline.query.index_files.check import check_index_files


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with two index files."""
    small_files(monkeypatch)
    with indexed_bed(tmp_path) as bed:
        bed.fill(30)
        bed.index()
    return tmp_path


def checked(path: Path, *, fix: bool = False) -> Report:
    disk = LocalDisk(path)
    report = verify(disk, None)
    check_index_files(disk, report, fix=fix)
    return report


def files_of(path: Path) -> list[Path]:
    return sorted((path / "indexes").glob("*/*"))


def test_good_files_are_counted(path: Path) -> None:
    report = checked(path)
    assert report.sound
    assert report.index_files == 2


@pytest.mark.parametrize("how", ["cut", "changed", "empty", "another log's"])
def test_a_damaged_file_is_a_problem_until_it_is_repaired(path: Path, how: str) -> None:
    damaged = files_of(path)[0]
    raw = bytearray(damaged.read_bytes())
    if how == "cut":
        damaged.write_bytes(raw[:-20])
    elif how == "empty":
        damaged.write_bytes(b"")
    elif how == "changed":
        raw[raw.find(b"record")] ^= 1
        damaged.write_bytes(raw)
    else:
        (path / "indexes" / "00000077").mkdir()
        damaged = damaged.rename(path / "indexes" / "00000077" / damaged.name)
    (problem,) = checked(path).problems
    assert str(damaged.relative_to(path)) in problem
    assert damaged.exists()
    report = checked(path, fix=True)
    assert report.sound
    assert not report.lossy
    assert len(report.repairs) == 1
    assert not damaged.exists()
    assert checked(path).index_files == 1


def test_a_leftover_is_noted(path: Path) -> None:
    (path / "indexes" / "00000001" / "00000001-00000020-half.arrow.tmp").write_bytes(b"half")
    report = checked(path)
    assert report.sound
    assert len(report.notes) == 1

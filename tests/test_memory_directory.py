"""No test of a crash has its files in memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.document_tables import ROOT
from support.memory_directory import is_about_disks


def test_files_with_crashes_use_the_disk() -> None:
    signs = re.compile(r"\bFaultDisk\b|\.kill\(\)|\bSIGKILL\b|\bpower_cut\b")
    crashing = [path for path in (ROOT / "tests").rglob("test_*.py") if signs.search(path.read_text())]
    assert len(crashing) > 50
    assert [path for path in crashing if not is_about_disks(path, [])] == []


@pytest.mark.parametrize("name", ["tests/tables/test_where.py", "tests/protocols/streams/test_read.py"])
def test_others_do_not(name: str) -> None:
    assert not is_about_disks(ROOT / name, ["tmp_path"])
    assert is_about_disks(ROOT / name, ["start_server"]), "a server that the test can kill"


def test_a_directory_is_empty_and_the_tests_own(tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []

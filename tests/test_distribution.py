"""Long tests are started first, also after their files were moved."""

from __future__ import annotations

from support.distribution import LONG, FileScheduling, place
from support.document_tables import ROOT


def test_long_files_are_there_and_come_first() -> None:
    assert [name for name in LONG if not (ROOT / name).is_file()] == []
    assert [place(f"{name}::test_it[a]") for name in LONG] == [*range(len(LONG))]
    assert place("tests/other.py::test_it") == len(LONG)


def test_tests_of_a_file_or_of_a_group_belong_together() -> None:
    class Scheduling(FileScheduling):
        def __init__(self) -> None:
            pass

    scope = Scheduling()._split_scope
    assert scope("tests/a.py::test_it[x]") == scope("tests/a.py::Class::test_it") == "tests/a.py"
    assert scope("tests/a.py::test_it@spark") == scope("tests/b.py::test_it[x@y]@spark") == "spark"

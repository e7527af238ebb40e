from __future__ import annotations

import pytest

from strandline.engine.disk import LocalDisk
from strandline.engine.reads.sealed_rows import RowRange
from strandline.query.index_files.answers import Usable
from strandline.query.index_files.directory import IndexDirectory
from strandline.query.index_files.file import Info
from strandline.query.index_files.plan import MAX_BUILD_ROWS, Build, Join, plan_next
from strandline.query.index_files.table import IndexEntry

SOURCE = IndexDirectory(LocalDisk("unused"))


def sealed(first: int, last: int, *, cold: bool = False) -> RowRange:
    rows = last - first + 1
    return RowRange(first, last, rows, rows * 100, cold)


def file(first: int, last: int, *, rewritten: tuple[int, ...] = (), rollups: str = "now") -> Usable:
    info = Info(
        directory="d",
        log="l",
        epoch=1,
        first=first,
        last=last,
        versions=(),
        plan="p",
        rollups=rollups,
        erasures=0,
        records=last - first + 1,
    )
    return Usable(IndexEntry(info, f"{first}-{last}-{rollups}", 1000, "", 0), SOURCE, rewritten)


def planned(parts: list[RowRange], files: list[Usable], lake: list[tuple[int, int]] | None = None) -> object:
    last = parts[-1].last
    return plan_next(parts, [each.entry for each in files], files, lake or [], [(1, last)], "now").step


def test_a_long_range_is_indexed_in_pieces() -> None:
    parts = [sealed(1, 200_000)]
    assert planned(parts, []) == Build(1, MAX_BUILD_ROWS, MAX_BUILD_ROWS, False)
    step = planned(parts, [file(1, MAX_BUILD_ROWS)])
    assert step == Build(MAX_BUILD_ROWS + 1, 2 * MAX_BUILD_ROWS, MAX_BUILD_ROWS, False)


def test_large_records_make_smaller_pieces() -> None:
    step = planned([RowRange(1, 10_000, 10_000, 10_000 * 100_000, False)], [])
    assert isinstance(step, Build)
    assert step.rows < 1000


def test_the_lake_answers_for_the_cold_tier_and_the_server_for_the_rest() -> None:
    parts = [sealed(1, 50_000, cold=True), sealed(50_001, 60_000)]
    assert planned(parts, [], [(1, 50_000)]) == Build(50_001, 60_000, 10_000, False)
    assert planned(parts, []) == Build(1, 60_000, 60_000, True)


def test_a_cold_file_with_many_rewritten_records_is_read_from_the_cold_tier() -> None:
    parts = [sealed(1, 50_000, cold=True)]
    assert planned(parts, [file(1, 50_000, rewritten=tuple(range(1, 600)))]) == Build(1, 50_000, 50_000, True)


def test_a_file_without_current_rollups_is_written_again() -> None:
    old = file(1, 50_000, rollups="before")
    assert planned([sealed(1, 50_000)], [old]) == Join((old.entry,))
    assert planned([sealed(1, 50_000)], [old, file(1, 50_000)]) is None


@pytest.mark.parametrize("sizes", [[5000] * 4, [20_000] * 4, [60_000, 5000, 5000, 5000, 5000]])
def test_four_neighbours_of_similar_size_are_merged(sizes: list[int]) -> None:
    files, first = [], 1
    for size in sizes:
        files.append(file(first, first + size - 1))
        first += size
    assert planned([sealed(1, first - 1)], files) == Join(tuple(each.entry for each in files[-4:]))


def test_large_files_are_not_merged() -> None:
    files = [file(1 + 262_144 * at, 262_144 * (at + 1)) for at in range(8)]
    assert planned([sealed(1, 262_144 * 8)], files) is None

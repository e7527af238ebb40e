from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from strandline.engine.disk import LocalDisk
from strandline.engine.reads.sealed_rows import RowRange
from strandline.query.index_files.answers import Usable
from strandline.query.index_files.directory import IndexDirectory
from strandline.query.index_files.file import Info
from strandline.query.index_files.plan import MAX_BUILD_ROWS, MAX_FILE_ROWS, Build, Join, plan_next
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


def in_a_row(sizes: list[int]) -> list[Usable]:
    files, first = [], 1
    for size in sizes:
        files.append(file(first, first + size - 1))
        first += size
    return files


def planned_for(files: list[Usable]) -> object:
    return planned([sealed(1, files[-1].last)], files)


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        pytest.param([5000] * 4, slice(0, 4), id="small"),
        pytest.param([65_536] * 4, slice(0, 4), id="large"),
        pytest.param([60_000, 5000, 5000, 5000, 5000], slice(1, 5), id="after-a-larger-one"),
        pytest.param([65_536, 53_000, 65_536, 65_536], slice(0, 4), id="mixed"),
        pytest.param([90_000, 70_000, 80_000, 90_000], slice(0, 3), id="three-are-enough-for-a-full-file"),
        pytest.param([250_000, 7000, 65_536, 65_536, 65_536], slice(1, 5), id="a-small-one-between-larger-ones"),
    ],
)
def test_neighbours_are_merged(sizes: list[int], merged: slice) -> None:
    files = in_a_row(sizes)
    assert planned_for(files) == Join(tuple(each.entry for each in files[merged]))


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([262_144] * 8, id="full"),
        pytest.param([5000] * 3, id="few"),
        pytest.param([200_000, 5000, 5000, 5000], id="most-of-it-in-one"),
        pytest.param([200_000, 90_000], id="too-large-together"),
        pytest.param([250_000, 7000, 90_000], id="too-small-to-be-worth-a-copy"),
    ],
)
def test_a_merge_must_be_worth_it(sizes: list[int]) -> None:
    assert planned_for(in_a_row(sizes)) is None


def test_files_with_a_gap_between_them_are_not_merged() -> None:
    files = [file(at * 10_000 + 1, at * 10_000 + 5000) for at in range(8)]
    parts = [sealed(each.first, each.last) for each in files]
    assert planned(parts, files) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_long_log_has_few_files_and_copies_a_record_a_few_times(seed: int) -> None:
    sizes, files, copies = Random(seed), list[Usable](), Counter[tuple[int, int]]()
    for _ in range(200):
        first = files[-1].last + 1 if files else 1
        # A round of sealing ends with a smaller file than a job can make.
        files.append(file(first, first + sizes.choice([4096, MAX_BUILD_ROWS, sizes.randint(4096, MAX_BUILD_ROWS)]) - 1))
        while isinstance(step := planned_for(files), Join):
            begin, end = step.entries[0].info.first, step.entries[-1].info.last
            copied = 1 + max(copies[entry.info.first, entry.info.last] for entry in step.entries)
            files = sorted(
                [*(each for each in files if each.entry not in step.entries), file(begin, end)],
                key=lambda each: each.first,
            )
            copies[begin, end] = copied
    assert len(files) < 1.6 * files[-1].last / MAX_FILE_ROWS
    assert max(copies.values()) <= 6

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.companion_rounds import registry_of
from support.searched_log import DECLARED

from strandline.engine.ownership import LogOwner
from strandline.history.log_info import LogInfo
from strandline.pipeline.companions.plan import (
    FEW_RECORDS,
    FEW_WAIT_MS,
    Wish,
    continued,
    counted,
    end_of,
    is_due,
    lines_of,
    merges_of,
    packed,
    stretches_of,
    wish_of,
)
from strandline.query.config_parser import parse_search_config
from strandline.query.index_files.file import Info
from strandline.query.index_files.table import IndexEntry
from strandline.schema.log_search import with_search

NOW = 1_000_000_000


def log(head: int = 100, registry: bytes | None = None) -> LogInfo:
    return LogInfo(name="log", epoch=7, head=head, earliest=1, floor=1, last_ts=0, registry=registry)


def entry(
    first: int, last: int, *, plan: str = "p", rollups: str = "r", records: int | None = None, version: int = 1
) -> IndexEntry:
    info = Info(
        directory="d", log="log", epoch=7, first=first, last=last, versions=((first, version),), plan=plan,
        rollups=rollups, erasures=0, records=last - first + 1 if records is None else records,
    )  # fmt: skip
    return IndexEntry(info, f"pieces/7/{plan}-{rollups}-{first}-{last}", 1, "", NOW)


def wish(head: int = 100, versions: list[tuple[int, int]] | None = None) -> Wish:
    return Wish(log(head), "p", "r", versions or [(1, 1)])


class Part(NamedTuple):
    log: str
    epoch: int
    first: int
    last: int
    rows: int

    def read(self, batch_rows: int = 0) -> None:
        raise AssertionError


def part(first: int, last: int) -> Part:
    return Part("log", 7, first, last, last - first + 1)


def test_only_a_log_with_fields_to_search_for_wishes_for_something() -> None:
    assert wish_of(log()) is None
    assert wish_of(log(registry=registry_of(None).stored())) is None
    found = wish_of(log(registry=registry_of(DECLARED).stored()))
    assert found is not None
    assert list(found.versions) == [(1, 1)]
    assert found.plan != found.rollups


def test_a_log_with_fields_and_without_a_schema_wishes_for_them_without_versions() -> None:
    found = wish_of(log(registry=with_search(None, "log", parse_search_config(DECLARED))))
    assert found is not None
    assert list(found.versions) == []


def test_a_line_is_what_follows_each_other_from_the_first_record_on() -> None:
    entries = [entry(21, 30), entry(1, 10), entry(11, 20), entry(41, 50)]
    lines = lines_of(wish(), entries)
    assert [(each.info.first, each.info.last) for each in lines.line] == [(1, 10), (11, 20), (21, 30)]
    assert lines.covered == 30
    assert lines.stale == [entry(41, 50)]
    assert not lines.is_replaced
    assert lines_of(wish(), []).covered == 0


def test_companions_of_another_plan_or_other_versions_are_stale() -> None:
    entries = [entry(1, 10, plan="old"), entry(1, 8), entry(9, 20, version=3)]
    lines = lines_of(wish(), entries)
    assert lines.line == [entries[1]]
    assert lines.old == [entries[0], entries[2]]


def test_other_rollups_over_the_same_columns_go_on_where_the_line_ends() -> None:
    entries = [entry(1, 10, rollups="old"), entry(11, 20, rollups="old"), entry(1, 10)]
    lines = lines_of(wish(), entries)
    assert lines.line == [entries[2]]
    assert lines.renewable == [entries[1]]
    assert lines.stale == [entries[0]]
    assert not lines.is_replaced
    assert lines_of(wish(), [*entries, entry(11, 20)]).is_replaced


def test_rollups_count_the_line_that_has_come_furthest() -> None:
    old, new, rest = entry(1, 20, rollups="old"), entry(1, 10), entry(11, 20)
    assert counted([old, new], wish()) == [old]
    assert counted([old, new, rest], wish()) == [new, rest]
    assert counted([old], None) == [old]
    assert counted([], None) == []


def test_few_records_wait_for_more_but_not_for_ever() -> None:
    lines = lines_of(wish(), [entry(1, 100)])

    def due(head: int, now: int = NOW, *, everything: bool = False) -> bool:
        return is_due(wish(head), lines, now, everything=everything)

    assert not due(100, everything=True)
    assert not due(101)
    assert due(101, everything=True)
    assert due(101, NOW + FEW_WAIT_MS)
    assert due(100 + FEW_RECORDS)
    assert is_due(wish(1), lines_of(wish(), []), NOW, everything=False)


def test_short_logs_of_tables_and_collections_get_a_companion_only_in_a_complete_round() -> None:
    def due(head: int, *, everything: bool = False) -> bool:
        owned = wish(head)._replace(info=replace(log(head), owner=LogOwner("table", "vote")))
        return is_due(owned, lines_of(owned, []), NOW, everything=everything)

    assert not due(FEW_RECORDS - 1)
    assert due(FEW_RECORDS - 1, everything=True)
    assert due(FEW_RECORDS)


def test_what_was_made_behind_a_gap_is_left_out() -> None:
    following, rest = continued(10, [entry(31, 40), entry(11, 20)])
    assert following == [entry(11, 20)]
    assert rest == [entry(31, 40)]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), max_size=30), st.integers(1, 40), st.integers(0, 9))
def test_stretches_have_every_piece_once_and_leave_no_seq_out(
    shape: list[tuple[int, int]], rows: int, beyond: int
) -> None:
    pieces, at = [], 5
    for length, gap in shape:
        pieces.append(part(at + gap + 1, at + gap + length))
        at += gap + length
    stretches = stretches_of(pieces, 5, at + beyond, rows)
    assert [piece for stretch in stretches for piece in stretch.pieces] == pieces
    assert bool(stretches) == bool(pieces)
    after = 5
    for stretch in stretches:
        assert stretch.first == after + 1
        assert stretch.first <= stretch.pieces[0].first
        assert stretch.pieces[-1].last <= stretch.last
        assert len(stretch.pieces) == 1 or stretch.rows <= rows + rows // 4
        after = stretch.last
    assert not stretches or after == at + beyond


@given(st.lists(st.integers(0, 50)), st.integers(1, 60))
def test_packs_are_full_and_in_order(weights: list[int], size: int) -> None:
    packs = list(packed(enumerate(weights), size))
    assert [thing for pack in packs for thing in pack] == list(range(len(weights)))
    for pack in packs:
        assert len(pack) == 1 or sum(weights[thing] for thing in pack) <= size


@given(st.lists(st.integers(1, 100), min_size=1, max_size=200))
def test_a_line_that_is_merged_whenever_it_grows_stays_short(sizes: list[int]) -> None:
    line: list[IndexEntry] = []
    written = 0
    for size in sizes:
        line.append(entry(end_of(line) + 1, end_of(line) + size))
        for group in merges_of(line, 10**6):
            merged = entry(group[0].info.first, group[-1].info.last)
            line = [each for each in line if each not in group]
            line = sorted([*line, merged], key=lambda each: each.info.first)
            written += merged.info.records
    total = sum(sizes)
    assert end_of(line) == total
    assert len(line) <= total.bit_length() + 1
    assert written <= 3 * total * total.bit_length()


def test_what_is_large_enough_is_left_alone() -> None:
    assert merges_of([entry(1, 60), entry(61, 120)], 100) == []
    assert merges_of([entry(1, 40), entry(41, 80)], 100) == [[entry(1, 40), entry(41, 80)]]

"""Companions made of records, and of companions."""

from __future__ import annotations

from typing import Any

import pytest
from support.companion_lake import CompanionBed
from support.searched_log import DECLARED, NOW

from strandline.query.config_parser import parse_search_config
from strandline.query.index_files.builder import CannotMerge, merge, plan_id_of, rollups_id, versions_between
from strandline.query.index_files.file import IndexFile, array_name, read_index_file
from strandline.query.index_files.table import IndexEntry, listed_in, listed_table, rollup_rows
from strandline.query.index_files.table_schemas import ROLLUP_ROWS

SECRET = "Geheimnis"


def rows_of(companion: IndexFile) -> list[str]:
    """Groups come in any order, and so do the buckets of a histogram."""
    rows = rollup_rows(companion).to_pylist()
    return sorted(str({**row, "histogram": sorted(row["histogram"] or [])}) for row in rows)


def document(number: int, **more: Any) -> dict[str, Any]:
    return {
        "at": NOW + number * 500, "service": f"s{number % 3}", "status": 200 + number, "took": number / 4,
        "ok": number % 2 == 0, "note": f"number {number}", **more,
    }  # fmt: skip


def test_erased_records_leave_no_byte_in_the_merged_file(covered: CompanionBed) -> None:
    for number in range(30):
        secret = number in (4, 17)
        more = {"tags": SECRET, "service": SECRET, "note": f"a {SECRET} b", "deep": {"title": SECRET}} if secret else {}
        covered.append(document(number, **more))
    covered.cover((1, 15), (16, 30))
    names = {SECRET.encode(), SECRET.lower().encode()}
    before = covered.listed()
    assert all(any(name in covered.lake.read(entry.path) for name in names) for entry in before)
    entry = covered.merge(before, without=[5, 18])
    content = covered.lake.read(entry.path)
    assert content is not None
    assert not any(name in content for name in names)
    assert (entry.info.first, entry.info.last, entry.info.records) == (1, 30, 28)
    assert SECRET.lower() not in str(rollup_rows(covered.companion(entry)).to_pylist())


def test_what_does_not_stand_any_more_is_left_out(covered: CompanionBed) -> None:
    covered.append(*map(document, range(20)))
    covered.cover((1, 20))
    covered.log.delete(seqs=[3, 4]).wait()
    entry = covered.merge(covered.listed(), live=covered.standing())
    chunk = covered.companion(entry).chunk()
    assert chunk is not None
    assert chunk.seqs.tolist() == [seq for seq in range(1, 21) if seq not in (3, 4)]


def test_merging_gives_what_building_would_have_given(covered: CompanionBed) -> None:
    covered.append(*map(document, range(50)), document(50, status=2**80))
    whole = covered.made(1, 51)
    parts = [covered.companion(covered.put(covered.made(first, last))) for first, last in ((1, 20), (21, 21), (22, 51))]
    merged = merge(parts, covered.config)
    assert merged.info == whole.info
    one, other = read_index_file(merged.content), read_index_file(whole.content)
    assert one.head.columns == other.head.columns
    for column in one.head.columns:
        for name in (array_name(column.name, part) for part in column.parts):
            assert one.array(name).tolist() == other.array(name).tolist()
    assert rows_of(one) == rows_of(other)


def test_texts_without_positions_are_merged_from_their_postings(covered: CompanionBed) -> None:
    fields = {name: {**field, "positions": False} for name, field in DECLARED["fields"].items()}
    covered.config = parse_search_config({**DECLARED, "fields": fields})
    covered.append(*map(document, range(40)), document(40, note=["b a b", "a", "", "a a"]))
    parts = [covered.companion(covered.put(covered.made(first, last))) for first, last in ((1, 20), (21, 41))]
    whole, merged = (read_index_file(each.content) for each in (covered.made(1, 41), merge(parts, covered.config)))
    assert whole.head.columns == merged.head.columns
    note = next(column for column in whole.head.columns if column.name == "note")
    assert "positions" not in note.parts
    for name in (array_name("note", part) for part in note.parts):
        assert whole.array(name).tolist() == merged.array(name).tolist()


def test_only_neighbours_of_one_log_and_plan_are_merged(covered: CompanionBed) -> None:
    covered.append(*map(document, range(10)))
    first, _, last = (covered.companion(covered.put(covered.made(*each))) for each in ((1, 3), (4, 6), (7, 10)))
    with pytest.raises(CannotMerge, match="does not follow"):
        merge([first, last], covered.config)
    with pytest.raises(CannotMerge, match="no index files to merge"):
        merge([], covered.config)
    fields = {name: field for name, field in DECLARED["fields"].items() if name != "title"}
    with pytest.raises(CannotMerge, match="plan"):
        merge([first], parse_search_config({**DECLARED, "fields": fields}))


def test_other_rollups_are_added_up_by_merging_and_are_another_id(covered: CompanionBed) -> None:
    covered.append(*map(document, range(10)))
    covered.cover((1, 10))
    rollups = {
        "requests": {**DECLARED["rollups"]["requests"], "intervals": ["1h"]},
        "parts": DECLARED["rollups"]["parts"],
    }
    changed = parse_search_config({**DECLARED, "rollups": rollups})
    assert plan_id_of(changed) == plan_id_of(covered.config)
    assert rollups_id(changed) != rollups_id(covered.config)
    merged = merge([covered.companion(covered.listed()[0])], changed)
    assert merged.info.rollups == rollups_id(changed)


@pytest.mark.parametrize(
    "change",
    [{"include": "tag:other"}, {"include": None}, {"dimensions": ["service"]}, {"timestampField": "other"}],
    ids=str,
)
def test_whatever_changes_what_a_rollup_adds_up_changes_its_id(change: dict[str, Any]) -> None:
    fields = {**DECLARED["fields"], "other": {**DECLARED["fields"]["at"]}}
    declared = {**DECLARED, "fields": fields}
    rollup = {key: value for key, value in {**DECLARED["rollups"]["requests"], **change}.items() if value is not None}
    changed = {**declared, "rollups": {**DECLARED["rollups"], "requests": rollup}}
    assert rollups_id(parse_search_config(changed)) != rollups_id(parse_search_config(declared))


def test_another_meaning_of_an_alias_is_another_rollup() -> None:
    rollup = {**DECLARED["rollups"]["requests"], "include": "a:x"}
    declared = {**DECLARED, "rollups": {"requests": rollup}}
    one, other = ({**declared, "aliases": {"a": name}} for name in ("service", "tag"))
    assert plan_id_of(parse_search_config(one)) == plan_id_of(parse_search_config(other))
    assert rollups_id(parse_search_config(one)) != rollups_id(parse_search_config(other))


def test_versions_are_those_that_the_range_is_read_under() -> None:
    versions = [(1, 1), (10, 2), (20, 3)]
    assert versions_between(versions, 1, 9) == ((1, 1),)
    assert versions_between(versions, 5, 10) == ((5, 1), (10, 2))
    assert versions_between(versions, 10, 30) == ((10, 2), (20, 3))
    assert versions_between([], 5, 6) == ((5, 0),)
    assert versions_between([(8, 1)], 5, 9) == ((5, 0), (8, 1))


def test_the_rows_of_the_table_are_what_is_said_of_a_companion(covered: CompanionBed) -> None:
    covered.append(*map(document, range(4)))
    entry = IndexEntry.of(covered.made(1, 4), "pieces/one.arrow", NOW)
    assert listed_in(listed_table([entry])) == [entry]


def test_rollups_are_told_as_rows(covered: CompanionBed) -> None:
    covered.append(*map(document, range(8)))
    rows = rollup_rows(covered.companion(covered.put(covered.made(1, 8))))
    assert rows.schema == ROLLUP_ROWS
    found = [row for row in rows.to_pylist() if row["measure"] == "latency" and row["interval_ms"] == 60_000]
    assert sum(row["count"] for row in found) == 8
    assert sum(row["sum"] for row in found) == sum(number / 4 for number in range(8))
    assert {dict(row["dimensions"])["service"] for row in found} == {"s0", "s1", "s2"}
    assert sum(weight for row in found for _, weight in row["histogram"]) == 8

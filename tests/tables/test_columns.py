"""Counts and groups: right after every kind of change, and kept up instead of made anew."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.tables_in_process import Bed, Vote, seqs

from strandline.engine import Page
from strandline.tables import Table, TableError, columns, make_log
from strandline.tables import columns as counting
from strandline.tables.columns import RowColumn, sorted_seqs, text_of

ANY = make_log("any", parent="p", schema={"type": "object"}, soft_delete=True)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seqs of all rows that columns read."""
    found: list[int] = []
    take = RowColumn._take

    def noting(self: RowColumn, page: Page) -> None:
        found.extend(page.seqs)
        take(self, page)

    monkeypatch.setattr(RowColumn, "_take", noting)
    return found


def append(bed: Bed, table: Table, *values: Any) -> None:
    bed.done(table.append_bulk("p", [{"v": value} for value in values]))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"), ("", ""), (1, "1"), (1.0, "1"), (1.5, "1.5"), (True, "true"), (False, "false"), (None, "null"),
        ([1, "a"], '[1,"a"]'), ({"a": 1}, '{"a":1}'), (-3, "-3"),
    ],
)  # fmt: skip
def test_groups_are_named_by_the_value_as_text(bed: Bed, value: Any, text: str) -> None:
    table = bed.bind(ANY)["any"]
    append(bed, table, value)
    assert text_of(value) == text
    assert table.counts("p", "v").counts == {text: 1}
    assert list(table.indexed("p", "v")) == [text]


def test_rows_without_the_field_count_as_null(bed: Bed) -> None:
    table = bed.bind(ANY)["any"]
    bed.done(table.append("p", {"w": 1}))
    append(bed, table, None, 3)
    assert table.counts("p", "v").counts == {"null": 2, "3": 1}


def test_rows_can_be_counted_by_their_author(bed: Bed) -> None:
    table = bed.bind(ANY)["any"]
    for user in ("u", None, "null", "u"):
        bed.done(table.append("p", {"v": 1}, user=user))
    assert table.counts("p", "userId").counts == {"u": 2, "": 1, "null": 1}
    assert table.counts("p", "v", user="null").counts == {"1": 1}
    assert seqs(table.indexed("p", "userId")["u"]) == [4, 1]


def test_counts_follow_every_kind_of_change(bed: Bed) -> None:
    table = bed.bind(ANY)["any"]
    append(bed, table, "a", "a", "b", "c")

    def counts() -> dict[str, int]:
        groups = table.indexed("p", "v")
        found = table.counts("p", "v").counts
        assert found == {value: len(rows) for value, rows in groups.items()}
        return found

    assert counts() == {"a": 2, "b": 1, "c": 1}
    bed.done(table.update("p:1", {"v": "d"}))
    assert counts() == {"a": 1, "b": 1, "c": 1, "d": 1}
    bed.done(table.rm("p:2"))
    assert counts() == {"b": 1, "c": 1, "d": 1}
    bed.done(table.purge_by_parent("p"))
    assert counts() == {}
    append(bed, table, "b")
    assert counts() == {"b": 1}
    bed.done(table.restore("p:2"))
    assert counts() == {"a": 1, "b": 1}
    bed.done(table.restore_by_parent("p"))
    bed.done(table.update("p:4", {"v": "b"}))
    bed.done(table.rm("p:1", hard=True))
    assert counts() == {"a": 1, "b": 3}
    bed.done(table.purge_by_parent("p", hard=True))
    assert counts() == {}


def test_a_row_that_was_edited_and_hidden_when_it_was_first_counted_counts_when_it_comes_back(bed: Bed) -> None:
    table = bed.bind(ANY)["any"]
    append(bed, table, "a", "b", "c")
    bed.done(table.update("p:2", {"v": "x"}))
    bed.done(table.rm("p:2"))
    assert table.counts("p", "v").counts == {"a": 1, "c": 1}
    bed.done(table.restore("p:2"))
    assert table.counts("p", "v").counts == {"a": 1, "x": 1, "c": 1}
    assert table.counts("p", "userId").counts == {"": 3}


def test_a_row_is_read_once_and_again_only_when_it_was_edited(bed: Bed, read: list[int]) -> None:
    table = bed.bind(ANY)["any"]
    append(bed, table, *"abc" * 30)
    table.counts("p", "v")
    assert read == list(range(1, 91))
    read.clear()
    append(bed, table, "a", "b")
    table.counts("p", "v")
    table.indexed("p", "v")
    assert read == [91, 92]
    read.clear()
    bed.done(table.update("p:7", {"v": "z"}))
    bed.done(table.rm("p:8"))
    bed.done(table.purge_by_parent("p"))
    bed.done(table.restore_by_parent("p"))
    assert table.counts("p", "v").counts == {"a": 30, "b": 31, "c": 30, "z": 1}
    assert read == [7]


def test_only_what_was_asked_lately_is_kept(bed: Bed, read: list[int]) -> None:
    tables = bed.bind(ANY)
    tables.columns._budget = 10_000
    table = tables["any"]
    append(bed, table, "a")
    for field in ("v", "w", "x", "v"):
        table.counts("p", field)
    assert len(tables.columns._columns) <= 2
    assert read == [1, 1, 1, 1]


def test_too_many_different_values_are_refused(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_VALUES", 10)
    table = bed.bind(ANY)["any"]
    append(bed, table, *range(11))
    for use in (table.counts, table.indexed, table.counts):
        with pytest.raises(TableError) as error:
            use("p", "v")
        assert error.value.code == "VALIDATION_FAILED"
    bed.done(table.rm("p:1"))
    bed.done(table.rm("p:1", hard=True))
    assert table.counts("p", "v").total == 10


def test_groups_that_would_be_too_large_together_are_refused(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX_GROUPED", 20)
    table = bed.bind(ANY)["any"]
    append(bed, table, *"ab" * 20)
    with pytest.raises(TableError) as error:
        table.indexed("p", "v", limit=11)
    assert (error.value.code, error.value.fields) == ("VALIDATION_FAILED", ["limit"])
    groups = table.indexed("p", "v", limit=10)
    assert {value: seqs(rows) for value, rows in groups.items()} == {
        "a": list(range(39, 20, -2)), "b": list(range(40, 20, -2)),
    }  # fmt: skip


def test_many_rows_in_many_pieces(plain_bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "READ_ROWS", 64)
    table = plain_bed.bind(make_log("vote", parent="p", schema=Vote, soft_delete=True))["vote"]
    expected: Counter[str] = Counter()
    for first in range(0, 2000, 100):
        table.append_bulk("p", [Vote(n % 7) for n in range(first, first + 100)]).wait()
        expected.update(str(n % 7) for n in range(first, first + 100))
        if first % 300 == 0:
            table.rm_bulk([f"p:{first + n}" for n in range(1, 100, 9)]).wait()
            expected.subtract(str((first + n - 1) % 7) for n in range(1, 100, 9))
            plain_bed.engine.seal()
        assert table.counts("p", "optionIdx").counts == expected
    table.restore_by_parent("p").wait()
    assert table.counts("p", "optionIdx").counts == Counter(str(n % 7) for n in range(2000))


def test_an_edit_that_was_hidden_with_its_row_counts_when_the_row_comes_back(bed: Bed) -> None:
    table = bed.bind(ANY)["any"]
    append(bed, table, "a", "b", "c")
    assert table.counts("p", "v").counts == {"a": 1, "b": 1, "c": 1}
    for restore in (lambda: table.restore("p:2"), lambda: table.restore_by_parent("p")):
        value = str(table.read("p:2").updated_at)
        bed.done(table.update("p:2", {"v": value}))
        bed.done(table.rm("p:2"))
        assert table.counts("p", "v").counts == {"a": 1, "c": 1}
        bed.done(restore())
        assert table.counts("p", "v").counts == {"a": 1, value: 1, "c": 1}


def test_rows_are_sorted_by_a_field(bed: Bed) -> None:
    table = bed.bind(ANY)["any"]
    append(bed, table, "b", 10, None, 9, "A", 1.5, True)

    def order(*, descending: bool) -> list[int]:
        return sorted_seqs(table, table.view("p"), "v", descending)

    assert order(descending=False) == [6, 4, 2, 5, 1, 7, 3]
    assert order(descending=True) == [7, 1, 5, 2, 4, 6, 3]
    bed.done(table.update("p:3", {"v": 100}))
    bed.done(table.rm("p:4"))
    assert order(descending=False) == [6, 2, 3, 5, 1, 7]
    assert sorted_seqs(table, table.view("empty"), "v", False) == []


def test_readers_sort_their_own_rows(bed: Bed) -> None:
    table = bed.bind(ANY)["any"]
    for user, value in (("ann", 2), ("bob", 3), ("ann", 1)):
        bed.done(table.append("p", {"v": value}, user=user))
    assert sorted_seqs(table, table.view("p", user="ann"), "v", False) == [3, 1]
    assert sorted_seqs(table, table.view("p"), "userId", True) == [2, 1, 3]


def test_only_so_many_rows_can_be_sorted(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    table = bed.bind(ANY)["any"]
    append(bed, table, 1, 2, 3)
    monkeypatch.setattr(columns, "MAX_SORTED", 2)
    with pytest.raises(TableError, match="p has 3 rows; at most 2 can be sorted by a field"):
        sorted_seqs(table, table.view("p"), "v", False)

"""Pages are bounded, whatever is asked for, and go on where they ended."""

from __future__ import annotations

import pytest
from support.tables_in_process import Bed, Vote, seqs

from strandline.tables import Table, make_log
from strandline.tables import view as viewing
from strandline.tables.rows import Counts, RowPage, RowsAfter

VOTE = make_log("vote", parent="room", schema=Vote, soft_delete=True)
AUTHORS = {"u": {"name": "Uma"}}


def with_rows(bed: Bed, count: int) -> Table:
    votes = bed.bind(VOTE)["vote"]
    for first in range(0, count, 100):
        items = [Vote(seq) for seq in range(first, min(first + 100, count))]
        votes.append_bulk("r", items, user="u" if first == 0 else "v").wait()
    bed.settle()
    return votes


def test_a_page_ends_after_looking_at_so_many_rows_and_says_where_to_go_on(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewing, "SCAN_ROWS", 200)
    monkeypatch.setattr(viewing, "READ_ROWS", 100)
    votes = with_rows(bed, 500)
    page = votes.list("r", user="u", limit=10)
    assert (page.rows, page.is_done, page.cursor) == ([], False, "301")
    page = votes.list("r", user="u", limit=10, cursor=page.cursor)
    assert (page.rows, page.is_done, page.cursor) == ([], False, "101")
    page = votes.list("r", user="u", limit=10, cursor=page.cursor)
    assert (seqs(page.rows), page.cursor) == (list(range(100, 90, -1)), "91")


def test_rows_after_a_seq_are_looked_for_in_pieces(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewing, "SCAN_ROWS", 200)
    monkeypatch.setattr(viewing, "READ_ROWS", 100)
    votes = with_rows(bed, 500)
    page = votes.list_after("r", 0, user="v", limit=10)
    assert (seqs(page.rows), page.has_more, page.last) == (list(range(101, 111)), True, 110)
    page = votes.list_after("r", 100, user="u", limit=10)
    assert (page.rows, page.has_more, page.last, page.head) == ([], True, 300, 500)
    page = votes.list_after("r", 300, user="u", limit=10)
    assert (page.rows, page.has_more, page.last) == ([], False, 500)


@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
def test_all_pages_together_are_all_rows(bed: Bed, limit: int) -> None:
    votes = with_rows(bed, 120)
    bed.done(votes.rm_bulk([f"r:{seq}" for seq in range(30, 60)]))
    expected = [*range(120, 59, -1), *range(29, 0, -1)]
    found, cursor, is_done = [], None, False
    while not is_done:
        page = votes.list("r", limit=limit, cursor=cursor)
        found += seqs(page.rows)
        cursor, is_done = page.cursor, page.is_done
    assert found == expected
    found, after, has_more = [], 0, True
    while has_more:
        rows = votes.list_after("r", after, limit=limit)
        found += seqs(rows.rows)
        after, has_more = rows.last, rows.has_more
    assert found == expected[::-1]


def test_a_page_of_large_rows_has_fewer(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewing, "PAGE_BYTES", 2500)
    votes = bed.bind(VOTE)["vote"]
    bed.done(votes.append_bulk("r", [Vote(n, comment="x" * 1000) for n in range(5)]))
    page = votes.list("r")
    assert (seqs(page.rows), page.is_done, page.cursor) == ([5, 4], False, "4")
    rows = votes.list_after("r", 0)
    assert (seqs(rows.rows), rows.has_more, rows.last) == ([1, 2], True, 2)


def test_rows_are_shown_with_their_author_and_whether_they_are_the_readers_own(bed: Bed) -> None:
    asked: list[str] = []

    def look_up(user: str) -> dict[str, str] | None:
        asked.append(user)
        return AUTHORS.get(user)

    votes = bed.bind(make_log("vote", parent="room", schema=Vote, pub=True, with_author=look_up))["vote"]
    for user in ("u", "v", None, "u"):
        bed.done(votes.append("r", Vote(0), user=user))
    asked.clear()
    shown = [row.to_json() for row in votes.list("r", public=True, user="u").rows]
    assert [(row["author"], row["own"], row["userId"]) for row in shown] == [
        ({"name": "Uma"}, True, "u"), (None, False, None), (None, False, "v"), ({"name": "Uma"}, True, "u"),
    ]  # fmt: skip
    assert sorted(asked) == ["u", "v"]
    assert "own" not in votes.list("r", public=True).rows[0].to_json()
    updated = bed.done(votes.update("r:1", {"optionIdx": 1}, user="u"))
    assert (updated.author, updated.own) == ({"name": "Uma"}, True)


def test_a_view_says_what_its_reader_sees(bed: Bed) -> None:
    votes = with_rows(bed, 101)
    view = votes.view("r", user="u")
    assert [view.shows(row.user) for row in votes.list_after("r", 99).rows] == [True, False]
    assert view.log is not None
    assert votes.view("nothing yet").log is None
    assert votes.list("nothing yet") == RowPage([], True, None)
    assert votes.list_after("nothing yet", 3) == RowsAfter([], 0, False, 3)
    assert votes.counts("nothing yet", "optionIdx") == Counts({}, 0)
    assert votes.indexed("nothing yet", "optionIdx") == {}


def test_rows_that_match_a_condition_are_read_oldest_first(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewing, "READ_ROWS", 10)
    view = with_rows(bed, 50).view("r")
    first = view.list_after(0, 3, lambda row: row.seq % 20 == 0)
    assert ([row.seq for row in first.rows], first.has_more) == ([20, 40], False)
    one = view.list_after(0, 1, lambda row: row.seq % 20 == 0)
    assert ([row.seq for row in one.rows], one.has_more, one.last) == ([20], True, 20)
    assert [row.seq for row in view.list_after(one.last, 1, lambda row: row.seq % 20 == 0).rows] == [40]
    monkeypatch.setattr(viewing, "SCAN_ROWS", 20)
    nothing = view.list_after(0, 1, lambda row: row.seq == 45)
    assert (nothing.rows, nothing.has_more, nothing.last) == ([], True, 20)

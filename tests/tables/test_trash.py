"""The trash: removed rows that can be restored, with the time and the user of their removal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.tables_in_process import NOW, Bed, Poll, Vote, seqs

from strandline.tables import Hooks, Table, TableError, User, make_log
from strandline.tables import view as views

POLL = make_log("poll", parent="site", schema=Poll, soft_delete=True)
VOTE = make_log("vote", parent=POLL, schema=Vote, soft_delete=True)


def poll_with_votes(bed: Bed) -> Table:
    """A poll of Ann's with two votes of Bob and one of Cat."""
    tables = bed.bind(POLL, VOTE)
    bed.done(tables["poll"].append("main", {"title": "Lunch?"}, user="ann"))
    for user in ("bob", "cat", "bob"):
        bed.done(tables["vote"].append("main:1", {"optionIdx": 1}, user=user))
    return tables["vote"]


def removals(table: Table, **options: Any) -> list[tuple[int, int | None, object]]:
    rows = table.trash("main:1", **options).rows
    return [(row.seq, None if row.deleted_at is None else row.deleted_at - NOW, row.deleted_by) for row in rows]


def test_removed_rows_are_in_the_trash_until_they_are_restored_or_removed_for_good(bed: Bed) -> None:
    votes = poll_with_votes(bed)
    assert removals(votes) == []
    bed.clock.advance(10)
    bed.done(votes.rm("main:1:1", user="bob"))
    bed.clock.advance(10)
    bed.done(votes.rm_bulk(["main:1:2", "main:1:3"]))
    assert removals(votes) == [(3, 20, None), (2, 20, None), (1, 10, "bob")]
    bed.done(votes.restore("main:1:2"))
    bed.done(votes.rm("main:1:3", hard=True))
    assert removals(votes) == [(1, 10, "bob")]
    row = votes.trash("main:1").rows[0].to_json()
    assert (row["deletedAt"], row["deletedBy"], row["optionIdx"]) == (NOW + 10, "bob", 1)
    assert "deletedAt" not in bed.done(votes.restore("main:1:1")).to_json()
    assert removals(votes) == []


def test_a_purge_is_the_removal_of_the_rows_that_it_removed(bed: Bed) -> None:
    votes = poll_with_votes(bed)
    bed.clock.advance(1)
    bed.done(votes.update("main:1:2", {"optionIdx": 2}))
    bed.done(votes.rm("main:1:2", user="cat"))
    bed.clock.advance(1)
    bed.done(votes.purge_by_parent("main:1", user="ann"))
    bed.clock.advance(1)
    bed.done(votes.append("main:1", {"optionIdx": 1}, user="bob"))
    assert removals(votes) == [(3, 2, "ann"), (2, 1, "cat"), (1, 2, "ann")]
    bed.clock.advance(1)
    bed.done(votes.purge_by_parent("main:1"))
    assert removals(votes) == [(4, 4, None), (3, 2, "ann"), (2, 1, "cat"), (1, 2, "ann")]
    bed.done(votes.restore_by_parent("main:1"))
    assert removals(votes) == []
    bed.clock.advance(1)
    bed.done(votes.purge_by_parent("main:1", user="ann"))
    assert {removal[1:] for removal in removals(votes)} == {(5, "ann")}
    bed.done(votes.purge_by_parent("main:1", hard=True))
    assert removals(votes) == []


def test_a_row_that_was_restored_has_its_first_removal_since_then(bed: Bed) -> None:
    votes = poll_with_votes(bed)
    for change in (
        votes.purge_by_parent, votes.restore_by_parent, votes.purge_by_parent, votes.purge_by_parent,
    ):  # fmt: skip
        bed.clock.advance(1)
        bed.done(change("main:1", user="ann"))
    bed.done(votes.restore("main:1:1"))
    bed.done(votes.restore("main:1:2"))
    bed.clock.advance(1)
    bed.done(votes.rm("main:1:2", user="cat"))
    bed.clock.advance(1)
    bed.done(votes.purge_by_parent("main:1"))
    assert removals(votes) == [(3, 3, "ann"), (2, 5, "cat"), (1, 6, None)]


def test_a_purge_with_hooks_counts_the_same(bed: Bed) -> None:
    called: list[str] = []
    hooked = make_log(
        "vote", parent=POLL, schema=Vote, soft_delete=True, hooks=Hooks(after_rm=lambda ctx, id: called.append(id))
    )
    poll_with_votes(bed)
    votes = bed.bind(POLL, hooked)["vote"]
    bed.clock.advance(3)
    bed.done(votes.purge_by_parent("main:1", user="ann"))
    assert len(called) == 3
    assert removals(votes) == [(3, 3, "ann"), (2, 3, "ann"), (1, 3, "ann")]


def test_owners_see_all_removed_rows_and_authors_their_own(bed: Bed) -> None:
    votes = poll_with_votes(bed)
    bed.done(votes.purge_by_parent("main:1"))
    assert seqs(votes.trash("main:1", user="ann").rows) == [3, 2, 1]
    own = votes.trash("main:1", user="bob").rows
    assert [(row.seq, row.own) for row in own] == [(3, True), (1, True)]
    assert votes.trash("main:1", user="dan").rows == []
    with pytest.raises(TableError, match="does not exist"):
        votes.trash("main:2", user="ann")


def test_an_author_cannot_undo_the_removal_by_another_user(bed: Bed) -> None:
    moderated = make_log("vote", parent=POLL, schema=Vote, soft_delete=True, moderators=("helper",))
    poll_with_votes(bed)
    votes = bed.bind(POLL, moderated)["vote"]
    mia = User("mia", roles=("helper",))
    refused = (
        "row main:1:1 of vote was removed by another user: "
        "only the owner of the poll and users with the role helper may restore it"
    )
    removal: Callable[[], Any]
    for removal in (
        lambda: votes.rm("main:1:1", user=mia),
        lambda: votes.rm("main:1:1"),
        lambda: votes.purge_by_parent("main:1", user="ann"),
    ):
        # The rule is the same for a removal that is not durable yet.
        write = removal()
        for _ in range(2):
            with pytest.raises(TableError) as error:
                votes.restore("main:1:1", user="bob")
            assert (error.value.code, error.value.message) == ("FORBIDDEN", refused)
            bed.done(write)
        bed.done(votes.restore("main:1:1", user=mia))
        votes.rm("main:1:1", user="bob")
        assert bed.done(votes.restore("main:1:1", user="bob")).seq == 1


def test_an_author_may_undo_his_own_removal_also_if_the_rows_were_purged_since(bed: Bed) -> None:
    votes = poll_with_votes(bed)
    removals = [votes.rm("main:1:1", user="bob"), votes.purge_by_parent("main:1", user="ann")]
    with pytest.raises(TableError, match="removed by another user"):
        votes.restore("main:1:3", user="bob")
    for removal in removals:
        bed.done(removal)
    assert bed.done(votes.restore("main:1:1", user="bob")).seq == 1


def test_moderators_see_the_whole_trash_and_the_whole_feed(bed: Bed) -> None:
    moderated = make_log("vote", parent=POLL, schema=Vote, soft_delete=True, moderators=("helper",), feed=True)
    poll_with_votes(bed)
    votes = bed.bind(POLL, moderated)["vote"]
    mia = User("mia", roles=("helper",))
    assert [row.id for row in votes.feed(user=mia).rows] == ["main:1:3", "main:1:2", "main:1:1"]
    assert votes.feed(user="mia").rows == []
    bed.done(votes.rm_bulk(["main:1:1", "main:1:2"], user=mia))
    assert [(row.seq, row.deleted_by) for row in votes.trash("main:1", user=mia).rows] == [(2, "mia"), (1, "mia")]
    assert seqs(votes.trash("main:1", user="cat").rows) == [2]


def test_pages_are_bounded(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = poll_with_votes(bed)
    bed.done(votes.append_bulk("main:1", [{"optionIdx": at} for at in range(5)], user="bob"))
    bed.done(votes.rm("main:1:5", hard=True))
    bed.done(votes.purge_by_parent("main:1"))
    found, cursor = [], None
    for _ in range(4):
        page = votes.trash("main:1", limit=2, cursor=cursor)
        found.append(seqs(page.rows))
        cursor = page.cursor
    assert found == [[8, 7], [6, 4], [3, 2], [1]]
    assert (page.is_done, page.cursor) == (True, None)
    monkeypatch.setattr("strandline.tables.trash.SCAN_ROWS", 2)
    page = votes.trash("main:1", user="cat")
    assert (page.rows, page.is_done, page.cursor) == ([], False, "7")
    assert views.SCAN_ROWS > 2


def test_a_trash_after_a_restart_is_the_same(bed: Bed) -> None:
    votes = poll_with_votes(bed)
    bed.done(votes.rm("main:1:2", user="cat"))
    bed.done(votes.purge_by_parent("main:1", user="ann"))
    before = removals(votes)
    assert len(before) == 3
    assert removals(bed.reopen(POLL, VOTE)["vote"]) == before


def test_a_table_without_soft_delete_has_no_trash(plain_bed: Bed) -> None:
    table = plain_bed.bind(make_log("vote", parent="room", schema=Vote))["vote"]
    with pytest.raises(TableError, match="declared without soft_delete"):
        table.trash("r")
    with pytest.raises(TableError, match="cursor"):
        plain_bed.bind(POLL)["poll"].trash("main", cursor="x")

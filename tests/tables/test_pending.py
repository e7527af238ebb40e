"""What waits for the disk counts: nobody sees it, and everybody decides with it in mind."""

from __future__ import annotations

import pytest
from support.tables_in_process import Bed, Poll, Vote, seqs

from strandline.tables import Item, Table, TableError, make_log
from strandline.tables.rows import AppendResult

VOTE = make_log("vote", parent="room", schema=Vote, soft_delete=True)


@pytest.fixture
def votes(plain_bed: Bed) -> Table:
    return plain_bed.bind(VOTE)["vote"]


def test_a_repetition_of_an_append_that_waits_for_the_disk_waits_with_it(votes: Table) -> None:
    first = votes.append("r", {"optionIdx": 1}, idempotency_key="k")
    second = votes.append("r", {"optionIdx": 2}, idempotency_key="k")
    assert not first.commit.done
    assert not second.commit.done
    assert second.wait() == AppendResult(1, False, "r:1")
    assert first.commit.done
    assert first.wait().created


def test_a_repetition_in_the_next_bulk_is_recognised(votes: Table) -> None:
    votes.append("r", {"optionIdx": 1}, idempotency_key="k")
    bulk = votes.append_bulk("r", [Item(Vote(2), "k"), Item(Vote(3), "l")]).wait()
    assert [(result.seq, result.created) for result in bulk.results] == [(1, False), (2, True)]


def test_nobody_sees_what_waits_for_the_disk(votes: Table) -> None:
    votes.append_bulk("r", [Vote(0), Vote(5)]).wait()
    votes.rm("r:2").wait()
    append, update = votes.append("r", {"optionIdx": 1}), votes.update("r:1", {"optionIdx": 9})
    assert [row.payload["optionIdx"] for row in votes.list("r").rows] == [0]
    assert votes.counts("r", "optionIdx").counts == {"0": 1}
    assert votes.history("r:1") == []
    update.wait()
    assert append.commit.done
    assert votes.counts("r", "optionIdx").counts == {"9": 1, "1": 1}


def test_an_edit_that_waits_for_the_disk_makes_others_stale(votes: Table) -> None:
    votes.append("r", {"optionIdx": 0}).wait()
    seen = votes.list("r").rows[0].updated_at
    first = votes.update("r:1", {"optionIdx": 1}, expected_updated_at=seen)
    with pytest.raises(TableError) as error:
        votes.update("r:1", {"optionIdx": 2}, expected_updated_at=seen)
    assert error.value.code == "CONFLICT"
    third = votes.update("r:1", {"comment": "x"}, expected_updated_at=error.value.more["updatedAt"])
    assert third.wait().payload == {"optionIdx": 1, "voter": "", "comment": "x"}
    assert first.wait().payload == {"optionIdx": 1, "voter": "", "comment": ""}


def test_a_row_can_be_changed_and_removed_before_anybody_sees_it(votes: Table) -> None:
    votes.append("r", {"optionIdx": 0}, user="u")
    votes.update("r:1", {"optionIdx": 1}, user="u")
    with pytest.raises(TableError) as error:
        votes.rm("r:1", user="other")
    assert error.value.code == "FORBIDDEN"
    assert votes.rm("r:1", user="u").wait().deleted
    assert votes.list("r").rows == []
    restored = votes.restore("r:1", user="u").wait()
    assert restored.payload["optionIdx"] == 1
    assert votes.read("r:1", user="u") == restored


def test_what_is_swept_while_it_waits_is_swept(votes: Table) -> None:
    votes.append_bulk("r", [Vote(0), Vote(1)])
    purge = votes.purge_by_parent("r")
    with pytest.raises(TableError):
        votes.update("r:1", {"optionIdx": 1})
    votes.append("r", Vote(2))
    assert purge.wait().deleted == 2
    assert seqs(votes.list("r").rows) == [3]
    restore, remove = votes.restore_by_parent("r"), votes.rm("r:1", hard=True)
    assert (restore.wait().restored, remove.wait().deleted) == (2, True)
    assert seqs(votes.list("r").rows) == [3, 2]


def test_a_key_is_free_as_soon_as_its_row_is_on_its_way_out(votes: Table) -> None:
    votes.append("r", {"optionIdx": 0}, idempotency_key="k").wait()
    votes.rm("r:1", hard=True)
    again = votes.append("r", {"optionIdx": 1}, idempotency_key="k")
    votes.purge_by_parent("r", hard=True)
    last = votes.append("r", {"optionIdx": 2}, idempotency_key="k")
    soft = votes.rm("r:3")
    repeated = votes.append("r", {"optionIdx": 3}, idempotency_key="k")
    assert (again.wait().seq, last.wait().seq, soft.wait().deleted) == (2, 3, True)
    assert repeated.wait() == AppendResult(3, False, "r:3")


def test_a_parent_that_waits_for_the_disk_is_a_parent(plain_bed: Bed) -> None:
    polls = make_log("poll", parent="site", schema=Poll, soft_delete=True)
    tables = plain_bed.bind(polls, make_log("ballot", parent=polls, schema=Vote))
    tables["poll"].append("main", {"title": "?"}, user="u")
    ballot = tables["ballot"].append("main:1", Vote(1))
    tables["poll"].rm("main:1")
    with pytest.raises(TableError) as error:
        tables["ballot"].append("main:1", Vote(1))
    assert error.value.code == "NOT_FOUND"
    assert ballot.wait().created


def test_what_is_durable_is_not_remembered_any_more(plain_bed: Bed) -> None:
    tables = plain_bed.bind(VOTE)
    votes = tables["vote"]
    votes.append("r", Vote(0)).wait()
    votes.purge_by_parent("r").wait()
    for number in range(100):
        votes.append("r", {"optionIdx": number}, idempotency_key=str(number))
        votes.purge_by_parent("r")
    assert len(tables._coming.effects.all) == 200
    plain_bed.engine.flush()
    votes.append("r", {"optionIdx": 1}).wait()
    assert len(tables._coming.effects.all) == 1
    assert list(tables._coming.effects._logs) == ["vote/r"]


def test_a_table_that_need_not_wait_for_the_disk_does_not(plain_bed: Bed) -> None:
    votes = plain_bed.bind(make_log("vote", parent="room", schema=Vote, durability="disk"))["vote"]
    votes.append("r", Vote(0)).wait()
    assert votes.append("r", Vote(1)).commit.done
    assert votes.update("r:1", {"optionIdx": 2}).commit.done or votes.changes_log("r")
    assert len(votes.list("r").rows) == 2


def test_a_declaration_of_another_durability_takes_effect(plain_bed: Bed) -> None:
    plain_bed.bind(VOTE)["vote"].append("r", Vote(0)).wait()
    votes = plain_bed.bind(make_log("vote", parent="room", schema=Vote, durability="disk"))["vote"]
    votes.append("r", Vote(1)).wait()
    assert plain_bed.engine.log("vote/r").config.durability == "disk"
    assert votes.append("r", Vote(1)).commit.done

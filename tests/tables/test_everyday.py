"""Everyday use of tables, with and without soft delete."""

from __future__ import annotations

from support.tables_in_process import NOW, Bed, Vote, seqs

from strandline.tables import AppendResult, Hooks, Item, TableError, make_log
from strandline.tables.rows import PurgeResult, RmResult

SOFT = make_log("vote", parent="poll", schema=Vote, soft_delete=True, pub=True)
HARD = make_log("vote", parent="poll", schema=Vote, pub=True)


def test_two_appends_are_two_rows(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    assert [bed.done(votes.append("p", Vote(n))).seq for n in range(2)] == [1, 2]
    assert len(votes.list("p").rows) == 2


def test_three_items_are_three_rows_and_keep_their_keys(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    bed.done(votes.append_bulk("p", [Vote(0), Item(Vote(1), "k"), Vote(2)]))
    assert [row.idempotency_key for row in votes.list_after("p", 0).rows] == [None, "k", None]


def test_a_purge_hides_and_a_restore_brings_back(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    bed.done(votes.append_bulk("p", [Vote(0), Vote(1)]))
    bed.done(votes.purge_by_parent("p"))
    assert votes.list("p").rows == []
    bed.done(votes.restore_by_parent("p"))
    assert len(votes.list("p").rows) == 2


def test_rows_are_removed_by_id_one_or_several(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    bed.done(votes.append("one", Vote(0)))
    bed.done(votes.rm("one:1"))
    assert votes.list("one").rows == []
    bed.done(votes.append_bulk("three", [Vote(0), Vote(1), Vote(2)]))
    assert bed.done(votes.rm_bulk(["three:1", "three:2"])).count == 2
    assert seqs(votes.list("three").rows) == [3]


def test_a_row_is_read_by_id(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    result = bed.done(votes.append("p", Vote(4, "me"), user="u"))
    row = votes.read(result.id)
    assert row is not None
    assert (row.payload["voter"], row.user, row.created_at, row.updated_at) == ("me", "u", NOW, NOW)
    assert votes.read("p:2") is None


def test_what_comes_after_a_seq(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    bed.done(votes.append_bulk("p", [Vote(n) for n in range(3)]))
    assert seqs(votes.list_after("p", 1).rows) == [2, 3]
    assert votes.list_after("p", 3).rows == []
    assert votes.list_after("p", 9).rows == []


def test_a_hard_purge_is_not_restored(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    bed.done(votes.append("p", Vote(0)))
    bed.done(votes.purge_by_parent("p", hard=True))
    bed.done(votes.restore_by_parent("p"))
    assert votes.list("p").rows == []


def test_groups_and_lists_are_of_one_parent(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    bed.done(votes.append_bulk("p", [Vote(0), Vote(1)]))
    bed.done(votes.append("q", Vote(0)))
    assert sum(map(len, votes.indexed("p", "optionIdx").values())) == 2
    assert sum(map(len, votes.indexed("q", "optionIdx", public=True).values())) == 1
    assert (len(votes.list("p").rows), len(votes.list("q").rows)) == (2, 1)


def test_the_same_key_twice_is_one_row(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    for option in (1, 2):
        bed.done(votes.append("p", Vote(option), idempotency_key="k"))
    assert [row.payload["optionIdx"] for row in votes.list("p").rows] == [1]


def test_without_soft_delete_what_is_removed_is_gone(bed: Bed) -> None:
    votes = bed.bind(HARD)["vote"]
    bed.done(votes.append_bulk("p", [Vote(0), Vote(1)]))
    assert bed.done(votes.rm("p:1")) == RmResult(True, "p:1", False)
    assert bed.done(votes.purge_by_parent("p")) == PurgeResult(1, False)


def test_hooks_are_called_in_order(bed: Bed) -> None:
    order: list[str] = []
    kinds = ("before_append", "after_append", "before_rm", "after_rm")
    hooks = Hooks(**{kind: (lambda ctx, kind=kind: order.append(kind)) for kind in kinds})
    votes = bed.bind(make_log("vote", parent="poll", schema=Vote, hooks=hooks))["vote"]
    bed.done(votes.append("p", Vote(0)))
    bed.done(votes.purge_by_parent("p"))
    assert order == list(kinds)


def test_an_update_changes_the_payload_and_unknown_ids_are_passed_over(bed: Bed) -> None:
    votes = bed.bind(SOFT)["vote"]
    bed.done(votes.append_bulk("p", [Vote(0), Vote(1)]))
    assert bed.done(votes.update("p:1", {"optionIdx": 7})).payload["optionIdx"] == 7
    bulk = bed.done(votes.rm_bulk(["p:1", "p:2", "p:999"]))
    assert [result.deleted for result in bulk.results] == [True, True, False]


def test_rows_of_several_users_in_one_step_each_have_their_own_result(bed: Bed) -> None:
    votes = bed.bind(make_log("vote", parent="room", schema=Vote))["vote"]
    bed.done(votes.append("r", Vote(0), user="ann", idempotency_key="earlier"))
    appends = [
        (Item(Vote(1), "a"), "ann"),
        (Item({"optionIdx": "one"}), "bob"),
        (Item(Vote(2)), ""),
        (Item(Vote(3), "a"), "bob"),
        (Item(Vote(4), "earlier"), "bob"),
        (Item(Vote(5), "b"), "eve"),
    ]
    frames = bed.engine.stats().frames
    results = bed.done(votes.append_each("r", appends))
    assert bed.sealed or bed.engine.stats().frames == frames + 1
    errors = [(result.code, result.more["fields"]) for result in results if isinstance(result, TableError)]
    assert errors == [("VALIDATION_FAILED", ["optionIdx"]), ("VALIDATION_FAILED", ["user"])]
    made = [(result.seq, result.created) for result in results if isinstance(result, AppendResult)]
    assert made == [(2, True), (2, False), (1, False), (3, True)]
    rows = votes.list_after("r", 0).rows
    assert [(row.seq, row.user, row.payload["optionIdx"]) for row in rows] == [
        (1, "ann", 0), (2, "ann", 1), (3, "eve", 5),
    ]  # fmt: skip
    # Only repetitions, or only errors: nothing is written.
    frames = bed.engine.stats().frames
    assert [result.created for result in bed.done(votes.append_each("r", appends[3:5]))] == [False, False]  # type: ignore[union-attr]
    assert bed.done(votes.append_each("r", [])) == []
    assert bed.engine.stats().frames == frames

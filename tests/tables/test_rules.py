"""The rules of tables, one after the other: what is said about each is what the tests below it show."""

from __future__ import annotations

from typing import Any

import pytest
from support.tables_in_process import NOW, Bed, Poll, Vote, payloads, seqs

from strandline.tables import Hooks, Item, RateLimit, TableDeclaration, TableError, Tables, User, make_log
from strandline.tables.rows import AppendBulkResult, AppendResult, Counts, PurgeResult, RestoreResult, RmResult

POLL = make_log("poll", parent="site", schema=Poll, pub=True, soft_delete=True)
VOTE = make_log("vote", parent="room", schema=Vote, soft_delete=True, pub=True, search="comment")
HARD_VOTE = make_log("vote", parent="room", schema=Vote, pub=True)
BALLOT = make_log("ballot", parent=POLL, schema=Vote, soft_delete=True, pub="isPublic", search=True)


def refused(error: pytest.ExceptionInfo[TableError]) -> str:
    return error.value.code


def with_votes(bed: Bed, count: int, declaration: TableDeclaration = VOTE, user: str | None = None) -> Tables:
    tables = bed.bind(declaration)
    for number in range(count):
        bed.done(tables["vote"].append("r", {"optionIdx": number}, user=user))
    return tables


# --- seq: a real counter, no number is ever used again -------------------------------------------------------------


def test_seqs_begin_at_1_and_count_up_per_parent(bed: Bed) -> None:
    votes = with_votes(bed, 3)["vote"]
    assert bed.done(votes.append("other", {"optionIdx": 9})).seq == 1
    assert seqs(votes.list("r").rows) == [3, 2, 1]


@pytest.mark.parametrize("declaration", [VOTE, HARD_VOTE], ids=["soft", "hard"])
def test_the_seq_of_a_removed_row_is_not_used_again(bed: Bed, declaration: TableDeclaration) -> None:
    votes = with_votes(bed, 3, declaration)["vote"]
    bed.done(votes.rm("r:3", hard=True))
    assert bed.done(votes.append("r", {"optionIdx": 7})).seq == 4


def test_numbering_goes_on_behind_a_hard_purge_and_a_restart(bed: Bed) -> None:
    votes = with_votes(bed, 3)["vote"]
    bed.done(votes.purge_by_parent("r", hard=True))
    votes = bed.reopen(VOTE)["vote"]
    assert bed.done(votes.append("r", {"optionIdx": 7})).seq == 4
    assert seqs(votes.list("r").rows) == [4]


# --- append: seq, created and id ----------------------------------------------------------------------------------


def test_an_append_gives_seq_created_and_id(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    result = bed.done(votes.append("r", {"optionIdx": 1}, user="u", idempotency_key="k"))
    assert result == AppendResult(1, True, "r:1")
    again = bed.done(votes.append("r", {"optionIdx": 2}, idempotency_key="k"))
    assert again == AppendResult(1, False, "r:1")


# --- append_bulk: count and results, consecutive seqs -------------------------------------------------------------


def test_a_bulk_append_gives_a_count_and_results_with_consecutive_seqs(bed: Bed) -> None:
    votes = with_votes(bed, 1)["vote"]
    bulk = bed.done(
        votes.append_bulk("r", [{"optionIdx": 1}, Item({"optionIdx": 2}, "k"), Vote(3), Item(Vote(4), "k")])
    )
    assert bulk.count == 3
    assert [(result.seq, result.created) for result in bulk.results] == [(2, True), (3, True), (4, True), (3, False)]
    assert bed.done(votes.append_bulk("r", [])) == AppendBulkResult(0, [])


def test_a_bulk_append_is_made_as_a_whole_or_not_at_all(bed: Bed) -> None:
    votes = with_votes(bed, 1)["vote"]
    with pytest.raises(TableError) as error:
        votes.append_bulk("r", [{"optionIdx": 1}, {"optionIdx": "x"}])
    assert (refused(error), error.value.more["index"]) == ("VALIDATION_FAILED", 1)
    assert seqs(votes.list("r").rows) == [1]


# --- bulk cap: 100 ------------------------------------------------------------------------------------------------


def test_more_than_100_at_once_are_not_valid(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    assert bed.done(votes.append_bulk("r", [{"optionIdx": 1}] * 100)).count == 100
    with pytest.raises(TableError) as error:
        votes.append_bulk("r", [{"optionIdx": 1}] * 101)
    assert (refused(error), error.value.fields) == ("VALIDATION_FAILED", ["items"])
    with pytest.raises(TableError) as error:
        votes.rm_bulk([f"r:{seq}" for seq in range(1, 102)])
    assert (refused(error), error.value.fields) == ("VALIDATION_FAILED", ["ids"])
    assert len(votes.list("r", limit=1000).rows) == 100


# --- rm and rm_bulk: deleted, id and soft; count and results ------------------------------------------------------


@pytest.mark.parametrize("declaration", [VOTE, HARD_VOTE], ids=["soft", "hard"])
def test_a_removal_gives_deleted_id_and_soft(bed: Bed, declaration: TableDeclaration) -> None:
    votes = with_votes(bed, 3, declaration)["vote"]
    soft = declaration.soft_delete
    assert bed.done(votes.rm("r:2")) == RmResult(True, "r:2", soft)
    assert bed.done(votes.rm("r:2")) == RmResult(False, "r:2", soft)
    bulk = bed.done(votes.rm_bulk(["r:1", "r:999", "r:1", "r:3"]))
    assert bulk.count == 2
    assert [result.deleted for result in bulk.results] == [True, False, False, True]
    assert votes.list("r").rows == []


def test_a_removal_of_nothing_is_not_valid(bed: Bed) -> None:
    votes = with_votes(bed, 1)["vote"]
    with pytest.raises(TableError) as error:
        votes.rm_bulk([])
    assert refused(error) == "VALIDATION_FAILED"


# --- rm hard: supported -------------------------------------------------------------------------------------------


def test_a_hard_removal_cannot_be_taken_back(bed: Bed) -> None:
    votes = with_votes(bed, 2)["vote"]
    assert bed.done(votes.rm("r:1", hard=True)) == RmResult(True, "r:1", False)
    with pytest.raises(TableError) as error:
        votes.restore("r:1")
    assert refused(error) == "NOT_FOUND"
    assert bed.done(votes.restore_by_parent("r")).restored == 0
    assert seqs(votes.list("r").rows) == [2]


def test_a_hidden_row_can_still_be_removed_for_good(bed: Bed) -> None:
    votes = with_votes(bed, 1)["vote"]
    bed.done(votes.rm("r:1"))
    assert bed.done(votes.rm("r:1", hard=True)).deleted
    assert bed.done(votes.restore_by_parent("r")).restored == 0


# --- purge: deleted and soft --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hard", [False, True])
def test_a_purge_gives_deleted_and_soft(bed: Bed, hard: bool) -> None:
    votes = with_votes(bed, 3)["vote"]
    bed.done(votes.append("other", {"optionIdx": 9}))
    assert bed.done(votes.purge_by_parent("r", hard=hard)) == PurgeResult(3, not hard)
    assert bed.done(votes.purge_by_parent("nothing", hard=hard)) == PurgeResult(0, not hard)
    assert votes.list("r").rows == []
    assert seqs(votes.list("other").rows) == [1]
    assert bed.done(votes.restore_by_parent("r")).restored == (0 if hard else 3)


def test_a_purge_without_soft_delete_is_hard(bed: Bed) -> None:
    votes = with_votes(bed, 1, HARD_VOTE)["vote"]
    assert bed.done(votes.purge_by_parent("r")) == PurgeResult(1, False)


def test_a_hard_purge_leaves_nothing_to_restore(bed: Bed) -> None:
    votes = with_votes(bed, 3)["vote"]
    bed.done(votes.rm("r:2"))
    bed.done(votes.purge_by_parent("r", hard=True))
    assert bed.done(votes.restore_by_parent("r")).restored == 0
    assert votes.list("r").rows == []


# --- update: a patch, the whole row with its new updatedAt --------------------------------------------------------


def test_an_update_takes_a_patch_and_gives_the_row_with_its_new_time(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    bed.done(votes.append("r", {"optionIdx": 1, "comment": "c"}, user="u"))
    bed.clock.advance(50)
    row = bed.done(votes.update("r:1", {"optionIdx": 2}, user="u"))
    assert row.payload == {"optionIdx": 2, "voter": "", "comment": "c"}
    assert (row.seq, row.parent, row.created_at, row.updated_at) == (1, "r", NOW, NOW + 50)
    assert votes.read("r:1", user="u") == row
    assert row.to_json() == {
        "optionIdx": 2, "voter": "", "comment": "c", "id": "r:1", "parent": "r", "seq": 1, "userId": "u",
        "createdAt": NOW, "updatedAt": NOW + 50, "own": True,
    }  # fmt: skip


def test_an_update_of_what_is_not_there_is_not_found(bed: Bed) -> None:
    votes = with_votes(bed, 1)["vote"]
    bed.done(votes.rm("r:1"))
    for id in ("r:1", "r:2", "nowhere:1"):
        with pytest.raises(TableError) as error:
            votes.update(id, {"optionIdx": 2})
        assert refused(error) == "NOT_FOUND"


@pytest.mark.parametrize("patch", [{}, {"optionIdx": "x"}, {"nonsense": 1}, {"seq": 2}, {"$updatedAt": 1}, [1], None])
def test_a_bad_patch_changes_nothing(bed: Bed, patch: object) -> None:
    votes = with_votes(bed, 1)["vote"]
    with pytest.raises(TableError) as error:
        votes.update("r:1", patch)  # type: ignore[arg-type]
    assert refused(error) == "VALIDATION_FAILED"
    assert payloads(votes.list("r").rows) == [{"optionIdx": 0, "voter": "", "comment": ""}]


# --- first edit: updatedAt is createdAt until then, so the check can be used --------------------------------------


def test_a_stale_edit_is_a_conflict_from_the_first_one_on(bed: Bed) -> None:
    votes = with_votes(bed, 1)["vote"]
    seen = votes.list("r").rows[0]
    assert seen.updated_at == seen.created_at
    # In the same millisecond, and all the same another time.
    edited = bed.done(votes.update("r:1", {"optionIdx": 5}, expected_updated_at=seen.updated_at))
    assert edited.updated_at > seen.updated_at
    with pytest.raises(TableError) as error:
        votes.update("r:1", {"optionIdx": 6}, expected_updated_at=seen.updated_at)
    assert (refused(error), error.value.more["updatedAt"]) == ("CONFLICT", edited.updated_at)
    assert (
        bed.done(votes.update("r:1", {"optionIdx": 7}, expected_updated_at=edited.updated_at)).payload["optionIdx"] == 7
    )


# --- ownership: the owner of the parent sees and changes all, authors their own -----------------------------------


def with_ballots(bed: Bed, *, public: bool = True) -> Tables:
    tables = bed.bind(POLL, BALLOT)
    bed.done(tables["poll"].append("main", {"title": "?", "isPublic": public}, user="owner"))
    bed.done(tables["ballot"].append("main:1", {"optionIdx": 0, "comment": "first"}, user="owner"))
    if public:
        bed.done(tables["ballot"].append("main:1", {"optionIdx": 1, "comment": "second"}, user="guest"))
    return tables


def test_the_owner_of_the_parent_reads_everything_and_others_their_own(bed: Bed) -> None:
    ballots = with_ballots(bed)["ballot"]
    for user, own in ((None, [2, 1]), ("owner", [2, 1]), ("guest", [2]), ("stranger", [])):
        assert seqs(ballots.list("main:1", user=user).rows) == own
        assert seqs(ballots.list_after("main:1", 0, user=user).rows) == own[::-1]
        assert [seq for seq in (1, 2) if ballots.read(f"main:1:{seq}", user=user)] == own[::-1]
        assert seqs(ballots.search("main:1", "first", user=user).rows) == ([1] if 1 in own else [])
        assert ballots.counts("main:1", "optionIdx", user=user).total == len(own)
        assert sorted(ballots.indexed("main:1", "optionIdx", user=user)) == [str(seq - 1) for seq in own[::-1]]


def test_only_the_author_and_the_owner_of_the_parent_may_change_a_row(bed: Bed) -> None:
    ballots = with_ballots(bed)["ballot"]
    bed.done(ballots.rm("main:1:2", user="guest"))
    writes = [
        lambda user: ballots.update("main:1:1", {"optionIdx": 3}, user=user),
        lambda user: ballots.rm("main:1:1", user=user),
        lambda user: ballots.rm_bulk(["main:1:999", "main:1:1"], user=user),
        lambda user: ballots.rm("main:1:1", user=user, hard=True),
        lambda user: ballots.purge_by_parent("main:1", user=user),
        lambda user: ballots.restore_by_parent("main:1", user=user),
    ]
    for write in writes:
        with pytest.raises(TableError) as error:
            write("guest")
        assert refused(error) == "FORBIDDEN"
    with pytest.raises(TableError) as error:
        ballots.restore("main:1:2", user="stranger")
    assert refused(error) == "FORBIDDEN"
    assert bed.done(ballots.restore("main:1:2", user="guest")).seq == 2
    assert bed.done(ballots.update("main:1:2", {"optionIdx": 3}, user="owner")).user == "guest"
    assert bed.done(ballots.update("main:1:2", {"optionIdx": 4}, user="guest")).payload["optionIdx"] == 4
    assert bed.done(ballots.purge_by_parent("main:1", user="owner")).deleted == 2
    assert bed.done(ballots.restore_by_parent("main:1", user="owner")).restored == 2


def test_without_a_known_owner_rows_are_their_authors(bed: Bed) -> None:
    votes = with_votes(bed, 1, user="author")["vote"]
    with pytest.raises(TableError) as error:
        votes.rm("r:1", user="stranger")
    assert refused(error) == "FORBIDDEN"
    assert error.value.message == "only its author may change row r:1 of vote"
    with pytest.raises(TableError) as error:
        votes.purge_by_parent("r", user="author")
    assert refused(error) == "FORBIDDEN"
    assert error.value.message == "only the program may remove or restore all rows of r in vote"
    assert bed.done(votes.rm("r:1", user="author")).deleted


def test_a_parent_that_is_not_there_is_not_found(bed: Bed) -> None:
    tables = with_ballots(bed)
    ballots = tables["ballot"]
    bed.done(tables["poll"].rm("main:1"))
    for parent in ("main:1", "main:2", "main"):
        with pytest.raises(TableError) as error:
            ballots.append(parent, {"optionIdx": 1})
        assert refused(error) == "NOT_FOUND"
        with pytest.raises(TableError) as error:
            ballots.list(parent, user="guest")
        assert refused(error) == "NOT_FOUND"
        with pytest.raises(TableError) as error:
            ballots.list(parent, public=True)
        assert refused(error) == "NOT_FOUND"
    # The program may clear up.
    assert bed.done(ballots.purge_by_parent("main:1")).deleted == 2


def test_parents_can_be_looked_up_elsewhere(bed: Bed) -> None:
    rooms = {"r": {"userId": "owner", "open": True}, "closed": {"userId": "owner", "open": False}}
    votes = bed.bind(make_log("vote", parent="room", schema=Vote, parent_row=rooms.get, pub={"parentField": "open"}))[
        "vote"
    ]
    bed.done(votes.append("r", {"optionIdx": 1}, user="guest"))
    assert len(votes.list("r", user="owner").rows) == len(votes.list("r", public=True).rows) == 1
    assert votes.list("r", user="stranger").rows == []
    for parent in ("closed", "nowhere"):
        with pytest.raises(TableError) as error:
            votes.append(parent, {"optionIdx": 1}, user="guest")
        assert refused(error) == "NOT_FOUND"


# --- pub: a field of the parent's row -----------------------------------------------------------------------------


def test_everybody_reads_where_the_field_of_the_parent_is_true(bed: Bed) -> None:
    ballots = with_ballots(bed)["ballot"]
    assert seqs(ballots.list("main:1", public=True).rows) == [2, 1]
    assert seqs(ballots.list_after("main:1", 1, public=True, user="stranger").rows) == [2]
    assert seqs(ballots.search("main:1", "second", public=True).rows) == [2]
    assert ballots.counts("main:1", "optionIdx", public=True).counts == {"0": 1, "1": 1}
    row = ballots.read("main:1:2", public=True, user="guest")
    assert row is not None
    assert row.own is True


def test_nobody_but_the_owner_gets_in_where_it_is_not(bed: Bed) -> None:
    tables = with_ballots(bed, public=False)
    ballots = tables["ballot"]
    with pytest.raises(TableError) as error:
        ballots.list("main:1", public=True)
    assert refused(error) == "NOT_FOUND"
    with pytest.raises(TableError) as error:
        ballots.append("main:1", {"optionIdx": 1}, user="guest")
    assert refused(error) == "NOT_FOUND"
    assert bed.done(ballots.append("main:1", {"optionIdx": 1}, user="owner")).created
    bed.done(tables["poll"].update("main:1", {"isPublic": True}))
    assert seqs(ballots.list("main:1", public=True).rows) == [2, 1]
    assert bed.done(ballots.append("main:1", {"optionIdx": 1}, user="guest")).created


def test_without_pub_there_are_no_public_reads(bed: Bed) -> None:
    votes = bed.bind(make_log("vote", parent="room", schema=Vote))["vote"]
    with pytest.raises(TableError) as error:
        votes.list("r", public=True)
    assert refused(error) == "NOT_FOUND"


# --- indexed: a map by a field, removed rows hidden ---------------------------------------------------------------


def test_indexed_is_a_map_of_groups_without_removed_rows(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    for option in (0, 1, 0, 2, 0):
        bed.done(votes.append("r", {"optionIdx": option}))
    bed.done(votes.rm("r:3"))
    groups = votes.indexed("r", "optionIdx")
    assert {value: seqs(rows) for value, rows in groups.items()} == {"0": [5, 1], "1": [2], "2": [4]}
    assert {value: seqs(rows) for value, rows in votes.indexed("r", "optionIdx", limit=1).items()} == {
        "0": [5], "1": [2], "2": [4],
    }  # fmt: skip
    assert votes.counts("r", "optionIdx") == Counts({"0": 2, "1": 1, "2": 1}, 4)


# --- search: removed rows are hidden ------------------------------------------------------------------------------


def test_search_finds_the_newest_first_and_hides_removed_rows(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    for comment in ("red apples", "green pears", "Apples, green", "nothing"):
        bed.done(votes.append("r", {"optionIdx": 1, "comment": comment}))
    assert seqs(votes.search("r", "apples").rows) == [3, 1]
    assert seqs(votes.search("r", "apples", limit=1).rows) == [3]
    assert seqs(votes.search("r", "green apples").rows) == [3]
    assert seqs(votes.search("r", '"green pears"').rows) == [2]
    assert seqs(votes.search("r", "app*").rows) == [3, 1]
    bed.done(votes.rm("r:3"))
    bed.done(votes.update("r:1", {"comment": "red cherries"}))
    assert votes.search("r", "apples").rows == []
    bed.done(votes.restore_by_parent("r"))
    assert seqs(votes.search("r", "apples").rows) == [3]


# --- rate limit: a sliding window on appends ----------------------------------------------------------------------


def test_the_rate_limit_is_a_sliding_window_on_appends(bed: Bed) -> None:
    limited = make_log("vote", parent="room", schema=Vote, soft_delete=True, rate_limit=RateLimit(3, 1000))
    votes = bed.bind(limited)["vote"]
    for at in (0, 400, 800):
        bed.clock.set(NOW + at)
        bed.done(votes.append("r", {"optionIdx": 1}, user="u"))
    bed.clock.set(NOW + 900)
    with pytest.raises(TableError) as error:
        votes.append("r", {"optionIdx": 1}, user="u")
    assert refused(error) == "RATE_LIMITED"
    assert error.value.retry_after == 100
    assert str(error.value).endswith("vote accepts 3 rows per user in 1 s: retry after 1 s")
    assert error.value.more["limit"] == {"max": 3, "remaining": 0, "window": 1000}
    # Others, the program, and everything that is no append go on.
    bed.done(votes.append("r", {"optionIdx": 1}, user="other"))
    bed.done(votes.append("r", {"optionIdx": 1}))
    bed.done(votes.update("r:1", {"optionIdx": 2}, user="u"))
    bed.done(votes.rm("r:1", user="u"))
    bed.clock.set(NOW + 1000)
    bed.done(votes.append("r", {"optionIdx": 1}, user="u"))
    with pytest.raises(TableError) as error:
        votes.append("r", {"optionIdx": 1}, user="u")
    assert error.value.retry_after == 400


# --- idempotency: the key of a removed row counts, that of one removed for good does not --------------------------


def test_a_key_is_remembered_as_long_as_its_row_is_there_hidden_or_not(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    bed.done(votes.append("r", {"optionIdx": 1}, idempotency_key="k"))
    bed.clock.advance(1_000_000_000)
    votes = bed.reopen(VOTE)["vote"]
    bed.done(votes.rm("r:1"))
    assert bed.done(votes.append("r", {"optionIdx": 2}, idempotency_key="k")) == AppendResult(1, False, "r:1")
    assert votes.list("r").rows == []
    assert bed.done(votes.append("other", {"optionIdx": 2}, idempotency_key="k")).created
    bed.done(votes.rm("r:1", hard=True))
    assert bed.done(votes.append("r", {"optionIdx": 3}, idempotency_key="k")).seq == 2


# --- key reuse with another payload: the original stays -----------------------------------------------------------


def test_a_key_used_again_with_another_payload_gives_the_original(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    bed.done(votes.append("r", {"optionIdx": 1}, user="u", idempotency_key="k"))
    assert not bed.done(votes.append("r", {"optionIdx": "not even valid"}, user="v", idempotency_key="k")).created
    assert [row["optionIdx"] for row in payloads(votes.list("r").rows)] == [1]


def test_an_empty_key_is_none(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    assert [bed.done(votes.append("r", {"optionIdx": 1}, idempotency_key="")).created for _ in range(2)] == [True, True]


# --- hooks: those of all tables, then the table's; an error in any aborts everything ------------------------------


def test_hooks_of_all_tables_run_before_those_of_the_table(bed: Bed) -> None:
    order: list[str] = []

    def note(name: str) -> Hooks:
        kinds = ("before_append", "after_append", "before_update", "after_update", "before_rm", "after_rm")
        return Hooks(**{kind: (lambda ctx, kind=kind: order.append(f"{name} {kind}")) for kind in kinds})

    declaration = make_log("vote", parent="room", schema=Vote, hooks=note("own"))
    votes = bed.bind(declaration, hooks=note("all"))["vote"]
    bed.done(votes.append("r", {"optionIdx": 1}))
    bed.done(votes.update("r:1", {"optionIdx": 2}))
    bed.done(votes.rm("r:1"))
    kinds = ("append", "update", "rm")
    assert order == [f"{who} {when}_{kind}" for kind in kinds for when in ("before", "after") for who in ("all", "own")]


@pytest.mark.parametrize("kind", ["before_append", "after_append"])
def test_an_exception_in_a_hook_aborts_everything(bed: Bed, kind: str) -> None:
    def fail(ctx: object) -> None:
        raise ZeroDivisionError

    declaration = make_log("vote", parent="room", schema=Vote, hooks=Hooks(**{kind: fail}), rate_limit=1)
    votes = bed.bind(declaration)["vote"]
    for _ in range(3):
        with pytest.raises(TableError, match=f"the hook {kind} of the table vote failed") as error:
            votes.append("r", {"optionIdx": 1}, user="u")
        assert refused(error) == "HOOK_FAILED"
    bed.settle()
    assert votes.list("r").rows == []
    assert bed.engine.names("vote") == []


# --- restore: all come back, single removals included -------------------------------------------------------------


def test_a_restore_by_parent_brings_back_single_removals_as_well(bed: Bed) -> None:
    votes = with_votes(bed, 4)["vote"]
    bed.done(votes.rm("r:2"))
    bed.done(votes.purge_by_parent("r"))
    assert bed.done(votes.restore_by_parent("r")) == RestoreResult(4)
    assert seqs(votes.list("r").rows) == [4, 3, 2, 1]


def test_without_soft_delete_there_is_nothing_to_restore(bed: Bed) -> None:
    votes = with_votes(bed, 1, HARD_VOTE)["vote"]
    with pytest.raises(TableError) as error:
        votes.restore_by_parent("r")
    assert refused(error) == "VALIDATION_FAILED"


# --- list: by seq, descending -------------------------------------------------------------------------------------


def test_a_list_goes_from_the_newest_to_the_oldest_page_by_page(bed: Bed) -> None:
    votes = with_votes(bed, 7)["vote"]
    bed.done(votes.rm("r:4"))
    pages, cursor = [], None
    while True:
        page = votes.list("r", limit=2, cursor=cursor)
        pages.append(seqs(page.rows))
        cursor = page.cursor
        if page.is_done:
            break
    assert pages == [[7, 6], [5, 3], [2, 1]]
    assert cursor is None


# --- list_after: 500 by default, at most 1000, as far as the reader may see ---------------------------------------


def test_list_after_gives_500_or_at_most_1000(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    for _ in range(11):
        votes.append_bulk("r", [{"optionIdx": 1}] * 100).wait()
    bed.settle()
    assert len(votes.list_after("r", 0).rows) == 500
    page = votes.list_after("r", 0, limit=5000)
    assert (len(page.rows), page.has_more, page.head, page.last) == (1000, True, 1100, 1000)
    page = votes.list_after("r", page.last)
    assert (seqs(page.rows)[0], len(page.rows), page.has_more) == (1001, 100, False)


# --- beyond the rules: one row comes back, and edits are remembered -----------------------------------------------


def test_one_row_can_be_restored(bed: Bed) -> None:
    votes = with_votes(bed, 3)["vote"]
    bed.done(votes.rm_bulk(["r:1", "r:2"]))
    assert bed.done(votes.restore("r:2")).seq == 2
    assert seqs(votes.list("r").rows) == [3, 2]
    with pytest.raises(TableError) as error:
        votes.restore("r:2")
    assert refused(error) == "NOT_FOUND"


def test_the_edits_of_a_row_are_remembered_until_it_is_removed_for_good(bed: Bed) -> None:
    votes = with_votes(bed, 2, user="u")["vote"]
    for option in (5, 6):
        bed.clock.advance(10)
        bed.done(votes.update("r:1", {"optionIdx": option}, user="u"))
    edits = votes.history("r:1")
    assert [(edit.at, edit.user, edit.previous["optionIdx"]) for edit in edits] == [
        (NOW + 10, "u", 0),
        (NOW + 20, "u", 5),
    ]
    assert votes.history("r:2") == []
    bed.done(votes.rm("r:1"))
    with pytest.raises(TableError) as error:
        votes.history("r:1")
    assert refused(error) == "NOT_FOUND"
    bed.done(votes.restore("r:1"))
    assert votes.history("r:1") == edits
    bed.done(votes.rm("r:1", hard=True))
    changes = votes.changes_log("r")
    assert changes is not None
    told = changes.read().data
    assert len(told) == 1
    assert b"optionIdx" not in told[0]


def test_a_purge_and_a_restore_are_one_change_however_many_rows_there_are(bed: Bed) -> None:
    votes = bed.bind(VOTE)["vote"]
    written: list[list[int]] = []
    for parent, bulks in (("few", 1), ("many", 12)):
        for _ in range(bulks):
            votes.append_bulk(parent, [Vote(0)] * 100).wait()
        bed.done(votes.rm(f"{parent}:1"))
        sizes = []
        for write in (votes.purge_by_parent, votes.restore_by_parent):
            before = bed.engine.stats().bytes_written
            write(parent).wait()
            sizes.append(bed.engine.stats().bytes_written - before)
        written.append(sizes)
    assert all(abs(few - many) < 10 for few, many in zip(*written, strict=True)), written


# --- moderators: users with a role act as the owner of every parent ------------------------------------------------

MODERATED = make_log("vote", parent="room", schema=Vote, soft_delete=True, moderators=("moderator",))


def test_a_moderator_sees_and_removes_the_rows_of_others(bed: Bed) -> None:
    votes = with_votes(bed, 3, MODERATED, user="ann")["vote"]
    moderator, other = User("mod", roles=["moderator"]), User("eve", roles=["reader"])
    assert seqs(votes.list("r", user=moderator).rows) == [3, 2, 1]
    assert seqs(votes.list("r", user=moderator, where={"own": True}).rows) == []
    assert seqs(votes.list("r", user=other).rows) == []
    for user in (other, "mod"):
        with pytest.raises(TableError) as error:
            votes.rm("r:1", user=user)
        assert refused(error) == "FORBIDDEN"
    assert bed.done(votes.rm("r:1", user=moderator)).deleted
    assert bed.done(votes.purge_by_parent("r", user=moderator)).deleted == 2
    assert bed.done(votes.restore_by_parent("r", user=moderator)).restored == 3


def test_the_user_of_a_row_is_the_id_of_its_author(bed: Bed) -> None:
    votes = bed.bind(MODERATED)["vote"]
    bed.done(votes.append("r", {"optionIdx": 1}, user=User("mod", roles=("moderator",))))
    row = votes.read("r:1", user="mod")
    assert row is not None
    assert (row.user, row.own) == ("mod", True)


@pytest.mark.parametrize("roles", ["moderator", [7]])
def test_roles_are_a_list_of_names(roles: Any) -> None:
    with pytest.raises(TypeError, match="roles"):
        User("mod", roles=roles)

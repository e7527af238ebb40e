from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.tables_in_process import NOW, Bed, Poll, Vote, payloads, seqs

from strandline.engine.errors import RecordTooLarge
from strandline.tables import (
    BadDeclaration,
    HookContext,
    Hooks,
    MisusedHook,
    Row,
    TableDeclaration,
    TableError,
    Tables,
    make_log,
)

AUDIT = make_log("audit", parent="label", schema={"type": "object"}, soft_delete=True)


def vote(**hooks: Any) -> TableDeclaration:
    return make_log("vote", parent="room", schema=Vote, soft_delete=True, hooks=Hooks(**hooks))


def audited(tables: Tables, parent: str = "a") -> list[Any]:
    return [row.payload["what"] for row in tables["audit"].list_after(parent, 0).rows]


@contextmanager
def fails(hook: str, cause: type[Exception] | tuple[type[Exception], ...], match: str = "") -> Iterator[None]:
    """The caller is told which hook failed, and the program why."""
    with pytest.raises(TableError, match=f"the hook {hook} of the table vote failed") as error:
        yield
    assert (error.value.code, error.value.more) == ("HOOK_FAILED", {"table": "vote", "hook": hook})
    assert isinstance(error.value.__cause__, cause)
    assert re.search(match, str(error.value.__cause__))


def test_before_append_replaces_the_payload_and_is_validated_again(bed: Bed) -> None:
    def stamp(ctx: HookContext, payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "voter": ctx.user}

    votes = bed.bind(vote(before_append=stamp))["vote"]
    bed.done(votes.append("r", {"optionIdx": 1}, user="me"))
    assert payloads(votes.list("r").rows) == [{"optionIdx": 1, "voter": "me", "comment": ""}]
    with pytest.raises(TableError) as error:
        votes.append("r", {"optionIdx": 1})
    assert (error.value.code, error.value.fields) == ("HOOK_FAILED", [])
    assert isinstance(error.value.__cause__, TableError)
    assert error.value.__cause__.fields == ["voter"]


def test_a_hook_may_change_what_it_is_given_instead(bed: Bed) -> None:
    def stamp(ctx: HookContext, payload: dict[str, Any]) -> None:
        payload["voter"] = "hook"

    def loud(ctx: HookContext, patch: dict[str, Any]) -> None:
        patch["comment"] = "edited"

    votes = bed.bind(vote(before_append=stamp, before_update=loud))["vote"]
    bed.done(votes.append("r", {"optionIdx": 1}))
    row = bed.done(votes.update("r:1", {"optionIdx": 2}))
    assert row.payload == {"optionIdx": 2, "voter": "hook", "comment": "edited"}


def test_hooks_are_told_what_happens(bed: Bed) -> None:
    told: list[tuple[Any, ...]] = []

    def note(ctx: HookContext, **arguments: Any) -> None:
        told.append((ctx.table, ctx.user, ctx.now, arguments))

    declaration = vote(**dict.fromkeys(("before_append", "after_append", "before_update"), note))
    votes = bed.bind(declaration, hooks=Hooks(after_update=note, before_rm=note, after_rm=note))["vote"]
    bed.done(votes.append("r", {"optionIdx": 1}, user="u", idempotency_key="k"))
    row = Row(
        id="r:1", parent="r", seq=1, payload={"optionIdx": 1, "voter": "", "comment": ""}, user="u",
        created_at=NOW, updated_at=NOW, idempotency_key="k",
    )  # fmt: skip
    bed.done(votes.update("r:1", {"optionIdx": 2}, user="u"))
    after = votes.read("r:1")
    bed.done(votes.rm("r:1", user="u"))
    assert [each[:3] for each in told] == [("vote", "u", NOW)] * 6
    assert [each[3] for each in told] == [
        {"parent": "r", "payload": row.payload},
        {"row": row},
        {"id": "r:1", "patch": {"optionIdx": 2}, "prev": row},
        {"id": "r:1", "patch": {"optionIdx": 2}, "prev": row, "row": after},
        {"id": "r:1", "prev": after},
        {"id": "r:1", "prev": after},
    ]


def test_a_repetition_calls_no_hooks(bed: Bed) -> None:
    calls: list[str] = []
    votes = bed.bind(
        vote(before_append=lambda ctx: calls.append("before"), after_append=lambda ctx: calls.append("after"))
    )
    for _ in range(3):
        bed.done(votes["vote"].append("r", {"optionIdx": 1}, idempotency_key="k"))
    assert calls == ["before", "after"]


def test_what_hooks_write_is_written_in_the_same_step(bed: Bed) -> None:
    def audit(ctx: HookContext, row: Row) -> None:
        ctx.append("audit", "a", {"what": row.id})

    tables = bed.bind(vote(after_append=audit), AUDIT)
    votes = tables["vote"]
    votes.append("r", {"optionIdx": 1}).wait()
    write = votes.append_bulk("r", [{"optionIdx": 1}] * 2)
    assert (len(votes.list("r").rows), audited(tables)) == (1, ["r:1"])
    bed.done(write)
    assert (len(votes.list("r").rows), audited(tables)) == (3, ["r:1", "r:2", "r:3"])


@pytest.mark.parametrize("kind", ["before_append", "after_append"])
def test_if_a_hook_fails_nothing_is_written_of_what_came_before(bed: Bed, kind: str) -> None:
    def second_fails(ctx: HookContext) -> None:
        ctx.append("audit", "a", {"what": "called"})
        calls.append(1)
        if len(calls) == 2:
            raise TableError("FORBIDDEN", "no more")

    calls: list[int] = []
    tables = bed.bind(vote(**{kind: second_fails}), AUDIT)
    with pytest.raises(TableError, match="no more"):
        tables["vote"].append_bulk("r", [{"optionIdx": 1}] * 3)
    bed.settle()
    assert bed.logs() == []
    bed.done(tables["vote"].append("r", {"optionIdx": 1}))
    assert (seqs(tables["vote"].list("r").rows), audited(tables)) == ([1], ["called"])


@pytest.mark.parametrize("kind", ["before_update", "after_update", "before_rm", "after_rm"])
def test_a_failing_hook_leaves_the_row_as_it_was(bed: Bed, kind: str) -> None:
    def fail(ctx: HookContext, id: str) -> None:
        ctx.append("audit", "a", {"what": id})
        ctx.update("vote", "r:2", {"optionIdx": 9})
        raise ZeroDivisionError

    tables = bed.bind(vote(**{kind: fail}), AUDIT)
    votes = tables["vote"]
    bed.done(votes.append_bulk("r", [{"optionIdx": 1}] * 3))
    before = votes.list("r").rows
    if kind.endswith("update"):
        with fails(kind, ZeroDivisionError):
            votes.update("r:1", {"optionIdx": 2})
    else:
        for remove in (
            lambda: votes.rm("r:1"),
            lambda: votes.rm_bulk(["r:1", "r:3"]),
            lambda: votes.purge_by_parent("r"),
        ):
            with fails(kind, ZeroDivisionError):
                remove()
    bed.settle()
    assert votes.list("r").rows == before
    assert votes.changes_log("r") is None
    assert audited(tables) == []


def test_a_purge_goes_through_the_rows_in_order_if_there_are_hooks(bed: Bed) -> None:
    def audit(ctx: HookContext, id: str, prev: Row) -> None:
        ctx.append("audit", "a", {"what": [id, prev.payload["optionIdx"], ctx.read("vote", id) is None]})

    tables = bed.bind(vote(before_rm=audit, after_rm=audit), AUDIT)
    votes = tables["vote"]
    for option in range(4):
        bed.done(votes.append("r", {"optionIdx": option}))
    bed.done(votes.rm("r:2"))
    del_audit = len(audited(tables))
    # One that still waits for the disk is purged as well.
    votes.append("r", {"optionIdx": 4})
    assert bed.done(votes.purge_by_parent("r")).deleted == 4
    expected = [[f"r:{seq}", seq - 1, gone] for seq in (1, 3, 4, 5) for gone in (False, True)]
    assert audited(tables)[del_audit:] == expected
    assert bed.done(votes.restore_by_parent("r")).restored == 5


def test_hooks_can_do_everything_and_set_off_no_hooks(bed: Bed) -> None:
    def everywhere(ctx: HookContext) -> None:
        calls.append(ctx.table)

    def work(ctx: HookContext, row: Row) -> None:
        ctx.append("audit", "a", {"what": "added"}, idempotency_key="once")
        again = ctx.append("audit", "a", {"what": "added again"}, idempotency_key="once")
        assert again.payload == {"what": "added"}
        ctx.update("audit", again.id, {"what": "changed"})
        ctx.update("audit", "old:1", {"what": "edited"})
        assert ctx.rm("audit", "old:2")
        assert not ctx.rm("audit", "old:99")
        ctx.purge_by_parent("audit", "full")
        ctx.restore_by_parent("audit", "empty")
        assert ctx.read("audit", again.id) is not None
        assert ctx.read("audit", "old:2") is None
        assert ctx.tables["audit"].read("old:2") is not None

    calls: list[str] = []
    tables = bed.bind(vote(after_append=work), AUDIT, hooks=Hooks(after_append=everywhere))
    audits = tables["audit"]
    for parent in ("old", "full", "empty"):
        audits.append_bulk(parent, [{"what": 1}, {"what": 2}]).wait()
    bed.done(audits.purge_by_parent("empty"))
    calls.clear()
    bed.done(tables["vote"].append("r", {"optionIdx": 1}, user="u"))
    assert calls == ["vote"]
    assert audited(tables) == ["changed"]
    assert audits.list("a").rows[0].user == "u"
    assert (audited(tables, "old"), audited(tables, "full"), audited(tables, "empty")) == (["edited"], [], [1, 2])
    assert [edit.previous for edit in audits.history("old:1")] == [{"what": 1}]
    assert audits.history("a:1") == []


def test_children_can_be_purged_with_their_parent(bed: Bed) -> None:
    def purge_ballots(ctx: HookContext, id: str) -> None:
        ctx.purge_by_parent("ballot", id)

    polls = make_log("poll", parent="site", schema=Poll, soft_delete=True, hooks=Hooks(after_rm=purge_ballots))
    tables = bed.bind(polls, make_log("ballot", parent=polls, schema=Vote, soft_delete=True))
    bed.done(tables["poll"].append("main", {"title": "?"}, user="owner"))
    bed.done(tables["ballot"].append("main:1", {"optionIdx": 1}))
    bed.done(tables["poll"].rm("main:1", user="owner"))
    assert tables["ballot"].list("main:1").rows == []
    bed.done(tables["poll"].restore("main:1"))
    assert bed.done(tables["ballot"].restore_by_parent("main:1", user="owner")).restored == 1


def test_a_row_cannot_be_removed_in_the_step_that_appends_it(plain_bed: Bed) -> None:
    def remove(ctx: HookContext, row: Row) -> None:
        ctx.rm("vote", row.id)

    def purge(ctx: HookContext, row: Row) -> None:
        ctx.purge_by_parent("vote", row.parent)

    for hook in (remove, purge):
        votes = plain_bed.bind(vote(after_append=hook))["vote"]
        with fails("after_append", MisusedHook):
            votes.append("r", {"optionIdx": 1})
        assert votes.list("r").rows == []


def test_a_hook_that_writes_past_its_context_is_refused(plain_bed: Bed) -> None:
    def write(ctx: HookContext) -> None:
        ctx.tables["audit"].append("a", {"what": "past"})

    tables = plain_bed.bind(vote(before_append=write), AUDIT)
    with fails("before_append", MisusedHook, match=r"ctx\.append"):
        tables["vote"].append("r", {"optionIdx": 1})
    # The lock has been let go.
    thread = threading.Thread(target=lambda: tables["audit"].append("a", {"what": "later"}).wait())
    thread.start()
    thread.join(60)
    assert audited(tables) == ["later"]


def test_a_row_that_a_hook_removes_cannot_be_updated_any_more(bed: Bed) -> None:
    def remove(ctx: HookContext, id: str) -> None:
        ctx.rm("vote", id)

    votes = bed.bind(vote(before_update=remove))["vote"]
    bed.done(votes.append("r", {"optionIdx": 1}))
    with pytest.raises(TableError) as error:
        votes.update("r:1", {"optionIdx": 2})
    assert error.value.code == "NOT_FOUND"
    assert len(votes.list("r").rows) == 1


def test_a_hook_that_can_never_be_called_is_refused() -> None:
    async def waits(ctx: HookContext) -> None: ...

    def wants_more(ctx: HookContext, *, parent: str, colour: str) -> None: ...

    def wants_nothing() -> None: ...

    for hook in (waits, wants_more, wants_nothing, "before"):
        with pytest.raises(BadDeclaration):
            Hooks(before_append=hook)  # type: ignore[arg-type]


# --- whose error it is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda ctx: ctx.append("audit", "a/b", {}),
        lambda ctx: ctx.append("audit", "a", 7),
        lambda ctx: ctx.append("nothing", "a", {}),
        lambda ctx: ctx.update("audit", "a:1", {"what": 1}),
        lambda ctx: ctx.rm("audit", "a"),
        lambda ctx: ctx.read("audit", "a"),
    ],
)
def test_a_bad_write_of_a_hook_is_reported_as_the_hooks(plain_bed: Bed, write: Any) -> None:
    tables = plain_bed.bind(vote(after_append=write), AUDIT)
    with fails("after_append", TableError):
        tables["vote"].append("r", {"optionIdx": 1})
    assert plain_bed.logs() == []


def test_a_hook_may_handle_the_error_of_its_own_write(plain_bed: Bed) -> None:
    def count(ctx: HookContext) -> None:
        try:
            ctx.update("audit", "a:1", {"what": 2})
        except TableError as error:
            codes.append(error.code)
            ctx.append("audit", "a", {"what": 1})

    codes: list[str] = []
    tables = plain_bed.bind(vote(after_append=count), AUDIT)
    for _ in range(2):
        tables["vote"].append("r", {"optionIdx": 1}).wait()
    assert (audited(tables), codes) == ([2], ["NOT_FOUND"])


def test_a_plain_hook_that_returns_a_coroutine_has_failed(plain_bed: Bed) -> None:
    async def notify(ctx: HookContext) -> None: ...

    votes = plain_bed.bind(vote(after_append=lambda ctx: notify(ctx)))["vote"]
    with fails("after_append", MisusedHook, match="async def"):
        votes.append("r", {"optionIdx": 1})


def test_the_item_of_a_bulk_whose_hook_failed_is_named(plain_bed: Bed) -> None:
    def check(ctx: HookContext, payload: dict[str, Any]) -> None:
        assert payload["optionIdx"] < 2

    votes = plain_bed.bind(vote(before_append=check))["vote"]
    with pytest.raises(TableError) as error:
        votes.append_bulk("r", [{"optionIdx": 1}, {"optionIdx": 2}])
    assert (error.value.code, error.value.more["index"]) == ("HOOK_FAILED", 1)


LARGE = "x" * (17 << 20)


@pytest.mark.parametrize("text", [LARGE, "\ud800"], ids=["too large", "not Unicode"])
def test_what_cannot_be_stored_is_the_mistake_of_the_hook_that_made_it(plain_bed: Bed, text: str) -> None:
    def before_append(ctx: HookContext, payload: dict[str, Any]) -> dict[str, Any] | None:
        if payload["voter"] == "elsewhere":
            ctx.append("audit", "a", {"what": text})
        return {**payload, "comment": text} if payload["voter"] == "here" else None

    def before_update(ctx: HookContext, patch: dict[str, Any]) -> dict[str, Any] | None:
        if patch["voter"] == "elsewhere":
            ctx.update("audit", "a:1", {"what": text})
        return {**patch, "comment": text} if patch["voter"] == "here" else None

    tables = plain_bed.bind(vote(before_append=before_append, before_update=before_update), AUDIT)
    votes = tables["vote"]
    plain_bed.done(tables["audit"].append("a", {"what": "nothing"}))
    plain_bed.done(votes.append("r", {"optionIdx": 1}))
    for voter, cause in (("here", (RecordTooLarge, TableError)), ("elsewhere", TableError)):
        with fails("before_append", cause):
            votes.append("r", {"optionIdx": 1, "voter": voter})
        with fails("before_update", cause):
            votes.update("r:1", {"voter": voter})
    # The same from the caller is the mistake of the caller.
    with pytest.raises((RecordTooLarge, TableError), match=r"record 1 of the batch|cannot be encoded"):
        votes.append_bulk("r", [{"optionIdx": 1}, {"optionIdx": 1, "comment": text}])
    with pytest.raises((RecordTooLarge, TableError), match=r"the limit is|cannot be encoded"):
        votes.update("r:1", {"voter": "", "comment": text})
    assert [row.seq for row in votes.list("r").rows] == [1]
    assert audited(tables) == ["nothing"]


def test_the_hooks_of_a_table_are_listed(plain_bed: Bed) -> None:
    async def later(ctx: HookContext) -> None: ...

    def now(ctx: HookContext) -> None: ...

    tables = plain_bed.bind(vote(after_append=later, before_rm=now))
    assert tables["vote"].hooks.declared == [("before_rm", False), ("after_append", True)]

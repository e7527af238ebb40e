"""Hooks that are coroutine functions: after the write is durable, bounded, and never in its way."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest
from support.tables_in_process import NOW, Bed, Vote

from strandline.engine import Commit
from strandline.engine.errors import EngineError
from strandline.tables import BadDeclaration, Hooks, Row, TableError, Tables, User, WriteContext, make_log
from strandline.tables.hook_runner import HookCall, HookRunner

PATIENCE = 60
AUDIT = make_log("audit", parent="label", schema={"type": "object"})


class Told:
    """What hooks were told, in the order in which they were called."""

    def __init__(self) -> None:
        self._queue: Queue[Any] = Queue()
        self.put = self._queue.put

    def next(self) -> Any:
        return self._queue.get(timeout=PATIENCE)

    @property
    def nothing(self) -> bool:
        return self._queue.empty()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def bound(plain_bed: Bed) -> Iterator[Any]:
    opened: list[Tables] = []

    def bind(**hooks: Any) -> Tables:
        vote = make_log("vote", parent="room", schema=Vote, soft_delete=True, hooks=Hooks(**hooks))
        opened.append(plain_bed.bind(vote, AUDIT))
        return opened[-1]

    yield bind
    for tables in opened:
        tables.close()


def test_async_hooks_are_told_what_was_written(bound: Any, told: Told) -> None:
    async def note(ctx: WriteContext, **arguments: Any) -> None:
        told.put((ctx.table, ctx.user, tuple(ctx.roles), ctx.now, arguments))

    votes = bound(after_append=note, after_update=note, after_rm=note)["vote"]
    user = User("u", roles=["r"])
    votes.append("r", {"optionIdx": 1}, user=user).wait()
    first = votes.read("r:1")
    votes.update("r:1", {"optionIdx": 2}, user=user).wait()
    second = votes.read("r:1")
    votes.rm("r:1", user=user).wait()
    by = ("vote", "u", ("r",), NOW)
    assert told.next() == (*by, {"row": first})
    assert told.next() == (*by, {"id": "r:1", "patch": {"optionIdx": 2}, "prev": first, "row": second})
    assert told.next() == (*by, {"id": "r:1", "prev": second})


def test_an_async_hook_runs_when_the_row_can_be_read_and_may_write(bound: Any, told: Told) -> None:
    async def copy(ctx: WriteContext, row: Row) -> None:
        assert ctx.tables["vote"].read(row.id) == row
        write = ctx.tables["audit"].append("a", {"what": row.id})
        told.put(await asyncio.to_thread(write.wait))

    tables = bound(after_append=copy)
    tables["vote"].append("r", {"optionIdx": 1}).wait()
    assert told.next().id == "a:1"
    assert tables["audit"].read("a:1").payload == {"what": "r:1"}


def test_an_async_hook_sees_the_row_as_plain_hooks_left_it(plain_bed: Bed, told: Told) -> None:
    async def note(ctx: WriteContext, row: Row) -> None:
        told.put(row.payload["comment"])

    def edit(ctx: Any, row: Row) -> None:
        ctx.update("vote", row.id, {"comment": "edited"})

    vote = make_log("vote", parent="room", schema=Vote, hooks=Hooks(after_append=edit))
    tables = plain_bed.bind(vote, hooks=Hooks(after_append=note))
    tables["vote"].append("r", {"optionIdx": 1}).wait()
    assert told.next() == "edited"
    tables.close()


def test_async_hooks_run_for_each_row_of_a_bulk_and_of_a_purge(bound: Any, told: Told) -> None:
    async def removed(ctx: WriteContext, id: str) -> None:
        told.put(id)

    async def appended(ctx: WriteContext, row: Row) -> None:
        told.put(row.id)

    votes = bound(after_append=appended, after_rm=removed)["vote"]
    votes.append_bulk("r", [{"optionIdx": 1}] * 3).wait()
    assert [told.next() for _ in range(3)] == ["r:1", "r:2", "r:3"]
    assert votes.purge_by_parent("r").wait().deleted == 3
    assert [told.next() for _ in range(3)] == ["r:1", "r:2", "r:3"]


def test_a_refused_or_repeated_write_calls_no_async_hook(bound: Any, told: Told) -> None:
    async def note(ctx: WriteContext, row: Row) -> None:
        told.put(row.id)

    tables = bound(after_append=note)
    votes = tables["vote"]
    for _ in range(2):
        votes.append("r", {"optionIdx": 1}, idempotency_key="k").wait()
    with pytest.raises(TableError):
        votes.append("r", {"optionIdx": "x"})
    assert told.next() == "r:1"
    tables.close()
    assert told.nothing


def test_a_hook_before_a_write_cannot_be_async() -> None:
    async def check(ctx: WriteContext) -> None: ...

    class Check:
        async def __call__(self, ctx: WriteContext) -> None: ...

    for hook in (check, Check()):
        for name in ("before_append", "before_update", "before_rm"):
            with pytest.raises(BadDeclaration, match=f"{name} must be a plain function"):
                Hooks(**{name: hook})


def test_a_failed_async_hook_is_logged_and_counted(bound: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(ctx: WriteContext) -> None:
        raise ZeroDivisionError("no notification")

    tables = bound(after_append=fail)
    with caplog.at_level(logging.ERROR):
        assert tables["vote"].append("r", {"optionIdx": 1}).wait().created
        tables.close()
    assert tables.runner.failures == {("vote", "after_append"): 1}
    assert "the hook after_append of the table vote failed: ZeroDivisionError" in caplog.text
    assert "Traceback" in caplog.text


def test_a_full_backlog_refuses_the_write_before_anything_is_written(bound: Any) -> None:
    go_on = threading.Event()

    async def wait(ctx: WriteContext) -> None:
        await asyncio.to_thread(go_on.wait)

    tables = bound(after_append=wait)
    tables.runner = HookRunner(max_calls=2)
    votes = tables["vote"]
    votes.append_bulk("r", [{"optionIdx": 1}] * 2).wait()
    with pytest.raises(TableError, match="calls of hooks are waiting") as error:
        votes.append("r", {"optionIdx": 2})
    assert (error.value.code, error.value.retry_after is not None, tables.runner.refused) == ("THROTTLED", True, 1)
    with pytest.raises(TableError, match="split the write") as error:
        votes.append_bulk("r", [{"optionIdx": 1}] * 3)
    assert error.value.code == "VALIDATION_FAILED"
    assert len(votes.list("r").rows) == 2
    go_on.set()
    tables.close()
    assert tables.runner.held == 0
    with pytest.raises(TableError, match="closed"):
        votes.append("r", {"optionIdx": 3})
    assert len(votes.list("r").rows) == 2


def test_closing_cancels_hooks_that_never_end(caplog: pytest.LogCaptureFixture) -> None:
    started = threading.Event()

    async def never() -> None:
        started.set()
        await asyncio.Event().wait()

    runner = HookRunner()
    runner.reserve(1)
    runner.follow(Commit.of(None), [HookCall("vote", "after_append", never)])
    assert started.wait(PATIENCE)
    runner.close(seconds=0)
    assert runner.held == 0
    assert "1 calls of hooks had not ended" in caplog.text


def test_a_hook_that_takes_too_long_is_cancelled() -> None:
    runner = HookRunner(seconds=0)
    runner.reserve(1)
    runner.follow(Commit.of(None), [HookCall("vote", "after_append", asyncio.Event().wait)])
    runner.close(PATIENCE)
    assert runner.failures == {("vote", "after_append"): 1}


def test_hooks_of_a_write_that_failed_do_not_run(caplog: pytest.LogCaptureFixture, told: Told) -> None:
    class Flusher:
        def flush(self, commit: Any) -> None: ...

        def flush_soon(self) -> None: ...

    async def note() -> None:
        told.put("called")

    runner, commit = HookRunner(), Commit[None](Flusher())
    runner.reserve(1)
    runner.follow(commit, [HookCall("vote", "after_append", note)])
    commit.resolve(None, EngineError("the disk is gone"))
    runner.close()
    assert told.nothing
    assert "dropped: the disk is gone" in caplog.text

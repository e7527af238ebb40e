"""Writes with hooks that write to several tables, crashed after every single call to the disk: afterwards everything
acknowledged is there, and of what was under way all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from support.tables_in_process import NOW, Vote

from strandline.engine import Engine, ManualClock, Options
from strandline.engine.testing.fault_disk import Crashed, FaultDisk
from strandline.tables import HookContext, Hooks, Item, Row, Tables, make_log

#: What a power cut leaves of unsynced bytes: exactly what is durable, or anything.
SEEDS = (None, 1, 2)
MANY_SEEDS = range(1, 61)

#: All there is in the logs: seq, key and data, and whether it can be seen.
State = dict[str, list[tuple[int, str | None, bytes, bool]]]


#: So long that what makes a log does not share its sector with what is written to it.
ALL = "all" * 80


def count_vote(ctx: HookContext, row: Row) -> None:
    tally = ctx.read("tally", f"{ALL}:1")
    if tally is None:
        ctx.append("tally", ALL, {"votes": 1})
    else:
        ctx.update("tally", tally.id, {"votes": tally.payload["votes"] + 1})
    ctx.append("audit", ALL, {"what": f"append {row.id}"})


def tell_update(ctx: HookContext, id: str) -> None:
    ctx.append("audit", ALL, {"what": f"update {id}"})


def tell_rm(ctx: HookContext, id: str) -> None:
    ctx.append("audit", ALL, {"what": f"rm {id}"})


AUDIT = make_log("audit", parent="label", schema={"type": "object"})
TALLY = make_log("tally", parent="label", schema={"type": "object"})
VOTE = make_log(
    "vote",
    parent="room",
    schema=Vote,
    soft_delete=True,
    hooks=Hooks(after_append=count_vote, after_update=tell_update, after_rm=tell_rm),
)


def steps(engine: Engine, tables: Tables) -> Iterator[Callable[[], Any]]:
    """What is done, one after the other."""
    votes, plain = tables["vote"], tables["tally"]
    yield lambda: votes.append("r", {"optionIdx": 1, "comment": "x" * 700}, idempotency_key="k").wait()
    yield lambda: votes.append_bulk("r", [Item(Vote(2), "l"), Vote(3), Vote(4)], user="u").wait()
    yield lambda: plain.append("other", {"votes": 0}).wait()
    yield lambda: votes.update("r:1", {"optionIdx": 5, "comment": "x" * 700}).wait()
    yield lambda: votes.rm("r:2").wait()
    yield engine.seal
    yield lambda: votes.update("r:3", {"optionIdx": 6}).wait()
    yield lambda: votes.rm_bulk(["r:1", "r:3"], hard=True).wait()
    yield lambda: votes.purge_by_parent("r").wait()
    yield engine.seal
    yield lambda: votes.restore_by_parent("r").wait()
    yield lambda: votes.rm("r:4").wait()
    yield lambda: votes.restore("r:4").wait()
    yield lambda: votes.append("r", {"optionIdx": 9}, idempotency_key="m").wait()
    yield lambda: plain.purge_by_parent("other", hard=True).wait()


def open_tables(disk: FaultDisk) -> tuple[Engine, Tables]:
    engine = Engine.open(disk, Options(cache_bytes=1 << 20), clock=ManualClock(NOW), background=False)
    return engine, Tables(engine, [AUDIT, TALLY, VOTE])


def state_of(engine: Engine) -> State:
    found: State = {}
    for name in engine.names():
        log = engine.log(name)
        if name.startswith("_"):
            continue
        records = [(record, True) for record in log.read(limit=1000)]
        hidden = [log.read_hidden(seq) for seq in range(1, log.head + 1)]
        records += [(record, False) for record in hidden if record is not None]
        if records:
            found[name] = sorted((each.seq, each.key, each.data, seen) for each, seen in records)
    return found


def states_without_crash(directory: Path) -> tuple[list[State], int]:
    """What there is before the first step and after each, and how many calls all of them make."""
    directory.mkdir()
    disk = FaultDisk(directory)
    engine, tables = open_tables(disk)
    states, begin = [state_of(engine)], disk.calls
    for step in steps(engine, tables):
        step()
        states.append(state_of(engine))
    calls = disk.calls - begin
    engine.close()
    return states, calls


def crash_after(directory: Path, call: int, at_most: int | None = None) -> tuple[FaultDisk, int]:
    """The disk after the crash, and how many steps were acknowledged."""
    directory.mkdir()
    disk = FaultDisk(directory)
    engine, tables = open_tables(disk)
    disk.crash_after(disk.calls + call)
    done = 0
    with suppress(Crashed):
        for step in islice(steps(engine, tables), at_most):
            step()
            done += 1
    return disk, done


def check(disk: FaultDisk, states: list[State], done: int) -> None:
    engine, tables = open_tables(disk)
    state = state_of(engine)
    assert state in states[done : done + 2]
    # And it goes on from there.
    key, seq = ("k", 1) if "vote/r" in state and state["vote/r"][0][0] == 1 else ("another", None)
    result = tables["vote"].append("r", {"optionIdx": 1}, idempotency_key=key).wait()
    assert result.created == (seq is None)
    engine.close()


def test_after_a_crash_at_any_call_every_step_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    number = count()
    states, calls = states_without_crash(tmp_path / str(next(number)))
    assert len({repr(state) for state in states}) == len(states) - 2, "only sealing changes nothing"
    for call in range(calls + 1):
        disk, done = crash_after(tmp_path / str(next(number)), call)
        for seed in SEEDS:
            try:
                check(disk.power_cut(seed), states, done)
            except BaseException as error:
                error.add_note(f"power cut after call {call} of {calls}, seed {seed}, {done} steps done")
                raise
        disk, done = crash_after(tmp_path / str(next(number)), call)
        try:
            check(disk.process_kill(), states, done)
        except BaseException as error:
            error.add_note(f"killed after call {call} of {calls}, {done} steps done")
            raise


def test_no_row_is_left_behind_by_one_whose_log_was_lost_before_it_was_durable(tmp_path: Path) -> None:
    """The first step makes three logs, and writes to all of them."""
    states, _ = states_without_crash(tmp_path / "whole")
    for call in range(20):
        disk, done = crash_after(tmp_path / str(call), call, at_most=1)
        for seed in MANY_SEEDS:
            check(disk.power_cut(seed), states, done)
        if done:
            break
    else:
        raise AssertionError("the first step makes more calls than that")


@pytest.mark.parametrize("unsynced", ["sync", "write"])
def test_a_write_that_the_disk_does_not_take_is_not_there(tmp_path: Path, unsynced: Any) -> None:
    (tmp_path / "data").mkdir()
    disk = FaultDisk(tmp_path / "data")
    engine, tables = open_tables(disk)
    votes = tables["vote"]
    votes.append("r", {"optionIdx": 1}, idempotency_key="k").wait()
    before = state_of(engine)
    disk.fail_from(1, 5, kind=unsynced)
    with pytest.raises(Exception, match="journal"):
        votes.append("r", {"optionIdx": 2}, idempotency_key="l").wait()
    with pytest.raises(Exception, match="read-only"):
        votes.append("r", {"optionIdx": 2}, idempotency_key="l").wait()
    assert state_of(engine) == before

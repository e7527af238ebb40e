"""Every operation is crashed after every one of its disk calls, and the promises are checked after recovery.

By default some crash points and kinds of damage are sampled, always the same; STRANDLINE_LONG=1 tries all.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from support.crash_oracle import OPTIONS, Observed, Scribe, check_recovery, observe, open_engine

from strandline.engine import Batch, Engine, ManualClock, Options, Producer
from strandline.engine.errors import DiskFull, EngineClosed, EngineError, JournalFailed
from strandline.engine.journal.file import FLUSHED
from strandline.engine.segments.cold_tier import ColdStore, ObjectStoreCold
from strandline.engine.testing.fault_disk import Crashed, FaultDisk

LONG = os.environ.get("STRANDLINE_LONG") == "1"
#: Crash points per operation, and seeds for what a power cut leaves of unsynced bytes.
POINTS = 1000 if LONG else 8
SEEDS = range(1, 13) if LONG else range(1, 3)

Then = Callable[[Engine, dict[str, Observed]], None]


def nothing_more(engine: Engine, seen: dict[str, Observed]) -> None:
    pass


@dataclass(frozen=True)
class Scenario:
    """What is there before, what is then done, and what else must be true after recovery."""

    prepare: Callable[[Scribe], None]
    operate: Callable[[Scribe], None]
    then: Then = nothing_more
    options: Options = OPTIONS
    cold: bool = False


# --- what is there before --------------------------------------------------------------------------------------


def four_logs(scribe: Scribe) -> None:
    """One log of each class, with records, some of them sealed; everything but the ephemeral ones is durable."""
    for durability in ("fsync", "disk", "memory", "ephemeral"):
        scribe.create(durability, durability=durability)
        scribe.append(durability, b"one", b"two", b"three", keys=["a/1", "a/2", "b/1"])
    scribe.engine.seal()
    for durability in ("fsync", "disk", "memory", "ephemeral"):
        scribe.append(durability, b"four", b"five", b"", keys=["a/1", None, "b/2"], meta=b"meta")
    scribe.flush()


def one_log(scribe: Scribe) -> None:
    """A careful log whose records are partly sealed, partly hidden and amended."""
    scribe.create("log", durability="fsync")
    scribe.append("log", *(b"sealed %d" % n for n in range(8)), keys=[f"{'ab'[n % 2]}/{n}" for n in range(8)])
    scribe.hide("log", seqs=[3])
    scribe.engine.seal()
    scribe.append("log", *(b"tail %d" % n for n in range(8)), keys=[f"{'ab'[n % 2]}/{n}" for n in range(8)])
    scribe.hide("log", seqs=[4, 11])
    scribe.amend("log", 5, b"amended")


def capped_log(scribe: Scribe) -> None:
    scribe.create("log", durability="fsync", cap_records=6)
    scribe.append("log", b"1", b"2", b"3", b"4")
    scribe.engine.seal()
    scribe.append("log", b"5", b"6", b"7")


def log_with_ttl(scribe: Scribe) -> None:
    scribe.create("log", durability="fsync", ttl_ms=1000)
    scribe.append("log", b"1", b"2")
    scribe.clock.advance(500)
    scribe.append("log", b"3", b"4")
    scribe.engine.seal()
    scribe.clock.advance(400)
    scribe.append("log", b"5", b"6")


def four_segments(scribe: Scribe) -> None:
    scribe.create("log", durability="fsync")
    scribe.create("other", durability="disk")
    scribe.create("gone", durability="fsync")
    for number in range(4):
        scribe.append("log", *(b"%d of %d" % (n, number) for n in range(4)), keys=["a", "b", None, "a"])
        scribe.append("other", b"%d" % number)
        scribe.append("gone", b"%d" % number)
        scribe.flush()
        if number < 3:
            scribe.engine.seal()
    scribe.delete("log", seqs=[2, 5])
    scribe.hide("log", seqs=[7, 15])
    scribe.amend("log", 6, b"amended")
    scribe.amend("log", 14, b"amended too")
    scribe.drop("gone")


# --- what is done ----------------------------------------------------------------------------------------------


def append_to(name: str) -> Callable[[Scribe], None]:
    def operate(scribe: Scribe) -> None:
        scribe.append(name)
        scribe.append(name)

    return operate


def append_to_all_at_once(scribe: Scribe) -> None:
    """Several batches of several logs share one flush."""
    for name in ("fsync", "disk", "memory", "ephemeral", "fsync", "disk"):
        scribe.append(name, b"x" * 700, b"y", b"z" * 600, wait=False)
    scribe.flush()


def append_with_key(scribe: Scribe) -> None:
    scribe.append("log", b"only once", idempotency_key="key")


def there_is_one_copy(engine: Engine, seen: dict[str, Observed], **again: object) -> None:
    there = [record.seq for record in seen["log"].records if record.data == b"only once"]
    result = engine.log("log").append(Batch.of(b"only once"), **again).wait()  # type: ignore[arg-type]
    assert result.deduped == bool(there)
    assert [r.seq for r in observe(engine)["log"].records if r.data == b"only once"] == (there or [result.first])


def append_as_producer(scribe: Scribe) -> None:
    scribe.append("log", b"only once", producer=Producer("p", 0, 0))


def recreate(scribe: Scribe) -> None:
    scribe.drop("log")
    scribe.create("log", durability="fsync", cap_records=3)
    scribe.append("log", b"new life")


def change_class(*path: str) -> Callable[[Scribe], None]:
    def operate(scribe: Scribe) -> None:
        for durability in path[1:]:
            scribe.configure(path[0], durability=durability)
            scribe.append(path[0])

    return operate


def expire(scribe: Scribe) -> None:
    scribe.clock.advance(600)
    scribe.expire("log")
    scribe.append("log", b"7")


def evict(scribe: Scribe) -> None:
    scribe.append("log", b"8")
    scribe.append("log", b"9", b"10", b"11")


def seal(scribe: Scribe) -> None:
    scribe.engine.seal()


def seal_twice(scribe: Scribe) -> None:
    scribe.engine.seal()
    scribe.append("fsync", b"between")
    scribe.delete("fsync", key="a/1")
    scribe.engine.seal()


def erase_from_all(scribe: Scribe) -> None:
    """Every event is in doubt as long as its change is, the first of them with the log that they are in."""
    scribe.delete("disk", key="a/1")
    scribe.hide("memory", seqs=list(range(1, 200)))
    scribe.amend("disk", 2, b"amended" * 90)
    scribe.delete("ephemeral", before=3)
    scribe.delete("fsync", prefix="b/")
    scribe.restore("memory", before=4)
    scribe.drop("disk")


def delete_everything_and_seal(scribe: Scribe) -> None:
    scribe.delete("log", before=1000)
    scribe.engine.seal()


def create_two(scribe: Scribe) -> None:
    scribe.create("new fsync", durability="fsync")
    scribe.create("new memory", durability="memory")


def amend_two(scribe: Scribe) -> None:
    scribe.amend("log", 2, b"other" * 9)
    scribe.amend("log", 12, b"other" * 9)


def drop_two(scribe: Scribe) -> None:
    scribe.drop("fsync")
    scribe.drop("disk")


def skip_in_two(scribe: Scribe) -> None:
    scribe.skip("fsync", 1000)
    scribe.skip("disk", 1000)


def flush_changes(scribe: Scribe) -> None:
    scribe.append("disk")
    scribe.append("memory")
    scribe.delete("disk", seqs=[1])
    scribe.flush()


def seal_again(scribe: Scribe) -> None:
    """The first round makes the fourth segment, the second merges the four."""
    scribe.engine.seal()
    scribe.engine.seal()


def append_to_several(scribe: Scribe) -> None:
    """In one step; the last one has no careful log in it."""
    scribe.append_all(("fsync", b"x" * 700), ("disk", b"y" * 600), ("ephemeral", b"e"), ("fsync", b"z" * 600))
    scribe.append_all(("disk", b"y" * 700), ("memory", b"z" * 700), ("disk", b"u" * 600))


def change_several(scribe: Scribe) -> None:
    """In one step each: what became of records, with appends that tell of it; sealed records and new ones."""
    scribe.change_all(("amend", "log", (2, b"other" * 9)), ("hide", "fsync", 1), ("append", "disk", b"told" * 99))
    scribe.change_all(("hide", "log", 12), ("delete", "log", 3), ("append", "log", b"more"), ("append", "fsync", b"y"))
    scribe.change_all(("restore", "log", 12), ("amend", "disk", (1, b"z")))


def sealed_and_new_logs(scribe: Scribe) -> None:
    one_log(scribe)
    for name, durability in (("fsync", "fsync"), ("disk", "disk")):
        scribe.create(name, durability=durability)
        scribe.append(name, b"first", b"second")


def move_cursors(scribe: Scribe) -> None:
    for name in ("fsync", "disk", "ephemeral"):
        scribe.move_cursor(name, "cursor", 3)
        scribe.move_cursor(name, "other", 4)
    scribe.move_cursor("fsync", "cursor", 1)
    scribe.drop_cursor("fsync", "other")
    scribe.sync("disk")


def sources_and_takers(scribe: Scribe) -> None:
    """Two logs with sealed and new records, one of each class to forward to."""
    four_logs(scribe)
    for name, durability in (("source", "disk"), ("careful source", "fsync")):
        scribe.create(name, durability=durability)
        scribe.append(name, b"old", b"older")
    scribe.engine.seal()
    for name in ("source", "careful source"):
        scribe.append(name, b"x" * 700, b"y", keys=["a", "b"], meta=b"meta")
        scribe.append(name, b"z" * 600)
    scribe.flush()


def forward_by_reference(scribe: Scribe) -> None:
    scribe.forward("source", ("disk", 3, 5), ("memory", 3, 4), ("ephemeral", 5, 5))
    scribe.forward("source", ("fsync", 4, 5), ("disk", 3, 3), lost=3)
    scribe.forward("disk", ("memory", 7, 8), ("fsync", 8, 8))


def forward_old_and_new(scribe: Scribe) -> None:
    scribe.forward("careful source", ("disk", 3, 5), ("fsync", 1, 4), ("memory", 2, 2))
    scribe.forward("ephemeral", ("disk", 4, 5), ("fsync", 5, 6), lost=2)


def forward_and_seal(scribe: Scribe) -> None:
    scribe.forward("careful source", ("disk", 3, 5), ("fsync", 3, 4))
    scribe.forward("fsync", ("disk", 7, 8))
    scribe.delete("careful source", seqs=[3, 4])
    scribe.flush()
    scribe.engine.seal()


def append_and_forward(scribe: Scribe) -> None:
    """What is forwarded is in doubt itself."""
    scribe.append("source", b"new" * 300)
    scribe.forward("source", ("disk", 6, 6), ("memory", 5, 6))
    scribe.forward("source", ("fsync", 6, 6))


def append_and_close(scribe: Scribe) -> None:
    scribe.append("disk")
    scribe.append("disk")
    scribe.close()


def create_with_records(scribe: Scribe) -> None:
    scribe.create("new fsync", b"x" * 700, b"y", durability="fsync", notes={"n": [1]})
    scribe.create("new disk", b"z" * 600, durability="disk", notes={"n": {"m": "x" * 600}})
    scribe.create("new memory", notes={"n": 2}, durability="memory")
    scribe.append("new disk")


def note_in_all(scribe: Scribe) -> None:
    for name in ("fsync", "disk", "ephemeral"):
        scribe.note(name, one="x" * 600, two=2)
        scribe.note(name, one=None, three={"a": [None]})
    scribe.append("fsync", b"last", notes={"closed": True})
    scribe.append("disk", b"last", notes={"closed": True, "two": None})


def note_as_producer(scribe: Scribe) -> None:
    scribe.append("log", b"once", producer=Producer("p", 0, 0))
    scribe.append("log", b"twice", producer=Producer("p", 0, 1), notes={"closed": True})


def closed_is_no_more_than_what_came_with_it(engine: Engine, seen: dict[str, Observed]) -> None:
    there = b"twice" in [record.data for record in seen["log"].records]
    assert (seen["log"].notes == {"closed": True}) == there
    state = engine.log("log").producer("p")
    assert (state is not None and state.seq == 1) == there


def fork_them(scribe: Scribe) -> None:
    scribe.fork("one", "log", 12, durability="fsync")
    scribe.append("one", b"own" * 200)
    scribe.fork("two", "one", 13, b"x" * 700, b"y", durability="disk", notes={"n": 1})
    scribe.append("two")
    scribe.note("two", n=2)


def forks(scribe: Scribe) -> None:
    one_log(scribe)
    fork_them(scribe)
    scribe.flush()


def seal_and_merge_forks(scribe: Scribe) -> None:
    for number in range(3):
        scribe.engine.seal()
        scribe.append("log", b"%d" % number)
        scribe.append("two", b"%d" % number)
        scribe.flush()
    scribe.engine.seal()
    scribe.engine.seal()


def drop_forks_and_source(scribe: Scribe) -> None:
    for name in ("two", "one", "log"):
        scribe.drop(name)


def the_relation_is_right(engine: Engine, seen: dict[str, Observed]) -> None:
    for name in seen:
        base = engine.log(name).base
        assert (base and base[0].name) == {"one": "log", "two": "one"}.get(name)
    for source, fork in (("log", "one"), ("one", "two")):
        if source in seen:
            assert engine.log(source).forks == (fork in seen)


SCENARIOS = {
    "create": Scenario(four_logs, create_two),
    "create with records": Scenario(four_logs, create_with_records),
    "note": Scenario(four_logs, note_in_all),
    "note as producer": Scenario(one_log, note_as_producer, closed_is_no_more_than_what_came_with_it),
    "fork": Scenario(one_log, fork_them, the_relation_is_right),
    "seal forks": Scenario(forks, seal_and_merge_forks, the_relation_is_right),
    "drop forks": Scenario(forks, drop_forks_and_source, the_relation_is_right),
    "append fsync": Scenario(four_logs, append_to("fsync")),
    "append disk": Scenario(four_logs, append_to("disk")),
    "append memory": Scenario(four_logs, append_to("memory")),
    "append ephemeral": Scenario(four_logs, append_to("ephemeral")),
    "append batches": Scenario(four_logs, append_to_all_at_once),
    "append idempotently": Scenario(
        one_log, append_with_key, lambda e, s: there_is_one_copy(e, s, idempotency_key="key")
    ),
    "append as producer": Scenario(
        one_log, append_as_producer, lambda e, s: there_is_one_copy(e, s, producer=Producer("p", 0, 0))
    ),
    "append to several": Scenario(four_logs, append_to_several),
    "change several": Scenario(sealed_and_new_logs, change_several),
    "cursors": Scenario(four_logs, move_cursors),
    "forward": Scenario(sources_and_takers, forward_by_reference),
    "forward old and new": Scenario(sources_and_takers, forward_old_and_new),
    "forward and seal": Scenario(sources_and_takers, forward_and_seal),
    "append and forward": Scenario(sources_and_takers, append_and_forward),
    "delete before": Scenario(one_log, lambda s: s.delete("log", before=10)),
    "delete by key": Scenario(one_log, lambda s: s.delete("log", key="a/4")),
    "delete by prefix": Scenario(one_log, lambda s: s.delete("log", prefix="b/")),
    "delete by seqs": Scenario(one_log, lambda s: s.delete("log", seqs=[1, 2, 3, 9, 11])),
    "delete all": Scenario(one_log, lambda s: s.delete("log", before=1000)),
    "erase": Scenario(four_logs, erase_from_all),
    "hide": Scenario(one_log, lambda s: s.hide("log", prefix="a/")),
    "restore": Scenario(one_log, lambda s: s.restore("log", before=100)),
    "amend": Scenario(one_log, amend_two),
    "configure": Scenario(one_log, lambda s: s.configure("log", durability="fsync", cap_records=3)),
    "class fsync to disk and back": Scenario(four_logs, change_class("fsync", "disk", "fsync")),
    "class disk to fsync": Scenario(four_logs, change_class("disk", "fsync")),
    "class ephemeral to fsync": Scenario(four_logs, change_class("ephemeral", "fsync")),
    "class ephemeral to disk to ephemeral": Scenario(four_logs, change_class("ephemeral", "disk", "ephemeral")),
    "class memory to ephemeral": Scenario(four_logs, change_class("memory", "ephemeral")),
    "drop": Scenario(four_logs, drop_two),
    "recreate": Scenario(one_log, recreate),
    "skip": Scenario(four_logs, skip_in_two),
    "expire": Scenario(log_with_ttl, expire),
    "evict": Scenario(capped_log, evict),
    "flush": Scenario(four_logs, flush_changes),
    "seal": Scenario(four_logs, seal),
    "seal one log": Scenario(one_log, seal),
    "seal twice": Scenario(four_logs, seal_twice),
    "seal nothing": Scenario(one_log, delete_everything_and_seal),
    "merge": Scenario(four_segments, seal_again),
    "relocate": Scenario(four_segments, seal_again, options=Options(hot_segments=0), cold=True),
    "close": Scenario(four_logs, lambda s: s.close()),
    "close after appends": Scenario(four_logs, append_and_close),
}


# --- running them ----------------------------------------------------------------------------------------------


class Stage:
    """A scenario, prepared on a disk of its own. ``calls`` counts what the operation itself does."""

    _made = 0

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        Stage._made += 1
        root = directory / str(Stage._made)
        root.mkdir()
        self.scenario = scenario
        self.clock = ManualClock()
        self.disk = FaultDisk(root)
        self.cold: ColdStore | None = ObjectStoreCold(str(directory / f"{Stage._made}.cold")) if scenario.cold else None
        engine = open_engine(self.disk, self.clock, self.cold, scenario.options)
        self.scribe = Scribe(engine, self.clock)
        scenario.prepare(self.scribe)
        self._before = self.disk.calls

    @property
    def calls(self) -> int:
        return self.disk.calls - self._before

    def operate(self) -> None:
        self.scenario.operate(self.scribe)

    def crash_after(self, call: int) -> None:
        self.disk.crash_after(self._before + call)
        with suppress(Crashed):
            self.operate()

    def fail_at(self, call: int, error: int, short: bool, strict: bool) -> None:
        """Have one call of the operation fail, and remember what became of it.

        ``strict``: it does nothing but write to the journal and sync it, so there is one right exception.
        """
        self.strict = strict
        self.disk.fail_at(self._before + call, error, short=short)
        self.raised: Exception | None = None
        try:
            self.operate()
        except (EngineError, OSError) as raised:
            self.raised = raised
        self.failed = self.disk.log[self._before + call - 1] if self.calls >= call else None

    def check_failure(self, error: int) -> None:
        """Whether it was the right exception, and the engine is as usable as it should be."""
        engine = self.scribe.engine
        if self.failed is None:
            return
        refused = isinstance(self.raised, DiskFull)
        if self.failed.path == FLUSHED:
            assert self.raised is None, "the flush was done before the mark was written"
            return
        if self.strict and self.failed.name == "write" and error == errno.ENOSPC:
            assert refused, self.raised
        elif self.strict:
            assert isinstance(self.raised, JournalFailed), self.raised
        assert engine.stats().read_only == isinstance(self.raised, JournalFailed) or not self.strict
        if isinstance(self.raised, JournalFailed):
            with pytest.raises((JournalFailed, EngineClosed)):
                engine.create("refused")
        if refused and engine.writable:
            self.scribe.was_refused()

    def go_on(self, random: Random) -> None:
        """After the failure, on the healed disk: write, seal, and crash somewhere in between."""
        engine = self.scribe.engine
        if not engine.writable:
            return
        for name in engine.names():
            self.scribe.append(name)
        observe(engine)
        self.disk.crash_after(self.disk.calls + random.randint(0, 40))
        with suppress(Crashed):
            engine.seal()

    def check(self, disk: FaultDisk, after: str, damaged: bool = False) -> None:
        check_recovery(disk, self.scribe, after, cold=self.cold, damaged=damaged, then=self.scenario.then)  # type: ignore[arg-type]


def sample(count: int, seed: str) -> list[int]:
    """All of 0 to ``count``, or as many as there is time for: the first, the last, and some in between."""
    points = range(count + 1)
    if len(points) <= POINTS:
        return list(points)
    return sorted({0, count, *Random(seed).sample(points, POINTS - 2)})


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_crash_point_breaks_a_promise_when_the_power_goes(name: str, tmp_path: Path) -> None:
    whole = Stage(SCENARIOS[name], tmp_path)
    whole.operate()
    for call in sample(whole.calls, f"power {name}"):
        stage = Stage(SCENARIOS[name], tmp_path)
        stage.crash_after(call)
        for seed in (None, *SEEDS):
            try:
                stage.check(stage.disk.power_cut(seed), "power cut", damaged=seed is not None)
            except BaseException as error:
                error.add_note(f"{name}: crashed after call {call} of {whole.calls}, seed {seed}")
                raise


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_crash_point_breaks_a_promise_when_the_process_is_killed(name: str, tmp_path: Path) -> None:
    whole = Stage(SCENARIOS[name], tmp_path)
    whole.operate()
    for call in sample(whole.calls, f"kill {name}"):
        stage = Stage(SCENARIOS[name], tmp_path)
        stage.crash_after(call)
        try:
            stage.check(stage.disk.process_kill(), "kill")
        except BaseException as error:
            error.add_note(f"{name}: killed after call {call} of {whole.calls}")
            raise


# --- crashes during recovery -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["append batches", "recreate", "class ephemeral to fsync", "seal twice", "merge", "append and forward"]
)
@pytest.mark.parametrize("seed", [None, *SEEDS])
def test_a_crash_during_recovery_changes_nothing_about_its_outcome(name: str, seed: int | None, tmp_path: Path) -> None:
    whole = Stage(SCENARIOS[name], tmp_path)
    whole.operate()
    random = Random(f"recovery {name} {seed}")
    stage = Stage(SCENARIOS[name], tmp_path)
    stage.crash_after(random.randint(1, whole.calls))
    first = stage.disk.power_cut(seed)
    open_engine(first, stage.clock, stage.cold)
    for call in sample(first.calls, f"recovery {name} {seed}"):
        for again in (None, *SEEDS):
            broken = stage.disk.power_cut(seed)
            broken.crash_after(call)
            with suppress(Crashed):
                open_engine(broken, stage.clock, stage.cold)
            stage.check(broken.power_cut(again), "power cut", damaged=seed is not None)


@pytest.mark.parametrize("name", ["append batches", "recreate", "seal twice", "merge"])
def test_a_process_that_is_killed_again_and_again_while_it_starts_loses_nothing(name: str, tmp_path: Path) -> None:
    stage = Stage(SCENARIOS[name], tmp_path)
    stage.operate()
    disk = stage.disk.process_kill()
    for call in range(12):
        disk.crash_after(disk.calls + call)
        with suppress(Crashed):
            open_engine(disk, stage.clock, stage.cold)
        disk = disk.process_kill()
    stage.check(disk, "kill")


# --- calls that fail -------------------------------------------------------------------------------------------

FAILURES = {
    "EIO": (errno.EIO, False),
    "ENOSPC": (errno.ENOSPC, False),
    "ENOSPC after half": (errno.ENOSPC, True),
    "ESTALE": (errno.ESTALE, False),
}
#: An expiry that cannot be written down is no reason to refuse anything.
JOURNAL_ONLY = {"append fsync", "append batches", "delete by key", "configure", "recreate", "flush"}
IN_STEPS = [
    "append to several", "cursors", "forward", "forward old and new", "append and forward", "create with records",
    "note", "fork", "erase",
]  # fmt: skip
FAILING = ["append fsync", "append disk", "append batches", "delete by key", "configure", "recreate", "expire", "flush"]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", [*FAILING, *IN_STEPS, "seal", "seal twice", "merge", "close after appends"])
def test_no_failing_call_breaks_a_promise(name: str, failure: str, tmp_path: Path) -> None:
    error, short = FAILURES[failure]
    whole = Stage(SCENARIOS[name], tmp_path)
    whole.operate()
    random = Random(f"{name} {failure}")
    for call in sample(whole.calls, f"fail {name} {failure}")[1:]:
        for crash in ("kill", "power cut"):
            stage = Stage(SCENARIOS[name], tmp_path)
            stage.fail_at(call, error, short, strict=name in JOURNAL_ONLY)
            try:
                stage.check_failure(error)
                stage.disk.heal()
                stage.go_on(random)
                disk = stage.disk.process_kill() if crash == "kill" else stage.disk.power_cut(random.choice([None, 1]))
                stage.check(disk, crash, damaged=crash == "power cut")
            except BaseException as problem:
                problem.add_note(f"{name}: {failure} at call {call} of {whole.calls} ({stage.failed}), then {crash}")
                raise


@pytest.mark.parametrize("failure", FAILURES)
def test_a_start_that_fails_can_be_tried_again(failure: str, tmp_path: Path) -> None:
    error, short = FAILURES[failure]
    stage = Stage(SCENARIOS["seal twice"], tmp_path)
    stage.operate()
    for call in range(1, 8):
        disk = stage.disk.power_cut()
        disk.fail_at(call, error, short=short)
        with suppress(OSError, EngineError):
            open_engine(disk, stage.clock).close()
        disk.heal()
        stage.check(disk.process_kill(), "power cut")


def test_after_a_full_disk_appends_go_on_without_a_restart(tmp_path: Path) -> None:
    stage = Stage(SCENARIOS["append fsync"], tmp_path)
    engine, scribe = stage.scribe.engine, stage.scribe
    before = observe(engine)
    for short in (False, True):
        stage.disk.fail_from(1, errno.ENOSPC, kind="write", short=short)
        for name in ("fsync", "disk", "memory", "fsync"):
            with pytest.raises(DiskFull):
                scribe.append(name)
            scribe.was_refused()
        assert observe(engine) == before, "a refused append left something behind"
        stage.disk.heal()
    assert not engine.stats().read_only
    stage.operate()
    stage.check(stage.disk.power_cut(), "power cut")


def test_a_read_does_not_need_space(tmp_path: Path) -> None:
    stage = Stage(SCENARIOS["expire"], tmp_path)
    stage.disk.fail_from(1, errno.ENOSPC)
    stage.clock.advance(600)
    assert [record.seq for record in stage.scribe.engine.log("log").read()] == [3, 4, 5, 6]


@pytest.mark.parametrize("seed", [None, *SEEDS])
def test_what_a_failed_sync_left_behind_is_never_acknowledged(seed: int | None, tmp_path: Path) -> None:
    """After a failed sync the next one succeeds and means nothing: the pages are gone."""
    stage = Stage(SCENARIOS["append fsync"], tmp_path)
    engine, scribe = stage.scribe.engine, stage.scribe
    stage.disk.fail_at(stage.disk.calls_of("sync") + 1, errno.EIO, kind="sync")
    with pytest.raises(JournalFailed):
        scribe.append("fsync", b"never acknowledged")
    before = observe(engine)
    for name in ("fsync", "disk", "memory"):
        with pytest.raises(JournalFailed):
            engine.log(name).append(Batch.of(b"refused"))
    with pytest.raises(JournalFailed):
        engine.flush()
    with pytest.raises(JournalFailed):
        engine.create("new")
    assert engine.stats().read_only
    assert b"never acknowledged" not in [record.data for record in before["fsync"].records]
    assert observe(engine) == before
    engine.close()
    stage.check(stage.disk.power_cut(seed), "power cut", damaged=seed is not None)


@pytest.mark.parametrize("name", ["append batches", "seal twice", "merge"])
@pytest.mark.parametrize("seed", [None, *SEEDS])
def test_a_disk_that_lies_about_syncs_cannot_make_records_up(name: str, seed: int | None, tmp_path: Path) -> None:
    stage = Stage(SCENARIOS[name], tmp_path)
    stage.disk.lie()
    stage.operate()
    written = {
        (life.name, record.seq): record
        for life in stage.scribe.lives.values()
        for count in range(len(life.changes) + 1)
        if (model := life.model(life.changes[:count])) is not None
        for record in model.records.values()
    }
    try:
        engine = open_engine(stage.disk.power_cut(seed), stage.clock)
        seen = observe(engine)
    except EngineError:
        return  # refused, and it says why
    for log_name, log in seen.items():
        for record in log.records:
            was = written[log_name, record.seq]
            assert (record.ts, record.key, record.meta) == (was.ts, was.key, was.meta)


@pytest.mark.parametrize("where", ["MANIFEST", "checkpoints/", "journal/", "segments"])
def test_a_start_that_cannot_read_is_refused_and_changes_nothing(where: str, tmp_path: Path) -> None:
    stage = Stage(SCENARIOS["seal twice"], tmp_path)
    stage.operate()
    disk = stage.disk.process_kill()
    before = {path: path.read_bytes() for path in disk.root.rglob("*") if path.is_file()}
    disk.fail_read(where, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        open_engine(disk, stage.clock).log("fsync").read()
    if where != "segments":
        assert {path: path.read_bytes() for path in disk.root.rglob("*") if path.is_file()} == before
    disk.heal()
    stage.check(disk.process_kill(), "kill")


class FailingCold:
    """A cold tier that fails to take anything, or takes half of it."""

    def __init__(self, cold: ColdStore, error: int | None) -> None:
        self._cold = cold
        self.error = error
        self.working = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._cold, name)

    def put(self, name: str, data: bytes | Path) -> None:
        if self.working or not name.endswith(".arrow"):
            self._cold.put(name, data)
        elif self.error is not None:
            raise OSError(self.error, os.strerror(self.error), name)
        else:
            raw = data if isinstance(data, bytes) else data.read_bytes()
            self._cold.put(name, raw[: len(raw) // 2])


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.ESTALE, None])
def test_segments_stay_where_they_are_until_the_cold_tier_has_them(error: int | None, tmp_path: Path) -> None:
    clock = ManualClock()
    cold = FailingCold(ObjectStoreCold(str(tmp_path / "cold")), error)
    (tmp_path / "data").mkdir()
    engine = open_engine(FaultDisk(tmp_path / "data"), clock, cold, Options(hot_segments=0))  # type: ignore[arg-type]
    scribe = Scribe(engine, clock)
    scribe.create("log", durability="fsync")
    scribe.append("log")
    with pytest.raises((OSError, EngineError)):
        engine.seal()
    assert engine.maintenance.failure is not None
    scribe.append("log")
    assert len(scribe.check(engine, "kill", clock.now())["log"].records) == 2
    assert [entry.tier for entry in engine.maintenance.manifest.segments] == ["hot"]
    cold.working = True
    engine.seal()
    assert {entry.tier for entry in engine.maintenance.manifest.segments} == {"cold"}
    assert engine.disk.list("segments") == []
    scribe.check(engine, "kill", clock.now())
    engine.close()


# --- single faults that no sweep happens upon ------------------------------------------------------------------


def test_a_reservation_that_was_never_written_is_not_taken_for_durable(tmp_path: Path) -> None:
    stage = Stage(Scenario(lambda s: s.create("disk").create("fsync", durability="fsync") and None, seal), tmp_path)
    scribe = stage.scribe
    stage.disk.fail_from(1, errno.ENOSPC, kind="write")
    with pytest.raises(DiskFull):
        scribe.append("disk", *([b"refused"] * 130))
    scribe.was_refused()
    stage.disk.heal()
    scribe.append("fsync")
    scribe.append("disk", *([b"taken"] * 300))
    stage.check(stage.disk.power_cut(), "power cut")


def test_a_journal_file_is_written_to_only_once_its_entry_is_durable(tmp_path: Path) -> None:
    stage = Stage(SCENARIOS["seal one log"], tmp_path)
    stage.disk.fail_at(stage.disk.calls_of("sync_directory") + 1, errno.EIO, kind="sync_directory")
    with pytest.raises(OSError, match="Input/output error"):
        stage.operate()
    stage.operate()
    stage.scribe.append("log", b"acknowledged")
    stage.check(stage.disk.power_cut(), "power cut")


def test_what_was_acknowledged_right_after_sealing_is_not_forgotten(tmp_path: Path) -> None:
    """The journal is empty after the power cut, and still the seqs of the lost record are not handed out again."""
    stage = Stage(SCENARIOS["seal"], tmp_path)
    stage.operate()
    stage.scribe.append("disk")
    stage.check(stage.disk.power_cut(), "power cut")


def test_hidden_records_behind_the_last_evicted_one_stay(tmp_path: Path) -> None:
    stage = Stage(Scenario(lambda s: s.create("log", durability="fsync", cap_records=2) and None, seal), tmp_path)
    scribe = stage.scribe
    scribe.append("log", b"1", b"2")
    scribe.hide("log", seqs=[2])
    scribe.append("log", b"3")
    scribe.hide("log", seqs=[3])
    scribe.engine.seal()
    scribe.append("log", b"4", b"5")
    scribe.configure("log", durability="fsync")
    scribe.restore("log", before=100)
    assert [record.data for record in scribe.engine.log("log").read()] == [b"2", b"3", b"4", b"5"]
    stage.check(stage.disk.power_cut(), "power cut")


def test_a_full_disk_does_not_end_housekeeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, Options(settle_after_ms=0), clock=ManualClock())
    log = engine.create("disk").wait()
    log.append(Batch.of(b"record")).wait()
    engine.flush()
    disk.fail_from(1, errno.ENOSPC, kind="write")
    went_on = threading.Event()
    monkeypatch.setattr(engine.maintenance, "attempt", went_on.set)
    engine._wake_keeper.set()
    assert went_on.wait(60)
    went_on.clear()
    engine._wake_keeper.set()
    assert went_on.wait(60)
    disk.heal()
    engine.close()

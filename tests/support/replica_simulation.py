"""A simulation of servers that share a replica: a seed decides everything that happens, and what happens when.

Several machines take turns. While one of them waits for the store, it can crash, and the others can run: for the store,
a machine that waits is a machine that was paused. A machine restarts in its directory or, after it was lost, takes over
in an empty one. Requests fail before or after they take effect, and some take effect much later.

Run more seeds with ``python -m support.replica_simulation FIRST COUNT`` in the folder ``tests``.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from strandline.engine import Append, Batch, Commit, Config, Engine, Log, ManualClock, Options
from strandline.engine.backup import backup
from strandline.engine.backup.pool import Backup, Pool, locate
from strandline.engine.backup.restoration import _Plan, _Restoring
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import EngineError, ReplicaBehind
from strandline.engine.follower.mirror import NoLeaderYet
from strandline.engine.replica import sharing, shipper
from strandline.engine.replica.sharing import STALE_SECONDS
from strandline.engine.replica.takeover import ReplicaAhead
from strandline.engine.testing.fault_disk import Crashed, FaultDisk
from support.simulated_store import SimulatedBucket, SimulatedFolder, SimulatedStore, simulated_pool

NOW = 1_700_000_000_000
MACHINES = 3
STEPS = 90
#: The others run this many steps while a machine waits for the store, and this deep.
INTERRUPTION_STEPS = 6
MAX_DEPTH = 3
#: Interruptions cause requests, which are interrupted in turn: without a limit, a few worlds would never end.
MAX_STEPS = 600

#: The names of the logs, and their durabilities at first.
LOGS = {
    "r": "replicated",
    "s": "replicated",
    "d": "disk",
    "f": "fsync",
    "m": "memory",
    "e": "ephemeral",
}

#: The folder of the cold tier in the bucket.
COLD = "cold"
#: The logs whose records are all in a backup, except for the moments that a power cut takes.
BACKED_UP = ("r", "d", "f", "m")

#: A log: its name and epoch.
Which = tuple[str, int]


class Violation(AssertionError):
    """A promise was broken."""


class Attempt(NamedTuple):
    """An append whose result is not known yet."""

    log: Which
    key: str | None
    payloads: list[str]
    replicated: bool
    commit: Commit[Any]
    #: Which of the results of the commit this is; None: the result itself.
    place: int | None


class History:
    """What clients were told and what readers saw, and whether it fits together."""

    def __init__(self) -> None:
        #: What each seq was acknowledged for, or shown with.
        self.known: dict[Which, dict[int, str]] = {}
        #: The part of it that must never be lost.
        self.kept: dict[Which, dict[int, str]] = {}
        #: Seqs that a client may have deleted.
        self.deleted: dict[Which, set[int]] = {}
        #: Where each payload of a replicated log is.
        self.places: dict[tuple[Which, str], int] = {}
        #: Logs whose durability was ``replicated`` all the time.
        self.always: set[Which] = set()
        #: Acknowledged cursors and creations of replicated logs.
        self.created: set[Which] = set()
        self.terms: dict[int, str] = {}
        self.acknowledged = 0

    def saw(self, log: Which, seq: int, payload: str, replicated: bool, what: str) -> None:
        before = self.known.setdefault(log, {}).setdefault(seq, payload)
        if before != payload:
            raise Violation(f"{what}: seq {seq} of {log} is {payload!r} and was {before!r}")
        if replicated:
            self.kept.setdefault(log, {})[seq] = payload
            place = self.places.setdefault((log, payload), seq)
            if place != seq:
                raise Violation(f"{what}: {payload!r} of {log} is at seq {seq} and at seq {place}")

    def deletes(self, log: Which, seqs: list[int]) -> None:
        self.deleted.setdefault(log, set()).update(seqs)

    def check(self, engine: Engine, who: str) -> None:
        """Check that a server which has just started has everything."""
        logs = {(name, engine.log(name).epoch): engine.log(name) for name in engine.names()}
        for which in self.created - set(logs):
            raise Violation(f"{who} lacks the log {which}")
        for which, kept in self.kept.items():
            log = logs.get(which)
            found = {} if log is None else records(log)
            missing = sorted(set(kept) - set(found) - self.deleted.get(which, set()))
            if missing:
                raise Violation(f"{who} lacks the seqs {missing} of {which}: {[kept[seq] for seq in missing]}")
        for which, log in logs.items():
            self.read(which, log, who)
            if which in self.always:
                missing = sorted(set(range(1, log.head + 1)) - set(records(log)) - self.deleted.get(which, set()))
                if missing:
                    raise Violation(f"{who} has gaps in {which}: {missing}")

    def read(self, which: Which, log: Log, who: str) -> None:
        """Read a log as clients do."""
        # What a log had before it became ``replicated`` may be lost until the replica knows that it did.
        replicated = which in self.always or log.base is not None
        found = records(log)
        payloads = list(found.values())
        if replicated and len(set(payloads)) < len(payloads):
            raise Violation(f"{who} has payloads of {which} twice: {sorted(payloads)}")
        shared = 0 if log.base is None else log.base[1]
        for seq, payload in found.items():
            # A fork shares what its source has, of whatever durability.
            self.saw(which, seq, payload, replicated and seq > shared, f"a reader of {who}")
        backwards = {record.seq: record.data.decode() for record in log.read_back(limit=10_000)}
        if backwards != found:
            raise Violation(f"{who} shows {which} backwards as {backwards}, forwards as {found}")


def records(log: Log) -> dict[int, str]:
    """Everything that readers see, read page by page."""
    found: dict[int, str] = {}
    after = 0
    while True:
        page = log.read(after, 1000)
        found |= {record.seq: record.data.decode() for record in page}
        after = page.next_after
        if page.caught_up:
            return found


def _config(durability: str) -> Config:
    """Idempotency keys are remembered longer than the simulation takes."""
    return Config(durability=durability, idempotency_window_ms=1 << 40)  # type: ignore[arg-type]


class Machine:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.directories = 0
        self.disk: FaultDisk | None = None
        self.engine: Engine | None = None
        #: Whether the machine is in the middle of something.
        self.is_busy = False
        self.attempts: list[Attempt] = []
        self.starts = 0

    @property
    def name(self) -> str:
        return f"{self.number}.{self.directories}.{self.starts}"

    def act(self, action: Callable[[], None]) -> None:
        """Do something that may fail, and end if the machine crashes."""
        assert not self.is_busy
        self.is_busy = True
        try:
            with suppress(EngineError, OSError):
                action()
        except Crashed:
            self.crash()
        finally:
            self.is_busy = False
        self.note_results()

    # --- starting and stopping -----------------------------------------------------------------------------

    def start(self) -> None:
        world = self.world
        if self.disk is None:
            self.directories += 1
            directory = world.path / f"{self.number}.{self.directories}"
            directory.mkdir()
            self.disk = FaultDisk(directory)
        self.starts += 1
        disk = self.disk
        disk._last_call = float("inf")
        if not world.is_settling and world.random.random() < 0.15:
            disk.crash_after(disk.calls + world.random.randrange(1, 60))
        options = Options(
            journal_bytes=world.random.choice([300, 2000, 64 << 20]),
            keep_journal_ms=0,
            hot_segments=world.hot_segments,
        )
        cold = SimulatedFolder(world.bucket, self.name, COLD) if world.has_cold_tier else None
        store = SimulatedStore(world.bucket, self.name)
        world.tell(f"{self.name} starts")
        try:
            engine = Engine.open(disk, options, clock=world.clock, background=False, cold=cold, replica=store)
        except ReplicaAhead:
            world.tell(f"{self.name} is behind the replica")
            self.lose()
            return
        assert engine.replica is not None
        stats = engine.replica.stats()
        term = stats.term
        world.tell(f"{self.name} has the term {term}, restored={engine.replica.restored}")
        if world.history.terms.setdefault(term, self.name) != self.name:
            raise Violation(f"{self.name} and {world.history.terms[term]} have the term {term}")
        self.engine = engine
        if term == max(world.history.terms):
            world.bucket.is_calm = True
            try:
                world.history.check(engine, self.name)
            finally:
                world.bucket.is_calm = False

    def stop(self) -> None:
        """Shut down cleanly."""
        engine, self.engine = self.engine, None
        if engine is None:
            return
        self.world.tell(f"{self.name} stops")
        try:
            engine.close()
        except Crashed:
            self.engine = engine
            raise

    def crash(self) -> None:
        """Kill the process, or cut the power."""
        world = self.world
        self.note_results()
        engine, self.engine = self.engine, None
        self.attempts = []
        assert self.disk is not None
        kind = world.random.choice(["kill", "kill", "cut"])
        world.tell(f"{self.name} crashes: {kind}")
        self.disk = self.disk.process_kill() if kind == "kill" else self.disk.power_cut(world.random.randrange(1 << 30))
        if engine is not None:
            engine.journal.close()
            engine.store.close()

    def lose(self) -> None:
        """Lose the directory."""
        if self.engine is not None:
            self.crash()
        if self.disk is not None:
            self.disk.process_kill()
            self.disk = None

    # --- clients -------------------------------------------------------------------------------------------

    def note_results(self) -> None:
        """Take note of the appends that were acknowledged or refused."""
        history, left = self.world.history, []
        for attempt in self.attempts:
            if not attempt.commit.done:
                left.append(attempt)
                continue
            try:
                result = attempt.commit.wait()
            except (EngineError, OSError):
                continue
            appended = result if attempt.place is None else result[attempt.place]
            history.acknowledged += 1
            self.world.tell(f"{self.name} acknowledges {attempt.payloads} as {appended.first} in {attempt.log}")
            seqs = range(appended.first, appended.last + 1)
            if len(seqs) != len(attempt.payloads):
                raise Violation(f"{self.name} acknowledged {len(seqs)} of {len(attempt.payloads)} records")
            for seq, payload in zip(seqs, attempt.payloads, strict=True):
                history.saw(attempt.log, seq, payload, attempt.replicated, f"an append to {self.name}")
        self.attempts = left

    def client_step(self, engine: Engine) -> None:
        random, world = self.world.random, self.world
        actions: list[tuple[int, Callable[[Engine], None]]] = [
            (30, self._append),
            (6, self._repeat),
            (6, self._transaction),
            (6, self._create),
            (10, self._read),
            (10, lambda engine: engine.flush()),
            (14, self._ship),
            (8, self._keep_files),
            (5, lambda engine: engine.seal()),
            (5, lambda engine: engine.maintenance.run() and None),
            (3, self._delete),
            (2, self._configure),
            (3, self._move_cursor),
            (2, self._fork),
            (2, self._expire),
            (2, lambda engine: engine.settle_idle()),
            (5, self._back_up),
            (2, lambda engine: self.world.prune()),
        ]
        action = random.choices([each for _, each in actions], [weight for weight, _ in actions])[0]
        world.clock.advance(random.choice([0, 1, 7000]))
        action(engine)

    def _log(self, engine: Engine) -> Log | None:
        names = engine.names()
        names = [name for name in names if not name.startswith("_")]
        return engine.log(self.world.random.choice(names)) if names else None

    def _append(self, engine: Engine) -> None:
        log = self._log(engine)
        if log is None:
            return self._create(engine)
        world = self.world
        key = world.new_key() if world.random.random() < 0.7 else None
        payloads = world.new_payloads()
        if key is not None:
            world.keys.append(((log.name, log.epoch), key, payloads))
        self._send(log, key, payloads)

    def _send(self, log: Log, key: str | None, payloads: list[str]) -> None:
        which, replicated = (log.name, log.epoch), log.config.durability == "replicated"
        batch = Batch([payload.encode() for payload in payloads])
        commit = log.append(batch, idempotency_key=key)
        self.attempts.append(Attempt(which, key, payloads, replicated, commit, None))
        self._perhaps_wait(commit)

    def _perhaps_wait(self, commit: Commit[Any]) -> None:
        if self.world.random.random() < 0.5:
            commit.wait()

    def _repeat(self, engine: Engine) -> None:
        """Repeat an append whose result may be unknown. Only logs below ``replicated`` may forget the key."""
        world = self.world
        replicated = [each for each in world.keys if engine.find(each[0][0]) is not None]
        if not replicated:
            return
        which, key, payloads = world.random.choice(replicated)
        log = engine.log(which[0])
        if log.epoch == which[1] and log.config.durability == "replicated" and which in world.history.always:
            self._send(log, key, payloads)

    def _transaction(self, engine: Engine) -> None:
        logs = {log.name: log for log in (self._log(engine), self._log(engine)) if log is not None}
        if not logs:
            return
        world = self.world
        appends, attempts = [], []
        for place, log in enumerate(logs.values()):
            payloads = world.new_payloads()
            appends.append(Append(log, Batch([payload.encode() for payload in payloads])))
            attempts.append(((log.name, log.epoch), payloads, log.config.durability == "replicated", place))
        commit = engine.change_all(appends)
        for which, payloads, replicated, place in attempts:
            self.attempts.append(Attempt(which, None, payloads, replicated, commit, place))
        self._perhaps_wait(commit)

    def _create(self, engine: Engine) -> None:
        world = self.world
        name = world.random.choice(sorted(LOGS))
        if engine.find(name) is not None:
            return
        durability = LOGS[name]
        commit = engine.create(name, _config(durability))
        which = (name, engine.log(name).epoch)
        if durability == "replicated":
            world.history.always.add(which)
        commit.wait()
        if durability == "replicated":
            world.history.created.add(which)

    def _fork(self, engine: Engine) -> None:
        log = self._log(engine)
        name = f"fork{self.world.random.randrange(2)}"
        if log is None or log.base is not None or engine.find(name) is not None:
            return
        if log.config.durability in ("memory", "ephemeral"):
            return
        engine.fork(name, log, self.world.random.randint(0, min(log.head, 20)), _config("replicated")).wait()

    def _read(self, engine: Engine) -> None:
        for name in engine.names():
            if not name.startswith("_"):
                log = engine.log(name)
                self.world.history.read((name, log.epoch), log, self.name)

    def _ship(self, engine: Engine) -> None:
        assert engine.replica is not None
        engine.replica.ship_all()

    def _keep_files(self, engine: Engine) -> None:
        assert engine.replica is not None
        engine.replica.keep_files()

    def _delete(self, engine: Engine) -> None:
        log = self._log(engine)
        if log is not None and log.base is None:
            seqs = [record.seq for record in log.read(0, 3)]
            self.world.history.deletes((log.name, log.epoch), seqs)
            log.delete(seqs=seqs)

    def _configure(self, engine: Engine) -> None:
        """Change the durability of one of the logs."""
        log = engine.find("s")
        if log is None:
            return
        which = ("s", log.epoch)
        durability = self.world.random.choice(["replicated", "disk", "memory", "ephemeral"])
        history = self.world.history
        # What it had as a replicated log may be lost from now on, but not appear twice or with another seq.
        history.always.discard(which)
        self.world.tell(f"{self.name} gives s the durability {durability}")
        log.configure(_config(durability))

    def _move_cursor(self, engine: Engine) -> None:
        log = self._log(engine)
        if log is not None:
            log.move_cursor("c", self.world.random.randint(0, 20))

    def _back_up(self, engine: Engine) -> None:
        """Back up the directory into the prefix of the replica, which may belong to another server by now."""
        world = self.world
        assert self.disk is not None
        seen = {}
        for name in BACKED_UP:
            if (log := engine.find(name)) is not None:
                # A delete may wait for its flush, after which readers see it.
                deleted = world.history.deleted.get((name, log.epoch), set())
                seen[name] = {seq: payload for seq, payload in records(log).items() if seq not in deleted}
        cold = SimulatedFolder(world.bucket, self.name, COLD) if world.has_cold_tier else None
        world.backing_up += 1
        try:
            pool = simulated_pool(world.bucket, self.name)
            report = backup(self.disk, pool, cold=cold, clock=world.clock)
        finally:
            world.backing_up -= 1
        world.tell(f"{self.name} has made the backup {report.name} with {report.shared_files} shared files")
        world.shared_files += report.shared_files
        found = world.contents_of(report.name)
        for name, expected in seen.items():
            if not expected.items() <= found.get(name, {}).items():
                raise Violation(f"the backup {report.name} of {self.name} has {found.get(name)} in {name}: {expected}")
        world.backups[report.name] = found

    def _expire(self, engine: Engine) -> None:
        engine.flushing.expire_unshipped(float("inf"), lambda: ReplicaBehind(1))


class FollowingMachine:
    """A machine that follows the leader. Its readers may see only what every later leader has."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.disk: FaultDisk | None = None
        self.engine: Engine | None = None
        self.is_busy = False
        self.starts = 0
        #: How often it has looked for new records and found everything.
        self.looks = 0

    @property
    def name(self) -> str:
        return f"follower.{self.starts}"

    def step(self) -> None:
        self.is_busy = True
        try:
            # Anything else is a fault of the follower.
            with suppress(OSError, NoLeaderYet):
                self._act()
        except Crashed:
            self.world.tell(f"{self.name} crashes")
            self.crash()
        finally:
            self.is_busy = False

    def _act(self) -> None:
        random = self.world.random
        if self.engine is None:
            self.start()
        elif random.random() < 0.05:
            self.crash()
            if random.random() < 0.3:
                self.disk = None
        else:
            self.look()

    def start(self) -> None:
        world = self.world
        self.starts += 1
        if self.disk is None:
            directory = world.path / f"f{self.starts}"
            directory.mkdir()
            self.disk = FaultDisk(directory)
        store = SimulatedStore(world.bucket, self.name)
        cold = SimulatedFolder(world.bucket, self.name, COLD) if world.has_cold_tier else None
        self.engine = Engine.follow(self.disk, Options(), clock=world.clock, background=False, cold=cold, replica=store)
        world.tell(f"{self.name} follows")
        self.read()

    def look(self) -> None:
        assert self.engine is not None
        assert self.engine.follower is not None
        self.engine.follower.look()
        self.looks += 1
        self.read()

    def read(self) -> None:
        """Read everything, with fetched segments, and hold it against what clients know."""
        engine, history = self.engine, self.world.history
        assert engine is not None
        for name in engine.names():
            log = engine.log(name)
            which = (name, log.epoch)
            if name.startswith("_"):
                continue
            history.read(which, log, self.name)
            if which in history.always:
                missing = sorted(set(range(1, log.head + 1)) - set(records(log)) - history.deleted.get(which, set()))
                if missing:
                    raise Violation(f"{self.name} has gaps in {which}: {missing}")

    def crash(self) -> None:
        engine, self.engine = self.engine, None
        if engine is not None:
            engine.store.close()
        if self.disk is not None:
            self.disk = self.disk.process_kill()

    def compare(self, leader: Engine) -> None:
        """Check that the follower has what the leader has, when nothing fails any more."""
        if self.engine is None:
            self.start()
        self.look()
        assert self.engine is not None
        for name in leader.names():
            log = leader.log(name)
            if log.config.durability == "ephemeral" or name.startswith("_"):
                continue
            found = self.engine.find(name)
            if found is None or records(found) != records(log) or found.head != log.head:
                raise Violation(f"{self.name} differs from the leader in {name!r}")


class World:
    """All machines, the store, and what clients know."""

    def __init__(self, seed: int, path: Path, tell: Callable[[str], None] | None = None) -> None:
        self.random = Random(seed)
        self.path = path
        self.clock = ManualClock(NOW)
        self.bucket = SimulatedBucket(self.random, self.random.choice([0.0, 0.02, 0.1, 0.3]))
        self.bucket.interruption = self.interrupt
        self.history = History()
        self.keys: list[tuple[Which, str, list[str]]] = []
        self.machines = [Machine(self, number) for number in range(MACHINES)]
        self.follower = FollowingMachine(self)
        #: What each completed backup has, by its name.
        self.backups: dict[str, dict[str, dict[int, str]]] = {}
        #: The backups that are being made.
        self.backing_up = 0
        self.shared_files = 0
        self.restored = 0
        self.has_cold_tier = self.random.random() < 0.5
        self.hot_segments = self.random.randrange(3)
        #: How long a claim of a backup counts.
        self.stale_seconds = self.random.choice([0.0, STALE_SECONDS, STALE_SECONDS])
        self._depth = 0
        self._steps = 0
        self._interruptions = self.random.choice([0.0, 0.05, 0.15])
        self._crashes = self.random.choice([0.0, 0.01, 0.04])
        self._count = 0
        #: Whether nothing fails any more.
        self.is_settling = False
        self.tell: Callable[[str], None] = tell or (lambda line: None)

    def new_key(self) -> str:
        self._count += 1
        return f"k{self._count}"

    def new_payloads(self) -> list[str]:
        self._count += 1
        return [f"p{self._count}.{number}" for number in range(self.random.choice([1, 1, 2, 20]))]

    def _descriptions(self) -> tuple[Pool, list[Backup]]:
        pool = Pool(simulated_pool(self.bucket, "restore"))
        backups = pool.backups()
        if pool.damaged:
            raise Violation(f"descriptions are damaged: {pool.damaged}")
        return pool, backups

    @contextmanager
    def calm(self) -> Iterator[None]:
        before, self.bucket.is_calm = self.bucket.is_calm, True
        try:
            yield
        finally:
            self.bucket.is_calm = before

    def contents_of(self, name: str) -> dict[str, dict[int, str]]:
        """Restore a backup, and return the records of its logs."""
        with self.calm():
            pool, backups = self._descriptions()
            found = [each for each in backups if each.name == name]
            if not found:
                raise Violation(f"the backup {name} is missing")
            sizes = pool.sizes("journal")
            plan = _Plan(found[0], [locate(copy, sizes) for copy in found[0].own_journal])
            self.restored += 1
            path = self.path / f"restored{self.restored}"
            path.mkdir()
            try:
                _Restoring(pool, LocalDisk(path), plan, None, None).run()
                with Engine.open(path, clock=ManualClock(NOW), background=False) as engine:
                    return {log: records(engine.log(log)) for log in engine.names() if not log.startswith("_")}
            except (EngineError, OSError) as error:
                raise Violation(f"the backup {name} cannot be restored: {error!r}") from error
            finally:
                shutil.rmtree(path)

    def check_backups(self) -> None:
        """Check that every backup is there as it was made, also those of which nobody knows that they were made."""
        with self.calm():
            names = [each.name for each in self._descriptions()[1]]
        for name in sorted({*names, *self.backups}):
            found = self.contents_of(name)
            if found != self.backups.get(name, found):
                raise Violation(f"the backup {name} has {found}; it had {self.backups[name]}")

    def prune(self) -> None:
        """Remove old backups, while no other one is being made."""
        if not self.backing_up:
            with self.calm():
                gone, _ = Pool(simulated_pool(self.bucket, "prune")).prune(2)
            for each in gone:
                self.backups.pop(each.name, None)

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
        self.settle()

    def step(self) -> None:
        """One machine does something, or a request arrives that was delayed."""
        random = self.random
        self._steps += 1
        if random.random() < 0.1:
            self.bucket.arrive()
        if random.random() < 0.1 and not self.follower.is_busy:
            self.follower.step()
            return
        free = [machine for machine in self.machines if not machine.is_busy]
        if not free:
            return
        machine = random.choice(free)
        engine = machine.engine
        if engine is None:
            # Most of the time, one machine or two are running.
            if random.random() < 0.12:
                machine.act(machine.start)
            return
        chance = random.random()
        if chance < 0.01:
            machine.lose()
        elif chance < 0.04:
            machine.crash()
        elif chance < 0.06:
            machine.act(machine.stop)
        else:
            machine.act(lambda: machine.client_step(engine))

    def interrupt(self, server: str) -> None:
        """A server waits for the store."""
        random = self.random
        if random.random() < self._crashes:
            raise Crashed
        if self._depth < MAX_DEPTH and self._steps < MAX_STEPS and random.random() < self._interruptions:
            self._depth += 1
            try:
                for _ in range(random.randint(1, INTERRUPTION_STEPS)):
                    self.step()
            finally:
                self._depth -= 1

    def settle(self) -> None:
        """Let the dust settle. A takeover on an empty machine then finds everything."""
        self.tell("the dust settles")
        random = self.random
        for machine in self.machines:
            machine.note_results()
            if machine.engine is not None and random.random() < 0.5:
                machine.act(machine.stop)
            if random.random() < 0.5:
                self.bucket.arrive()
            machine.lose()
        self.is_settling = True
        self._crashes = self._interruptions = self.bucket.failures = 0.0
        last = Machine(self, MACHINES)
        self.machines.append(last)
        for _ in range(2):
            last.start()
            engine = last.engine
            if engine is None:
                raise Violation("no machine can take over")
            for name in sorted(LOGS):
                if engine.find(name) is None:
                    engine.create(name, _config(LOGS[name])).wait()
            for name in engine.names():
                if not name.startswith("_"):
                    last._send(engine.log(name), self.new_key(), self.new_payloads())
            for which, key, payloads in self.keys:
                # Repeated appends are acknowledged as well, although they write nothing.
                if which in self.history.always and which[1] == engine.log(which[0]).epoch:
                    last._send(engine.log(which[0]), key, payloads)
            last._ship(engine)
            engine.flush()
            last._ship(engine)
            last.note_results()
            if last.attempts:
                raise Violation(f"{last.name} does not acknowledge {last.attempts}")
            engine.seal()
            last._keep_files(engine)
            last._ship(engine)
            last._keep_files(engine)
            self.follower.compare(engine)
            last.lose()
        while self.bucket.delayed:
            self.bucket.arrive()
        self.check_backups()


@contextmanager
def small_chunks() -> Iterator[None]:
    """Chunks hold a few writes."""
    sizes = shipper.MAX_CHUNK_BYTES, shipper.MIN_PIECE_BYTES
    shipper.MAX_CHUNK_BYTES, shipper.MIN_PIECE_BYTES = 700, 50
    try:
        yield
    finally:
        shipper.MAX_CHUNK_BYTES, shipper.MIN_PIECE_BYTES = sizes


def simulate(seed: int, path: Path, tell: Callable[[str], None] | None = None) -> World:
    """Run one seed in a folder of a directory, which is removed afterwards."""
    path = path / str(seed)
    path.mkdir()
    world = World(seed, path, tell)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    sharing.STALE_SECONDS = world.stale_seconds
    try:
        with small_chunks():
            world.run()
    except Exception as error:
        raise Violation(f"seed {seed}: {error!r}") from error
    finally:
        logging.disable(disabled)
        sharing.STALE_SECONDS = STALE_SECONDS
        for machine in world.machines:
            machine.lose()
        world.follower.crash()
        shutil.rmtree(path)
    return world


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    tell = print if count == 1 else None
    failed = []
    began, acknowledged, requests, backups, shared = time.process_time(), 0, 0, 0, 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        for seed in range(first, first + count):
            try:
                world = simulate(seed, Path(directory), tell)
                acknowledged += world.history.acknowledged
                requests += world.bucket.requests
                backups += len(world.backups)
                shared += world.shared_files
            except Violation as error:
                failed.append(seed)
                print(error, flush=True)
                if count == 1:
                    raise
    seconds = time.process_time() - began
    print(f"{count} seeds, {len(failed)} failed: {failed}. {acknowledged} appends acknowledged, {requests} requests")
    print(f"{backups} backups at the end, {shared} files shared with backups")
    print(f"{seconds:.1f} s of CPU time")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

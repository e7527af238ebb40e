"""Failovers of real servers over a real S3 store, under load from the Python client, and whether the histories of all
clients fit together.

PYTHONPATH=tests python -m support.replica_failovers COUNT [SEED]
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from itertools import chain, islice, pairwise
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple
from uuid import uuid4

import httpx

from bench.minio import BUCKET, MinioServer, build_minio, minio_server
from strandline.client import Client, Patience, Tombstone
from support.command_line import Cli
from support.server_process import ServerProcess
from support.topics_client import eventually

#: Longer than a takeover takes on a busy machine.
TAKEOVER_SECONDS = 90.0
#: Longer than the pauses of a busy machine, so that only failovers that are meant to happen do.
LEASE_MS = 3_000
#: A paused server answers nothing, so its clients wait this long.
TIMEOUT_SECONDS = 2.0
PATIENCE = Patience(TAKEOVER_SECONDS, first_wait=0.01, longest_wait=0.1)
#: Programs choose ports for outgoing connections above these. A server that is down must find its port free again.
PORTS = range(20_000, 30_000)
WRITERS = 4
#: The requests that are at the old leader when it is paused.
LINGERING = 4
#: Acknowledged writes before each failover and after it.
WRITES = 100
KEPT, FAST = "kept", "fast"


class Violation(AssertionError):
    """A promise was broken."""


class Failover(Enum):
    KILL_WITH_LEASE = "kill -9, the lease runs out"
    PAUSE_WITH_COMMAND = "SIGSTOP, strandline takeover, SIGCONT"
    LOSS = "kill -9, the directory is deleted, a start from the store"
    PAUSE_WITH_LEASE = "SIGSTOP, the lease runs out, SIGCONT"
    KILL_WITH_COMMAND = "kill -9, strandline takeover"

    @property
    def needs_lease(self) -> bool:
        return self in (Failover.KILL_WITH_LEASE, Failover.PAUSE_WITH_LEASE)

    @property
    def is_pause(self) -> bool:
        return self in (Failover.PAUSE_WITH_LEASE, Failover.PAUSE_WITH_COMMAND)


class History:
    """What clients were told about one log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged: dict[int, str] = {}
        #: When writes were acknowledged.
        self.times: list[float] = []

    def acknowledge(self, first: int, payloads: list[str]) -> None:
        with self._lock:
            self.times.append(monotonic())
            for seq, payload in enumerate(payloads, first):
                before = self._acknowledged.setdefault(seq, payload)
                if before != payload:
                    raise Violation(f"seq {seq} was acknowledged for {before} and for {payload}")

    @property
    def acknowledged(self) -> dict[int, str]:
        with self._lock:
            return dict(self._acknowledged)


class Writer(threading.Thread):
    """Writes to a log until it is stopped. Every payload is another one."""

    def __init__(self, name: str, urls: list[str], log: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        #: Writes that wait for nothing would leave no time for the others.
        self._pause = 0.005 if log == FAST else 0.0
        self._urls = urls
        self._log = log
        self._history = history
        self._stopped = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        random = Random(self.name)
        try:
            with Client(self._urls, patience=PATIENCE, timeout=TIMEOUT_SECONDS) as client:
                topic = client.topic(self._log)
                number = 0
                while not self._stopped.wait(self._pause):
                    number += 1
                    payloads = [f"{self.name}.{number}.{at}" for at in range(random.choice((1, 1, 1, 5)))]
                    written = topic.write_many(payloads)
                    self._history.acknowledge(written.first_seq, payloads)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self._stopped.set()
        self.join(TAKEOVER_SECONDS)


class Follower(threading.Thread):
    """Follows a replicated log, whose records arrive in order, each once."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(name="follower", daemon=True)
        self._urls = urls
        self.seen: dict[int, str] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with (
                Client(self._urls, patience=PATIENCE, timeout=TIMEOUT_SECONDS) as client,
                client.topic(KEPT).tail(0) as records,
            ):
                for record in records:
                    if record.seq != len(self.seen) + 1:
                        raise Violation(f"a reader got seq {record.seq} after seq {len(self.seen)}")
                    self.seen[record.seq] = record.data
        except BaseException as error:
            self.error = error


class Outcome(NamedTuple):
    """A failover, and for how many seconds no write was acknowledged."""

    failover: Failover
    seconds: float


class Pair:
    """Two machines over one replica. One of them is the leader, the other one its standby."""

    def __init__(self, directory: Path, store: MinioServer) -> None:
        self.replica = f"s3://{BUCKET}/{uuid4().hex}"
        self._directory = directory
        self._environment = store.environment
        self._ports = list(islice(_free_ports(), 2))
        self._starts = 0
        self._machines: list[ServerProcess] = []
        self._leader = 0
        self.histories = {KEPT: History(), FAST: History()}
        self.outcomes: list[Outcome] = []
        #: How many records of each log were acknowledged, and how many of them are lost.
        self._counts: dict[str, tuple[int, int]] = {}
        self._threads: list[Writer] = []
        self._follower: Follower | None = None

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    @property
    def _is_standby_waiting(self) -> bool:
        return "standing by for the leader" in self._machines[1 - self._leader].log()

    def _machine(self, number: int, lease: bool, standby: bool) -> ServerProcess:
        """A machine with an empty directory."""
        self._starts += 1
        settings = {
            "replica": self.replica,
            "replica_lease_ms": LEASE_MS if lease else 0,
            "replica_timeout_ms": 60_000,
            "standby": standby,
        }
        data = self._directory / f"{'ab'[number]}{self._starts}"
        return ServerProcess(data, settings=settings, environment=self._environment)

    def _stand_by(self, number: int, lease: bool) -> None:
        self._machines[number] = self._machine(number, lease, standby=True)
        self._machines[number].launch(self._ports[number])
        eventually(lambda: self._is_standby_waiting)

    def run(self, failovers: list[Failover], told: Callable[[str], None] = lambda text: None) -> None:
        """Raises Violation."""
        leases = [failover.needs_lease for failover in failovers] + [False]
        self._machines = [self._machine(number, leases[0], standby=False) for number in range(2)]
        try:
            self._machines[0].start(self._ports[0])
            with Client(self.urls) as client:
                client.topic(KEPT).configure(durability="replicated")
                client.topic(FAST).configure(durability="disk")
            self._stand_by(1, leases[1])
            self._start_load()
            for number, failover in enumerate(failovers, 1):
                self._fail_over(failover, leases[number])
                if number < len(failovers):
                    self._stand_by(1 - self._leader, leases[number + 1])
                self._check(self._read())
                told(f"{number}: {failover.value}: {self.outcomes[-1].seconds:.1f} s without a write")
            self._finish()
        finally:
            for thread in self._threads:
                thread.stop()
            for machine in self._machines:
                if machine.running:
                    os.kill(machine.pid, signal.SIGCONT)
                    machine.kill()

    # --- clients -------------------------------------------------------------------------------------------

    def _start_load(self) -> None:
        logs = [KEPT] * WRITERS + [FAST]
        self._threads = [Writer(f"w{n}", self.urls, log, self.histories[log]) for n, log in enumerate(logs)]
        self._follower = Follower(self.urls)
        for thread in (*self._threads, self._follower):
            thread.start()

    def _wait_for_writes(self) -> None:
        for history in self.histories.values():
            goal = len(history.times) + WRITES
            eventually(lambda history=history, goal=goal: self._is_well() and len(history.times) >= goal, 120.0)

    def _is_well(self) -> bool:
        for thread in (*self._threads, self._follower):
            if thread is not None and thread.error is not None:
                raise thread.error
        return True

    def _finish(self) -> None:
        for thread in self._threads:
            thread.stop()
        found = self._read()
        self._check(found)
        follower = self._follower
        assert follower is not None
        eventually(lambda: self._is_well() and len(follower.seen) >= len(found[KEPT][0]), TAKEOVER_SECONDS)
        if follower.seen != found[KEPT][0]:
            raise Violation("a reader has seen other records than those of the log")

    # --- failovers -----------------------------------------------------------------------------------------

    def _fail_over(self, failover: Failover, next_lease: bool) -> None:
        self._wait_for_writes()
        old, new = self._machines[self._leader], self._machines[1 - self._leader]
        began = monotonic()
        lingering: list[threading.Thread] = []
        if failover is Failover.LOSS:
            new.stop()
            began = monotonic()
            old.kill()
            shutil.rmtree(old.data)
            new = self._machines[self._leader] = self._machine(self._leader, next_lease, standby=False)
            new.start(self._ports[self._leader])
        else:
            if failover.is_pause:
                lingering = self._linger(old)
                os.kill(old.pid, signal.SIGSTOP)
            else:
                old.kill()
            if not failover.needs_lease:
                done = Cli("")("takeover", self.replica, **self._environment)
                assert done.exit_code == 0, done.output
            eventually(new.is_ready, TAKEOVER_SECONDS)
            self._leader = 1 - self._leader
        if failover.is_pause:
            os.kill(old.pid, signal.SIGCONT)
            self._check_replaced(old)
        for thread in lingering:
            thread.join(TAKEOVER_SECONDS)
        self._wait_for_writes()
        self.outcomes.append(Outcome(failover, self._pause_since(began)))
        if old.running:
            old.kill()
        shutil.rmtree(old.data, ignore_errors=True)

    def _linger(self, server: ServerProcess) -> list[threading.Thread]:
        """Send writes to a server that is about to be paused. They count if they are acknowledged, however late."""
        url, history = f"{server.url}/v0/topics/{KEPT}", self.histories[KEPT]

        def write(payload: str) -> None:
            with suppress(httpx.TransportError):
                answer = httpx.post(
                    url, json={"records": [{"data": payload}]}, timeout=TAKEOVER_SECONDS, trust_env=False
                )
                if answer.is_success:
                    history.acknowledge(answer.json()["first_seq"], [payload])

        threads = [threading.Thread(target=write, args=(uuid4().hex,), daemon=True) for _ in range(LINGERING)]
        for thread in threads:
            thread.start()
        return threads

    def _check_replaced(self, old: ServerProcess) -> None:
        """A server that was replaced acknowledges nothing from now on, and finds out what it is."""

        def refuses() -> bool:
            answer = httpx.post(
                f"{old.url}/v0/topics/{KEPT}",
                json={"records": [{"data": "late"}]},
                timeout=TAKEOVER_SECONDS,
                trust_env=False,
            )
            if answer.is_success:
                raise Violation(f"a server that was replaced acknowledged a write: {answer.text}")
            return bool(answer.json()["error"]["code"] == "standby")

        eventually(refuses, TAKEOVER_SECONDS)

    def _pause_since(self, began: float) -> float:
        """The longest time without an acknowledged write to the replicated log, from the failure on."""
        times = [time for time in self.histories[KEPT].times if time >= began]
        return max(after - before for before, after in pairwise([began, *times]))

    # --- what must be there --------------------------------------------------------------------------------

    def _read(self) -> dict[str, tuple[dict[int, str], list[Tombstone], dict[int, str]]]:
        """What each log has, what its readers are told to be lost, and what was acknowledged before."""
        found = {}
        with Client(self.urls, patience=PATIENCE, timeout=30) as client:
            for log, history in self.histories.items():
                acknowledged, losses = history.acknowledged, list[Tombstone]()
                records = {record.seq: record.data for record in client.topic(log).read(0, on_loss=losses.append)}
                found[log] = records, losses, acknowledged
        return found

    def _check(self, found: dict[str, tuple[dict[int, str], list[Tombstone], dict[int, str]]]) -> None:
        for log, (records, losses, acknowledged) in found.items():
            if len(set(records.values())) < len(records):
                raise Violation(f"{log} has a record twice")
            for seq, payload in acknowledged.items():
                if records.get(seq, payload) != payload:
                    raise Violation(f"seq {seq} of {log} was acknowledged for {payload} and has {records[seq]}")
            missing = acknowledged.keys() - records.keys()
            self._counts[log] = len(acknowledged), len(missing)
            if log == KEPT:
                if missing or losses:
                    raise Violation(f"{log} lacks the seqs {sorted(missing)}")
                if records and max(records) != len(records):
                    raise Violation(f"{log} has gaps")
            silent = [seq for seq in missing if not any(each.gap_from <= seq <= each.gap_to for each in losses)]
            if silent:
                raise Violation(f"{log} lacks the seqs {sorted(silent)}, and readers are not told")

    def summary(self) -> list[str]:
        """The counts and times of a run that is over."""
        (kept, _), (fast, lost) = self._counts[KEPT], self._counts[FAST]
        lines = [
            f"{len(self.outcomes)} failovers",
            f"{kept:,} records of the replicated log acknowledged, none lost, none twice",
            f"{fast:,} records of the disk log acknowledged, {lost:,} lost, all with a tombstone",
        ]
        for failover in Failover:
            seconds = [each.seconds for each in self.outcomes if each.failover is failover]
            if seconds:
                lines.append(
                    f"{failover.value}: {len(seconds)} times, {median(seconds):.1f} s without a write (median), "
                    f"at most {max(seconds):.1f} s"
                )
        return lines


def _free_ports() -> Iterator[int]:
    start = os.getpid() * 7 % len(PORTS)
    for port in chain(PORTS[start:], PORTS[:start]):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            yield port


def main(count: int, seed: int = 0) -> None:
    random, kinds = Random(seed), list(Failover)
    failovers = [failover for _ in range(-(-count // len(kinds))) for failover in random.sample(kinds, len(kinds))]
    with TemporaryDirectory(prefix="replica-failovers-") as name:
        directory = Path(name)
        with minio_server(directory / "minio", build_minio()) as store:
            pair = Pair(directory, store)
            began = monotonic()
            pair.run(failovers[:count], lambda text: print(text, flush=True))
        print(*pair.summary(), f"{monotonic() - began:.0f} s", sep="\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""What it costs to start the server and commands, and what an idle server costs, next to Redis.

The time until something is ready depends on the other work of the machine, and processor time hardly does, so there are
rows for both.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.measure import Effort, Rounds, Row, Sample, Target, Unit, alone, timed
from bench.peers_redis import SETTINGS, lacking, server
from bench.topics_peers import Redis
from bench.topics_server import Server, serving
from bench.workload import directory, keyed_batches, quiet_engine
from strandline import arrow
from strandline.engine import Log
from strandline.engine.reads.keys import key_counts_of

GROUP = "start"
REDIS = "redis-server, appendfsync everysec"
REDIS_CLI = "redis-cli PING"
READY, COMMAND, MEMORY, KEY_PAGE = Target(0.4, "s"), Target(0.15, "s"), Target(80.0, "MB"), Target(100.0, "ms")
#: How long a server has been ready when its memory is measured.
IDLE_SECONDS = 1.0
#: The records and the keys of the log whose keys are listed, and the keys of a page, as in the console.
RECORDS, KEYS, PAGE = 1_000_000, 5000, 100

_numbers = count(1)


class Start(NamedTuple):
    """The costs of one start of a server."""

    seconds: float
    processor: float
    megabytes: float


def run(root: Path, effort: Effort) -> Iterator[Row]:
    # Installed packages have bytecode. The first start writes what is missing.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    why = lacking()
    if why:
        print(f"{GROUP}: without a peer, {why}", file=sys.stderr)
    with directory(root, "start") as base:
        yield from _servers(base, effort, has_peer=not why)
        yield from _commands(base, effort, has_peer=not why)
        yield from _key_page(base, effort)


def _servers(base: Path, effort: Effort, *, has_peer: bool) -> Iterator[Row]:
    def ours() -> AbstractContextManager[Server]:
        return serving(base / f"data{next(_numbers)}")

    def redis() -> AbstractContextManager[Redis]:
        return server(base / f"redis{next(_numbers)}", SETTINGS["disk"])

    with ours():
        pass
    mine, theirs = [], []
    for _ in range(effort.rounds):
        mine.append(_started(ours))
        if has_peer:
            theirs.append(_started(redis))
    name = "serve until ready, empty directory"
    yield _row(name, "s", [turn.seconds for turn in mine], [turn.seconds for turn in theirs], REDIS, READY)
    processor = [turn.processor for turn in mine], [turn.processor for turn in theirs]
    yield _row(f"{name}: processor time", "s", *processor, REDIS)
    memory = [turn.megabytes for turn in mine], [turn.megabytes for turn in theirs]
    yield _row("memory of an idle, empty server", "MB", *memory, REDIS, MEMORY)


def _started(start: Callable[[], AbstractContextManager[Server | Redis]]) -> Start:
    began = time.perf_counter()
    with start() as process:
        seconds, processor = time.perf_counter() - began, _processor_seconds(process.pid)
        time.sleep(IDLE_SECONDS)
        return Start(seconds, processor, Server(0, process.pid).resident_bytes() / 1e6)


def _processor_seconds(pid: int) -> float:
    """The processor time of the threads of a process, in finer steps than the process has it."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _commands(base: Path, effort: Effort, *, has_peer: bool) -> Iterator[Row]:
    program = str(Path(sys.executable).with_name("strandline"))
    completion = {"_STRANDLINE_COMPLETE": "complete_bash", "COMP_WORDS": "strandline log l", "COMP_CWORD": "2"}
    peer = server(base / "redis", SETTINGS["disk"]) if has_peer else nullcontext()
    with serving(base / "commands") as ours, peer as redis:
        at_ours = {"STRANDLINE_URL": ours.url}
        commands: list[tuple[str, Sequence[str], Mapping[str, str]]] = [
            ("strandline log ls", (program, "log", "ls"), at_ours),
            ("strandline log append", (program, "log", "append", "events", '{"id":1}'), at_ours),
            ("strandline --help", (program, "--help"), {}),
            ("completion of a command", (program,), completion),
        ]
        for name, command, environment in commands:
            mine, theirs = [], []
            for _ in range(effort.rounds):
                mine.append(_processor_of(command, environment))
                if redis is not None:
                    theirs.append(_processor_of(("redis-cli", "-p", str(redis.port), "PING"), {}))
            yield _row(f"{name}: processor time", "s", mine, theirs, REDIS_CLI, COMMAND)


def _processor_of(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """The processor time of a command."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def _key_page(base: Path, effort: Effort) -> Iterator[Row]:
    """A page in the middle of the keys of a sealed log. The engine is opened before each page."""
    keys = [f"key-{number:05}" for number in range(KEYS)]
    records = effort.scaled(RECORDS, 10 * KEYS)
    with quiet_engine(base / "keys") as engine:
        log: Log = engine.create("log").wait()
        for batch in keyed_batches(records, keys):
            log.append(batch).wait()
        engine.flush()
        engine.seal()
    arrow.prepare()  # a server with logs has imported it
    seconds = []
    for _ in range(effort.rounds):
        with quiet_engine(base / "keys") as engine:
            after = random.Random(len(seconds)).choice(keys[: -PAGE - 1])
            seconds.append(timed(PAGE, partial(key_counts_of, engine.log("log"), after, PAGE)).seconds)
    name = f"page of {PAGE} keys with their counts, {KEYS:,} keys in {records:,} records"
    yield _row(name, "ms", [each * 1000 for each in seconds], [], "", KEY_PAGE)


def _row(
    name: str, unit: Unit, mine: Sequence[float], theirs: Sequence[float], peer_is: str, target: Target | None = None
) -> Row:
    """The target is one for our figure, not for the ratio. Without figures of the peer, the row has none."""

    def samples(values: Sequence[float]) -> list[Sample]:
        return [Sample(1, value) if unit == "s" else Sample(value, 1) for value in values]

    row = alone(GROUP, name, unit, mine)
    if theirs:
        row = Rounds(samples(mine), samples(theirs)).beside_peer(GROUP, name, unit, peer_is)
    return msgspec.structs.replace(row, target=target)

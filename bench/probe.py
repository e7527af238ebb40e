"""The work and the memory of one new process: ``python -m bench.probe WHAT DIRECTORY AMOUNT``.

Memory is measured in a new process because earlier measurements leave memory behind. The result is JSON on the standard
output.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.workload import batches
from strandline.engine import Engine
from strandline.engine.process import child_environment


class Memory(msgspec.Struct, frozen=True):
    """Memory in bytes, as counted by the kernel. The kernel can reclaim pages of files, but not anonymous ones."""

    resident: int
    anonymous: int
    of_files: int
    peak: int

    @classmethod
    def now(cls) -> Memory:
        fields = {}
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                fields[name] = int(value.split()[0]) * 1024
        return cls(fields["VmRSS"], fields["RssAnon"], fields["RssFile"], fields["VmHWM"])


class Probe(msgspec.Struct, frozen=True):
    memory: dict[str, Memory]
    seconds: dict[str, float]


def ask(what: str, directory: Path, amount: int) -> Probe:
    """Run a probe in a separate process."""
    command = [sys.executable, "-m", "bench.probe", what, str(directory), str(amount)]
    done = subprocess.run(command, env=child_environment(), stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Probe)


def log_name(number: int) -> str:
    return f"tenant-{number % 1000:03d}/device-{number:07d}"


def _empty(directory: Path, amount: int) -> Probe:
    with Engine.open(directory):
        return Probe({"open": Memory.now()}, {})


def _write_history(directory: Path, amount: int) -> Probe:
    memory, seconds = {}, {}
    source = batches(64, 1000)
    memory["before"] = Memory.now()
    with Engine.open(directory) as engine:
        log = engine.create("history").wait()
        start = time.perf_counter()
        for _ in range(amount // 1000):
            log.append(next(source)).wait()
        seconds["write"] = time.perf_counter() - start
        memory["written"] = Memory.now()
        engine.seal()
        seconds["sealed"] = time.perf_counter() - start
        memory["sealed"] = Memory.now()
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    memory["worker"] = Memory(worker, worker, 0, worker)
    return Probe(memory, seconds)


def _read_history(directory: Path, amount: int) -> Probe:
    memory, seconds = {}, {}
    with Engine.open(directory) as engine:
        log = engine.log("history")
        memory["open"] = Memory.now()
        start = time.perf_counter()
        after = found = 0
        while found < amount:
            page = log.read(after, 1000)
            after = page.next_after
            found += len(page)
        seconds["read"] = time.perf_counter() - start
        memory["read"] = Memory.now()
    return Probe(memory, seconds)


def _make_logs(directory: Path, amount: int) -> Probe:
    start = time.perf_counter()
    with Engine.open(directory, background=False) as engine:
        for number in range(amount):
            engine.create(log_name(number))
        engine.flush()
        created = time.perf_counter() - start
        engine.seal()
    return Probe({}, {"create": created})


def _open_logs(directory: Path, amount: int) -> Probe:
    memory, seconds = {"before": Memory.now()}, {}
    start = time.perf_counter()
    with Engine.open(directory) as engine:
        seconds["open"] = time.perf_counter() - start
        memory["open"] = Memory.now()
        assert len(engine) == amount
        middle = log_name(amount // 2 - 1)
        for what, after, limit in (
            ("first page", "", 1000),
            ("first page again", "", 1000),
            ("page in the middle", middle, 1000),
            ("all", "", None),
        ):
            start = time.perf_counter()
            engine.names(after=after, limit=limit)
            seconds[what] = time.perf_counter() - start
        memory["listed"] = Memory.now()
    return Probe(memory, seconds)


def _names_only(directory: Path, amount: int) -> Probe:
    """The floor of many logs: their names in a dict, and slices of the sorted names."""
    memory, seconds = {"before": Memory.now()}, {}
    known = {log_name(number): None for number in range(amount)}
    memory["open"] = Memory.now()
    start = time.perf_counter()
    names = sorted(known)
    seconds["first page"] = time.perf_counter() - start
    for what, low, high in (
        ("first page again", 0, 1000),
        ("page in the middle", amount // 2, amount // 2 + 1000),
        ("all", 0, amount),
    ):
        start = time.perf_counter()
        names[low:high]
        seconds[what] = time.perf_counter() - start
    return Probe(memory, seconds)


PROBES: dict[str, Callable[[Path, int], Probe]] = {
    "empty": _empty,
    "write-history": _write_history,
    "read-history": _read_history,
    "make-logs": _make_logs,
    "open-logs": _open_logs,
    "names-only": _names_only,
}

if __name__ == "__main__":
    answer = PROBES[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(msgspec.json.encode(answer).decode())

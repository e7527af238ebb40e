"""A log is copied into others through Spark, and everything that can be killed or lost on the way is, at any moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pytest
from support import log_copy_process
from support.arrow_client import ArrowClient, table
from support.server_process import ServerProcess, StartServer
from support.spark_cluster import Cluster, cluster

#: A driver that has not come as far by then has failed. Generous: the machine may be busy.
PATIENCE_SECONDS = 400.0
RECORDS = 1200
BATCH = 40
DRIVER = Path(log_copy_process.__file__)


class Driver:
    """A process that copies, with a Java and Python workers under it."""

    def __init__(self, master: str, url: str, checkpoints: Path, log: Path, rows: int) -> None:
        command = [sys.executable, str(DRIVER), master, url, "from", "to", "mixed", str(checkpoints), str(rows)]
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def wait_until(self, true: Callable[[], bool]) -> None:
        deadline = monotonic() + PATIENCE_SECONDS
        while not true():
            assert self._process.poll() is None, f"the driver ended too early:\n{self._log.read_text()[-5000:]}"
            assert monotonic() < deadline, f"the driver is too slow:\n{self._log.read_text()[-5000:]}"
            # A batch takes seconds.
            sleep(0.25)

    def wait(self) -> None:
        code = self._process.wait(PATIENCE_SECONDS)
        assert code == 0, self._log.read_text()[-5000:]

    def kill(self) -> None:
        """With everything under it, so that nothing goes on that the next one knows nothing of."""
        below = _below(self._process.pid)
        for pid in (self._process.pid, *below):
            _kill(pid)
        self._process.wait()
        deadline = monotonic() + PATIENCE_SECONDS
        while any(_is_running(pid) for pid in below):
            assert monotonic() < deadline
            sleep(0.02)

    def kill_workers(self) -> int:
        """The processes that Spark forks to run Python in."""
        workers = [pid for pid in _below(self._process.pid) if "pyspark.daemon" in _command(_parent(pid))]
        for pid in workers:
            _kill(pid)
        return len(workers)


def _kill_executors(machines: Cluster) -> int:
    """The Java processes that run tasks, with their Python workers. A worker of the cluster starts new ones."""
    found = [pid for number in range(2) for pid in machines.executors(number)]
    for pid in found:
        _kill(pid)
    return len(found)


def _below(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    found = [pid]
    parents = {int(each.name): _parent(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit()}
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found[1:]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after the records were appended, and before Spark knew."""
    numbers = sorted(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    for each in (checkpoint / "commits").iterdir():
        if str(numbers[-1]) in each.name.split("."):
            each.unlink()


@pytest.mark.xdist_group("spark")
def test_every_record_arrives_once_whatever_is_killed_or_lost(start_server: StartServer, tmp_path: Path) -> None:
    server: ServerProcess = start_server()
    arrow = ArrowClient(server.url)
    keys = [f"k{number % 7}" for number in range(RECORDS)]
    arrow.append("from", table(*range(RECORDS), key=keys), create="true", status=201)
    for name in ("to", "mixed"):
        arrow.append(name, table(), create="true", status=201)
    # The moments of the kills differ from run to run.
    random = Random()

    def copied(name: str = "to") -> int:
        return int(arrow.call("GET", f"logs/{name}")["head"])

    def more(name: str) -> Callable[[], bool]:
        """Whether some more batches have arrived."""
        wanted = min(copied(name) + random.randrange(1, 3 * BATCH), RECORDS - BATCH)
        return lambda: copied(name) >= wanted

    checkpoints, log = tmp_path / "checkpoints", tmp_path / "driver.log"
    running: list[Driver] = []
    with cluster(tmp_path) as machines:

        def start(rows: int, master: str = machines.master) -> Driver:
            running.append(Driver(master, server.url, checkpoints, log, rows))
            return running[-1]

        try:
            driver = start(BATCH)
            driver.wait_until(more("to"))
            driver.wait_until(more("mixed"))
            driver.kill()

            for name in ("to", "mixed"):
                _forget_last_commit(checkpoints / name)
            driver = start(BATCH)
            driver.wait_until(more("mixed"))
            assert _kill_executors(machines) > 0
            driver.wait_until(more("to"))
            assert driver.kill_workers() > 0
            driver.wait_until(more("mixed"))
            driver.kill()
            assert copied() < RECORDS

            shutil.rmtree(checkpoints / "to")
            start(500, "local[2,4]").wait()
        finally:
            for driver in running:
                driver.kill()
    source, target, mixed = (arrow.read(name).select(["key", "data"]).to_pylist() for name in ("from", "to", "mixed"))
    assert target == source
    assert sorted(mixed, key=lambda row: int(row["data"])) == source
    arrow.close()

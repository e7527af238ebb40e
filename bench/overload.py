"""Writers that outrun sealing: ``python -m bench.overload DIRECTORY [--seconds 600] [--memory BYTES]``.

Connections write batches of 500 records of 1 KiB as fast as the server answers, and the program prints the memory of
the server and of its sealing worker. At the end the server is killed with ``kill -9`` and started again; the run
fails if an acknowledged record is missing. With ``--memory`` both processes run in a memory control group of that size
(version 1, as root).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from bench.topics_server import Connection, Server, serving, write_body

RECORDS = 500
RECORD_BYTES = 1024
TOPIC = "load"
#: Seconds between two printed lines.
REPORT_SECONDS = 10.0
SAMPLE_SECONDS = 0.25
#: How long a writer waits after a refusal. It is the server's ``Retry-After``.
RETRY_SECONDS = 1.0


class Writers:
    """Threads that write until they are stopped."""

    def __init__(self, server: Server, count: int) -> None:
        # Compression halves this payload.
        self._body = write_body([b'"%b"' % os.urandom(RECORD_BYTES // 2 - 1).hex().encode() for _ in range(RECORDS)])
        self._server = server
        self._stopping = threading.Event()
        self.answers: Counter[int] = Counter()
        self._threads = [threading.Thread(target=self._write, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        connection = self._server.connect()
        path = f"/v0/topics/{TOPIC}?return_seqs=false"
        while not self._stopping.is_set():
            try:
                status = connection.request("POST", path, self._body).status
            except OSError:
                return  # the server was killed
            self.answers[status] += 1
            if status != 200:
                self._stopping.wait(RETRY_SECONDS)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)


class MemoryUse:
    """Samples the memory of the server and its worker until it is stopped."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stopping = threading.Event()
        self.peak = self.worker_peak = self.worker_anonymous = 0
        self.now = (0, 0)
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            server = resident(self._server.pid)
            worker = sum(resident(pid) for pid in self._server.children())
            self.now = server, worker
            self.peak = max(self.peak, server + worker)
            self.worker_peak = max(self.worker_peak, worker)
            anonymous = sum(resident(pid, files=False) for pid in self._server.children())
            self.worker_anonymous = max(self.worker_anonymous, anonymous)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def resident(pid: int, *, files: bool = True) -> int:
    """The resident bytes of a process, with or without mapped files; 0 if the process has ended."""
    try:
        numbers = Path(f"/proc/{pid}/statm").read_text().split()
        pages = int(numbers[1]) - (0 if files else int(numbers[2]))
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class ControlGroup:
    """A memory control group below the group of this process."""

    def __init__(self, memory: int) -> None:
        line = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line)
        self._home = Path("/sys/fs/cgroup/memory") / line.split(":", 2)[2].lstrip("/")
        self._group = self._home / f"strandline-overload-{os.getpid()}"
        self._group.mkdir()
        (self._group / "memory.limit_in_bytes").write_text(str(memory))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Puts processes that start in this context, and their children, into the group."""
        (self._group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self._home / "cgroup.procs").write_text(str(os.getpid()))

    def describe(self) -> str:
        peak = (self._group / "memory.max_usage_in_bytes").read_text()
        return f"peak {mega(peak)} with the page cache, killed: {'oom_kill 0' not in self._read('memory.oom_control')}"

    def _read(self, name: str) -> str:
        return (self._group / name).read_text()

    def remove(self) -> None:
        deadline = time.monotonic() + 10
        while self._read("cgroup.procs") and time.monotonic() < deadline:
            time.sleep(0.1)
        self._group.rmdir()


def mega(size: int | str) -> str:
    return f"{int(size) / 1e6:.0f} MB"


def sealing_of(connection: Connection) -> dict[str, int]:
    figures: dict[str, int] = connection.call("GET", "/v0/metrics", accept="application/json")["sealing"]
    return figures


def load(server: Server, seconds: float, connections: int) -> int:
    """Write for some time and print the figures. Returns the number of acknowledged records."""
    control = server.connect()
    control.call("PUT", f"/v0/topics/{TOPIC}", {})
    memory, writers = MemoryUse(server), Writers(server, connections)
    began = time.monotonic()
    before = 0
    print("seconds  server  worker  unsealed  rounds  last round  MB/s  429s")
    while (elapsed := time.monotonic() - began) < seconds:
        time.sleep(min(REPORT_SECONDS, seconds - elapsed))
        figures, written = sealing_of(control), writers.answers[200]
        rate = (written - before) * RECORDS * RECORD_BYTES / REPORT_SECONDS / 1e6
        before = written
        print(
            f"{time.monotonic() - began:7.0f}  {mega(memory.now[0]):>6}  {mega(memory.now[1]):>6}  "
            f"{mega(figures['unsealed_bytes']):>8}  {figures['rounds_total']:6}  {mega(figures['round_bytes']):>10}  "
            f"{rate:4.0f}  {sum(writers.answers.values()) - written:4}",
            flush=True,
        )
    figures = sealing_of(control)
    print(f"peak of server and worker: {mega(memory.peak)}, of the worker: {mega(memory.worker_peak)}, "
        f"of that without mapped files: {mega(memory.worker_anonymous)}; "
          f"budget: {mega(figures['budget_bytes'])}")  # fmt: skip
    # The kill interrupts the writers in the middle of a request.
    os.kill(server.pid, signal.SIGKILL)
    writers.stop()
    memory.stop()
    return writers.answers[200] * RECORDS


def check(server: Server, acknowledged: int) -> None:
    """Raise if the restarted server lacks acknowledged records."""
    there = server.connect().call("GET", f"/v0/topics/{TOPIC}")["count"]
    print(f"after kill -9: {there} records, {acknowledged} acknowledged; the server takes {mega(resident(server.pid))}")
    if there < acknowledged:
        raise SystemExit("acknowledged records are missing")


def run(directory: Path, seconds: float, connections: int, group: ControlGroup | None) -> None:
    data = directory / "overload"
    with ExitStack() as stack:
        with nullcontext() if group is None else group.inside():
            server = stack.enter_context(serving(data))
        acknowledged = load(server, seconds, connections)
    began = time.monotonic()
    with ExitStack() as stack:
        with nullcontext() if group is None else group.inside():
            server = stack.enter_context(serving(data))
        print(f"started again within {time.monotonic() - began:.1f} s")
        check(server, acknowledged)


def main(
    directory: Annotated[Path, typer.Argument(help="Empty directory to work in.")],
    seconds: Annotated[float, typer.Option(help="Seconds to write.")] = 600.0,
    connections: Annotated[int, typer.Option(help="Number of connections that write.")] = 16,
    memory: Annotated[int, typer.Option(help="Limit of the control group in bytes; 0 for none.")] = 0,
) -> None:
    """Write more than can be sealed, and show the memory of the server."""
    directory.mkdir(parents=True, exist_ok=True)
    group = ControlGroup(memory) if memory else None
    try:
        run(directory, seconds, connections, group)
        if group is not None:
            print(f"control group: {group.describe()}")
    finally:
        if group is not None:
            group.remove()


if __name__ == "__main__":
    typer.run(main)

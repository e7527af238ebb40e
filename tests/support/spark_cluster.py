"""A standalone Spark cluster on this machine: a master and workers as processes of their own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from strandline.pipeline.spark_session import LIGHT_JAVA

#: A JVM takes seconds to start, and much more when others are busy.
PATIENCE_SECONDS = 400


class Cluster:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = _free_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, workers: int) -> None:
        self._run(
            "master", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0",
        )  # fmt: skip
        self._wait("master", "I have been elected leader")
        for number in range(workers):
            self._run(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(self._directory / f"work-{number}"), self.master,
            )  # fmt: skip
        for number in range(workers):
            self._wait(f"worker-{number}", "Successfully registered with master")

    def kill_worker(self, number: int) -> list[int]:
        """End a worker and its executors, as a machine that loses power does. The ids of what was killed."""
        worker = self._processes[f"worker-{number}"]
        family = [worker.pid, *_descendants(worker.pid)]
        for process in family:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        worker.wait()
        return family

    def executors(self, number: int) -> list[int]:
        """The processes that a worker has started."""
        return _descendants(self._processes[f"worker-{number}"].pid)

    def stop(self) -> None:
        for process in self._processes.values():
            for each in [process.pid, *_descendants(process.pid)]:
                try:
                    os.kill(each, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for process in self._processes.values():
            process.wait()

    def _run(self, name: str, *command: str) -> None:
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": LIGHT_JAVA,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with open(self._directory / f"{name}.log", "wb") as output:
            self._processes[name] = subprocess.Popen(
                [Path(pyspark.__file__).parent / "bin" / "spark-class", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def _wait(self, name: str, text: str) -> None:
        path = self._directory / f"{name}.log"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in path.read_text(errors="replace"):
            if self._processes[name].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not start:\n{path.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)


@contextmanager
def cluster(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    made = Cluster(directory)
    try:
        made.start(workers)
        yield made
    finally:
        made.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _descendants(parent: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found = re.search(r"\) \S (\d+)", (entry / "stat").read_text())
            except OSError:
                continue
            if found:
                children.setdefault(int(found[1]), []).append(int(entry.name))
    waiting, descendants = [parent], []
    while waiting:
        more = children.get(waiting.pop(), [])
        descendants += more
        waiting += more
    return descendants

"""The processes of the demo: its server, and commands that run next to it."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from strandline.client import Client, Patience
from strandline.server.settings import VARIABLES

HOST = "127.0.0.1"
#: Below the ports of outgoing connections, so that no other process takes the port while the server is down.
PORTS = range(20_000, 30_000)
#: Maximum time until the server is ready.
START_SECONDS = 60.0
STOP_SECONDS = 30.0
ANSWER_SECONDS = 60.0
DECLARED = "strandline.cli.demo.declared"


class DemoFailed(Exception):
    """A step of the demo failed, or a result is not as expected. The message is one line."""


class DemoServer:
    """``strandline serve`` on a free port. It can be killed and started again, with the same data and port.

    Its processes have their own sessions, so that Ctrl-C reaches only the demo, which ends them.
    """

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.port = _free_port()
        self.url = f"http://{HOST}:{self.port}"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._beside: list[subprocess.Popen[bytes] | subprocess.Popen[str]] = []

    def start(self) -> float:
        """Start it and wait until it is ready; returns the seconds that took."""
        started = time.perf_counter()
        log = self._directory / "server.log"
        options = ["--port", str(self.port), "--data", str(self.data), "--declare", DECLARED, "--pipeline", "off"]
        with log.open("ab") as lines:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "strandline", "serve", "--host", HOST, *options],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=lines,
                start_new_session=True,
            )
        with self.client() as client:
            while not client.ready():
                if self._process.poll() is not None:
                    raise DemoFailed(f"the server did not start: {_last_line(log.read_text(errors='replace'))}")
                if time.perf_counter() - started > START_SECONDS:
                    raise DemoFailed(f"the server was not ready after {START_SECONDS:.0f} s")
                time.sleep(0.02)
        return time.perf_counter() - started

    def client(self, user: str | None = None, patience: float | Patience = 30.0) -> Client:
        return Client(self.url, user=user, timeout=ANSWER_SECONDS, patience=patience)

    def kill(self) -> None:
        """Kill the server, without a clean shutdown."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Shut down cleanly. Raises DemoFailed if that fails."""
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"the server did not stop within {STOP_SECONDS:.0f} s") from None
        if code:
            raise DemoFailed(f"the server stopped with exit code {code}")

    def run_beside(self, *arguments: str) -> str:
        """Run a command of ``strandline``; returns what it printed. Raises DemoFailed if it fails."""
        process = subprocess.Popen(
            [sys.executable, "-m", "strandline", *arguments],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._beside.append(process)
        printed, said = process.communicate()
        if process.returncode:
            raise DemoFailed(
                f"`strandline {' '.join(arguments[:2])}` failed with exit code {process.returncode}: {_last_line(said)}"
            )
        return printed

    @contextmanager
    def beside(self, *arguments: str) -> Iterator[CommandBeside]:
        """Run a command of ``strandline`` until the block ends, and then ask it to stop."""
        log = self._directory / "beside.log"
        with log.open("wb") as lines:
            process = subprocess.Popen(
                [sys.executable, "-m", "strandline", *arguments],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=lines,
                start_new_session=True,
            )
        self._beside.append(process)
        yield CommandBeside(" ".join(arguments[:2]), process, log)
        process.terminate()
        # A process that does not stop in time is killed at the end of the demo.
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)

    def __enter__(self) -> DemoServer:
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        processes = [*self._beside]
        if self._process is not None:
            processes = [self._process, *processes]
        for process in processes:
            # The whole group: a process may have started others, such as Spark's.
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class CommandBeside(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raises DemoFailed if the command has ended."""
        code = self.process.poll()
        if code is not None:
            said = _last_line(self.log.read_text(errors="replace"))
            raise DemoFailed(f"`strandline {self.name}` ended with exit code {code}: {said}")


def _environment() -> dict[str, str]:
    """The environment without settings of a server, so that the demo is the same everywhere."""
    return {name: value for name, value in os.environ.items() if name not in VARIABLES}


def _free_port() -> int:
    for port in random.sample(PORTS, 50):
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((HOST, port))
            except OSError:
                continue
            return port
    raise DemoFailed(f"no free port found on {HOST} between {PORTS.start} and {PORTS.stop}")


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip() or "it printed nothing"

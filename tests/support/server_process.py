"""A real server in a process of its own, for as long as a test needs it. Everything here takes a bounded time."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import httpx

from strandline.server.settings import OTHER_NAMES, SETTINGS, VARIABLES, variable_of
from support.server_fork import ServerFork
from support.topics_client import Client

#: A server that is not ready by then, or does not end by then, has failed. Generous: the machine may be busy.
START_SECONDS = 30.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.01

_VARIABLE_OF = {name: variable_of(name) for name in SETTINGS}
_VARIABLE_OF |= {name: variable_of(name, section) for section, name in OTHER_NAMES}


#: So late the loop never is.
NEVER_BUSY_MS = 10_000


class ServerProcess:
    """``strandline serve`` on a free port of the loopback. ``settings`` are named as in the server's settings; they
    count before those in the file ``config``. It may have ``open_files`` files open at a time. ``environment`` is added
    to that of this process.

    A process that was stopped or killed can be started again on the same data, at another port unless told which.
    """

    def __init__(
        self,
        data: Path,
        *,
        fast_lane: bool = True,
        keys: str | None = None,
        settings: dict[str, object] | None = None,
        config: Path | None = None,
        open_files: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.data = data
        self._more_environment = environment or {}
        self._open_files = open_files
        self._config = config
        self.keys = keys
        self.url = ""
        self._fast_lane = fast_lane
        # Other tests share the machine: nobody is to be asked to come back later because of them, and Spark is
        # started only where a test is about it.
        self._settings = {"target_latency_ms": NEVER_BUSY_MS, "pipeline": "off", **(settings or {})}
        self._port_file = data.parent / f"{data.name}.port"
        self._log_file = data.parent / f"{data.name}.log"
        self._process: ServerFork | None = None
        self._clients: list[Client] = []

    # --- from start to end -----------------------------------------------------------------------------------------

    def start(self, port: int = 0) -> ServerProcess:
        """Start it, on a free port unless told which, and wait until it is ready."""
        self.launch(port)
        deadline = monotonic() + START_SECONDS
        while not self.is_ready():
            self._check_alive()
            if monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the server was not ready within {START_SECONDS} s:\n{self.log()}")
            sleep(POLL_SECONDS)
        return self

    def launch(self, port: int = 0) -> None:
        """Start it and wait until it listens; it may still be replaying its journal."""
        assert self._process is None, "it runs already"
        self._port_file.unlink(missing_ok=True)
        command = ["serve", "--data", str(self.data), "--port", str(port), "--port-file", str(self._port_file)]
        if self._config is not None:
            command += ["--config", str(self._config)]
        if not self._fast_lane:
            command.append("--no-fast-lane")
        self._process = ServerFork(command, self._environment(), self._log_file, self._open_files)
        deadline = monotonic() + START_SECONDS
        while not self._port_file.exists():
            self._check_alive()
            if monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the server did not listen within {START_SECONDS} s:\n{self.log()}")
            sleep(POLL_SECONDS)
        self.url = f"http://{self._port_file.read_text().strip()}"

    def is_ready(self) -> bool:
        headers = {"authorization": f"Bearer {_first_key(self.keys)}"} if self.keys else {}
        try:
            return httpx.get(
                f"{self.url}/v0/ready", headers=headers, timeout=5, trust_env=False, verify=False
            ).is_success
        except httpx.TransportError:
            return False

    def terminate(self) -> None:
        """Ask it to stop (SIGTERM), without waiting."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for its end; returns the exit code. One that does not end is killed, and that fails the test."""
        assert self._process is not None
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not stop within {STOP_SECONDS} s:\n{self.log()}") from None
        self._process = None
        return code

    def stop(self) -> int:
        """SIGTERM, and wait; returns the exit code."""
        self.close_clients()
        self.terminate()
        return self.wait()

    def kill(self) -> None:
        """kill -9: it gets no chance to tidy up."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_SECONDS)
        self._process = None

    def end(self) -> None:
        """Whatever state it is in, leave no process behind."""
        self.close_clients()
        if self._process is not None:
            self.terminate()
            self.wait()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def port(self) -> int:
        """Where it listens, or listened last."""
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def children(self, module: str) -> list[int]:
        """The processes that it started to run this module."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                command = (directory / "cmdline").read_text()
                parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == self.pid and module in command:
                found.append(int(directory.name))
        return found

    def log(self) -> str:
        """What it said on its standard output and error."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    # --- talking to it ---------------------------------------------------------------------------------------------

    def client(self, key: str | None = None) -> Client:
        """A client that presents ``key`` (by default the first one that the server knows; empty: none)."""
        client = Client(self.url, _first_key(self.keys) if key is None else key)
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        while self._clients:
            self._clients.pop().close()

    def _environment(self) -> dict[str, str]:
        """This one, without any setting of a server, with those of this server."""
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        if self.keys is not None:
            environment[_VARIABLE_OF["api_keys"]] = self.keys
        for field, value in self._settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            environment[_VARIABLE_OF[field]] = text
        return environment | self._more_environment

    def _check_alive(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            self._process = None
            raise AssertionError(f"the server ended with {code} instead of starting:\n{self.log()}")


def _first_key(keys: str | None) -> str:
    return (keys or "").split(",")[0].split(":")[0].strip()


#: What the fixture of this name gives: starts a server of one's own.
StartServer = Callable[..., ServerProcess]
#: What the fixture of this name gives: starts a server that all tests share.
Share = Callable[[ServerProcess], ServerProcess]

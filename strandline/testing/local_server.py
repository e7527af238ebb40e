"""A server in a process of its own, on a free port of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from strandline.client import Client
from strandline.engine.process import child_environment
from strandline.nearest_name import did_you_mean
from strandline.server.settings import SETTINGS, variable_of

#: A server that is not ready, or does not end, within this time has failed. Machines that run tests may be busy.
START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.01
#: The environment variables of settings, which must not come from the environment of the tests.
VARIABLE_PREFIXES = ("STRANDLINE_", "TOPICS_")


class ServerFailed(Exception):
    """The server ended, or did not start or stop in time. The message contains its output."""


class LocalServer:
    """``strandline serve`` on a free port of the loopback interface. It needs ``strandline[server]``::

        with LocalServer(tmp_path / "data") as server, server.client() as client:
            client.topic("orders").write({"item": "book"})

    ``settings`` are settings of the server, by name, for example ``max_batch_records=100``. Others have their defaults:
    environment variables and configuration files of the tests have no effect. No pipeline is started.

    A server that was stopped or killed can be started again, on the same data and port.
    """

    def __init__(self, data: str | os.PathLike[str], **settings: object) -> None:
        self.data = Path(data)
        self._settings = {"pipeline": "off", "log_level": "warning", **settings}
        self._port_file = self.data.with_name(f"{self.data.name}.port")
        self._log_file = self.data.with_name(f"{self.data.name}.log")
        self._process: subprocess.Popen[bytes] | None = None
        self._address = "127.0.0.1:0"

    def __enter__(self) -> LocalServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    @property
    def url(self) -> str:
        return f"http://{self._address}"

    @property
    def port(self) -> int:
        return int(self._address.rpartition(":")[2])

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> LocalServer:
        """Start the server, and wait until it is ready."""
        if self._process is not None:
            raise ServerFailed("the server is already started")
        environment = self._environment()
        self.data.parent.mkdir(parents=True, exist_ok=True)
        self._port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "strandline", "serve", "--data", str(self.data), "--port", str(self.port)]
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port-file", str(self._port_file)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_until(self._port_file.exists)
            self._address = self._port_file.read_text().strip()
            with Client(self.url, patience=0) as client:
                self._wait_until(client.ready)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop the server with SIGTERM, and wait until it has ended. Raises ServerFailed if its exit code is not 0."""
        process = self._started()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"the server did not stop within {STOP_SECONDS:g} s:\n{self.log()}") from None
        self._process = None
        if code != 0:
            raise ServerFailed(f"the server ended with exit code {code}:\n{self.log()}")

    def kill(self) -> None:
        """Kill the server, as a crash does (SIGKILL), and wait until it has ended."""
        process = self._started()
        process.kill()
        process.wait(STOP_SECONDS)
        self._process = None

    def client(self, key: str | None = None, **options: Any) -> Client:
        """A client of the server. ``options`` are those of ``Client``. Close it, or use it as a context manager."""
        return Client(self.url, key, **options)

    def log(self) -> str:
        """What the server has printed so far."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerFailed("the server is not started")
        return self._process

    def _wait_until(self, done: Callable[[], bool]) -> None:
        deadline = monotonic() + START_SECONDS
        while not done():
            code = self._started().poll()
            if code is not None:
                raise ServerFailed(f"the server ended with exit code {code} instead of starting:\n{self.log()}")
            if monotonic() > deadline:
                raise ServerFailed(f"the server was not ready within {START_SECONDS:g} s:\n{self.log()}")
            sleep(POLL_SECONDS)

    def _environment(self) -> dict[str, str]:
        """The environment of this process without settings of a server, with the settings of this server."""
        environment = {
            name: value for name, value in child_environment().items() if not name.startswith(VARIABLE_PREFIXES)
        }
        for name, value in self._settings.items():
            if name not in SETTINGS:
                raise TypeError(f"unknown setting {name!r}{did_you_mean(name, sorted(SETTINGS))}")
            environment[variable_of(name)] = str(value).lower() if isinstance(value, bool) else str(value)
        return environment

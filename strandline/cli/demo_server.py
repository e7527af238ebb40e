"""What the demonstration needs: a server in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from strandline.client import Client
from strandline.server.settings_sources import PREFIXES

#: A server that is not ready by then never will be.
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0


class DemoServer:
    """``strandline serve`` on a free port. It can be killed and started again on the same data."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.address = ""
        self._port_file = directory / "port"
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it and wait until it is ready; returns the seconds that took."""
        started = time.perf_counter()
        self._port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "strandline", "serve", "--port", "0"]
        command += ["--data", str(self.data), "--port-file", str(self._port_file)]
        # The demonstration is the same wherever it is run.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        while not self._is_ready():
            if self._process.poll() is not None or time.perf_counter() - started > START_SECONDS:
                raise OSError(f"the server did not start:\n{self._log.read_text()}")
            time.sleep(0.02)
        return time.perf_counter() - started

    def _is_ready(self) -> bool:
        if not self._port_file.exists():
            return False
        self.address = self._port_file.read_text().strip()
        with self.client() as client:
            return client.ready()

    def client(self, patience: float = 30.0) -> Client:
        return Client(f"http://{self.address}", timeout=ANSWER_SECONDS, patience=patience)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait()

    def __enter__(self) -> DemoServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

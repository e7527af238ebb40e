"""What the demonstration needs: a server in a process of its own, and a client as small as can be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import msgspec

from strandline.server.settings_sources import PREFIXES

#: A server that is not ready by then never will be.
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0


class Gone(Exception):
    """There is no server any more."""


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
        try:
            with self.client() as client:
                return client.status("/v0/ready") == 200
        except Gone:
            return False

    def client(self) -> Client:
        return Client(self.address)

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


#: How often a server that is too busy is asked again.
BUSY_TRIES = 10


class Client:
    """One connection."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address, timeout=ANSWER_SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str) -> Any:
        return self._call("GET", path, None)

    def put(self, path: str, **body: object) -> Any:
        return self._call("PUT", path, body)

    def post(self, path: str, **body: object) -> Any:
        return self._call("POST", path, body)

    def write(self, topic: str, records: list[dict[str, object]], **fields: object) -> Any:
        return self.post(f"/v0/topics/{topic}", records=records, **fields)

    def make_stream(self, path: str) -> None:
        """One of JSON, without records."""
        self._call("PUT", path, None)

    def append(self, path: str, records: bytes) -> None:
        """A JSON array of records to a stream."""
        self._call("POST", path, msgspec.Raw(records))

    def status(self, path: str) -> int:
        return self._send("GET", path, None)[0]

    def events(self, path: str) -> Callable[[], str]:
        """Open an event stream; returns a function that waits for the next event and tells its kind."""
        self._connection.request("GET", path, headers={"accept": "text/event-stream"})
        response = self._connection.getresponse()

        def next_event() -> str:
            while line := response.readline():
                if line.startswith(b"event: "):
                    return line[7:].strip().decode()
            raise Gone

        return next_event

    def _call(self, method: str, path: str, body: object) -> Any:
        """The answer; a server that is too busy is asked again when it says so."""
        for _ in range(BUSY_TRIES):
            status, answer = self._send(method, path, body)
            if status != 429:
                break
            time.sleep(msgspec.json.decode(answer)["error"]["detail"].get("retry_after_ms", 1000) / 1000)
        if status not in (200, 201, 204):
            raise OSError(f"{method} {path}: {status} {answer.decode()}")
        return msgspec.json.decode(answer) if answer else None

    def _send(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        data = None if body is None else msgspec.json.encode(body)
        try:
            self._connection.request(method, path, data, {"content-type": "application/json"})
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, HTTPException) as error:
            raise Gone(str(error)) from None

"""A server in a process that has imported nothing else, and a record of what it imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

import httpx

from support.document_tables import ROOT
from support.server_process import POLL_SECONDS, START_SECONDS, STOP_SECONDS
from support.topics_client import Client

#: Runs the server. Records all imports except those of the work in the background. On SIGUSR1, it writes the names of
#: all modules.
PROGRAM = """
import os
import signal
import sys
import traceback

imports, modules = sys.argv[1:3]
del sys.argv[1:3]


def note(event, arguments):
    if event == "import" and "prepare" not in [frame.name for frame in traceback.extract_stack()]:
        with open(imports, "a") as file:
            print(arguments[0], file=file)


def tell(*_):
    names = sorted(sys.modules)
    with open(modules + ".new", "w") as file:
        print(*names, sep="\\n", file=file)
    os.replace(modules + ".new", modules)


signal.signal(signal.SIGUSR1, tell)
from strandline.cli.main import main

if __name__ == "__main__":
    sys.addaudithook(note)
    main()
"""


class RealServer:
    """A context in which the server runs on a directory. ``declared`` is the content of a file with declarations."""

    def __init__(self, directory: Path, *, declared: str | None = None, **settings: object) -> None:
        self._directory = directory
        self._imports, self._modules = directory / "imports", directory / "modules"
        self._declared = directory / "declared.py"
        if declared is not None:
            self._declared.write_text(declared)
        self._environment = {f"STRANDLINE_{name.upper()}": str(value) for name, value in settings.items()}
        self.url = ""

    def __enter__(self) -> Self:
        port = self._directory / "port"
        port.unlink(missing_ok=True)
        command = [sys.executable, "-c", PROGRAM, str(self._imports), str(self._modules), "serve", "--port", "0"]
        command += ["--data", str(self._directory / "data"), "--port-file", str(port), "--pipeline", "off"]
        if self._declared.exists():
            command += ["--declare", str(self._declared)]
        environment = {**os.environ, **self._environment}
        with (self._directory / "log").open("w") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log)
        deadline = monotonic() + START_SECONDS
        while not (port.exists() and self._is_ready(port)):
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert monotonic() < deadline
            sleep(POLL_SECONDS)
        return self

    def _is_ready(self, port: Path) -> bool:
        self.url = f"http://{port.read_text().strip()}"
        try:
            return httpx.get(f"{self.url}/v0/ready", trust_env=False).is_success
        except httpx.TransportError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            self._process.kill()

    def client(self) -> Client:
        return Client(self.url)

    def forget_imports(self) -> None:
        self._imports.write_text("")

    def imports(self) -> list[str]:
        """The imports since they were forgotten, except those of the work in the background."""
        return self._imports.read_text().split()

    def modules(self) -> set[str]:
        """The modules that are imported now."""
        self._modules.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        deadline = monotonic() + START_SECONDS
        while not self._modules.exists():
            assert monotonic() < deadline
            sleep(POLL_SECONDS)
        return set(self._modules.read_text().split())

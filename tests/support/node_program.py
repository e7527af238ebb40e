"""Programs for Node: their packages, running them to the end, talking with them. Everything takes a bounded time."""

from __future__ import annotations

import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

import msgspec

from support import node_packages
from support.prerequisites import unavailable

HERE = Path(__file__).parents[1] / "conformance"
MODULES = HERE / "node_modules"

#: A program that says nothing for so long says nothing any more. Generous: the machine may be busy.
SILENCE_SECONDS = 60.0


def require_packages() -> None:
    try:
        node_packages.require_packages(HERE)
    except node_packages.Unavailable as error:
        unavailable(str(error))


class Program:
    """A program that runs. It says lines of JSON on its standard output and is told lines on its standard input."""

    def __init__(self, script: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            ["node", str(HERE / script), *arguments],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: queue.Queue[str | None] = queue.Queue()
        self._complaints: list[str] = []
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._listen_to_complaints, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def heard(self) -> Any:
        """The next thing that it says."""
        try:
            line = self._said.get(timeout=SILENCE_SECONDS)
        except queue.Empty:
            self.kill()
            raise AssertionError(f"the program said nothing for {SILENCE_SECONDS} s\n{self._complained()}") from None
        if line is None:
            self._process.wait(SILENCE_SECONDS)
            raise AssertionError(f"the program ended with {self._process.returncode}\n{self._complained()}")
        return msgspec.json.decode(line)

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def ended_well(self) -> None:
        """Wait for its end, which must be a good one."""
        code = self._process.wait(SILENCE_SECONDS)
        assert code == 0, f"the program ended with {code}\n{self._complained()}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(SILENCE_SECONDS)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for thread in self._threads:
            thread.join(SILENCE_SECONDS)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self._said.put(line)
        self._said.put(None)

    def _listen_to_complaints(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr:
            self._complaints.extend(self._process.stderr)

    def _complained(self) -> str:
        for thread in self._threads:
            thread.join(1.0)
        return "".join(self._complaints)

"""The pipeline's process, as the server controls it.

The process cannot outlive the server for long: its standard input is a pipe that closes when the server ends, for any
reason, and then the process exits.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from strandline.engine.process import child_environment

log = logging.getLogger("strandline.pipeline")

#: Requests have priority over the pipeline when processors are scarce.
NICENESS = 10
#: The number of output lines that are kept for error messages. All lines go to the server's log.
LAST_LINES = 50
#: Longer lines are truncated.
LINE_CHARACTERS = 2000

#: The command for the process, sent through its standard input.
RUN = b"run\n"


class Child:
    """One process, from start to end. Any thread may call the methods, and only ``wait`` and ``close`` block."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """Start the process with these environment variables in addition to those of this process. Raises OSError if
        that fails."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**child_environment(), **variables},
            # Its own process group: Ctrl-C in a terminal must reach only the server, which then stops the pipeline
            # itself, and ``kill`` must also reach the processes that the pipeline has started.
            start_new_session=True,
        )
        self.pid = self._process.pid
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.pid, NICENESS)
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._reader = threading.Thread(target=self._read, name="pipeline-output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip()[:LINE_CHARACTERS]
            if line:
                self._lines.append(line)
                log.info("%s", line)

    @property
    def last_lines(self) -> list[str]:
        return list(self._lines)

    def exit_code(self) -> int | None:
        """The exit code; None while the process runs; negative if a signal ended it."""
        return self._process.poll()

    def run_now(self) -> None:
        """Start the next round now, without waiting for the interval."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # the process is ending
            self._process.stdin.write(RUN)
            self._process.stdin.flush()

    def stop(self) -> None:
        """Ask the process to end after its current commit."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process, and all processes that it has started, at once. The next run repeats uncommitted work."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Wait for the process. Returns whether it has ended within this time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Release the pipes of a process that has ended, and kill processes that it has left running."""
        self.kill()
        # A process that it started may still hold the other end of the pipe; its output is ignored.
        self._reader.join(1.0)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

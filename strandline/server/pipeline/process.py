"""The process of the pipeline, seen from the server. It cannot outlive the server for long: its standard input is a
pipe that closes when the server ends for any reason, and then the process ends itself."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from strandline.engine.process import child_environment

log = logging.getLogger("strandline.pipeline")

#: The priority of the process: requests come first.
NICENESS = 10
#: How many lines of output are kept to be shown; all lines go to the server's log.
LAST_LINES = 50
#: Longer lines are truncated.
LINE_CHARACTERS = 2000

#: The commands that the process reads from its standard input.
RUN = b"run\n"


class Child:
    """One process, from start to end. Any thread may call the methods. Only ``wait`` blocks."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the process. Raises OSError if it cannot be started."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            # A process group of its own: Ctrl-C in the terminal reaches only the server, which stops the pipeline
            # itself, and all processes that the pipeline starts can be killed together.
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
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def run_now(self) -> None:
        """Start the next round at once instead of after the interval."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # the process is about to end
            self._process.stdin.write(RUN)
            self._process.stdin.flush()

    def stop(self) -> None:
        """Ask it to end after the current commit."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it and all processes that it started. Nothing is lost: uncommitted work is done again."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the process; False if it still runs after this time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """The process has ended: close its pipes, and kill processes that it left behind."""
        self.kill()
        # A process that it started may still hold the other end; its output is not needed.
        self._reader.join(1.0)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

"""The process of the pipeline, seen from the server. It can never outlive the server for long: its standard input is a
pipe that closes with the server, however that ends, and then it goes by itself."""

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

#: Of those who want the processor, requests come first.
NICENESS = 10
#: Lines of its output that are kept to be shown; all go to the server's log.
LAST_LINES = 50
#: Longer lines are cut off.
LINE_CHARACTERS = 2000

#: What the process is told through its standard input.
RUN = b"run\n"


class Child:
    """One process, from start to end. Methods may be called from any thread and do not wait, but for ``wait``."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it; raises OSError when that is not to be had."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            # Its own group: a Ctrl-C in the terminal is the server's, which ends the pipeline in its own way; and all
            # that it starts can be ended with it.
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
        """None while it runs; negative: the signal it died of."""
        return self._process.poll()

    def run_now(self) -> None:
        """Have it look for something new at once, and not only after its interval."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it is about to end
            self._process.stdin.write(RUN)
            self._process.stdin.flush()

    def stop(self) -> None:
        """Ask it to end after what it is about to commit."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and everything it has started at once. Nothing is lost: what was not committed is done again."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within this time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """It has ended: let go of its pipes, and of what it may have left running."""
        self.kill()
        # Something it started may still hold the other end; whatever that says is of no interest.
        self._reader.join(1.0)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

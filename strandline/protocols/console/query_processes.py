"""The processes that run queries: one per query, and one that waits for the next query."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import msgspec

from strandline.engine.process import child_environment
from strandline.protocols.console.errors import QUERY_CANCELLED, QUERY_LIMIT
from strandline.service.problems import INTERNAL, Refusal
from strandline.sql.request import MODULE, QueryOutcome, QueryRequest

log = logging.getLogger(__name__)

#: How long a process may take beyond the time of its query: to start, and to end.
GRACE_SECONDS = 3.0
#: The characters of a process's last words that are logged.
LAST_WORDS = 4000

_TOO_MUCH_MEMORY = "the query needs more memory than it may use; select fewer records or columns"


class Cancellation:
    """Cancels a query before it starts or while it runs. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.cancelled = False

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            if self._process is not None:
                self._process.kill()

    def attach(self, process: subprocess.Popen[bytes]) -> None:
        """The process runs the query from now on."""
        with self._lock:
            self._process = process
            if self.cancelled:
                process.kill()


class QueryProcesses:
    """Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: subprocess.Popen[bytes] | None = None
        self._closed = False

    def run(self, request: QueryRequest, cancellation: Cancellation) -> QueryOutcome:
        """Run a query to its end. Raises Refusal if it is cancelled or exceeds a limit."""
        if cancellation.cancelled:
            raise _cancelled()
        process = self._take()
        try:
            cancellation.attach(process)
            told, complaint = process.communicate(msgspec.json.encode(request), request.limits.seconds + GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            raise Refusal(QUERY_LIMIT, f"the query took longer than {request.limits.seconds} seconds") from None
        finally:
            _end(process)
            self._prepare()
        if cancellation.cancelled:
            raise _cancelled()
        return _outcome(process.returncode, told, complaint, request.limits.seconds)

    def rest(self) -> None:
        """End the process that waits."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            _end(spare)

    def close(self) -> None:
        """Keep no process any more."""
        self._closed = True
        self.rest()

    def _take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            if spare.poll() is None:
                return spare
            _end(spare)
        return _started()

    def _prepare(self) -> None:
        """Start the process for the next query, unless there is one. Failures show when a query needs a process."""
        with self._lock, suppress(OSError):
            if self._spare is None and not self._closed:
                self._spare = _started()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
        # Signals for the server's group, such as Ctrl-C, are for the server.
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _outcome(code: int, told: bytes, complaint: bytes, seconds: int) -> QueryOutcome:
    if code == 0:
        return msgspec.json.decode(told, type=QueryOutcome)
    if code == -signal.SIGALRM:
        raise Refusal(QUERY_LIMIT, f"the query took longer than {seconds} seconds")
    # The system kills a process that it has no memory for, and libraries end one that cannot get more.
    if code in (-signal.SIGKILL, -signal.SIGABRT) or b"MemoryError" in complaint or b"bad_alloc" in complaint:
        raise Refusal(QUERY_LIMIT, _TOO_MUCH_MEMORY)
    log.error("the process of a query ended with %d: %s", code, complaint.decode(errors="replace")[-LAST_WORDS:])
    raise Refusal(INTERNAL, "the process of the query failed; the server's log has the details")


def _cancelled() -> Refusal:
    return Refusal(QUERY_CANCELLED, "the query was cancelled")

"""``strandline queue work``: run a command for each job of a queue."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Raw

from strandline.cli.connection import connect, queue_state
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.options import ApiKey, AsJsonLines, QueueName, Url
from strandline.cli.output import counted, discard_output, print_json, say
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_duration
from strandline.client.queue_calls import Job

if TYPE_CHECKING:
    from strandline.client import Client, Worker

#: How long the worker retries to acknowledge a job: less than the default lease.
PATIENCE_SECONDS = 20.0

#: The signals that stop the worker.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


#: How much of a command's standard error is kept as the reason of a failure.
ERROR_BYTES = 3000
#: How long the worker waits for the end of standard error after a command ended. Processes that the command started may
#: keep it open.
ERROR_SECONDS = 1.0


def work_command(
    name: QueueName,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...", help="Command to run for each job, with the payload on standard input."
        ),
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", metavar="N", min=1, help="Maximum number of jobs at a time.")
    ] = 1,
    lease: Annotated[
        str | None,
        typer.Option(
            "--lease",
            metavar="DURATION",
            help="Duration of a lease, such as 30s; it is renewed while the command runs. Default: the queue's.",
        ),
    ] = None,
    retry_after: Annotated[
        str | None,
        typer.Option(
            "--retry-after",
            metavar="DURATION",
            help="Delay before a failed job is tried again, such as 10s. Default: the queue's retry delay, or one that "
            "doubles with each delivery.",
        ),
    ] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Exit when the queue has no more jobs.")] = False,
    as_json: AsJsonLines = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Process the jobs of a queue: run a command for each job.

    If the command exits with 0, the job is acknowledged. Otherwise the job returns to the queue and is tried again
    later. The exit code and the last lines of standard error are kept with the job as the reason.

    The command gets STRANDLINE_QUEUE, STRANDLINE_SEQ, STRANDLINE_RECORD_KEY and STRANDLINE_DELIVERIES in its
    environment.

    On SIGTERM or SIGINT, the worker takes no more jobs and waits for the running commands. A second signal terminates
    the commands too.

    Example:
      strandline queue work emails --concurrency 4 -- ./send-email
    """
    if shutil.which(command[0]) is None:
        raise typer.BadParameter(
            f"program {command[0]!r} not found; expected a program on the PATH or the path of a file",
            param_hint="COMMAND",
        )
    lease_ms = None if lease is None else parse_duration(lease, "--lease")
    delay_ms = None if retry_after is None else parse_duration(retry_after, "--retry-after")
    with connect(url, api_key) as client:
        queue_state(client, name)
    with connect(url, api_key, patience=PATIENCE_SECONDS) as client:
        commands = Commands(command, name, as_json)
        worker: Worker[Raw] = client.queue(name, Raw).worker(
            commands.run,
            concurrency=concurrency,
            lease_ms=lease_ms,
            delay_ms=None if delay_ms is None else lambda job, error: delay_ms,
        )
        _work(client, worker, commands, until_empty)
    if not as_json:
        say(f"finished: {counted(worker.done, 'job')} done, {counted(worker.failed, 'failure')}")
    if commands.unusable:
        raise CommandFailed(commands.unusable, Exit.USAGE)
    if commands.unprintable:
        raise CommandFailed(commands.unprintable)


def _work(client: Client, worker: Worker[Raw], commands: Commands, until_empty: bool) -> None:
    """Run the worker on a thread, so that this thread can handle signals."""
    logging.getLogger("strandline.client.worker").addHandler(_WorkerLog(logging.ERROR))
    failure: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(until_empty=until_empty)
        except BaseException as error:
            failure.append(error)

    def on_signal(*_: object) -> None:
        if commands.stopping:
            commands.end()
            return
        commands.stopping = True
        # The main thread may hold the lock that this needs.
        threading.Thread(target=worker.stop).start()

    commands.give_up = worker.stop
    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if failure:
        raise failure[0]


class _WorkerLog(logging.Handler):
    """Prints what the worker logs about itself. Failed jobs are reported by :class:`Commands`."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


class ErrorOutput:
    """The standard error of a command. It is copied to that of this process, and its end is kept."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._end = b""
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def __enter__(self) -> ErrorOutput:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.writing)
        self._thread.join(ERROR_SECONDS)

    def _copy(self) -> None:
        with open(self._reading, "rb", buffering=0) as reading:
            while part := reading.read(1 << 16):
                self._end = (self._end + part)[-ERROR_BYTES:]
                # Read on even if it cannot be printed: otherwise the command would wait forever.
                with suppress(OSError):
                    sys.stderr.buffer.write(part)
                    sys.stderr.buffer.flush()

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._end.decode("utf-8", "replace").splitlines() if line.strip()]


def reason_of(code: int, lines: list[str]) -> str:
    """Why a command failed: how it ended and the last line of its standard error, then all lines that are kept."""
    ended = f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
    return "\n".join([f"{ended}: {lines[-1]}" if lines else ended, *(lines if len(lines) > 1 else ())])


class Commands:
    """The running commands."""

    def __init__(self, command: list[str], queue: str, as_json: bool) -> None:
        self._command = command
        self._queue = queue
        self._as_json = as_json
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.stopping = False
        #: Why the command cannot be run.
        self.unusable = ""
        #: Why results cannot be printed.
        self.unprintable = ""
        self.give_up: Any = None

    def run(self, job: Job[Raw]) -> None:
        try:
            code, lines = self._run(job)
        except OSError as error:
            # No job can succeed with this command: leave the jobs to other workers.
            self.unusable = f"cannot run {self._command[0]!r}: {error.strerror}"
            self.give_up()
            job.fail(self.unusable)
            return
        reason = reason_of(code, lines) if code else None
        if reason is not None:
            job.fail(reason)
        try:
            self._report(job, code, reason)
        except OSError as error:
            # The job is done all the same, but no further job is started.
            self.unprintable = f"stopped, because standard output cannot be written: {error.strerror}"
            self.give_up()
            discard_output()

    def _report(self, job: Job[Raw], code: int, reason: str | None) -> None:
        if self._as_json:
            document = {"seq": job.seq, "key": job.tag, "deliveries": job.deliveries, "exit_code": code}
            with self._lock:
                print_json({**document, "reason": reason})
        elif reason is not None:
            say(f"job {job.seq} failed on delivery {job.deliveries}: {reason.splitlines()[0]}")

    def _run(self, job: Job[Raw]) -> tuple[int, list[str]]:
        """The exit code and the last lines of standard error."""
        variables = {
            "STRANDLINE_QUEUE": self._queue,
            "STRANDLINE_SEQ": str(job.seq),
            "STRANDLINE_RECORD_KEY": job.tag or "",
            "STRANDLINE_DELIVERIES": str(job.deliveries),
        }
        with ErrorOutput() as errors:
            # In its own process group: Ctrl-C at the terminal reaches only the worker, which lets the command finish.
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=sys.stderr.fileno() if self._as_json else None,
                stderr=errors.writing,
                env={**os.environ, **variables},
                process_group=0,
            )
            with self._lock:
                self._running.add(process)
            try:
                process.communicate(bytes(job.data))
            finally:
                with self._lock:
                    self._running.discard(process)
        return process.returncode, errors.lines()

    def end(self) -> None:
        """Send SIGTERM to the running commands and the processes they started."""
        for process in list(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

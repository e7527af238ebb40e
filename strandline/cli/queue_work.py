"""``strandline queue work``: a command per job."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Annotated, Any

import typer
from msgspec import Raw

from strandline.cli.completion import complete_queue
from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, connect
from strandline.cli.exits import CommandFailed, Exit
from strandline.cli.output import counted, print_json, say
from strandline.cli.times import parse_length
from strandline.client import Client, Job, Worker

#: A job that is done can be reported for so long where the server does not answer: less than the usual lease.
PATIENCE_SECONDS = 20.0

#: What asks a program to end.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def work_command(
    name: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=complete_queue)],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What does a job: its payload is on standard input.")
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", metavar="N", min=1, help="So many jobs at a time.")
    ] = 1,
    lease: Annotated[
        str | None, typer.Option("--lease", metavar="LENGTH", help="A job is held so long, and that is renewed: 30s.")
    ] = None,
    retry_after: Annotated[
        str | None,
        typer.Option(
            "--retry-after", metavar="LENGTH", help="A job that failed is kept back so long; else longer each time."
        ),
    ] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="End when there is no job any more.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Do the jobs of a queue: the command is run for each, with the payload on its standard input.

    Exit code 0 of the command: the job is done. Anything else: it is given back, and tried again later. The command
    finds STRANDLINE_QUEUE, STRANDLINE_SEQ, STRANDLINE_RECORD_KEY and STRANDLINE_DELIVERIES in its environment.

    SIGTERM or SIGINT: no job is taken any more, those under way are finished. A second one ends their commands too.
    With --json, a line per job.
    """
    if shutil.which(command[0]) is None:
        raise typer.BadParameter(f"there is no program {command[0]!r}", param_hint="COMMAND")
    lease_ms = None if lease is None else parse_length(lease, "--lease")
    delay_ms = None if retry_after is None else parse_length(retry_after, "--retry-after")
    with connect(url, key) as client:
        if client.topic(name).state(touch=False).queue is None:
            raise CommandFailed(f"{name!r} is no queue", Exit.CONFLICT)
    with connect(url, key, patience=PATIENCE_SECONDS) as client:
        commands = Commands(command, name, as_json)
        worker: Worker[Raw] = client.queue(name, Raw).worker(
            commands.run,
            concurrency=concurrency,
            lease_ms=lease_ms,
            delay_ms=None if delay_ms is None else lambda job, error: delay_ms,
        )
        _work(client, worker, commands, until_empty)
    if not as_json:
        say(f"{counted(worker.done, 'job')} done, {counted(worker.failed, 'failure')}")
    if commands.unusable:
        raise CommandFailed(commands.unusable, Exit.USAGE)
    if commands.unheard:
        raise CommandFailed(commands.unheard)


def _work(client: Client, worker: Worker[Raw], commands: Commands, until_empty: bool) -> None:
    """The worker on a thread, so that this one is free to be interrupted."""
    logging.getLogger("strandline.client.worker").addHandler(_Told(logging.ERROR))
    failure: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(until_empty=until_empty)
        except BaseException as error:
            failure.append(error)

    def told(*_: object) -> None:
        if commands.stopping:
            commands.end()
            return
        commands.stopping = True
        # The main thread may be holding the very lock that this needs.
        threading.Thread(target=worker.stop).start()

    commands.give_up = worker.stop
    before = {number: signal.signal(number, told) for number in _SIGNALS}
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if failure:
        raise failure[0]


class _Told(logging.Handler):
    """What the worker has to say of itself. Of jobs that failed the commands tell."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def _forget_output() -> None:
    """What could not be printed is tried once more when the process ends, and would change its exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class JobFailed(Exception):
    """The command did not end with 0."""


class Commands:
    """The commands that are under way."""

    def __init__(self, command: list[str], queue: str, as_json: bool) -> None:
        self._command = command
        self._queue = queue
        self._as_json = as_json
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.stopping = False
        #: Why the command can do no job at all.
        self.unusable = ""
        #: Why nothing can be told of jobs any more.
        self.unheard = ""
        self.give_up: Any = None

    def run(self, job: Job[Raw]) -> None:
        """Raises JobFailed."""
        try:
            code = self._run(job)
        except OSError as error:
            # No job can be done with it: whoever has a better command shall have them.
            self.unusable = f"{self._command[0]}: {error.strerror}"
            self.give_up()
            raise JobFailed(self.unusable) from None
        try:
            self._report(job, code)
        except OSError as error:
            # What is done is done, whoever hears of it; but no further one is begun.
            self.unheard = f"nothing can be printed any more: {error.strerror}"
            self.give_up()
            _forget_output()
        if code:
            raise JobFailed(f"exit code {code}")

    def _report(self, job: Job[Raw], code: int) -> None:
        if self._as_json:
            with self._lock:
                print_json({"seq": job.seq, "key": job.tag, "deliveries": job.deliveries, "exit_code": code})
        elif code:
            say(f"job {job.seq} failed at delivery {job.deliveries}: exit code {code}")

    def _run(self, job: Job[Raw]) -> int:
        told = {
            "STRANDLINE_QUEUE": self._queue,
            "STRANDLINE_SEQ": str(job.seq),
            "STRANDLINE_RECORD_KEY": job.tag or "",
            "STRANDLINE_DELIVERIES": str(job.deliveries),
        }
        # In a group of its own: an interrupt at the terminal is for the worker, which lets it finish.
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno() if self._as_json else None,
            env={**os.environ, **told},
            process_group=0,
        )
        with self._lock:
            self._running.add(process)
        try:
            process.communicate(bytes(job.data))
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode

    def end(self) -> None:
        """Tell the commands that are under way to end, and what they have started."""
        for process in list(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

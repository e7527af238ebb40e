"""``strandline queue``: inspect the jobs of a queue, run a worker, and redrive dead letters."""

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

from strandline.cli.command_class import Command
from strandline.cli.connection import DEFAULT_URL, complete_queue, connect
from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.options import ApiKey, AsJson, AsJsonLines, QueueName, RecordKey, Url
from strandline.cli.output import counted, print_fields, print_json, print_line, say
from strandline.cli.records import line_of, of_topic
from strandline.cli.times import parse_duration
from strandline.client import Client, Job, NotFound, Worker
from strandline.client.queue_calls import Redriven
from strandline.client.topic_types import TopicState

app = typer.Typer(name="queue", no_args_is_help=True, help="Inspect the jobs of a queue, and process them.")


@app.command("peek", cls=Command)
def peek_command(
    name: QueueName,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, max=1000, help="Maximum number of jobs to print.")
    ] = 10,
    after: Annotated[
        int, typer.Option("--after", metavar="SEQ", min=0, help="Only jobs after this sequence number.")
    ] = 0,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Print the first jobs of a queue and its counters, without leasing any job.

    Example:
      strandline queue peek emails --limit 5
    """
    with connect(url, api_key) as client:
        state = queue_state(client, name)
        found = client.topic(name, Raw).diff(after, limit=limit).records if limit else []
    jobs = [of_topic(record) for record in found]
    assert state.queue is not None
    if as_json:
        print_json({"queue": name, "jobs": jobs, **_counted(state)})
        return
    for job in jobs:
        print_line(line_of(job))
    print_fields({_WORDS.get(word, word): count for word, count in _counted(state).items()})


_WORDS = {"in_flight": "leased", "dead_lettered": "dead-lettered", "dead_letter": "dead-letter log"}


def _counted(state: TopicState) -> dict[str, object]:
    queue = state.queue
    assert queue is not None
    counted = {"ready": queue.ready, "in_flight": queue.in_flight, "delayed": queue.delayed}
    return {**counted, "dead_lettered": queue.dead_lettered, "dead_letter": state.config.dead_letter}


def queue_state(client: Client, name: str) -> TopicState:
    """Raises CommandFailed if there is no queue of this name."""
    with naming("queue", name):
        state = client.topic(name).state(touch=False)
    if state.queue is None:
        raise CommandFailed(
            f"{name!r} is not a queue; create a queue with `strandline log create NAME --type queue`", Exit.CONFLICT
        )
    return state


@app.command("redrive", cls=Command)
def redrive_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE", help="Name of the queue, or of its dead-letter log.", autocompletion=complete_queue
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="QUEUE", help="Move the jobs to this queue. Default: the queue they came from."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of jobs to move. Default: all."),
    ] = None,
    record_key: RecordKey = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Move dead letters back to their queues, so that workers try them again.

    Example:
      strandline queue redrive emails --limit 100
    """
    with connect(url, api_key) as client:
        with naming("queue", name):
            state = client.topic(name).state(touch=False)
        dead = name if state.queue is None else state.config.dead_letter
        if dead is None:
            raise CommandFailed(
                f"queue {name!r} has no dead-letter log; set one, and max deliveries, in its configuration",
                Exit.CONFLICT,
            )
        match = None if record_key is None else ["tag", "Eq", record_key]
        try:
            done = client.topic(dead).redrive(to=to, limit=limit or 0, match=match)
        except NotFound as error:
            if dead == name or error.detail.get("topic") != dead:
                raise
            # The first dead letter creates the log.
            done = Redriven(dead, 0, {}, 0)
    if as_json:
        print_json({"dead_letters": dead, "redriven": done.redriven, "to": done.to, "remaining": done.remaining})
        return
    places = ", ".join(f"{count} to {place}" for place, count in done.to.items())
    print_line(
        f"moved {counted(done.redriven, 'job')}{f' ({places})' if places else ''}; {done.remaining:,} remain in {dead}"
    )


# --- queue work -----------------------------------------------------------------------------------------------------

#: How long the worker retries to acknowledge a job: less than the default lease.
PATIENCE_SECONDS = 20.0

#: The signals that stop the worker.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@app.command("work", cls=Command)
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
            help="Delay before a failed job is tried again, such as 10s. Default: doubles with each delivery.",
        ),
    ] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Exit when the queue has no more jobs.")] = False,
    as_json: AsJsonLines = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Process the jobs of a queue: run a command for each job.

    If the command exits with 0, the job is acknowledged. Otherwise the job returns to the queue and is tried again
    later. The command gets STRANDLINE_QUEUE, STRANDLINE_SEQ, STRANDLINE_RECORD_KEY and STRANDLINE_DELIVERIES in its
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


def _forget_output() -> None:
    """Discard buffered output: flushing it at exit would fail again and change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class JobFailed(Exception):
    """The command did not exit with 0."""


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
        """Raises JobFailed."""
        try:
            code = self._run(job)
        except OSError as error:
            # No job can succeed with this command: leave the jobs to other workers.
            self.unusable = f"cannot run {self._command[0]!r}: {error.strerror}"
            self.give_up()
            raise JobFailed(self.unusable) from None
        try:
            self._report(job, code)
        except OSError as error:
            # The job is done all the same, but no further job is started.
            self.unprintable = f"stopped, because standard output cannot be written: {error.strerror}"
            self.give_up()
            _forget_output()
        if code:
            raise JobFailed(f"exit code {code}")

    def _report(self, job: Job[Raw], code: int) -> None:
        if self._as_json:
            with self._lock:
                print_json({"seq": job.seq, "key": job.tag, "deliveries": job.deliveries, "exit_code": code})
        elif code:
            say(f"job {job.seq} failed on delivery {job.deliveries}: exit code {code}")

    def _run(self, job: Job[Raw]) -> int:
        variables = {
            "STRANDLINE_QUEUE": self._queue,
            "STRANDLINE_SEQ": str(job.seq),
            "STRANDLINE_RECORD_KEY": job.tag or "",
            "STRANDLINE_DELIVERIES": str(job.deliveries),
        }
        # In its own process group: Ctrl-C at the terminal reaches only the worker, which lets the command finish.
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno() if self._as_json else None,
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
        return process.returncode

    def end(self) -> None:
        """Send SIGTERM to the running commands and the processes they started."""
        for process in list(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

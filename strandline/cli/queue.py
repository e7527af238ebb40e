"""``strandline queue``: look at the jobs of a queue, do them, and give dead letters another chance."""

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

from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, complete_queue, connect
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.output import counted, print_fields, print_json, print_line, say
from strandline.cli.records import line_of, of_topic
from strandline.cli.times import parse_length
from strandline.client import Client, Job, NotFound, Worker
from strandline.client.queue_calls import Redriven
from strandline.client.topic_types import TopicState

app = typer.Typer(name="queue", no_args_is_help=True, help="Look at the jobs of a queue, and do them.")

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=complete_queue)]


@app.command("peek")
def peek_command(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=0, max=1000, help="So many jobs.")] = 10,
    after: Annotated[int, typer.Option("--after", metavar="SEQ", min=0, help="Only jobs behind this seq.")] = 0,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show how many jobs a queue has, and the first of them by seq, without taking any."""
    with connect(url, key) as client:
        state = _queue(client, name)
        found = client.topic(name, Raw).diff(after, limit=limit).records if limit else []
    jobs = [of_topic(record) for record in found]
    assert state.queue is not None
    if as_json:
        print_json({"queue": name, "jobs": jobs, **_counted(state)})
        return
    for job in jobs:
        print_line(line_of(job))
    print_fields({word.replace("_", " "): count for word, count in _counted(state).items()})


def _counted(state: TopicState) -> dict[str, object]:
    queue = state.queue
    assert queue is not None
    counted = {"ready": queue.ready, "in_flight": queue.in_flight, "delayed": queue.delayed}
    return {**counted, "dead_lettered": queue.dead_lettered, "dead_letter": state.config.dead_letter}


def _queue(client: Client, name: str) -> TopicState:
    state = client.topic(name).state(touch=False)
    if state.queue is None:
        raise CommandFailed(f"{name!r} is no queue", Exit.CONFLICT)
    return state


@app.command("redrive")
def redrive_command(
    name: Annotated[
        str, typer.Argument(metavar="QUEUE", help="The queue, or its dead letters.", autocompletion=complete_queue)
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="QUEUE", help="Move them here, instead of to where they came from.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many.")] = None,
    record_key: Annotated[
        str | None, typer.Option("--record-key", "-k", metavar="TEXT", help="Only jobs with this key.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Move dead letters back to the queues that they came from, to be tried again."""
    with connect(url, key) as client:
        state = client.topic(name).state(touch=False)
        dead = name if state.queue is None else state.config.dead_letter
        if dead is None:
            raise CommandFailed(
                f"the queue {name!r} has no dead letters: it was made without --dead-letter", Exit.CONFLICT
            )
        match = None if record_key is None else ["tag", "Eq", record_key]
        try:
            done = client.topic(dead).redrive(to=to, limit=limit or 0, match=match)
        except NotFound as error:
            if dead == name or error.detail.get("topic") != dead:
                raise
            # It is made by the first of them.
            done = Redriven(dead, 0, {}, 0)
    if as_json:
        print_json({"dead_letters": dead, "redriven": done.redriven, "to": done.to, "remaining": done.remaining})
        return
    places = ", ".join(f"{count} to {place}" for place, count in done.to.items())
    print_line(
        f"moved {counted(done.redriven, 'job')}{f' ({places})' if places else ''}, {done.remaining} remain in {dead}"
    )


# --- queue work -----------------------------------------------------------------------------------------------------

#: A job that is done can be reported for so long where the server does not answer: less than the usual lease.
PATIENCE_SECONDS = 20.0

#: What asks a program to end.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@app.command("work")
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

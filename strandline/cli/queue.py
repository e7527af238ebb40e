"""``strandline queue``: inspect, claim and return jobs, and redrive dead letters; ``work`` is in a sibling module."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Raw
from msgspec.structs import asdict

from strandline.cli.command_class import Command, ReadingCommand, TableCommand
from strandline.cli.connection import complete_queue, connect, queue_state
from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.options import ApiKey, AsJson, QueueName, RecordKey, Url
from strandline.cli.output import counted, print_fields, print_json, print_line, print_table
from strandline.cli.queue_enqueue import enqueue_command, list_command
from strandline.cli.queue_work import work_command
from strandline.cli.records import ShownRecord, line_of, of_topic
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_duration, show_age, show_time
from strandline.client.calls import segment
from strandline.client.errors import NotFound
from strandline.client.failures import JobFailure, summary_of
from strandline.client.queue_calls import DeadLetter, Job, Redriven, dead_letter
from strandline.client.topic_types import Page

if TYPE_CHECKING:
    from strandline.client import Client

#: Characters of a reason or of data in a table. ``--json`` prints all of it.
SHOWN_CHARACTERS = 100

QueueOrDeadLetterLog = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help="Name of the queue, or of its dead-letter log.", autocompletion=complete_queue
    ),
]
Seqs = Annotated[list[int], typer.Argument(metavar="SEQ...", help="Sequence numbers of the jobs.")]
Node = Annotated[
    str | None,
    typer.Option("--node", metavar="NAME", help="Name of the worker. Default: cli@ and the name of this host."),
]


# --- inspection -----------------------------------------------------------------------------------------------------


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
    """Print the first jobs of a queue, its counters and its rates, without leasing any job.

    Below a job that failed before is the reason of its last failure, if the job is among the first 100 leased, the
    first 100 delayed or the next 20 jobs; `--json` prints all known failures. The throughput and the failure rate are
    those of the last minute.

    Example:
      strandline queue peek emails --limit 5
    """
    with connect(url, api_key) as client:
        state = queue_state(client, name)
        found = client.topic(name, Raw).diff(after, limit=limit).records if limit else []
        failures = _known_failures(client, name) if found else {}
    jobs = [PeekedJob(**asdict(of_topic(record)), failures=failures.get(record.seq, ())) for record in found]
    queue = state.queue
    assert queue is not None
    if as_json:
        print_json({"queue": name, "jobs": jobs, **asdict(queue), "dead_letter": state.config.dead_letter})
        return
    for job in jobs:
        print_line(line_of(job))
        if job.failures:
            last = job.failures[-1]
            print_line(f"        failed on delivery {last.delivery}: {_cut(last.summary)}")
    print_fields(
        {
            "ready": queue.ready,
            "leased": queue.in_flight,
            "delayed": queue.delayed,
            "dead-lettered": queue.dead_lettered,
            "dropped": queue.dropped,
            "oldest ready": None if queue.oldest_ready_ms is None else show_age(queue.oldest_ready_ms),
            "throughput": f"{queue.throughput:.3g} jobs/s",
            "failure rate": f"{queue.failure_rate:.1%}",
            "dead-letter log": state.config.dead_letter,
        }
    )


class PeekedJob(ShownRecord, frozen=True, omit_defaults=True, kw_only=True):
    """``failures`` are the last failed deliveries with a reason, oldest first."""

    failures: tuple[JobFailure, ...] = ()


class _FailureOnConsole(msgspec.Struct):
    at: int
    delivery: int
    worker: str
    reason: Any


class _JobOnConsole(msgspec.Struct):
    seq: int
    failures: list[_FailureOnConsole]


class _QueueOnConsole(msgspec.Struct):
    held: list[_JobOnConsole]
    delayed: list[_JobOnConsole]
    next: list[_JobOnConsole]


def _known_failures(client: Client, name: str) -> dict[int, tuple[JobFailure, ...]]:
    """Why jobs failed, by their seqs: those that the console shows."""
    answer = client.call("GET", f"/console/api/queue/{segment(name)}")
    queue = msgspec.json.decode(answer.body, type=_QueueOnConsole)
    return {
        job.seq: tuple(JobFailure(each.at, each.delivery, each.worker, each.reason) for each in job.failures)
        for job in (*queue.held, *queue.delayed, *queue.next)
    }


def dead_letters_command(
    name: QueueOrDeadLetterLog,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="Maximum number of jobs to print.")
    ] = 10,
    after: Annotated[
        int, typer.Option("--after", metavar="SEQ", min=0, help="Only dead letters after this sequence number.")
    ] = 0,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Print the jobs that failed on their last delivery, oldest first, and why they failed.

    The sequence numbers are those in the dead-letter log. `--json` prints all known failures of each job.

    Example:
      strandline queue dead-letters emails
    """
    with connect(url, api_key) as client:
        dead = dead_letter_log(client, name)
        try:
            page: Page[Any] | None = client.topic(dead, Raw).diff(after, limit=limit)
        except NotFound as error:
            if dead == name or error.detail.get("topic") != dead:
                raise
            # The first dead letter creates the log.
            page = None
    letters = [] if page is None else [dead_letter(record) for record in page.records]
    if as_json:
        print_json({"log": dead, "dead_letters": [_letter_document(letter) for letter in letters]})
        return
    if not letters:
        print_line(f"no dead letters in {dead}")
        return
    columns = ("seq", "failed", "queue", "job", "deliveries", "key", "reason", "data")
    print_table(columns, [_letter_row(letter) for letter in letters], right=("seq", "job", "deliveries"))
    if page is not None and not page.caught_up:
        print_line(f"more dead letters exist; print them with --after {page.next_from_seq}")


def _letter_row(letter: DeadLetter) -> tuple[str, ...]:
    return (
        str(letter.seq),
        show_time(letter.ts),
        letter.queue or "",
        "" if letter.job_seq is None else str(letter.job_seq),
        "" if letter.deliveries is None else str(letter.deliveries),
        letter.tag or "",
        "" if letter.reason is None else _cut(summary_of(letter.reason)),
        _cut(bytes(letter.data).decode()),
    )


def _letter_document(letter: DeadLetter) -> dict[str, Any]:
    document = asdict(letter)
    return {"seq": document.pop("seq"), "ts": document.pop("ts"), "key": document.pop("tag"), **document}


def dead_letter_log(client: Client, name: str) -> str:
    """The dead-letter log of a queue, or the log itself if it is not a queue. Raises CommandFailed."""
    with naming("queue", name):
        state = client.topic(name).state(touch=False)
    dead = name if state.queue is None else state.config.dead_letter
    if dead is None:
        raise CommandFailed(
            f"queue {name!r} has no dead-letter log; set dead_letter and max_deliveries in its configuration",
            Exit.CONFLICT,
        )
    return dead


# --- claiming and returning jobs ------------------------------------------------------------------------------------


def claim_command(
    name: QueueName,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="Maximum number of jobs to claim.")
    ] = 1,
    node: Node = None,
    lease: Annotated[
        str | None,
        typer.Option("--lease", metavar="DURATION", help="Duration of the lease, such as 30s. Default: the queue's."),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Lease jobs and print them, with the reason of their last failure.

    Complete the jobs with `queue ack` or return them with `queue nack` before their leases end. `--json` prints all
    known failures of each job.

    Example:
      strandline queue claim emails --limit 2
    """
    lease_ms = None if lease is None else parse_duration(lease, "--lease")
    worker = node or _this_host()
    with connect(url, api_key) as client:
        queue_state(client, name)
        jobs = client.queue(name, Raw, node=worker).claim(limit, lease_ms=lease_ms)
    if as_json:
        print_json({"queue": name, "node": worker, "jobs": [_job_document(job) for job in jobs]})
        return
    if not jobs:
        print_line("no job is ready")
        return
    rows = [
        (
            str(job.seq),
            show_time(job.deadline),
            str(job.deliveries),
            job.tag or "",
            _cut(job.failures[-1].summary) if job.failures else "",
            _cut(bytes(job.data).decode()),
        )
        for job in jobs
    ]
    print_table(("seq", "lease ends", "delivery", "key", "last failure", "data"), rows, right=("seq", "delivery"))


def _job_document(job: Job[Raw]) -> dict[str, Any]:
    names = ("seq", "lease_id", "deadline", "ts", "deliveries", "priority", "failures", "meta", "data")
    return {"key": job.tag, **{name: getattr(job, name) for name in names}}


def ack_command(
    name: QueueName,
    seqs: Seqs,
    node: Node = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Complete leased jobs: they are done, and the server deletes them.

    Fails with exit code 6 if a job is not leased to the worker; the other jobs are completed.

    Example:
      strandline queue ack emails 1 2
    """
    worker = node or _this_host()
    with connect(url, api_key) as client:
        queue_state(client, name)
        done = client.queue(name, node=worker).ack(*map(_leased, seqs))
    if as_json:
        print_json({"queue": name, "node": worker, "acked": done.acked, "skipped": done.skipped})
    else:
        print_line(f"completed {counted(done.acked, 'job')}")
    _check_skipped(done.skipped, worker)


def nack_command(
    name: QueueName,
    seqs: Seqs,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why the jobs failed; shortened to 4,096 bytes.")
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay",
            metavar="DURATION",
            help="Time until workers can get the jobs again, such as 10m. Default: the queue's retry delay.",
        ),
    ] = None,
    node: Node = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Return leased jobs to the queue. The reason is shown with their next delivery and in dead letters.

    Fails with exit code 6 if a job is not leased to the worker; the other jobs are returned.

    Example:
      strandline queue nack emails 1 --reason 'no such address'
    """
    worker = node or _this_host()
    delay_ms = None if delay is None else parse_duration(delay, "--delay")
    with connect(url, api_key) as client:
        queue_state(client, name)
        done = client.queue(name, node=worker).nack(*map(_leased, seqs), delay_ms=delay_ms, reason=reason)
    if as_json:
        print_json({"queue": name, "node": worker, "nacked": done.nacked, "skipped": done.skipped})
    else:
        print_line(f"returned {counted(done.nacked, 'job')}")
    _check_skipped(done.skipped, worker)


def _this_host() -> str:
    """A name that is the same for the commands that claim and complete a job."""
    return f"cli@{socket.gethostname()}"


def _leased(seq: int) -> Job[None]:
    """A job with any lease: the server does not compare an empty id."""
    return Job(seq=seq, lease_id="", deadline=0, ts=0, deliveries=0, data=None)


def _check_skipped(seqs: list[int], worker: str) -> None:
    if seqs:
        shown = counted(len(seqs), "job")
        raise CommandFailed(
            f"{shown} not leased to worker {worker!r}: seq {', '.join(map(str, seqs))}; if another worker holds a job, "
            "give its name with --node",
            Exit.CONFLICT,
        )


# --- dead letters ---------------------------------------------------------------------------------------------------


def redrive_command(
    name: QueueOrDeadLetterLog,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="QUEUE", help="Move the jobs to this queue. Default: the queue they came from."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of jobs to move. Default: all."),
    ] = None,
    seq: Annotated[
        int | None,
        typer.Option("--seq", metavar="SEQ", min=1, help="Only the dead letter with this sequence number."),
    ] = None,
    record_key: RecordKey = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Move dead letters back to their queues, so that workers try them again.

    `queue dead-letters` prints the sequence numbers for `--seq`. Fails with exit code 3 if none has that number,
    and with exit code 6 if its queue accepts no jobs.

    Example:
      strandline queue redrive emails --limit 100
      strandline queue redrive emails --seq 7
    """
    with connect(url, api_key) as client:
        dead = dead_letter_log(client, name)
        match = None if record_key is None else ["tag", "Eq", record_key]
        try:
            done = client.topic(dead).redrive(to=to, limit=limit or 0, match=match, seq=seq)
        except NotFound as error:
            if dead == name or error.detail.get("topic") != dead:
                raise
            # The first dead letter creates the log.
            done = Redriven(dead, 0, {}, 0)
        if seq is not None and not done.redriven:
            found = client.topic(dead, Raw).diff(seq - 1, limit=1, match=match).records if done.remaining else []
            raise _not_moved(seq, dead, [dead_letter(record) for record in found if record.seq == seq])
    if as_json:
        print_json({"dead_letters": dead, "redriven": done.redriven, "to": done.to, "remaining": done.remaining})
        return
    places = ", ".join(f"{count} to {place}" for place, count in done.to.items())
    print_line(
        f"moved {counted(done.redriven, 'job')}{f' ({places})' if places else ''}; {done.remaining:,} remain in {dead}"
    )


def _not_moved(seq: int, dead: str, found: list[DeadLetter]) -> CommandFailed:
    """Why the dead letter with this seq was not moved. ``found`` has the letter if it is still there."""
    if not found:
        return CommandFailed(f"dead letter {seq} of {dead!r} not found", Exit.NOT_FOUND)
    origin = f"queue {found[0].queue!r}" if found[0].queue else "its queue"
    return CommandFailed(
        f"dead letter {seq} of {dead!r} was not moved: {origin} does not exist or accepts no jobs; "
        "use --to to move it to another queue",
        Exit.CONFLICT,
    )


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


app = typer.Typer(name="queue", no_args_is_help=True, help="Inspect the jobs of a queue, and process them.")
app.command("ls", cls=TableCommand)(list_command)
app.command("enqueue", cls=Command)(enqueue_command)
app.command("ls", cls=TableCommand)(list_command)
app.command("enqueue", cls=Command)(enqueue_command)
app.command("peek", cls=ReadingCommand)(peek_command)
app.command("work", cls=Command)(work_command)
app.command("claim", cls=Command)(claim_command)
app.command("ack", cls=Command)(ack_command)
app.command("nack", cls=Command)(nack_command)
app.command("dead-letters", cls=TableCommand)(dead_letters_command)
app.command("redrive", cls=Command)(redrive_command)

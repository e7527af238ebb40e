"""``strandline queue``: inspect, claim and return jobs, and redrive dead letters; ``work`` is in a sibling module."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import UNSET, Raw
from msgspec.structs import asdict

from strandline.cli.command_class import Command, ReadingCommand, TableCommand
from strandline.cli.connection import complete_queue, connect, queue_state
from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.log_append import parse_json
from strandline.cli.options import ApiKey, AsJson, QueueName, RecordKey, Url
from strandline.cli.output import counted, print_json, print_line, print_table
from strandline.cli.queue_enqueue import enqueue_command, list_command
from strandline.cli.queue_peek import cut, peek_command
from strandline.cli.queue_work import work_command
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_duration, show_time
from strandline.client.errors import NotFound
from strandline.client.failures import summary_of
from strandline.client.queue_calls import DeadLetter, Job, Redriven, dead_letter
from strandline.client.topic_types import Page

if TYPE_CHECKING:
    from strandline.client import Client

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
        "" if letter.reason is None else cut(summary_of(letter.reason)),
        cut(bytes(letter.data).decode()),
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
            cut(job.failures[-1].summary) if job.failures else "",
            cut(bytes(job.data).decode()),
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
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="JSON", help="With --seq: replace the data of the job."),
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
      strandline queue redrive emails --seq 7 --data '{"to":"ann@example.com"}'
    """
    if data is not None and seq is None:
        raise typer.BadParameter("it corrects one dead letter; name it with --seq", param_hint="--data")
    parse_json(data, "--data")
    payload = UNSET if data is None else Raw(data.encode())
    with connect(url, api_key) as client:
        dead = dead_letter_log(client, name)
        match = None if record_key is None else ["tag", "Eq", record_key]
        try:
            done = client.topic(dead).redrive(to=to, limit=limit or 0, match=match, seq=seq, data=payload)
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


app = typer.Typer(name="queue", no_args_is_help=True, help="Inspect the jobs of a queue, and process them.")
app.command("ls", cls=TableCommand)(list_command)
app.command("enqueue", cls=Command)(enqueue_command)
app.command("peek", cls=ReadingCommand)(peek_command)
app.command("work", cls=Command)(work_command)
app.command("claim", cls=Command)(claim_command)
app.command("ack", cls=Command)(ack_command)
app.command("nack", cls=Command)(nack_command)
app.command("dead-letters", cls=TableCommand)(dead_letters_command)
app.command("redrive", cls=Command)(redrive_command)

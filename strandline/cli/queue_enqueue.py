"""``strandline queue ls`` and ``strandline queue enqueue``."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer
from msgspec.structs import asdict

from strandline.cli.connection import connect, queue_state
from strandline.cli.log_append import RecordShape, append, parse_json
from strandline.cli.options import ApiKey, AsJson, NamePrefix, QueueName, Url
from strandline.cli.output import counted, print_json, print_line, print_table
from strandline.cli.records import seq_range
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import now_ms, parse_duration, show_age
from strandline.client.errors import NotFound
from strandline.client.topic_types import TopicState


def list_command(
    prefix: NamePrefix = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of queues to print.")
    ] = 100,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """List the queues of a server with their jobs, and how fast they are processed.

    The throughput and the failure rate are those of the last minute. `lag` is the age of the oldest ready job.

    Example:
      strandline queue ls --prefix shop:
    """
    with connect(url, api_key) as client:
        names = list(islice((row.topic for row in client.topics(prefix) if row.type == "queue"), limit + 1))
        found: list[TopicState] = []
        for name in names[:limit]:
            try:
                found.append(client.topic(name).state(touch=False))
            except NotFound:
                continue  # deleted in the meantime
    queues = [(state.topic, state.queue, state.config.dead_letter) for state in found if state.queue is not None]
    more = len(names) > limit
    if as_json:
        rows = [{"queue": name, **asdict(jobs), "dead_letter": dead} for name, jobs, dead in queues]
        print_json({"queues": rows, "more": more})
        return
    columns = ("queue", "ready", "leased", "delayed", "dead-lettered", "dropped", "lag", "jobs/s", "failed")
    cells = [
        (
            name,
            f"{jobs.ready:,}",
            f"{jobs.in_flight:,}",
            f"{jobs.delayed:,}",
            f"{jobs.dead_lettered:,}",
            f"{jobs.dropped:,}",
            "" if jobs.oldest_ready_ms is None else show_age(jobs.oldest_ready_ms),
            f"{jobs.throughput:.3g}",
            f"{jobs.failure_rate:.1%}",
        )
        for name, jobs, _ in queues
    ]
    print_table(columns, cells, right=columns[1:])
    if more:
        print_line(f"more queues exist; print them with --limit {2 * limit} or --prefix")


def enqueue_command(
    name: QueueName,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DATA]...", help="One JSON document per job. Default: the lines of standard input."),
    ] = None,
    record_key: Annotated[
        str | None, typer.Option("--record-key", "-k", metavar="KEY", help="Key of the jobs.")
    ] = None,
    priority: Annotated[
        int,
        typer.Option(
            "--priority",
            metavar="N",
            min=-1000,
            max=1000,
            help="Priority of the jobs; workers get higher numbers first.",
        ),
    ] = 0,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay", metavar="DURATION", help="Time until workers can get the jobs, such as 10m. Default: 0s."
        ),
    ] = None,
    meta: Annotated[
        str | None, typer.Option("--meta", metavar="JSON", help="Metadata of the jobs: a JSON document.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Enqueue each argument or line as a JSON string, without parsing it.")
    ] = False,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            metavar="TEXT",
            help="Repeating the command with the same key and the same jobs has no effect.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Add jobs to a queue, from arguments or from standard input. The queue must exist.

    Arguments are enqueued atomically, lines of standard input in batches as they arrive.

    Example:
      strandline queue enqueue emails '{"to":"ann"}' --priority 10
      strandline queue enqueue emails --delay 10m < jobs.jsonl
    """
    not_before = 0 if delay is None else now_ms() + parse_duration(delay, "--delay")
    shape = RecordShape(record_key, None, parse_json(meta, "--meta"), text, False, not_before, priority)
    with connect(url, api_key) as client:
        queue_state(client, name)
        outcome = append(client, name, data, shape, idempotency_key, create=False)
    if as_json:
        fields = {"enqueued": outcome.appended, "repeated": outcome.repeated}
        print_json({"queue": name, **fields, "first": outcome.first, "last": outcome.last})
        return
    if outcome.repeated:
        print_line(f"enqueued {counted(outcome.appended, 'job')}; skipped {outcome.repeated:,} enqueued before")
        return
    seqs = "" if outcome.first is None else f", {seq_range(outcome.first, outcome.last)}"
    print_line(f"enqueued {counted(outcome.appended, 'job')}{seqs}")

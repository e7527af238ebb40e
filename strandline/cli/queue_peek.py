"""``strandline queue peek``: the first jobs of a queue, why they failed before, and the counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Raw
from msgspec.structs import asdict

from strandline.cli.connection import connect, queue_state
from strandline.cli.options import ApiKey, AsJson, QueueName, Url
from strandline.cli.output import print_fields, print_json, print_line
from strandline.cli.records import ShownRecord, line_of, of_topic
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import show_age
from strandline.client.calls import segment
from strandline.client.failures import JobFailure

if TYPE_CHECKING:
    from strandline.client import Client

#: Characters of a reason or of data in a table. ``--json`` prints all of it.
SHOWN_CHARACTERS = 100


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

    The line below a job is the reason of its last failure. It is known for the first 100 leased jobs, the first 100
    delayed jobs and the next 20 ready jobs; `--json` prints all known failures. The throughput and the failure rate
    are those of the last minute.

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
            print_line(f"        failed on delivery {last.delivery}: {cut(last.summary)}")
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


def cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"

"""``strandline log create`` and ``strandline log configure``: the configuration of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from strandline.cli.connection import connect
from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.options import ApiKey, AsJson, LogName, NewLogName, Url
from strandline.cli.output import print_json, print_line, say
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_duration
from strandline.client.errors import NotFound
from strandline.client.topic_types import QueueConfigArguments, TopicConfigArguments

if TYPE_CHECKING:
    from strandline.client import Client

Durability = Literal["ephemeral", "memory", "disk", "fsync", "replicated"]
_RECORDS_HELP = "Retention: maximum number of records; 0: no limit."
_BYTES_HELP = "Retention: maximum size in bytes; 0: no limit."
_DELIVERIES_HELP = "Queues only: if delivery N of a job fails, move it to the dead-letter log or drop it; 0: never."
_LAKE_HELP = "Keep a record beyond the retention until the lake has it."

# --- log create -----------------------------------------------------------------------------------------------------

JSON_TYPE = "application/json"


def create_command(
    log: NewLogName,
    type: Annotated[
        Literal["log", "queue"], typer.Option("--type", help="A log to read, or a queue of jobs for workers.")
    ] = "log",
    durability: Annotated[
        Durability,
        typer.Option("--durability", help="How safe an acknowledged record is."),
    ] = "disk",
    max_records: Annotated[
        int,
        typer.Option("--max-records", metavar="N", min=0, help=_RECORDS_HELP),
    ] = 0,
    max_bytes: Annotated[
        int,
        typer.Option("--max-bytes", metavar="BYTES", min=0, help=_BYTES_HELP),
    ] = 0,
    max_age: Annotated[
        str | None,
        typer.Option(
            "--max-age", metavar="DURATION", help="Retention: maximum age of a record, such as 7d. Default: no limit."
        ),
    ] = None,
    reject: Annotated[
        bool, typer.Option("--reject", help="Refuse writes to a full log instead of removing its oldest records.")
    ] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Keep only the last record of each key.")] = False,
    retain_until_in_lake: Annotated[
        bool,
        typer.Option("--retain-until-in-lake", help=_LAKE_HELP),
    ] = False,
    lease: Annotated[
        str | None,
        typer.Option("--lease", metavar="DURATION", help="Queues only: how long a worker holds a job. Default: 30s."),
    ] = None,
    max_deliveries: Annotated[
        int,
        typer.Option(
            "--max-deliveries",
            metavar="N",
            min=0,
            help=_DELIVERIES_HELP,
        ),
    ] = 0,
    dead_letter: Annotated[
        str | None, typer.Option("--dead-letter", metavar="LOG", help="Queues only: name of the dead-letter log.")
    ] = None,
    retry_delay: Annotated[
        str | None,
        typer.Option(
            "--retry-delay",
            metavar="DURATION",
            help="Queues only: delay after the first failure of a job, at most 1d. Default: none.",
        ),
    ] = None,
    retry_backoff: Annotated[
        float | None,
        typer.Option(
            "--retry-backoff",
            metavar="FACTOR",
            min=1,
            max=1000,
            help="Queues only: multiply the delay by this after each further failure. Default: 2.",
        ),
    ] = None,
    retry_max: Annotated[
        str | None,
        typer.Option(
            "--retry-max",
            metavar="DURATION",
            help="Queues only: the longest delay, not less than --retry-delay. Default: 5m.",
        ),
    ] = None,
    retry_jitter: Annotated[
        float | None,
        typer.Option(
            "--retry-jitter",
            metavar="FRACTION",
            min=0,
            max=1,
            help="Queues only: shorten delays at random by up to this fraction. Default: 0.",
        ),
    ] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", metavar="TYPE", help="Media type of the records.")
    ] = JSON_TYPE,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", metavar="FILE", help="JSON file with the schema and the search configuration."),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Create a log or a queue. Fails with exit code 6 if the log already exists.

    Example:
      strandline log create orders --durability fsync --max-age 30d
      strandline log create emails --type queue --max-deliveries 5 --dead-letter emails:dead --retry-delay 1s
    """
    config: TopicConfigArguments = {"type": type, "durability": durability, "compact": compact}
    config["retain_until_in_lake"] = retain_until_in_lake
    config |= {"cap_records": max_records, "cap_bytes": max_bytes, "discard": "reject" if reject else "old"}
    config["ttl_ms"] = 0 if max_age is None else parse_duration(max_age, "--max-age")
    jobs = _queue_arguments(
        lease, max_deliveries or None, dead_letter, retry_delay, retry_backoff, retry_max, retry_jitter
    )
    if jobs and type != "queue":
        raise typer.BadParameter(
            "--lease, --max-deliveries, --dead-letter and --retry-… are for queues; add --type queue"
        )
    config = {**config, **jobs}
    _check_stream(content_type, config, schema)
    registry = None if schema is None else read_registry(schema)
    with connect(url, api_key) as client:
        answer = _create(client, log, config, content_type)
        if registry is not None:
            _set_schema(client, log, registry)
    if as_json:
        print_json(answer)
    else:
        print_line(f"created {type} {log}")


def _check_stream(content_type: str, config: TopicConfigArguments, schema: Path | None) -> None:
    """The other options configure JSON logs only. Raises BadParameter."""
    plain = {"type": "log", "durability": "disk", "compact": False, "cap_records": 0, "cap_bytes": 0, "discard": "old"}
    plain |= {"ttl_ms": 0, "retain_until_in_lake": False}
    if content_type != JSON_TYPE and (config != plain or schema is not None):
        raise typer.BadParameter(
            f"a log of {content_type} accepts no other option: they apply to {JSON_TYPE} only",
            param_hint="--content-type",
        )


def read_registry(path: Path) -> Any:
    """The schema and the search configuration in a file. Raises BadParameter."""
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="--schema") from None
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{path} is not valid JSON: {error}", param_hint="--schema") from None


def _create(client: Client, log: str, config: TopicConfigArguments, content_type: str) -> dict[str, Any]:
    try:
        # Not a HEAD: an error in its answer has no message.
        client.stream(log).details()
    except NotFound:
        pass
    else:
        raise CommandFailed(f"log {log!r} already exists; choose another name or delete the log first", Exit.CONFLICT)
    if content_type != JSON_TYPE:
        info = client.stream(log, content_type=content_type).create()
        return {"log": log, "content_type": info.content_type}
    configured = client.topic(log).configure(**config)
    for warning in configured.warnings:
        say(f"warning: {warning}")
    return {"log": log, "config": configured.config}


def _set_schema(client: Client, log: str, registry: Any) -> None:
    """If the schema is rejected, delete the new log: nothing has been written to it yet."""
    try:
        client.stream(log).set_schema(registry)
    except Exception:
        client.topic(log).delete(if_empty=True)
        raise


# --- log configure --------------------------------------------------------------------------------------------------


def configure_command(
    log: LogName,
    durability: Annotated[
        Durability | None, typer.Option("--durability", help="How safe an acknowledged record is.")
    ] = None,
    max_records: Annotated[int | None, typer.Option("--max-records", metavar="N", min=0, help=_RECORDS_HELP)] = None,
    max_bytes: Annotated[int | None, typer.Option("--max-bytes", metavar="BYTES", min=0, help=_BYTES_HELP)] = None,
    max_age: Annotated[
        str | None,
        typer.Option(
            "--max-age", metavar="DURATION", help="Retention: maximum age of a record, such as 7d; 0s: no limit."
        ),
    ] = None,
    reject: Annotated[
        bool | None,
        typer.Option(
            "--reject/--no-reject",
            help="Refuse writes to a full log, or remove its oldest records.",
            show_default=False,
        ),
    ] = None,
    compact: Annotated[
        bool | None,
        typer.Option(
            "--compact/--no-compact", help="Keep only the last record of each key, or all.", show_default=False
        ),
    ] = None,
    retain_until_in_lake: Annotated[
        bool | None,
        typer.Option("--retain-until-in-lake/--no-retain-until-in-lake", help=_LAKE_HELP, show_default=False),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option("--lease", metavar="DURATION", help="Queues only: how long a worker holds a job."),
    ] = None,
    max_deliveries: Annotated[
        int | None, typer.Option("--max-deliveries", metavar="N", min=0, help=_DELIVERIES_HELP)
    ] = None,
    dead_letter: Annotated[
        str | None,
        typer.Option(
            "--dead-letter", metavar="LOG", help="Queues only: name of the dead-letter log; an empty name: none."
        ),
    ] = None,
    retry_delay: Annotated[
        str | None,
        typer.Option(
            "--retry-delay",
            metavar="DURATION",
            help="Queues only: delay after the first failure of a job, at most 1d.",
        ),
    ] = None,
    retry_backoff: Annotated[
        float | None,
        typer.Option(
            "--retry-backoff",
            metavar="FACTOR",
            min=1,
            max=1000,
            help="Queues only: multiply the delay by this after each further failure.",
        ),
    ] = None,
    retry_max: Annotated[
        str | None,
        typer.Option(
            "--retry-max", metavar="DURATION", help="Queues only: the longest delay, not less than --retry-delay."
        ),
    ] = None,
    retry_jitter: Annotated[
        float | None,
        typer.Option(
            "--retry-jitter",
            metavar="FRACTION",
            min=0,
            max=1,
            help="Queues only: shorten delays at random by up to this fraction.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Change the configuration of a log or a queue. Options that you do not give keep their values.

    A smaller retention removes the records beyond it at once.

    Example:
      strandline log configure orders --max-age 30d --durability fsync
      strandline log configure emails --max-deliveries 8 --retry-delay 5s
    """
    changes: TopicConfigArguments = {}
    if durability is not None:
        changes["durability"] = durability
    if max_records is not None:
        changes["cap_records"] = max_records
    if max_bytes is not None:
        changes["cap_bytes"] = max_bytes
    if max_age is not None:
        changes["ttl_ms"] = parse_duration(max_age, "--max-age")
    if reject is not None:
        changes["discard"] = "reject" if reject else "old"
    if compact is not None:
        changes["compact"] = compact
    if retain_until_in_lake is not None:
        changes["retain_until_in_lake"] = retain_until_in_lake
    jobs = _queue_arguments(lease, max_deliveries, dead_letter, retry_delay, retry_backoff, retry_max, retry_jitter)
    if not changes and not jobs:
        raise typer.BadParameter("nothing to change; give at least one option, such as --max-age 30d")
    with connect(url, api_key) as client, naming("log", log):
        topic = client.topic(log)
        if jobs and topic.state(touch=False).type != "queue":
            raise CommandFailed(
                f"log {log!r} is not a queue: --lease, --max-deliveries, --dead-letter and --retry-… do not apply",
                Exit.CONFLICT,
            )
        changes = {**changes, **jobs}
        configured = topic.update(**changes)
    for warning in configured.warnings:
        say(f"warning: {warning}")
    if as_json:
        print_json({"log": log, "config": configured.config})
    else:
        print_line(f"configured {configured.config.type} {log}")


def _queue_arguments(
    lease: str | None,
    max_deliveries: int | None,
    dead_letter: str | None,
    retry_delay: str | None,
    retry_backoff: float | None,
    retry_max: str | None,
    retry_jitter: float | None,
) -> QueueConfigArguments:
    """The members of a queue's configuration that are given. Raises BadParameter."""
    jobs: QueueConfigArguments = {}
    if max_deliveries is not None:
        jobs["max_deliveries"] = max_deliveries
    if dead_letter is not None:
        jobs["dead_letter"] = dead_letter or None
    if lease is not None:
        jobs["lease_ms"] = parse_duration(lease, "--lease")
    if retry_delay is not None:
        jobs["retry_delay_ms"] = parse_duration(retry_delay, "--retry-delay")
    if retry_backoff is not None:
        jobs["retry_backoff"] = retry_backoff
    if retry_max is not None:
        jobs["retry_max_ms"] = parse_duration(retry_max, "--retry-max")
    if retry_jitter is not None:
        jobs["retry_jitter"] = retry_jitter
    return jobs

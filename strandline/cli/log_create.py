"""``strandline log create``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, connect
from strandline.cli.exits import CommandFailed, Exit
from strandline.cli.output import print_json, print_line
from strandline.cli.times import parse_length
from strandline.client import Client, NotFound

JSON_TYPE = "application/json"


def create_command(
    log: Annotated[str, typer.Argument(metavar="LOG", help="Its name.")],
    type: Annotated[Literal["log", "queue"], typer.Option("--type", help="What it is.")] = "log",
    durability: Annotated[
        Literal["ephemeral", "memory", "disk", "fsync"],
        typer.Option("--durability", help="What an acknowledged record survives."),
    ] = "disk",
    ttl: Annotated[str | None, typer.Option("--ttl", metavar="LENGTH", help="Records live so long: 7d.")] = None,
    cap_records: Annotated[int, typer.Option("--cap-records", metavar="N", min=0, help="Keep so many.")] = 0,
    cap_bytes: Annotated[int, typer.Option("--cap-bytes", metavar="N", min=0, help="Keep so many bytes.")] = 0,
    reject: Annotated[bool, typer.Option("--reject", help="When it is full, refuse writes.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Keep the last record of each key.")] = False,
    lease: Annotated[
        str | None, typer.Option("--lease", metavar="LENGTH", help="Of a queue: a job is somebody's so long.")
    ] = None,
    max_deliveries: Annotated[
        int, typer.Option("--max-deliveries", metavar="N", min=0, help="Of a queue: then a job is given up.")
    ] = 0,
    dead_letter: Annotated[
        str | None, typer.Option("--dead-letter", metavar="LOG", help="Of a queue: where it goes then.")
    ] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", metavar="TYPE", help="Other than JSON, it is a stream.")
    ] = JSON_TYPE,
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE", help="Its schema and search configuration, as JSON.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Make a log. One that is there already is left alone."""
    config: dict[str, Any] = {"type": type, "durability": durability, "compact": compact}
    config |= {"cap_records": cap_records, "cap_bytes": cap_bytes, "discard": "reject" if reject else "old"}
    config["ttl_ms"] = 0 if ttl is None else parse_length(ttl, "--ttl")
    if type == "queue":
        config |= {"max_deliveries": max_deliveries, "dead_letter": dead_letter}
        if lease is not None:
            config["lease_ms"] = parse_length(lease, "--lease")
    elif lease is not None or max_deliveries or dead_letter is not None:
        raise typer.BadParameter("--lease, --max-deliveries and --dead-letter are for a --type queue")
    _check_stream(content_type, config, schema)
    registry = None if schema is None else read_registry(schema)
    with connect(url, key) as client:
        answer = _create(client, log, config, content_type)
        if registry is not None:
            _set_schema(client, log, registry)
    if as_json:
        print_json(answer)
    else:
        print_line(f"created {type} {log}")


def _check_stream(content_type: str, config: dict[str, Any], schema: Path | None) -> None:
    """A stream that is not JSON has neither keys to compact by nor a configuration of topics."""
    plain = {"type": "log", "durability": "disk", "compact": False, "cap_records": 0, "cap_bytes": 0, "discard": "old"}
    if content_type != JSON_TYPE and (config != {**plain, "ttl_ms": 0} or schema is not None):
        raise typer.BadParameter("a log that is not JSON takes no other option", param_hint="--content-type")


def read_registry(path: Path) -> Any:
    """The update of a registry that a file has. Raises BadParameter."""
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--schema") from None
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--schema") from None


def _create(client: Client, log: str, config: dict[str, Any], content_type: str) -> dict[str, Any]:
    try:
        client.stream(log).head()
    except NotFound:
        pass
    else:
        raise CommandFailed(f"there is a log {log!r} already", Exit.CONFLICT)
    if content_type != JSON_TYPE:
        info = client.stream(log, content_type=content_type).create()
        return {"log": log, "content_type": info.content_type}
    return {"log": log, "config": client.topic(log).configure(**config).config}


def _set_schema(client: Client, log: str, registry: Any) -> None:
    """A schema that is refused leaves no log behind: nothing has been written to it yet."""
    try:
        client.stream(log).set_schema(registry)
    except Exception:
        client.topic(log).delete(if_empty=True)
        raise

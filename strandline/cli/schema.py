"""``strandline schema``: the JSON Schema of the records of a log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from strandline.cli.command_class import Command, ReadingCommand
from strandline.cli.connection import connect
from strandline.cli.dry_run import DRY_RUN_RECORDS, NOT_EMPTY, DryRunLimit, DryRunOnly, needs_empty, show_dry_run
from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.options import ApiKey, AsJson, LogName, Url
from strandline.cli.output import counted, print_json, print_line, put, say
from strandline.cli.server_choice import DEFAULT_URL
from strandline.client.calls import segment
from strandline.client.errors import BadRequest

if TYPE_CHECKING:
    from strandline.client import Client

#: Records that a schema is inferred from.
SAMPLE_RECORDS = 1000

app = typer.Typer(name="schema", no_args_is_help=True, help="Show, install and infer the JSON Schema of a log.")


@app.command("get", cls=ReadingCommand)
def get_command(
    log: LogName,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=1, help="Print this version. Default: the current one.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Print the schema and the search configuration of a log, as `schema set` reads them.

    `--json` prints all versions and the lenses between them.

    Example:
      strandline schema get orders > orders.json
      strandline schema get orders --version 1
    """
    with connect(url, api_key) as client, naming("log", log):
        registry = client.stream(log).schema()
    if as_json:
        print_json({"log": log, **{name: value for name, value in registry.items() if name != "apiVersion"}})
        return
    chosen = version or registry["currentVersion"]
    schemas = registry["schemas"]
    if version is not None and str(version) not in schemas:
        known = ", ".join(schemas) or "none"
        raise CommandFailed(f"log {log!r} has no schema of version {version}; known versions: {known}", Exit.NOT_FOUND)
    if not schemas and "search" not in registry:
        raise CommandFailed(
            f"log {log!r} has no schema; propose one with: strandline schema infer {log}", Exit.NOT_FOUND
        )
    document = {"schema": schemas[str(chosen)]} if schemas else {}
    if version is None and "search" in registry:
        document["search"] = registry["search"]
    _print_document(document)


@app.command("set", cls=Command)
def set_command(
    log: LogName,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="JSON file with a schema, or with schema, lens and search; - reads input."),
    ],
    dry_run: DryRunOnly = False,
    limit: DryRunLimit = DRY_RUN_RECORDS,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Install a schema: the first one of an empty log, or the next version with a lens.

    The file is a JSON Schema, or an object with the members schema, lens and search. From then on the server refuses
    records that are not valid. A log that has records and no schema cannot get one: create another log with `log create
    --schema`.

    `--dry-run` shows the difference to the installed configuration, the last records that would be rejected, and what
    searchable fields would find. It fails with exit code 6 if the server would refuse the update.

    Example:
      strandline schema set orders orders.json --dry-run
      strandline schema set orders orders.json
    """
    update = _read(file)
    with connect(url, api_key) as client, naming("log", log):
        if dry_run:
            return show_dry_run(client, log, update, limit, as_json)
        try:
            registry = client.stream(log).set_schema(update)
        except BadRequest as error:
            if error.message != NOT_EMPTY:
                raise
            raise CommandFailed(needs_empty(log), Exit.CONFLICT) from None
    if as_json:
        print_json({"log": log, **{name: value for name, value in registry.items() if name != "apiVersion"}})
    else:
        print_line(f"log {log} has version {registry['currentVersion']} of its schema")


@app.command("infer", cls=ReadingCommand)
def infer_command(
    log: LogName,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, max=SAMPLE_RECORDS, help="Number of records, from the end of the log."
        ),
    ] = SAMPLE_RECORDS,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Propose a schema and a search configuration from the last records of a log.

    All these records are valid for the schema. The proposal is printed as `schema set` and `log create --schema` read
    it; `index infer --apply` makes the log itself searchable.

    Example:
      strandline schema infer orders > orders.json
    """
    from strandline.cli.log_tail import last_records
    from strandline.cli.records import JsonReader, open_reader
    from strandline.schema.inference import infer_schema

    with connect(url, api_key) as client:
        reader: Any = open_reader(client, url, api_key, log)
        if not isinstance(reader, JsonReader):
            raise CommandFailed(f"log {log!r} does not hold JSON, so it cannot have a schema", Exit.CONFLICT)
        documents = [msgspec.json.decode(record.payload) for record in last_records(reader, limit)]
        search = _proposed_search(client, log)
    if not documents:
        raise CommandFailed(f"log {log!r} has no records; append some first", Exit.CONFLICT)
    document = {"schema": infer_schema(documents)} | ({} if search is None else {"search": search})
    if as_json:
        print_json({"log": log, "records": len(documents), **document})
        return
    _print_document(document)
    say(f"inferred from {counted(len(documents), 'record')}")


def _proposed_search(client: Client, log: str) -> Any:
    answer = client.call("GET", f"/console/api/log/{segment(log)}/inference")
    return msgspec.json.decode(answer.body)["search"]


def _print_document(document: dict[str, Any]) -> None:
    put(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _read(file: Path) -> dict[str, Any]:
    """An update of the registry. A JSON Schema alone is one, too."""
    is_input = str(file) == "-"
    source = "standard input" if is_input else str(file)
    try:
        document = msgspec.json.decode(sys.stdin.buffer.read() if is_input else file.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror}", param_hint="FILE") from None
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{source} is not valid JSON: {error}", param_hint="FILE") from None
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{source} is not a schema: expected a JSON object", param_hint="FILE")
    return document if document.keys() & {"schema", "search", "lens"} else {"schema": document}

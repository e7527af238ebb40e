"""A dry run of a schema or of searchable fields: the difference to what is installed, the last records that would be
rejected, and what the fields find. The console shows the same before it installs something."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.output import counted, print_json, print_line, print_table
from strandline.client.calls import segment

if TYPE_CHECKING:
    from strandline.client import Client

#: The number of records that are examined, and its maximum.
DRY_RUN_RECORDS = 1_000
MAX_RECORDS = 10_000
#: The message of a server for a first schema of a log with records, as the protocol of streams publishes it.
NOT_EMPTY = "first schema requires empty stream"

DryRunOnly = Annotated[bool, typer.Option("--dry-run", help="Show what would change and exit.")]
DryRunLimit = Annotated[
    int,
    typer.Option(
        "--limit", "-n", metavar="N", min=1, max=MAX_RECORDS, help="Number of records to examine with --dry-run."
    ),
]


def show_dry_run(client: Client, log: str, update: dict[str, Any], limit: int, as_json: bool) -> None:
    """Raises CommandFailed if the server would refuse the update."""
    path = f"/console/api/log/{segment(log)}/dry-run"
    found = msgspec.json.decode(client.call("POST", path, update, query={"limit": limit}).body)
    if as_json:
        print_json({"log": log, **found})
    else:
        _print(found)
    if found["refused"] is not None:
        why = needs_empty(log) if found["refused"] == NOT_EMPTY else found["refused"]
        raise CommandFailed(f"the server would refuse this: {why}", Exit.CONFLICT)


def needs_empty(log: str) -> str:
    """Why a log with records cannot get a first schema, and what to do."""
    return (
        f"log {log!r} has records and no schema, and a first schema needs an empty log; create another log "
        "with `strandline log create NAME --schema FILE`"
    )


def _print(found: dict[str, Any]) -> None:
    installed, proposed = (_lines(found[name]) for name in ("installed", "proposed"))
    difference = list(unified_diff(installed, proposed, "installed", "proposed", lineterm=""))
    for line in difference or ["no difference to the installed configuration"]:
        print_line(line)
    records = counted(found["records"], "record")
    if found["rejected"] is None:
        print_line(f"examined the last {records}{_cut(found)}")
    else:
        print_line(f"examined the last {records}{_cut(found)}: {found['rejected']:,} would be rejected")
    if found["rejections"]:
        rows = [(each["seq"], each["message"]) for each in found["rejections"]]
        print_table(["seq", "reason"], rows, ["seq"])
    if found["fields"]:
        columns = ["field", "kind", "records", "values", "unfit", "examples"]
        print_table(columns, [_row(each) for each in found["fields"]], ["records", "values", "unfit"])
    print_line("dry run: nothing was installed")


def _cut(found: dict[str, Any]) -> str:
    return "" if found["complete"] else " (stopped at the time limit)"


def _lines(document: Any) -> list[str]:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode().splitlines() if document else []


def _row(field: dict[str, Any]) -> tuple[Any, ...]:
    examples = [*field["examples"], *field["unfit_examples"]]
    shown = ", ".join(msgspec.json.encode(each["value"]).decode() for each in examples)
    return (*(field[name] for name in ("name", "kind", "records", "values", "unfit")), shown)

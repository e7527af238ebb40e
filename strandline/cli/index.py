"""``strandline index``: the search configuration of a log, and how far the log is indexed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from strandline.cli.command_class import Command, ReadingCommand
from strandline.cli.connection import connect
from strandline.cli.dry_run import DRY_RUN_RECORDS, DryRunLimit, DryRunOnly, show_dry_run
from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.options import ApiKey, AsJson, LogName, Url
from strandline.cli.output import counted, open_console, print_json, print_line, print_table
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import show_age
from strandline.client.calls import segment
from strandline.client.search_types import IndexProgress, SearchConfig

if TYPE_CHECKING:
    from rich.progress import Progress

    from strandline.client import Client, Stream

#: The time between two requests for the progress.
POLL_SECONDS = 0.5
#: A log whose index does not advance for this time is not waited for any longer.
STALLED_SECONDS = 60.0

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once; indexing continues on the server.")]

app = typer.Typer(name="index", no_args_is_help=True, help="Make the records of a log searchable.")

# --- index show -----------------------------------------------------------------------------------------------------


@app.command("show", cls=ReadingCommand)
def show_command(
    log: LogName,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all records are indexed.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Show the searchable fields of a log, and how many of its records are indexed.

    Example:
      strandline index show orders
    """
    with connect(url, api_key) as client, naming("log", log):
        stream = client.stream(log)
        config = stream.search_config()
        progress = None if config is None else _waited(stream) if wait else stream.index_progress()
    if as_json:
        print_json({"log": log, "search": config, "progress": progress})
        return
    if config is None:
        print_line(f"log {log} has no search configuration; propose one with: strandline index infer {log}")
        return
    _print_config(config)
    if progress is not None:
        print_line(f"indexed {progress_text(progress)}")


#: In the order in which they are shown.
_FLAGS = ("exact", "prefix", "column", "exists", "sortable", "aggregatable", "positions")


def _print_config(config: SearchConfig) -> None:
    primary = config.get("primaryTimestampField")
    defaults = {one["field"] for one in config.get("defaultFields", [])}
    rows = []
    for name, field in config["fields"].items():
        roles = [role for role, has in (("time", name == primary), ("default", name in defaults)) if has]
        pointers = " ".join(dict.fromkeys(binding["jsonPointer"] for binding in field["bindings"]))
        flags = " ".join(flag for flag in _FLAGS if field.get(flag))
        rows.append((name, field["kind"], pointers, flags, " ".join(roles)))
    print_table(("field", "kind", "pointer", "capabilities", "role"), rows)
    if config.get("rollups"):
        print_line(f"rollups: {', '.join(config['rollups'])}")


# --- index infer ----------------------------------------------------------------------------------------------------


class _Field(msgspec.Struct):
    name: str
    kind: str
    json_pointer: str
    records: int
    example: Any


class _Inference(msgspec.Struct):
    records: int
    fields: list[_Field]
    search: dict[str, Any] | None


@app.command("infer", cls=Command)
def infer_command(
    log: LogName,
    apply: Annotated[bool, typer.Option("--apply", help="Install the proposed configuration.")] = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Propose searchable fields from the last 1,000 records of a log, and install them with --apply.

    The fields of an installed configuration stay as they are. To change the proposal before you install it, save the
    member `search` of the --json output and use `strandline index set`.

    Example:
      strandline index infer orders
      strandline index infer orders --apply
    """
    with connect(url, api_key) as client, naming("log", log):
        found = _inferred(client, log)
        if not as_json:
            _print_proposal(log, found, apply)
        if apply and found.fields:
            _install(client.stream(log), found.search, no_wait)
    if as_json:
        print_json({"log": log, "applied": apply and bool(found.fields), **msgspec.to_builtins(found)})
    elif apply and found.fields:
        print_line(f"installed {counted(len(found.fields), 'new field')}")


def _inferred(client: Client, log: str) -> _Inference:
    answer = client.call("GET", f"/console/api/log/{segment(log)}/inference")
    return msgspec.json.decode(answer.body, type=_Inference)


def _print_proposal(log: str, found: _Inference, apply: bool) -> None:
    if not found.fields and not found.records:
        print_line(f"no fields proposed: log {log} has no records that are JSON objects; append some first")
        return
    if not found.fields:
        where = f"the last {counted(found.records, 'record')}" if found.records else "the records"
        print_line(f"no new fields: {where} of log {log} have no further members that can be searched")
        return
    rows = [
        (field.name, field.kind, field.json_pointer, f"{field.records:,}", msgspec.json.encode(field.example).decode())
        for field in found.fields
    ]
    print_table(("field", "kind", "pointer", "records", "example"), rows, right=("records",))
    if not apply:
        fields = counted(len(found.fields), "field")
        records = counted(found.records, "record")
        print_line(f"{fields} proposed from {records}; install with: strandline index infer {log} --apply")


# --- index set and remove -------------------------------------------------------------------------------------------


@app.command("set", cls=Command)
def set_command(
    log: LogName,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="JSON file with the search configuration; - for standard input."),
    ],
    dry_run: DryRunOnly = False,
    limit: DryRunLimit = DRY_RUN_RECORDS,
    no_wait: NoWait = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Install a search configuration, or replace the one that a log has. The log may have records.

    The command waits until all records are indexed. Ctrl-C ends the wait; indexing continues on the server. `--dry-run`
    shows the difference to the installed configuration, and what its fields find in the last records.

    Example:
      strandline index set orders search.json --dry-run
      strandline index set orders search.json
    """
    config = _read(file)
    with connect(url, api_key) as client, naming("log", log):
        if dry_run:
            return show_dry_run(client, log, {"search": config}, limit, as_json)
        installed = _install(client.stream(log), config, no_wait)
    if as_json:
        print_json({"log": log, "search": installed})
    else:
        print_line(f"log {log} has {counted(len(installed['fields']), 'searchable field')}")


@app.command("remove", cls=Command)
def remove_command(log: LogName, as_json: AsJson = False, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Remove the search configuration of a log. Its records stay.

    Example:
      strandline index remove orders
    """
    with connect(url, api_key) as client, naming("log", log):
        stream = client.stream(log)
        if stream.search_config() is None:
            raise CommandFailed(f"log {log!r} has no search configuration", Exit.CONFLICT)
        stream.set_search_config(None)
    if as_json:
        print_json({"log": log, "search": None})
    else:
        print_line(f"removed the search configuration of log {log}")


def _read(file: Path) -> Any:
    is_input = str(file) == "-"
    source = "standard input" if is_input else str(file)
    try:
        config = msgspec.json.decode(sys.stdin.buffer.read() if is_input else file.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"cannot read {source}: {error.strerror}", param_hint="FILE") from None
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{source} is not valid JSON: {error}", param_hint="FILE") from None
    if not isinstance(config, dict):
        raise typer.BadParameter(f"{source} is not a search configuration: expected a JSON object", param_hint="FILE")
    return config


def _install(stream: Stream[Any], config: Any, no_wait: bool) -> SearchConfig:
    installed = stream.set_search_config(config)
    assert installed is not None
    if not no_wait:
        _waited(stream)
    return installed


# --- progress -------------------------------------------------------------------------------------------------------


def progress_text(progress: IndexProgress) -> str:
    """``5,000 of 9,000 records, 2,500/s, 1s remaining``"""
    parts = [f"{progress.indexed_records:,} of {counted(progress.records, 'record')}"]
    if not progress.complete:
        if progress.records_per_second is not None:
            parts.append(f"{progress.records_per_second:,.0f}/s")
        if progress.remaining_ms is not None:
            parts.append(f"{show_age(progress.remaining_ms)} remaining")
    return ", ".join(parts)


def _waited(stream: Stream[Any]) -> IndexProgress | None:
    """Wait until the log is indexed, with a bar at a terminal. Returns the last progress."""
    with index_bar() as bar:
        task = bar.task_ids[0]

        def show(progress: IndexProgress) -> None:
            text = progress_text(progress)
            bar.update(task, completed=progress.indexed_records, total=max(progress.records, 1), description=text)

        return wait_until_indexed(stream.index_progress, show)


def index_bar() -> Progress:
    console = open_console(stderr=True)
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("indexing"), BarColumn(bar_width=30), TextColumn("{task.description}"))
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    progress.add_task("", total=None)
    return progress


def wait_until_indexed(
    ask: Callable[[], IndexProgress | None],
    show: Callable[[IndexProgress], None],
    *,
    sleep: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> IndexProgress | None:
    """Ask for the progress until it is complete. A log without a progress is complete. Raises CommandFailed if the
    index does not advance for a minute."""
    indexed, since = -1, now()
    while (progress := ask()) is not None:
        show(progress)
        if progress.complete:
            break
        if progress.indexed_records != indexed:
            indexed, since = progress.indexed_records, now()
        elif now() - since >= STALLED_SECONDS:
            raise CommandFailed(
                f"indexing has not advanced for {STALLED_SECONDS:.0f} s: {progress_text(progress)}; look at the log of "
                "the server, and repeat the command to wait again",
                Exit.BUSY,
            )
        sleep(POLL_SECONDS)
    return progress

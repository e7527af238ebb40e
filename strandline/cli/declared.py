"""``strandline pipeline init``, ``tables`` and ``refresh``: projects that declare tables over logs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from strandline.cli.options import ApiKey, AsJson, Data, LakeLocation, SourceUrl
from strandline.cli.output import counted, open_console, put, say
from strandline.cli.spark import EXIT_FAILED, check_directory, errors, log_source
from strandline.client import Client, Refused, StrandlineError
from strandline.lake.location import Lake
from strandline.lake.status import BadStatus, DeclaredStatus, DeclaredTable, PipelineStatus, read_status
from strandline.nearest_name import did_you_mean

#: Timeout of the request for the status.
ANSWER_SECONDS = 30.0
#: The server that a project without --url and --data is made for.
DEFAULT_URL = "http://127.0.0.1:4000"


def init_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the project; created if needed.")],
    data: Data = None,
    url: SourceUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Create a project that declares tables over logs.

    With --url or --data, the example reads the first log, and the logs are also declared for Spark's own command
    `spark-pipelines`. Existing files are not replaced.

    Example:
      strandline pipeline init shop --url http://127.0.0.1:4000
    """
    from strandline.engine.record import is_internal
    from strandline.pipeline.declared.template import project_files

    logs: dict[str, bool] = {}
    if data is not None or url is not None:
        source = log_source(data, url, api_key, "")
        with errors(), source.opened() as history:
            logs = {each.name: each.registry is not None for each in history.logs() if not is_internal(each.name)}
    place = {"path": str(data.absolute())} if data is not None else {"url": url or DEFAULT_URL}
    files = project_files(directory.absolute(), place, logs)
    there = [name for name in files if (directory / name).exists()]
    if there:
        raise typer.BadParameter(f"{directory} has files of a project already: {', '.join(there)}")
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        put(str(path))


def tables_command(
    data: Data = None,
    url: SourceUrl = None,
    api_key: ApiKey = None,
    lake: LakeLocation = None,
    as_json: AsJson = False,
) -> None:
    """Show the declared tables: how each is kept, its state, its lag, what it reads, and its last error.

    Example:
      strandline pipeline tables --data data
      strandline pipeline tables --url http://127.0.0.1:4000 --json
    """
    if sum(one is not None for one in (data, url, lake)) != 1:
        raise typer.BadParameter("specify exactly one of --data, --url and --lake")
    check_directory(data)
    status = _from_server(url, api_key) if url is not None else _from_lake(str(lake if data is None else data / "lake"))
    found = None if status is None else status.declared
    if found is None:
        say("no pipeline has run a project here; start one with `strandline pipeline run --project DIR`")
        raise typer.Exit(EXIT_FAILED)
    if as_json:
        put(msgspec.json.encode(found).decode())
    else:
        _show(found)


class _Answer(msgspec.Struct):
    status: PipelineStatus | None = None


def _from_server(url: str, api_key: str | None) -> PipelineStatus | None:
    try:
        with Client(url, api_key, timeout=ANSWER_SECONDS, patience=0) as client:
            return msgspec.json.decode(client.call("GET", "/pipeline").body, type=_Answer).status
    except Refused as error:
        say(f"{url} answered {error.status}: {error.message}")
    except (StrandlineError, ValueError, msgspec.DecodeError) as error:
        say(f"{error}; check that --url is the URL of a running server")
    raise typer.Exit(EXIT_FAILED)


def _from_lake(place: str) -> PipelineStatus | None:
    try:
        return read_status(Lake.at(place))
    except (BadStatus, OSError) as error:
        say(str(error))
        raise typer.Exit(EXIT_FAILED) from None


def _show(found: DeclaredStatus) -> None:
    console = open_console(highlight=False, soft_wrap=True)
    console.print(f"project [bold]{escape(found.project)}[/] in {escape(found.directory)}")
    if found.error is not None:
        console.print(f"[red]error[/]  {escape(found.error)}")
    table = Table("table", "kind", "mode", "state", "lag", "rows", "updated", "reads", box=None, pad_edge=False)
    for each in found.tables:
        table.add_row(
            escape(each.name),
            each.kind.replace("_", " "),
            each.mode,
            f"[red]{each.state}[/]" if each.error is not None else each.state,
            "" if each.lag is None else f"{each.lag:,}",
            f"{each.rows:,}",
            "" if each.updated is None else datetime.fromtimestamp(each.updated / 1000, UTC).strftime("%H:%M:%SZ"),
            escape(", ".join(each.inputs)),
        )
    console.print(table)
    for each in found.tables:
        for line in _notes(each):
            console.print(f"{escape(each.name)}: {line}")


def _notes(table: DeclaredTable) -> list[str]:
    notes = []
    if table.error is not None:
        notes.append(f"[red]{escape(table.error)}[/] ({counted(table.failures, 'failure')})")
    if table.reason:
        notes.append(escape(table.reason))
    if table.log:
        notes.append(f"rows are written to the log {escape(table.log)}")
    if table.dead_letter_log:
        notes.append(f"rows that fail go to the log {escape(table.dead_letter_log)}")
    if table.erasures:
        notes.append(
            f"{counted(table.erasures, 'erasure')} since it was computed; `refresh --full` applies them to its rows"
        )
    return notes


def refresh_command(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Name of the declared table.")],
    data: Data = None,
    lake: LakeLocation = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Remove the rows of the table and compute them again from what the logs have."),
    ] = False,
) -> None:
    """Compute a declared table again, with the tables that read it as a stream.

    The running pipeline does it within seconds, otherwise the next one does it when it starts. A table that is written
    to a log is written to it again.

    Example:
      strandline pipeline refresh --full revenue --data data
    """
    from strandline.lake.declared import DeclaredFiles

    if (data is None) == (lake is None):
        raise typer.BadParameter("specify either --data or --lake")
    if not full:
        raise typer.BadParameter("views are refreshed on their own; add --full to compute a table again from its logs")
    check_directory(data)
    place = Lake.at(str(lake if data is None else data / "lake"))
    if place.directory is None:
        raise typer.BadParameter("declared tables need a lake in a directory", param_hint="--lake")
    try:
        status = read_status(place)
    except (BadStatus, OSError) as error:
        say(str(error))
        raise typer.Exit(EXIT_FAILED) from None
    known = [] if status is None or status.declared is None else [each.name for each in status.declared.tables]
    if name not in known:
        say(f"there is no declared table {name!r}{did_you_mean(name, known)}")
        raise typer.Exit(EXIT_FAILED)
    DeclaredFiles.of(place.directory).request(name)
    say(f"{name} will be computed again")

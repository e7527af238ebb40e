"""Commands on a data directory: ``strandline verify``, ``dump`` and ``shell``.

Exit codes of ``verify``: 0 sound, or repaired without losses; 1 problems found, or left by ``--repair``; 2 it could not
be checked, for instance because it is in use; 3 repaired, with losses.
"""

from __future__ import annotations

import code
import logging
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from strandline.cli.output import open_console, put, say
from strandline.engine import Batch, Config, Engine, Producer
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import EngineError, NoDataDirectory
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.engine.verify.directory_check import Report, verify
from strandline.engine.verify.dump import SHOWN_ROWS, dump
from strandline.engine.verify.repair import repair


def verify_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory. It must not be in use.")],
    fix: Annotated[
        bool, typer.Option("--repair", help="Keep what can be read, tell what is lost. Damaged files go to damaged/.")
    ] = False,
    cold: Annotated[
        str | None, typer.Option("--cold", metavar="URL", help="The cold tier of the data directory, if it has one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Check every checksum and every promise of a data directory, without changing anything.

    Exit code 0: sound, or repaired without losses; 1: problems found; 2: it could not be checked; 3: repaired, with
    losses.
    """
    # What the engine would warn of is in the report.
    logging.getLogger("strandline").addHandler(logging.NullHandler())
    try:
        if not directory.is_dir():
            raise NoDataDirectory(str(directory))
        store = None if cold is None else ObjectStoreCold(cold)
        report = (repair if fix else verify)(LocalDisk(directory), store)
    except (EngineError, OSError) as error:
        say(str(error))
        raise typer.Exit(2) from None
    if as_json:
        put(msgspec.json.encode(report).decode())
    else:
        show(report, open_console(highlight=False, soft_wrap=True))
    raise typer.Exit(1 if not report.sound else WITH_LOSSES if report.lossy else 0)


#: The exit code of a repair that could not save everything.
WITH_LOSSES = 3


def show(report: Report, console: Console) -> None:
    for title, sentences, style in (
        ("repaired", report.repairs, "yellow"),
        ("kept", report.kept, "yellow"),
        ("note", report.notes, "dim"),
        ("problem", report.problems, "red"),
    ):
        for sentence in sentences:
            console.print(f"[{style}]{title}[/]  {escape(sentence)}")
    if report.losses:
        console.print(_losses(report))
    console.print(
        f"{report.logs} logs, {report.records} records, {decimal(report.bytes)}; read {decimal(report.file_bytes)} in "
        f"{report.segments} segments, {report.checkpoints} checkpoints, {report.journal_files} journal files "
        f"({report.journal_frames} frames)"
    )
    console.print(_verdict(report))


def _verdict(report: Report) -> str:
    count = len(report.problems)
    if count:
        return f"[red]{count} problem{'s' if count > 1 else ''}[/]"
    if report.lossy:
        return "[yellow]repaired, with losses[/]"
    return "[green]repaired[/]" if report.repairs else "[green]sound[/]"


def _losses(report: Report) -> Table:
    table = Table("lost from log", "seqs", "records", "file", "why", box=None, pad_edge=False)
    for lost in report.losses:
        records = "unknown" if lost.records is None else str(lost.records)
        table.add_row(escape(lost.log), f"{lost.first} to {lost.last}", records, escape(lost.path), escape(lost.why))
    return table


# --- dump -----------------------------------------------------------------------------------------------------------


def dump_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A journal, checkpoint, segment or MANIFEST file.")],
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=0, help="Records to show of every frame, and of a segment.")
    ] = SHOWN_ROWS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print what is in a file of a data directory, damage included."""
    console = open_console()
    try:
        for item in dump(file, rows):
            if as_json:
                put(msgspec.json.encode(item).decode())
            elif console.is_terminal:
                console.print(Text(str(item), "red" if item.kind == "damage" else ""), soft_wrap=True)
            else:
                put(str(item))
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"{file}: {error.strerror}")
        raise typer.Exit(2) from None


# --- shell ----------------------------------------------------------------------------------------------------------

HINT = """\
Strandline: {path} is open as `engine`, with {count} logs.

  log = engine.create("orders", Config(durability="fsync")).wait()
  log.append(Batch.of(b'{{"id": 1}}', key="customer-7")).wait()
  list(log.read(after=0, limit=10))
  engine.names()

Leave with exit() or Ctrl-D; the directory is closed in good order."""


def shell_command(
    directory: Annotated[Path, typer.Argument(help="The data directory; made when it does not exist.")],
) -> None:
    """Open a data directory at a Python prompt."""
    with Engine.open(directory) as engine:
        names = {"engine": engine, "Batch": Batch, "Config": Config, "Producer": Producer}
        code.interact(banner=HINT.format(path=directory, count=len(engine)), local=names, exitmsg="")

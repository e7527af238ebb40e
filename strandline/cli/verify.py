"""Commands on a data directory: ``strandline verify`` and ``dump``.

Exit codes of ``verify``: 0 no problems, or repaired without losses; 1 problems found or left by ``--repair``; 2 the
check could not run, for instance because a server uses the directory; 3 repaired with losses.
"""

from __future__ import annotations

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

from strandline.cli.options import AsJson, AsJsonLines, Cold
from strandline.cli.output import counted, open_console, put, say
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import EngineError, NoDataDirectory
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.engine.verify.directory_check import Report, verify
from strandline.engine.verify.dump import SHOWN_ROWS, dump
from strandline.engine.verify.repair import repair
from strandline.query.index_files.check import check_index_files


def verify_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Data directory. No server may be running on it.")],
    fix: Annotated[
        bool,
        typer.Option(
            "--repair", help="Keep all readable records, list the lost ones, and move damaged files to DIR/damaged."
        ),
    ] = False,
    cold: Cold = "",
    as_json: AsJson = False,
) -> None:
    """Check the files and logs of a data directory. Without --repair, nothing is changed.

    Exit codes: 0 no problems, or repaired without losses; 1 problems; 2 cannot check; 3 repaired with losses.

    Example:
      strandline verify data
      strandline verify data --repair
    """
    # The report has everything that the engine would log.
    logging.getLogger("strandline").addHandler(logging.NullHandler())
    try:
        if not directory.is_dir():
            raise NoDataDirectory(str(directory))
        store = ObjectStoreCold(cold) if cold else None
        disk = LocalDisk(directory)
        report = (repair if fix else verify)(disk, store)
        check_index_files(disk, report, fix=fix)
    except (EngineError, OSError) as error:
        say(str(error))
        raise typer.Exit(2) from None
    if as_json:
        put(msgspec.json.encode(report).decode())
    else:
        show(report, open_console(highlight=False, soft_wrap=True))
    raise typer.Exit(1 if not report.sound else WITH_LOSSES if report.lossy else 0)


#: The exit code of a repair that lost records or the state of a log.
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
        f"{counted(report.logs, 'log')}, {counted(report.records, 'record')}, {decimal(report.bytes)}; checked "
        f"{decimal(report.file_bytes)} in {counted(report.segments, 'segment')}, "
        f"{counted(report.checkpoints, 'checkpoint')}, {counted(report.journal_files, 'journal file')} "
        f"({counted(report.journal_frames, 'frame')}) and {counted(report.index_files, 'index file')}"
    )
    console.print(_verdict(report))


def _verdict(report: Report) -> str:
    if report.problems:
        return f"[red]{counted(len(report.problems), 'problem')}[/]"
    if report.lossy:
        return f"[yellow]repaired, but {_lost(report)} lost[/]"
    return "[green]repaired without losses[/]" if report.repairs else "[green]no problems found[/]"


def _lost(report: Report) -> str:
    """What a repair lost: ``2 records of 1 log were``."""
    if not report.losses:
        return "the state of a log, such as its configuration, was"
    logs = counted(len({loss.log for loss in report.losses}), "log")
    if any(loss.records is None for loss in report.losses):
        seqs = sum(loss.last - loss.first + 1 for loss in report.losses)
        return f"up to {counted(seqs, 'record')} of {logs} were"
    records = sum(loss.records or 0 for loss in report.losses)
    return f"{counted(records, 'record')} of {logs} {'was' if records == 1 else 'were'}"


def _losses(report: Report) -> Table:
    table = Table("lost from log", "seq", "records", "file", "reason", box=None, pad_edge=False)
    for lost in report.losses:
        records = "unknown" if lost.records is None else str(lost.records)
        table.add_row(escape(lost.log), f"{lost.first} to {lost.last}", records, escape(lost.path), escape(lost.why))
    return table


# --- dump -----------------------------------------------------------------------------------------------------------


def dump_command(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A journal, checkpoint, segment or MANIFEST file of a data directory."),
    ],
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=0, help="Maximum number of records per frame and per segment.")
    ] = SHOWN_ROWS,
    as_json: AsJsonLines = False,
) -> None:
    """Print the content of a file of a data directory, including damage.

    Example:
      strandline dump data/journal/00000001.journal --rows 3
    """
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
        say(f"cannot read {file}: {error.strerror}")
        raise typer.Exit(2) from None

"""``strandline backup`` and ``strandline restore``.

Exit codes: 0 it is done, 1 it could not be done or ``--verify`` found damage, 2 the command itself makes no sense. What
is for people goes to standard error while it happens; the outcome goes to standard output, with ``--json`` as one JSON
object.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from strandline.cli.output import open_console, put, say
from strandline.cli.times import parse_time
from strandline.engine import backup as backups
from strandline.engine.backup.pool import format_time
from strandline.engine.backup.restoration import Progress as Watch
from strandline.engine.errors import BadConfig, BadRequest, EngineError

_Json = Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")]


def backup_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory, in use or not.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A directory, or s3://bucket/prefix.")],
    cold: Annotated[
        str | None, typer.Option("--cold", metavar="URL", help="The cold tier of the data directory, if it has one.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="Keep the N newest backups, remove the others.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Back up a data directory, also while a server runs on it. Copies only what TARGET does not have yet.

    S3 is reached with the usual AWS_* environment variables.
    """
    with _errors(), _watch("Backing up", not as_json) as watch:
        report = backups.backup(directory, target, cold=cold, keep=keep, progress=watch)
    for line in report.damage:
        say(line)
    for name in report.replaced:
        say(f"{name} was damaged or missing in {target} and was copied again")
    if as_json:
        _print_json(report)
        return
    put(f"{report.name}  up to {format_time(report.last_ts)}")
    put(
        f"{report.files} files, {decimal(report.bytes)}; "
        f"copied {report.copied_files} files, {decimal(report.copied_bytes)}"
    )
    if report.pruned:
        put(f"removed {len(report.pruned)} old backups and {report.pruned_files} files")


def restore_command(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where the backups are.")],
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The data directory to make: empty or absent.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Restore what was there at this time: ISO 8601 (UTC unless it says otherwise) or milliseconds.",
        ),
    ] = None,
    history: Annotated[
        str | None, typer.Option("--history", metavar="ID", help="Of several data directories in TARGET, this one.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List the backups and what can be restored.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file of every backup and compare it with its checksum.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Restore the newest backup, or the state at a moment that the backups cover, into a new data directory."""
    if list_only:
        with _errors():
            found = backups.list_backups(target)
        _print_list(found, as_json)
        return
    if verify:
        with _errors(), _watch("Verifying", not as_json) as watch:
            checked = backups.verify_backups(target, progress=watch)
        _print_verified(checked, as_json)
        raise typer.Exit(0 if checked.sound else 1)
    if directory is None:
        raise typer.BadParameter("say into which directory, or use --list or --verify", param_hint="DIR")
    time = None if at is None else parse_time(at)
    with _errors(), _watch("Restoring", not as_json) as watch:
        report = backups.restore(target, directory, at=time, history=history, progress=watch)
    if as_json:
        _print_json(report)
        return
    put(f"{report.path}  as of {format_time(report.last_ts if report.at is None else report.at)}")
    put(
        f"from backup {report.backup}: {report.segments} segments, {report.journal_files} journal files, "
        f"{decimal(report.bytes)}; last change {format_time(report.last_ts)}"
    )


def _print_list(found: backups.BackupList, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": one.name,
                "time": one.time,
                "history": one.history,
                "until": one.until,
                "files": len(one.files),
                "bytes": one.size,
            }
            for one in found.backups
        ]
        _print_json({"backups": rows, "intervals": found.intervals})
        return
    put(f"{'backup':<20}  {'files':>6}  {'size':>9}  history")
    for one in found.backups:
        put(f"{one.name:<20}  {len(one.files):>6}  {decimal(one.size):>9}  {one.history}")
    put("\nany moment can be restored")
    for interval in found.intervals:
        put(f"from {format_time(interval.start)} to {format_time(interval.end)}  {interval.history}")


def _print_verified(report: backups.VerifyReport, as_json: bool) -> None:
    if as_json:
        _print_json(report)
        return
    for damaged in report.damaged:
        needed = f"; needed by {', '.join(damaged.backups)}" if damaged.backups else ""
        put(f"damaged  {damaged.file}: {damaged.why}{needed}")
    put(f"{report.backups} backups, {report.files} files, {decimal(report.bytes)}")
    count = len(report.damaged)
    put("sound" if report.sound else f"{count} damaged file{'s' if count > 1 else ''}")


def _print_json(value: object) -> None:
    put(msgspec.json.encode(value).decode())


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (BadRequest, BadConfig) as error:
        say(str(error))
        raise typer.Exit(2) from None
    except (EngineError, OSError) as error:
        say(str(error))
        raise typer.Exit(1) from None


@contextmanager
def _watch(title: str, for_people: bool) -> Iterator[Watch | None]:
    console = open_console(stderr=True)
    if not for_people or not console.is_terminal:
        yield None
        return
    with Progress(
        TextColumn(title),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(title, total=None)

        def watch(what: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield watch

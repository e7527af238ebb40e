"""``strandline backup`` and ``strandline restore``.

Exit codes: 0 done, 1 failed or ``--verify`` found damage, 2 invalid arguments. Progress goes to standard error, the
report to standard output.
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

from strandline.cli.options import AsJson, Cold
from strandline.cli.output import counted, open_console, put, say
from strandline.cli.times import parse_time
from strandline.engine import backup as backups
from strandline.engine.backup.pool import format_time
from strandline.engine.backup.restoration import Progress as Watch
from strandline.engine.errors import BadConfig, BadRequest, EngineError


def backup_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Data directory. A server may be running on it.")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Location of the backups: a directory or s3://bucket/prefix.")
    ],
    cold: Cold = "",
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=1, help="Remove all but the N newest backups. Default: keep all."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Back up a data directory, even while a server is running on it.

    Only files that TARGET does not have yet are copied. If TARGET is a replica, the backup uses its files.
    For S3, set the usual AWS_* environment variables.

    Example:
      strandline backup data s3://backups/strandline --keep 30
    """
    with _errors(), _watch("Backing up", not as_json) as watch:
        report = backups.backup(directory, target, cold=cold or None, keep=keep, progress=watch)
    for line in report.damage:
        say(line)
    for name in report.replaced:
        say(f"warning: {name} was damaged or missing in {target} and was copied again")
    if as_json:
        _print_json(report)
        return
    put(f"created backup {report.name} with all changes up to {format_time(report.last_ts)}")
    put(
        f"{counted(report.files, 'file')}, {decimal(report.bytes)}; "
        f"copied {counted(report.copied_files, 'file')}, {decimal(report.copied_bytes)}"
    )
    if report.shared_files:
        put(f"shared {counted(report.shared_files, 'file')}, {decimal(report.shared_bytes)} with the replica")
    if report.pruned:
        put(f"removed {counted(len(report.pruned), 'old backup')} and {counted(report.pruned_files, 'file')}")


def restore_command(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Location of the backups: a directory or s3://bucket/prefix.")
    ],
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="New data directory. It must be empty or not exist.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Restore the state at this time: ISO 8601 (default UTC) or milliseconds since 1970. Default: newest.",
        ),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option("--history", metavar="ID", help="Data directory to restore, if TARGET has several; see --list."),
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="List the backups and the times that can be restored, and exit.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every file of every backup against its checksum, and exit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a new data directory: the newest one, or the state at a given time.

    Exit codes: 0 done; 1 failed, or --verify found damage; 2 invalid arguments.

    Example:
      strandline restore s3://backups/strandline restored --at 2026-11-15T10:00:00Z
      strandline restore s3://backups/strandline --list
    """
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
        raise typer.BadParameter("missing; specify the new data directory, or use --list or --verify", param_hint="DIR")
    time = None if at is None else parse_time(at)
    with _errors(), _watch("Restoring", not as_json) as watch:
        report = backups.restore(target, directory, at=time, history=history, progress=watch)
    if as_json:
        _print_json(report)
        return
    put(f"restored {report.path} as of {format_time(report.last_ts if report.at is None else report.at)}")
    put(
        f"from backup {report.backup}: {counted(report.segments, 'segment')}, "
        f"{counted(report.journal_files, 'journal file')}, "
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
    put("\ntimes that can be restored:")
    for interval in found.intervals:
        put(f"{format_time(interval.start)} to {format_time(interval.end)}  {interval.history}")


def _print_verified(report: backups.VerifyReport, as_json: bool) -> None:
    if as_json:
        _print_json(report)
        return
    for damaged in report.damaged:
        needed = f"; needed by {', '.join(damaged.backups)}" if damaged.backups else ""
        put(f"damaged  {damaged.file}: {damaged.why}{needed}")
    put(f"{counted(report.backups, 'backup')}, {counted(report.files, 'file')}, {decimal(report.bytes)}")
    put("no damage found" if report.sound else counted(len(report.damaged), "damaged file"))


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

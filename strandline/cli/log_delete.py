"""``strandline log delete``: what would go is shown first."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from strandline.cli.completion import complete_log
from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, connect
from strandline.cli.exits import CommandFailed, Exit
from strandline.cli.output import counted, open_console, print_json, print_line
from strandline.cli.readers import Reader, Wanted, open_reader, pages
from strandline.cli.records import Shown, line_of
from strandline.client import Client, Conflict

#: Records that are shown before the question.
SHOWN_RECORDS = 5


class Going(msgspec.Struct):
    """What would go: how many records, how large their payloads, from which seq to which, and the first of them."""

    records: int = 0
    bytes: int | None = 0
    first: int | None = None
    last: int | None = None
    examples: list[Shown] = []


def delete_command(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The log.", autocompletion=complete_log)],
    record_key: Annotated[
        str | None, typer.Option("--record-key", "-k", metavar="TEXT", help="Records with this key.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--key-prefix", metavar="TEXT", help="Records whose keys begin so.")
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="SEQ", min=1, help="Records before this seq.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="The log with all its records.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Delete records for good: by key, by the beginning of keys, before a seq, or the log as a whole.

    What would go is shown, then it is asked for. --before can be given together with a key or a beginning.
    """
    if everything == (record_key is not None or prefix is not None or before is not None):
        raise typer.BadParameter("say what is to go: --all, or --record-key, --key-prefix and --before")
    if record_key is not None and prefix is not None:
        raise typer.BadParameter("give either --record-key or --key-prefix")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise typer.BadParameter("there is nobody to ask: say --yes, or --dry-run to see what would go")
    wanted = Wanted(0, record_key, prefix)
    with connect(url, key) as client:
        reader = open_reader(client, url, key, log)
        going = look_at_all(reader) if everything else look(reader, wanted, before)
        if not as_json:
            _show(going, log, everything)
        if dry_run:
            if as_json:
                print_json({"log": log, "would_delete": going})
            return
        if not yes and not typer.confirm("Delete for good?", err=True):
            raise CommandFailed("nothing was deleted", Exit.FAILED)
        deleted = _delete_log(client, log, going) if everything else _delete(client, log, wanted, before)
    if as_json:
        print_json({"log": log, "deleted": deleted, "log_deleted": everything})
    else:
        print_line(f"deleted {counted(deleted, 'record')}" + (f" and the log {log}" if everything else ""))


def look_at_all(reader: Reader) -> Going:
    records, size = reader.size()
    part = reader.page(Wanted(), SHOWN_RECORDS)
    return Going(records, size, part.earliest if records else None, part.head if records else None, part.records)


def look(reader: Reader, wanted: Wanted, before: int | None) -> Going:
    """All of it is read: nobody else can say how much it is."""
    going = Going()
    last = reader.head() if before is None else min(before - 1, reader.head())
    with _watching(last) as watch:
        for part in pages(reader, wanted):
            for record in part.records:
                if record.seq > last:
                    break
                _count(going, record)
            watch.update(watch.task_ids[0], completed=min(part.after, last))
            if part.after >= last:
                break
    return going


def _count(going: Going, record: Shown) -> None:
    going.records += 1
    going.bytes = (going.bytes or 0) + len(record.payload.encode())
    going.first = record.seq if going.first is None else going.first
    going.last = record.seq
    if len(going.examples) < SHOWN_RECORDS:
        going.examples.append(record)


def _watching(total: int) -> Progress:
    console = open_console(stderr=True)
    columns = (TextColumn("looking"), BarColumn(bar_width=30), MofNCompleteColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    progress.add_task("looking", total=max(total, 1))
    return progress


def _show(going: Going, log: str, everything: bool) -> None:
    for record in going.examples:
        print_line(line_of(record))
    if going.records > len(going.examples):
        print_line(f"     …  and {going.records - len(going.examples):,} more")
    seqs = "" if going.first is None else f", seqs {going.first} to {going.last}"
    size = "" if going.bytes is None else f", {decimal(going.bytes)}"
    print_line(f"{counted(going.records, 'record')}{size}{seqs}" + (f", and the log {log}" if everything else ""))


def _delete(client: Client, log: str, wanted: Wanted, before: int | None) -> int:
    return client.topic(log).delete_records(before_seq=before, match=wanted.match).deleted


def _delete_log(client: Client, log: str, going: Going) -> int:
    topic: Any = client.topic(log)
    try:
        topic.delete()
    except Conflict as error:
        if error.code != "not_json":
            raise
        client.stream(log).delete()
    return going.records

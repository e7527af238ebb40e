"""``strandline log``: list, show and delete logs; the other commands are in sibling modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from heapq import nlargest, nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.filesize import decimal

from strandline.cli.command_class import Command, ReadingCommand, TableCommand
from strandline.cli.connection import connect
from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.log_append import append_command
from strandline.cli.log_configure import configure_command, create_command
from strandline.cli.log_find import find_command
from strandline.cli.log_list import LogListRow, every_log
from strandline.cli.log_read import check_key_filters, diff_command
from strandline.cli.log_tail import tail_command
from strandline.cli.options import ApiKey, AsJson, KeyPrefix, LogName, NamePrefix, RecordKey, Url
from strandline.cli.output import counted, open_console, print_fields, print_json, print_line, print_table
from strandline.cli.records import LogReader, RecordFilter, ShownRecord, line_of, open_reader, pages, seq_range
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import show_duration, show_time
from strandline.client.calls import segment
from strandline.client.errors import Conflict
from strandline.client.topic_types import (
    RouterState,
    TopicConfig,
    TopicState,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from strandline.client import Client

# --- log ls ---------------------------------------------------------------------------------------------------------

_SORTS: dict[str, Callable[[LogListRow], Any]] = {
    "name": lambda row: row.log,
    "records": lambda row: row.records,
    "bytes": lambda row: row.bytes or 0,
    "head": lambda row: row.head,
    "last-write": lambda row: row.last_write or 0,
}


def list_command(
    search: Annotated[str, typer.Argument(metavar="[TEXT]", help="Only logs whose name contains this text.")] = "",
    prefix: NamePrefix = "",
    sort: Annotated[
        Literal["name", "records", "bytes", "head", "last-write"],
        typer.Option("--sort", help="Sort by this column: names ascending, all others descending."),
    ] = "name",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="Reverse the sort order.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of logs per page.")
    ] = 50,
    page: Annotated[int, typer.Option("--page", metavar="N", min=1, help="Number of the page to print.")] = 1,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """List the logs of a server: topics, queues, streams, and the logs of collections and tables.

    Example:
      strandline log ls --prefix shop/ --sort bytes
    """
    with connect(url, api_key) as client:
        rows = (row for row in every_log(client, prefix) if search in row.log)
        found, more = _page(rows, sort, reverse, limit, page)
    if as_json:
        print_json({"logs": found, "page": page, "more": more})
        return
    columns = ("log", "type", "records", "size", "head", "last write", "content type")
    cells = [
        (row.log, row.type, f"{row.records:,}", "" if row.bytes is None else decimal(row.bytes), f"{row.head:,}",
         show_time(row.last_write), row.content_type)
        for row in found
    ]  # fmt: skip
    raw = [
        (row.log, row.type, row.records, row.bytes, row.head, show_time(row.last_write), row.content_type)
        for row in found
    ]
    print_table(columns, cells, right=("records", "size", "head"), raw=raw)
    if more:
        print_line(f"more logs exist; print the next page with --page {page + 1}")


def _page(rows: Iterator[LogListRow], sort: str, reverse: bool, limit: int, page: int) -> tuple[list[LogListRow], bool]:
    """The page, and whether there is another. Sorted by name, only the rows up to the end of the page are read."""
    start, end = (page - 1) * limit, page * limit
    if sort == "name" and not reverse:
        found = list(islice(rows, start, end + 1))
    else:
        choose = nlargest if (sort != "name") != reverse else nsmallest
        found = choose(end + 1, rows, key=_SORTS[sort])[start:]
    return found[:limit], len(found) > limit


# --- log show -------------------------------------------------------------------------------------------------------


class LogDetails(msgspec.Struct, kw_only=True):
    """``state`` is None for a log that is not JSON, because the topics protocol does not show it."""

    log: str
    state: TopicState | None
    stream: dict[str, Any]
    profile: dict[str, Any]
    schema: dict[str, Any]
    info: dict[str, Any]
    routers: list[RouterState]


def show_command(
    log: LogName,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Show the size, configuration, consumers, routers and schema of a log.

    Example:
      strandline log show orders
    """
    with connect(url, api_key) as client:
        answer = ask_about(client, log)
    if as_json:
        print_json(answer)
        return
    print_fields(_fields(answer))
    if answer.state is not None and answer.state.consumers:
        print_line("")
        rows = [
            (name, f"{each.seq:,}", f"{each.lag:,}", show_time(each.committed_ts))
            for name, each in answer.state.consumers.items()
        ]
        print_table(("consumer", "seq", "lag", "committed"), rows, right=("seq", "lag"))
    if answer.routers:
        print_line("")
        print_table(("router", "from", "to"), [(one.router, one.source, one.dest) for one in answer.routers])


def ask_about(client: Client, log: str) -> LogDetails:
    """Raises CommandFailed if the log does not exist."""
    with naming("log", log):
        details = client.stream(log).details()
    try:
        state = client.topic(log).state(touch=False)
    except Conflict as error:
        if error.code != "not_json":
            raise
        state = None
    info = msgspec.json.decode(client.call("GET", f"/arrow/logs/{segment(log)}").body)
    routers = {one.router: one for end in ("source", "dest") for one in client.routers(**{end: log})}
    return LogDetails(
        log=log,
        state=state,
        stream=details["stream"],
        profile=details["profile"]["profile"],
        schema=details["schema"],
        info={name: info[name] for name in ("epoch", "base", "ephemeral", "gaps", "floor", "directory")},
        routers=list(routers.values()),
    )


def _fields(answer: LogDetails) -> dict[str, Any]:
    stream, info, state = answer.stream, answer.info, answer.state
    fields: dict[str, Any] = {
        "log": answer.log,
        "type": "log" if state is None else state.type,
        "content type": stream["content_type"],
        "records": None if state is None else f"{state.count:,}",
        "size": decimal(int(stream["total_size_bytes"]) if state is None else state.bytes),
        "seq": None if state is None or not state.count else f"{state.earliest_seq:,} to {state.head_seq:,}",
        "head": f"{int(stream['next_offset']):,}" if state is None else None,
        "created": stream["created_at"],
        "last write": stream["last_append_at"],
        "expires": stream["expires_at"],
        "closed": "yes" if stream["closed"] else None,
        "forked from": None
        if info["base"] is None
        else f"epoch {info['base']['epoch']} up to seq {info['base']['through']}",
        "lost seq": ", ".join(f"{first} to {last}" for first, last in info["gaps"]),
        "profile": answer.profile["kind"] if answer.profile["kind"] != "generic" else None,
        "schema version": answer.schema.get("currentVersion") or None,
        "search fields": ", ".join(answer.schema.get("search", {}).get("fields", {})),
        "rollups": ", ".join(answer.schema.get("search", {}).get("rollups", {})),
        "segments": stream["segment_count"] or None,
    }
    if state is not None:
        fields |= _configured(state.config)
        if state.queue is not None:
            fields["jobs"] = (
                f"{state.queue.ready:,} ready, {state.queue.in_flight:,} leased, {state.queue.delayed:,} delayed, "
                f"{state.queue.dead_lettered:,} dead-lettered, {state.queue.dropped:,} dropped"
            )
    return fields


#: The words of the command line for fields of a topic's configuration.
_CONFIG_WORDS = {
    "ttl_ms": "max age",
    "cap_records": "max records",
    "cap_bytes": "max bytes",
    "discard": "when full",
    "dead_letter": "dead-letter log",
}
_CONFIG_DURATIONS = (
    "ttl_ms",
    "idempotency_window_ms",
    "lease_ms",
    "claim_jitter_ms",
    "retry_delay_ms",
    "retry_max_ms",
)


def _configured(config: TopicConfig) -> dict[str, Any]:
    """The durability, and every field that does not have its default."""
    fields: dict[str, Any] = {"durability": config.durability}
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        if field.name not in ("type", "durability", "search") and value != field.default:
            name = _CONFIG_WORDS.get(field.name) or field.name.removesuffix("_ms").replace("_", " ")
            fields[name] = show_duration(value) if field.name in _CONFIG_DURATIONS else value
    return fields


# --- log delete -----------------------------------------------------------------------------------------------------

#: Records that are shown before the confirmation.
SHOWN_RECORDS = 5


class Deletion(msgspec.Struct):
    """What a deletion removes: the number of records, the size of their payloads, the seq range and examples."""

    records: int = 0
    bytes: int | None = 0
    first: int | None = None
    last: int | None = None
    examples: list[ShownRecord] = []


def delete_command(
    log: LogName,
    record_key: RecordKey = None,
    prefix: KeyPrefix = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="SEQ", min=1, help="Only records before this sequence number.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete the log and all its records.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted and exit.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Delete records permanently, or a whole log with --all.

    The command shows what it would delete and asks for confirmation. --before can be combined with --record-key or
    --key-prefix; then only records that match both are deleted.

    Example:
      strandline log delete orders --record-key customer-7 --dry-run
      strandline log delete orders --all --yes
    """
    if everything == (record_key is not None or prefix is not None or before is not None):
        raise typer.BadParameter("specify what to delete: either --all, or --record-key, --key-prefix or --before")
    check_key_filters(record_key, prefix)
    if not (yes or dry_run or sys.stdin.isatty()):
        raise typer.BadParameter(
            "cannot ask for confirmation, because standard input is not a terminal; add --yes to delete, or --dry-run "
            "to see what would be deleted"
        )
    wanted = RecordFilter(0, record_key, prefix)
    with connect(url, api_key) as client:
        reader = open_reader(client, url, api_key, log)
        deletion = measure_all(reader) if everything else measure(reader, wanted, before)
        if not as_json:
            _show(deletion, log, everything)
        if dry_run:
            if as_json:
                print_json({"log": log, "would_delete": deletion})
            return
        if not yes and not typer.confirm("Delete permanently?", err=True):
            raise CommandFailed("cancelled; nothing was deleted", Exit.FAILED)
        deleted = _delete_log(client, log, deletion) if everything else _delete(client, log, wanted, before)
    if as_json:
        print_json({"log": log, "deleted": deleted, "log_deleted": everything})
    else:
        print_line(f"deleted {counted(deleted, 'record')}" + (f" and log {log}" if everything else ""))


def measure_all(reader: LogReader) -> Deletion:
    records, size = reader.size()
    part = reader.page(RecordFilter(), SHOWN_RECORDS)
    return Deletion(records, size, part.earliest if records else None, part.head if records else None, part.records)


def measure(reader: LogReader, wanted: RecordFilter, before: int | None) -> Deletion:
    """Reads all matching records, because the server does not count them beforehand."""
    deletion = Deletion()
    last = reader.head() if before is None else min(before - 1, reader.head())
    with _watching(last) as watch:
        for part in pages(reader, wanted):
            for record in part.records:
                if record.seq > last:
                    break
                _count(deletion, record)
            watch.update(watch.task_ids[0], completed=min(part.after, last))
            if part.after >= last:
                break
    return deletion


def _count(deletion: Deletion, record: ShownRecord) -> None:
    deletion.records += 1
    deletion.bytes = (deletion.bytes or 0) + len(record.payload.encode())
    deletion.first = record.seq if deletion.first is None else deletion.first
    deletion.last = record.seq
    if len(deletion.examples) < SHOWN_RECORDS:
        deletion.examples.append(record)


def _watching(total: int) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = open_console(stderr=True)
    columns = (TextColumn("counting records"), BarColumn(bar_width=30), MofNCompleteColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    progress.add_task("counting records", total=max(total, 1))
    return progress


def _show(deletion: Deletion, log: str, everything: bool) -> None:
    for record in deletion.examples:
        print_line(line_of(record))
    if deletion.records > len(deletion.examples):
        print_line(f"     …  and {deletion.records - len(deletion.examples):,} more")
    seqs = "" if deletion.first is None else f", {seq_range(deletion.first, deletion.last)}"
    size = "" if deletion.bytes is None else f", {decimal(deletion.bytes)}"
    print_line(f"{counted(deletion.records, 'record')}{size}{seqs}" + (f", and log {log}" if everything else ""))


def _delete(client: Client, log: str, wanted: RecordFilter, before: int | None) -> int:
    return client.topic(log).delete_records(before_seq=before, match=wanted.match).deleted


def _delete_log(client: Client, log: str, deletion: Deletion) -> int:
    topic: Any = client.topic(log)
    try:
        topic.delete()
    except Conflict as error:
        if error.code != "not_json":
            raise
        client.stream(log).delete()
    return deletion.records


# --- the group ------------------------------------------------------------------------------------------------------

app = typer.Typer(name="log", no_args_is_help=True, help="Create, list, read, append to and delete logs.")
app.command("ls", cls=TableCommand)(list_command)
app.command("show", cls=ReadingCommand)(show_command)
app.command("create", cls=Command)(create_command)
app.command("configure", cls=Command)(configure_command)
app.command("append", cls=Command)(append_command)
app.command("tail", cls=TableCommand)(tail_command)
app.command("find", cls=TableCommand)(find_command)
app.command("diff", cls=TableCommand)(diff_command)
app.command("delete", cls=Command)(delete_command)

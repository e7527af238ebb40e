"""``strandline log``: list, show, create and delete logs; ``append``, ``tail`` and ``diff`` are in sibling modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from heapq import nlargest, nsmallest
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, complete_log, connect
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.log_append import append_command
from strandline.cli.log_read import diff_command, tail_command
from strandline.cli.output import counted, open_console, print_fields, print_json, print_line, print_table
from strandline.cli.records import LogReader, RecordFilter, ShownRecord, line_of, open_reader, pages
from strandline.cli.times import parse_length, show_length, show_time
from strandline.client import Client, Conflict, NotFound
from strandline.client.calls import segment
from strandline.client.topic_types import RouterState, TopicConfig, TopicConfigArguments, TopicRow, TopicState

# --- log ls ---------------------------------------------------------------------------------------------------------

PAGE_LOGS = 1000


class LogListRow(msgspec.Struct, kw_only=True):
    """A log as lists show it. ``bytes`` is not known of logs that are not JSON."""

    log: str
    type: str
    records: int
    bytes: int | None
    head: int
    last_write: int | None
    content_type: str


_SORTS: dict[str, Callable[[LogListRow], Any]] = {
    "name": lambda row: row.log,
    "records": lambda row: row.records,
    "bytes": lambda row: row.bytes or 0,
    "head": lambda row: row.head,
    "last-write": lambda row: row.last_write or 0,
}


def list_command(
    search: Annotated[str, typer.Argument(metavar="[TEXT]", help="Only logs with this in their names.")] = "",
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only logs whose names begin so.")] = "",
    sort: Annotated[
        Literal["name", "records", "bytes", "head", "last-write"],
        typer.Option("--sort", help="By this; of all but names the largest come first."),
    ] = "name",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The other way round.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Logs of one page.")] = 50,
    page: Annotated[int, typer.Option("--page", metavar="N", min=1, help="Which page.")] = 1,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List logs: topics, queues, streams, documents of collections, rows of tables."""
    with connect(url, key) as client:
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
    print_table(columns, cells, right=("records", "size", "head"))
    if more:
        print_line(f"there are more: --page {page + 1}")


def _page(rows: Iterator[LogListRow], sort: str, reverse: bool, limit: int, page: int) -> tuple[list[LogListRow], bool]:
    """The page, and whether there is another. By name, no more is asked for than has to be."""
    start, end = (page - 1) * limit, page * limit
    if sort == "name" and not reverse:
        found = list(islice(rows, start, end + 1))
    else:
        choose = nlargest if (sort != "name") != reverse else nsmallest
        found = choose(end + 1, rows, key=_SORTS[sort])[start:]
    return found[:limit], len(found) > limit


# --- the list of all logs -------------------------------------------------------------------------------------------


class _Log(msgspec.Struct):
    name: str
    head: int
    last_ts: int
    records: int
    media_type: str


class _Logs(msgspec.Struct):
    logs: list[_Log]
    next: str | None


def every_log(client: Client, prefix: str) -> Iterator[LogListRow]:
    """All logs whose names begin so, by name. The Arrow face knows all of them, the topics protocol knows more of
    those that are JSON; both tell them in the same order."""
    topics = client.topics(prefix)
    topic = next(topics, None)
    for log in _arrow_logs(client, prefix):
        while topic is not None and topic.topic < log.name:
            topic = next(topics, None)
        yield _row(log, topic if topic is not None and topic.topic == log.name else None)


def _arrow_logs(client: Client, prefix: str) -> Iterator[_Log]:
    after: str | None = ""
    while after is not None:
        query = {"prefix": prefix, "after": after, "limit": PAGE_LOGS}
        page = msgspec.json.decode(client.call("GET", "/arrow/logs", query=query).body, type=_Logs)
        yield from page.logs
        after = page.next


def _row(log: _Log, topic: TopicRow | None) -> LogListRow:
    return LogListRow(
        log=log.name,
        type="log" if topic is None else topic.type,
        records=log.records if topic is None else topic.count,
        bytes=None if topic is None else topic.bytes,
        head=log.head,
        last_write=log.last_ts or None,
        content_type=log.media_type,
    )


# --- log show -------------------------------------------------------------------------------------------------------


class LogDetails(msgspec.Struct, kw_only=True):
    """``state`` is None of a log that is not JSON: the topics protocol does not show it."""

    log: str
    state: TopicState | None
    stream: dict[str, Any]
    profile: dict[str, Any]
    schema: dict[str, Any]
    info: dict[str, Any]
    routers: list[RouterState]


def show_command(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The log.", autocompletion=complete_log)],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show everything about a log: what it holds, how it is configured, who reads it, where its records go."""
    with connect(url, key) as client:
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
    """Raises CommandFailed if there is no such log."""
    try:
        details = client.stream(log).details()
    except NotFound:
        raise CommandFailed(f"there is no log {log!r}", Exit.NOT_FOUND) from None
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
        "seqs": None if state is None or not state.count else f"{state.earliest_seq:,} to {state.head_seq:,}",
        "head": f"{int(stream['next_offset']):,}" if state is None else None,
        "created": stream["created_at"],
        "last write": stream["last_append_at"],
        "expires": stream["expires_at"],
        "closed": "yes" if stream["closed"] else None,
        "forked from": None
        if info["base"] is None
        else f"epoch {info['base']['epoch']} up to {info['base']['through']}",
        "lost": ", ".join(f"{first} to {last}" for first, last in info["gaps"]),
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
                f"{state.queue.ready:,} ready, {state.queue.in_flight:,} in flight, {state.queue.delayed:,} delayed, "
                f"{state.queue.dead_lettered:,} given up"
            )
    return fields


def _configured(config: TopicConfig) -> dict[str, Any]:
    """What is not as it is by default, and how durable it is."""
    told: dict[str, Any] = {"durability": config.durability}
    lengths = ("ttl_ms", "idempotency_window_ms", "lease_ms", "claim_jitter_ms")
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        if field.name not in ("type", "durability") and value != field.default:
            name = field.name.removesuffix("_ms").replace("_", " ")
            told[name] = show_length(value) if field.name in lengths else value
    return told


# --- log create -----------------------------------------------------------------------------------------------------

JSON_TYPE = "application/json"


def create_command(
    log: Annotated[str, typer.Argument(metavar="LOG", help="Its name.")],
    type: Annotated[Literal["log", "queue"], typer.Option("--type", help="What it is.")] = "log",
    durability: Annotated[
        Literal["ephemeral", "memory", "disk", "fsync"],
        typer.Option("--durability", help="What an acknowledged record survives."),
    ] = "disk",
    ttl: Annotated[str | None, typer.Option("--ttl", metavar="LENGTH", help="Records live so long: 7d.")] = None,
    cap_records: Annotated[int, typer.Option("--cap-records", metavar="N", min=0, help="Keep so many.")] = 0,
    cap_bytes: Annotated[int, typer.Option("--cap-bytes", metavar="N", min=0, help="Keep so many bytes.")] = 0,
    reject: Annotated[bool, typer.Option("--reject", help="When it is full, refuse writes.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Keep the last record of each key.")] = False,
    lease: Annotated[
        str | None, typer.Option("--lease", metavar="LENGTH", help="Of a queue: a job is somebody's so long.")
    ] = None,
    max_deliveries: Annotated[
        int, typer.Option("--max-deliveries", metavar="N", min=0, help="Of a queue: then a job is given up.")
    ] = 0,
    dead_letter: Annotated[
        str | None, typer.Option("--dead-letter", metavar="LOG", help="Of a queue: where it goes then.")
    ] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", metavar="TYPE", help="Other than JSON, it is a stream.")
    ] = JSON_TYPE,
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE", help="Its schema and search configuration, as JSON.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Make a log. One that is there already is left alone."""
    config: TopicConfigArguments = {"type": type, "durability": durability, "compact": compact}
    config |= {"cap_records": cap_records, "cap_bytes": cap_bytes, "discard": "reject" if reject else "old"}
    config["ttl_ms"] = 0 if ttl is None else parse_length(ttl, "--ttl")
    if type == "queue":
        config |= {"max_deliveries": max_deliveries, "dead_letter": dead_letter}
        if lease is not None:
            config["lease_ms"] = parse_length(lease, "--lease")
    elif lease is not None or max_deliveries or dead_letter is not None:
        raise typer.BadParameter("--lease, --max-deliveries and --dead-letter are for a --type queue")
    _check_stream(content_type, config, schema)
    registry = None if schema is None else read_registry(schema)
    with connect(url, key) as client:
        answer = _create(client, log, config, content_type)
        if registry is not None:
            _set_schema(client, log, registry)
    if as_json:
        print_json(answer)
    else:
        print_line(f"created {type} {log}")


def _check_stream(content_type: str, config: TopicConfigArguments, schema: Path | None) -> None:
    """A stream that is not JSON has neither keys to compact by nor a configuration of topics."""
    plain = {"type": "log", "durability": "disk", "compact": False, "cap_records": 0, "cap_bytes": 0, "discard": "old"}
    if content_type != JSON_TYPE and (config != {**plain, "ttl_ms": 0} or schema is not None):
        raise typer.BadParameter("a log that is not JSON takes no other option", param_hint="--content-type")


def read_registry(path: Path) -> Any:
    """The update of a registry that a file has. Raises BadParameter."""
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--schema") from None
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--schema") from None


def _create(client: Client, log: str, config: TopicConfigArguments, content_type: str) -> dict[str, Any]:
    try:
        client.stream(log).head()
    except NotFound:
        pass
    else:
        raise CommandFailed(f"there is a log {log!r} already", Exit.CONFLICT)
    if content_type != JSON_TYPE:
        info = client.stream(log, content_type=content_type).create()
        return {"log": log, "content_type": info.content_type}
    return {"log": log, "config": client.topic(log).configure(**config).config}


def _set_schema(client: Client, log: str, registry: Any) -> None:
    """A schema that is refused leaves no log behind: nothing has been written to it yet."""
    try:
        client.stream(log).set_schema(registry)
    except Exception:
        client.topic(log).delete(if_empty=True)
        raise


# --- log delete -----------------------------------------------------------------------------------------------------

#: Records that are shown before the question.
SHOWN_RECORDS = 5


class Going(msgspec.Struct):
    """What would go: how many records, how large their payloads, from which seq to which, and the first of them."""

    records: int = 0
    bytes: int | None = 0
    first: int | None = None
    last: int | None = None
    examples: list[ShownRecord] = []


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
    wanted = RecordFilter(0, record_key, prefix)
    with connect(url, key) as client:
        reader = open_reader(client, url, key, log)
        going = measure_all(reader) if everything else measure(reader, wanted, before)
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


def measure_all(reader: LogReader) -> Going:
    records, size = reader.size()
    part = reader.page(RecordFilter(), SHOWN_RECORDS)
    return Going(records, size, part.earliest if records else None, part.head if records else None, part.records)


def measure(reader: LogReader, wanted: RecordFilter, before: int | None) -> Going:
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


def _count(going: Going, record: ShownRecord) -> None:
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


def _delete(client: Client, log: str, wanted: RecordFilter, before: int | None) -> int:
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


# --- the group ------------------------------------------------------------------------------------------------------

app = typer.Typer(
    name="log", no_args_is_help=True, help="Look at logs, write to them, follow them: topics, streams and all others."
)
app.command("ls")(list_command)
app.command("show")(show_command)
app.command("create")(create_command)
app.command("append")(append_command)
app.command("tail")(tail_command)
app.command("diff")(diff_command)
app.command("delete")(delete_command)

"""``strandline log ls``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.filesize import decimal

from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, connect
from strandline.cli.output import print_json, print_line, print_table
from strandline.cli.times import show_time
from strandline.client import Client
from strandline.client.topic_types import TopicRow

PAGE_LOGS = 1000


class LogRow(msgspec.Struct, kw_only=True):
    """A log as lists show it. ``bytes`` is not known of logs that are not JSON."""

    log: str
    type: str
    records: int
    bytes: int | None
    head: int
    last_write: int | None
    content_type: str


_SORTS: dict[str, Callable[[LogRow], Any]] = {
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


def _page(rows: Iterator[LogRow], sort: str, reverse: bool, limit: int, page: int) -> tuple[list[LogRow], bool]:
    """The page, and whether there is another. By name, no more is asked for than has to be."""
    start, end = (page - 1) * limit, page * limit
    if sort == "name" and not reverse:
        found = list(islice(rows, start, end + 1))
    else:
        choose = nlargest if (sort != "name") != reverse else nsmallest
        found = choose(end + 1, rows, key=_SORTS[sort])[start:]
    return found[:limit], len(found) > limit


# --- asking --------------------------------------------------------------------------------------------------------


class _Log(msgspec.Struct):
    name: str
    head: int
    last_ts: int
    records: int
    media_type: str


class _Logs(msgspec.Struct):
    logs: list[_Log]
    next: str | None


def every_log(client: Client, prefix: str) -> Iterator[LogRow]:
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


def _row(log: _Log, topic: TopicRow | None) -> LogRow:
    return LogRow(
        log=log.name,
        type="log" if topic is None else topic.type,
        records=log.records if topic is None else topic.count,
        bytes=None if topic is None else topic.bytes,
        head=log.head,
        last_write=log.last_ts or None,
        content_type=log.media_type,
    )

"""``strandline log tail``: the last records of a log, or of several logs together."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Raw

from strandline.cli.connection import complete_log, connect
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.log_list import every_log
from strandline.cli.log_read import RecordPrinter, check_key_filters
from strandline.cli.options import ApiKey, AsJsonLines, KeyPrefix, RecordKey, Since, Url
from strandline.cli.output import say
from strandline.cli.records import (
    JsonReader,
    LogReader,
    RecordFilter,
    RecordLoss,
    ShownRecord,
    of_tombstone,
    of_topic,
    open_reader,
    pages,
)
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_moment
from strandline.client.topic_types import Arrived, CaughtUp, Deleted, Lost

if TYPE_CHECKING:
    from strandline.client import Client
    from strandline.client.watch import Start

#: How long `tail --follow` waits for a server that does not answer.
FOLLOW_SECONDS = 600.0
DEFAULT_LINES = 10
#: The factor by which the search for the last records goes further back each time.
LOOK_BACK = 16
#: Maximum number of logs that are read together: a page of each is in memory.
MAX_LOGS = 200
#: Records of such a page.
PAGE = 100
JSON_TYPE = "application/json"


def tail_command(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="Names of logs. A name that ends in * matches all logs with this prefix.",
            autocompletion=complete_log,
        ),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new records until interrupted with Ctrl-C.")
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines", "-n", metavar="N", min=0, help=f"Print the last N records of each log. Default: {DEFAULT_LINES}."
        ),
    ] = None,
    from_seq: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="SEQ", min=1, help="Start at this sequence number instead; 1 prints the whole log."
        ),
    ] = None,
    since: Since = None,
    record_key: RecordKey = None,
    prefix: KeyPrefix = None,
    as_json: AsJsonLines = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Print the last records of logs, or all records from a sequence number or a time on.

    Records of several logs are sorted by time and have the name of their log. With --follow, a prefix also matches logs
    that are created later.

    With --follow, the command reconnects after a broken connection or a restart of the server and continues after the
    last record. A line marks records that were removed by retention or lost to damage.

    Example:
      strandline log tail orders --follow
      strandline log tail orders --since 1h --record-key customer-7 --json
      strandline log tail orders 'payments:*' --follow
    """
    if lines is not None and (from_seq is not None or since is not None):
        raise typer.BadParameter("--lines cannot be combined with --from or --since")
    check_key_filters(record_key, prefix)
    start = None if since is None else parse_moment(since, "--since")
    wanted = RecordFilter((from_seq or 1) - 1, record_key, prefix, start)
    count = None if from_seq is not None or since is not None else DEFAULT_LINES if lines is None else lines
    several = len(logs) > 1 or logs[0].endswith("*")
    if several and from_seq is not None:
        raise typer.BadParameter("--from needs a single log: each log has its own sequence numbers")
    with connect(url, api_key) as client, connect(url, api_key, patience=FOLLOW_SECONDS) as patient:
        if several:
            found = SeveralLogs(client, url, api_key, logs)
            printer = RecordPrinter(as_json, found.width)
            for log, one in found.read(wanted, count, follow):
                printer.show(one, log)
            if follow:
                for log, one in found.follow(patient):
                    printer.show(one, log)
            return
        printer = RecordPrinter(as_json)
        reader = open_reader(client, url, api_key, logs[0], patient if follow else None)
        if count is not None:
            last, head = _last(reader, wanted, count)
            for one in last:
                printer.show(one)
            wanted = RecordFilter(head, record_key, prefix)
        elif not follow:
            for part in pages(reader, wanted):
                printer.show_page(part)
        if follow:
            for one in reader.follow(wanted):
                printer.show(one)


class SeveralLogs:
    """Logs that are read together. A pattern is a prefix with ``*`` at its end. Raises CommandFailed."""

    def __init__(self, client: Client, url: str, api_key: str | None, patterns: list[str]) -> None:
        self._readers: dict[str, LogReader] = {}
        self._patterns = [pattern for pattern in patterns if pattern.endswith("*")]
        for name in patterns:
            if name not in self._patterns:
                self._readers[name] = _json_reader(client, url, api_key, name)
        for pattern in self._patterns:
            for row in every_log(client, pattern[:-1]):
                if row.content_type != JSON_TYPE:
                    say(f"skipping log {row.log}: it holds {row.content_type}; print it alone")
                else:
                    self._readers.setdefault(row.log, JsonReader(client, row.log))
                if len(self._readers) > MAX_LOGS:
                    raise CommandFailed(
                        f"more than {MAX_LOGS} logs match; print fewer logs, or use a longer prefix", Exit.USAGE
                    )
        #: Of the column with the names.
        self.width = max([*map(len, self._readers), *map(len, self._patterns), 1])
        self._starts: dict[str, Start] = {}

    def read(
        self, wanted: RecordFilter, count: int | None, follow: bool
    ) -> Iterator[tuple[str, ShownRecord | RecordLoss]]:
        """The last ``count`` records of each log, or all that are ``wanted``; by time. The latter are left to
        :meth:`follow` if it is called afterwards."""
        from strandline.client.watch import Start

        new = Start(None, wanted.match) if count is not None else Start(0, wanted.match, wanted.since)
        self._starts = dict.fromkeys(self._patterns, new)
        parts: list[Iterator[tuple[int, str, ShownRecord | RecordLoss]]] = []
        for log, reader in self._readers.items():
            if count is not None:
                last, head = _last(reader, wanted, count)
                self._starts[log] = Start(head, wanted.match)
                parts.append(_timed(log, iter(last)))
            else:
                self._starts[log] = new
                if not follow:
                    parts.append(_timed(log, _everything(reader, wanted)))
        for _, log, one in heapq.merge(*parts, key=lambda each: each[0]):
            yield log, one

    def follow(self, client: Client) -> Iterator[tuple[str, ShownRecord | RecordLoss]]:
        """New records. Ends when it is interrupted or all logs are deleted."""
        with client.watch(self._starts, Raw) as watch:
            for event in watch:
                match event:
                    case Arrived(topic=log, records=records):
                        for record in records:
                            yield log, of_topic(record)
                    case Lost(topic=log, tombstone=tombstone):
                        yield log, of_tombstone(tombstone)
                    case Deleted(topic=log):
                        say(f"log {log!r} was deleted")
                    case CaughtUp():
                        pass


def _json_reader(client: Client, url: str, api_key: str | None, name: str) -> LogReader:
    reader: Any = open_reader(client, url, api_key, name)
    if not isinstance(reader, JsonReader):
        raise CommandFailed(f"log {name!r} does not hold JSON; print it alone", Exit.USAGE)
    return reader


def _everything(reader: LogReader, wanted: RecordFilter) -> Iterator[ShownRecord | RecordLoss]:
    for part in pages(reader, wanted, PAGE):
        yield from part.lost
        yield from part.records


def _timed(log: str, found: Iterator[ShownRecord | RecordLoss]) -> Iterator[tuple[int, str, ShownRecord | RecordLoss]]:
    """With the time by which they are sorted, which never goes back within a log. A loss has the time of the record
    after it."""
    now, lost = 0, list[RecordLoss]()
    for one in found:
        if isinstance(one, RecordLoss):
            lost.append(one)
            continue
        now = max(now, one.ts)
        yield from ((now, log, each) for each in lost)
        lost.clear()
        yield now, log, one
    yield from ((now, log, each) for each in lost)


def last_records(reader: LogReader, count: int) -> list[ShownRecord]:
    """The last ``count`` records that are still there."""
    return [one for one in _last(reader, RecordFilter(), count)[0] if isinstance(one, ShownRecord)]


def _last(reader: LogReader, wanted: RecordFilter, count: int) -> tuple[list[ShownRecord | RecordLoss], int]:
    """The last ``count`` records and the losses among them, and the seq up to which the log was read. The search goes
    further and further back, because records near the end may be deleted or have another key."""
    head, span = reader.head(), max(count, 1)
    while count:
        records, lost, after = deque[ShownRecord](maxlen=count), list[RecordLoss](), max(head - span, 0)
        reached = after
        for part in pages(reader, RecordFilter(after, wanted.key, wanted.prefix)):
            records.extend(part.records)
            lost += part.lost
            reached = part.after
        if len(records) == count or after == 0:
            told = [one for one in lost if len(records) < count or one.last > records[0].seq]
            return sorted(
                [*told, *records], key=lambda one: one.first if isinstance(one, RecordLoss) else one.seq
            ), reached
        span *= LOOK_BACK
    return [], head

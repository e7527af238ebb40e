"""``strandline log tail`` and ``strandline log diff``."""

from __future__ import annotations

from collections import deque
from typing import Annotated

import typer

from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, complete_log, connect
from strandline.cli.output import counted, print_json, print_line
from strandline.cli.records import (
    PAGE_RECORDS,
    LogReader,
    LossLine,
    RecordFilter,
    RecordLoss,
    RecordPage,
    ShownRecord,
    line_of,
    line_of_loss,
    open_reader,
    pages,
)
from strandline.cli.times import parse_moment

#: Whoever follows a log waits this long for a server that is gone to come back.
FOLLOW_SECONDS = 600.0
DEFAULT_LINES = 10
#: How much further back it is looked where there were too few.
LOOK_BACK = 16

Log = Annotated[str, typer.Argument(metavar="LOG", help="The log.", autocompletion=complete_log)]
RecordKey = Annotated[
    str | None, typer.Option("--record-key", "-k", metavar="TEXT", help="Only records with this key.")
]
KeyPrefix = Annotated[
    str | None, typer.Option("--key-prefix", metavar="TEXT", help="Only records whose keys begin so.")
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Of this time or later: 1h (ago), ISO 8601 or milliseconds."),
]


def tail_command(
    log: Log,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")] = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines", "-n", metavar="N", min=0, help=f"The last N records; {DEFAULT_LINES}, if nothing else is said."
        ),
    ] = None,
    from_seq: Annotated[
        int | None, typer.Option("--from", metavar="SEQ", min=1, help="From this seq on; 1 is everything.")
    ] = None,
    since: Since = None,
    record_key: RecordKey = None,
    prefix: KeyPrefix = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Print the last records of a log, or those from a seq or a time on, and with -f what comes then.

    A connection that breaks, or a server that restarts, is waited for, and it goes on behind the last record. Records
    that are gone although nobody deleted them are told. With --json a record is a line.
    """
    if lines is not None and (from_seq is not None or since is not None):
        raise typer.BadParameter("give either --lines or a beginning with --from or --since")
    _check_keys(record_key, prefix)
    start = None if since is None else parse_moment(since, "--since")
    wanted = RecordFilter((from_seq or 1) - 1, record_key, prefix, start)
    count = None if from_seq is not None or since is not None else DEFAULT_LINES if lines is None else lines
    with connect(url, key) as client, connect(url, key, patience=FOLLOW_SECONDS) as patient:
        reader = open_reader(client, url, key, log, patient if follow else None)
        if count is not None:
            last, head = _last(reader, wanted, count)
            for one in last:
                _show(one, as_json)
            wanted = RecordFilter(head, record_key, prefix)
        elif not follow:
            for part in pages(reader, wanted):
                show_part(part, as_json)
        if follow:
            for one in reader.follow(wanted):
                _show(one, as_json)


def _last(reader: LogReader, wanted: RecordFilter, count: int) -> tuple[list[ShownRecord | RecordLoss], int]:
    """The last records, with what was lost between them, or before them if there are fewer, and up to which seq that
    is. They are looked for from further and further back: some near the end may be deleted, or have another key."""
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


def diff_command(
    log: Log,
    after: Annotated[int, typer.Argument(metavar="[SEQ]", min=0, help="Only what is behind this seq.")] = 0,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=PAGE_RECORDS, help="At most so many records.")
    ] = 100,
    since: Since = None,
    record_key: RecordKey = None,
    prefix: KeyPrefix = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Print one page of a log: what is behind a seq, and where to go on."""
    _check_keys(record_key, prefix)
    wanted = RecordFilter(after, record_key, prefix, None if since is None else parse_moment(since, "--since"))
    with connect(url, key) as client:
        part = open_reader(client, url, key, log).page(wanted, limit)
    if as_json:
        print_json(
            {
                "log": log,
                "records": part.records,
                "lost": part.lost,
                "next": part.after,
                "head": part.head,
                "earliest": part.earliest,
                "caught_up": part.caught_up,
            }
        )
        return
    show_part(part, False)
    state = "caught up" if part.caught_up else f"go on: strandline log diff {log} {part.after}"
    print_line(f"{counted(len(part.records), 'record')}, head {part.head}, {state}")


def show_part(part: RecordPage, as_json: bool) -> None:
    for lost in part.lost:
        _show(lost, as_json)
    for record in part.records:
        _show(record, as_json)


def _show(one: ShownRecord | RecordLoss, as_json: bool) -> None:
    if as_json:
        print_json(LossLine(one) if isinstance(one, RecordLoss) else one)
    else:
        print_line(line_of_loss(one) if isinstance(one, RecordLoss) else line_of(one))


def _check_keys(record_key: str | None, prefix: str | None) -> None:
    if record_key is not None and prefix is not None:
        raise typer.BadParameter("give either --record-key or --key-prefix")

"""``strandline log tail`` and ``strandline log diff``."""

from __future__ import annotations

from collections import deque
from typing import Annotated

import typer

from strandline.cli.connection import connect
from strandline.cli.options import ApiKey, AsJson, AsJsonLines, KeyPrefix, LogName, RecordKey, Since, Url
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
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_moment

#: How long `tail --follow` waits for a server that does not answer.
FOLLOW_SECONDS = 600.0
DEFAULT_LINES = 10
#: The factor by which the search for the last records goes further back each time.
LOOK_BACK = 16


def tail_command(
    log: LogName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new records until interrupted with Ctrl-C.")
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", metavar="N", min=0, help=f"Print the last N records. Default: {DEFAULT_LINES}."),
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
    """Print the last records of a log, or all records from a sequence number or a time on.

    With --follow, the command reconnects after a broken connection or a restart of the server and continues after the
    last record. A line marks records that were removed by retention or lost to damage.

    Example:
      strandline log tail orders --follow
      strandline log tail orders --since 1h --record-key customer-7 --json
    """
    if lines is not None and (from_seq is not None or since is not None):
        raise typer.BadParameter("--lines cannot be combined with --from or --since")
    check_key_filters(record_key, prefix)
    start = None if since is None else parse_moment(since, "--since")
    wanted = RecordFilter((from_seq or 1) - 1, record_key, prefix, start)
    count = None if from_seq is not None or since is not None else DEFAULT_LINES if lines is None else lines
    with connect(url, api_key) as client, connect(url, api_key, patience=FOLLOW_SECONDS) as patient:
        reader = open_reader(client, url, api_key, log, patient if follow else None)
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


def diff_command(
    log: LogName,
    after: Annotated[
        int, typer.Argument(metavar="[SEQ]", min=0, help="Print the records after this sequence number.")
    ] = 0,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", metavar="N", min=1, max=PAGE_RECORDS, help="Maximum number of records."),
    ] = 100,
    since: Since = None,
    record_key: RecordKey = None,
    prefix: KeyPrefix = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Print one page of the records after a sequence number, and where the next page starts.

    Example:
      strandline log diff orders 1000 --limit 50
    """
    check_key_filters(record_key, prefix)
    wanted = RecordFilter(after, record_key, prefix, None if since is None else parse_moment(since, "--since"))
    with connect(url, api_key) as client:
        part = open_reader(client, url, api_key, log).page(wanted, limit)
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
    state = "caught up" if part.caught_up else f"next page: strandline log diff {log} {part.after}"
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


def check_key_filters(record_key: str | None, prefix: str | None) -> None:
    """Raises BadParameter if both filters are given."""
    if record_key is not None and prefix is not None:
        raise typer.BadParameter("--record-key cannot be combined with --key-prefix")

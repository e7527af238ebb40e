"""``strandline log find``: the records of a log that match a filter on their content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec import UNSET, Raw, UnsetType

from strandline.cli.connection import connect
from strandline.cli.exit_codes import naming
from strandline.cli.log_read import RecordPrinter, check_key_filters
from strandline.cli.options import ApiKey, AsJsonLines, KeyPrefix, LogName, RecordKey, Since, Until, Url
from strandline.cli.output import say
from strandline.cli.records import NULL, ShownRecord
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_moment
from strandline.client.calls import segment

if TYPE_CHECKING:
    from strandline.client import Client

#: The maximum of the server.
PAGE_RECORDS = 1000


class _Match(msgspec.Struct):
    seq: int
    ts: int
    key: str | None = None
    node: str | None = None
    meta: Raw | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    text: str | None = None
    base64: str | None = None

    def shown(self) -> ShownRecord:
        meta = None if isinstance(self.meta, UnsetType) or self.meta == NULL else self.meta
        data = None if isinstance(self.data, UnsetType) else self.data
        return ShownRecord(self.seq, self.ts, self.key, self.node, meta, data, self.text, self.base64)


class _Matches(msgspec.Struct):
    records: list[_Match]
    next: int | None


_decoder = msgspec.json.Decoder(_Matches)


def find_command(
    log: LogName,
    where: Annotated[
        str, typer.Argument(metavar="FILTER", help="Conditions on the content, such as '.status = failed'.")
    ],
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of records to print.")
    ] = 100,
    since: Since = None,
    until: Until = None,
    record_key: RecordKey = None,
    prefix: KeyPrefix = None,
    as_json: AsJsonLines = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Print the records whose content matches a filter, newest first.

    The server scans the log from its end, without a schema or an index. Conditions are `.path = value` (also
    != > >= < <=), `.path ~ /regex/`, `.path` (the field has a value), words, "a text" and /regex/. Combine them with
    `and`, `or`, `not` and parentheses.

    Example:
      strandline log find payments '.status = failed and .amount >= 100' --since 1d
      strandline log find payments '"card declined"' --since 2026-11-14 --until 2026-11-15 --json
    """
    check_key_filters(record_key, prefix)
    query: dict[str, object] = {"where": where}
    for name, value in (("key", record_key), ("prefix", prefix)):
        if value is not None:
            query[name] = value
    for name, text in (("since", since), ("until", until)):
        if text is not None:
            query[name] = parse_moment(text, f"--{name}")
    printer = RecordPrinter(as_json)
    with connect(url, api_key) as client, naming("log", log):
        # One record more tells whether there are more.
        for number, record in enumerate(_matches(client, log, query, limit + 1)):
            if number == limit:
                say(f"more records match; print them with --limit {2 * limit} or an earlier --until")
                return
            printer.show(record)


def _matches(client: Client, log: str, query: dict[str, object], limit: int) -> Iterator[ShownRecord]:
    """The last ``limit`` matches, newest first. Each request scans a part of the log."""
    path = f"/console/api/log/{segment(log)}/matches"
    before: int | None = None
    while limit:
        asked = {**query, "limit": min(limit, PAGE_RECORDS), **({} if before is None else {"before": before})}
        page = _decoder.decode(client.call("GET", path, query=asked).body)
        yield from (record.shown() for record in page.records)
        limit -= len(page.records)
        before = page.next
        if before is None:
            return

"""``strandline log diff``, and the printing of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from strandline.cli.connection import connect
from strandline.cli.options import ApiKey, AsJson, KeyPrefix, LogName, RecordKey, Since, Url
from strandline.cli.output import counted, print_json, print_line, prints_csv, put_csv
from strandline.cli.records import (
    PAGE_RECORDS,
    LossLine,
    RecordFilter,
    RecordLoss,
    RecordPage,
    ShownRecord,
    line_of,
    line_of_loss,
    open_reader,
)
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import parse_moment, show_time

if TYPE_CHECKING:
    from rich.text import Text


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
    printer = RecordPrinter(False)
    printer.show_page(part)
    state = "caught up" if part.caught_up else f"next page: strandline log diff {log} {part.after}"
    print_line(f"{counted(len(part.records), 'record')}, head {part.head}, {state}")


class RecordPrinter:
    """Prints records and losses: as lines for people, JSON or CSV. ``width`` is the width of the column with the names
    of logs, if records of several logs are printed."""

    def __init__(self, as_json: bool, width: int = 0) -> None:
        self._as_json = as_json
        self._width = width
        if prints_csv():
            put_csv((*(("log",) if width else ()), "seq", "time", "key", "node", "meta", "data"))

    def show_page(self, part: RecordPage) -> None:
        for lost in part.lost:
            self.show(lost)
        for record in part.records:
            self.show(record)

    def show(self, one: ShownRecord | RecordLoss, log: str = "") -> None:
        if self._as_json:
            line = LossLine(one) if isinstance(one, RecordLoss) else one
            named = {name: value for name, value in asdict(line).items() if value is not None}
            print_json({"log": log, **named} if self._width else line)
        elif isinstance(one, RecordLoss):
            print_line(self._named(log, line_of_loss(one)))
        elif prints_csv():
            meta = "" if one.meta is None else bytes(one.meta).decode()
            values = (str(one.seq), show_time(one.ts), one.key, one.node, meta, one.payload)
            put_csv((log, *values) if self._width else values)
        else:
            print_line(self._named(log, line_of(one)))

    def _named(self, log: str, line: Text) -> Text:
        if not self._width:
            return line
        from rich.text import Text

        return Text.assemble((log.ljust(self._width), "magenta"), "  ", line)


def check_key_filters(record_key: str | None, prefix: str | None) -> None:
    """Raises BadParameter if both filters are given."""
    if record_key is not None and prefix is not None:
        raise typer.BadParameter("--record-key cannot be combined with --key-prefix")

"""``strandline top``: what a server does right now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.filesize import decimal

from strandline.cli.connection import connect
from strandline.cli.exit_codes import CommandFailed
from strandline.cli.options import ApiKey, AsJsonLines, Url
from strandline.cli.output import at_terminal, print_fields, print_json, print_line, print_table, terminal
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.server_state import health_of, metrics_of
from strandline.cli.times import show_age
from strandline.client.errors import StrandlineError

if TYPE_CHECKING:
    from rich.console import Group

    from strandline.client import Client

#: Rows of each table.
SHOWN = 8


class _Sample(msgspec.Struct):
    appends: float = 0.0
    bytes: float = 0.0
    flush_p99_us: float | None = None
    rss_bytes: int = 0
    connections: int = 0
    pressure: float = 0.0


class _BusyLog(msgspec.Struct):
    log: str
    appends: float
    bytes: float


class _Overview(msgspec.Struct):
    samples: list[_Sample]
    totals: dict[str, int]
    busiest: list[_BusyLog]


class QueueFigures(msgspec.Struct):
    name: str
    ready: int
    in_flight: int
    delayed: int
    dead_lettered: int


class _Queues(msgspec.Struct):
    queues: list[QueueFigures]


class Snapshot(msgspec.Struct):
    """The figures of one moment. Rates are per second; ``requests`` is None at the first moment."""

    url: str
    version: str
    status: str
    uptime_ms: int
    logs: int
    records: int
    bytes: int
    journal_bytes: int
    appends: float
    append_bytes: float
    flush_p99_ms: float | None
    rss_bytes: int
    connections: int
    pressure: float
    requests: float | None
    busiest: list[_BusyLog]
    queues: list[QueueFigures]
    consumers: list[dict[str, Any]]


class Monitor:
    """Asks a server for its figures, again and again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answered: int | None = None
        self._uptime_ms = 0

    def look(self) -> Snapshot:
        health, metrics = health_of(self._client), metrics_of(self._client)
        overview = self._ask("/console/api/overview", _Overview)
        queues = self._ask("/console/api/queues", _Queues).queues
        last = overview.samples[-1] if overview.samples else _Sample()
        lags = [one for one in metrics["consumer_lag"] if one["lag"]]
        return Snapshot(
            url=self._client.url,
            version=health.version,
            status=health.status,
            uptime_ms=health.uptime_ms,
            logs=overview.totals["logs"],
            records=overview.totals["records"],
            bytes=overview.totals["bytes"],
            journal_bytes=overview.totals["journal_bytes"],
            appends=last.appends,
            append_bytes=last.bytes,
            flush_p99_ms=None if last.flush_p99_us is None else last.flush_p99_us / 1000,
            rss_bytes=last.rss_bytes,
            connections=last.connections,
            pressure=last.pressure,
            requests=self._request_rate(metrics["requests"], health.uptime_ms),
            busiest=overview.busiest[:SHOWN],
            queues=sorted(queues, key=lambda one: -(one.ready + one.in_flight))[:SHOWN],
            consumers=sorted(lags, key=lambda one: -one["lag"])[:SHOWN],
        )

    def _ask(self, path: str, kind: Any) -> Any:
        return msgspec.json.decode(self._client.call("GET", path).body, type=kind)

    def _request_rate(self, requests: list[dict[str, Any]], uptime_ms: int) -> float | None:
        """Requests per second since the last look, without those of this one. None after a restart of the server."""
        answered: int = sum(one["count"] for one in requests)
        before, self._answered = self._answered, answered
        elapsed, self._uptime_ms = uptime_ms - self._uptime_ms, uptime_ms
        if before is None or elapsed <= 0 or answered < before:
            return None
        return max(answered - before - REQUESTS_PER_LOOK, 0) * 1000 / elapsed


#: The requests of one look.
REQUESTS_PER_LOOK = 4


def top_command(
    once: Annotated[bool, typer.Option("--once", help="Print the figures once and exit.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Time between two looks.")
    ] = 2.0,
    as_json: AsJsonLines = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Show what a server does right now: rates, the busiest logs, queues, and consumers that lag.

    At a terminal, the figures are refreshed until you stop the command with Ctrl-C. Elsewhere, and with --once, they
    are printed once; with --json, one document per look is printed.

    Example:
      strandline top
      strandline top --once --json
    """
    with connect(url, api_key) as client:
        monitor = Monitor(client)
        if as_json:
            print_json(monitor.look())
            while not once:
                time.sleep(interval)
                print_json(monitor.look())
        elif once or not at_terminal():
            _print_once(monitor.look())
        else:
            _refresh(monitor, interval)


def _refresh(monitor: Monitor, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    # Fails like other commands if the server does not answer at first.
    shown = _screen(monitor.look())
    with Live(shown, console=terminal(), screen=True, auto_refresh=False) as live:
        try:
            while True:
                live.refresh()
                time.sleep(interval)
                try:
                    live.update(_screen(monitor.look()))
                except (StrandlineError, CommandFailed) as error:
                    live.update(Text(f"{error}; trying again", "red"))
        except KeyboardInterrupt:
            return


# --- output ---------------------------------------------------------------------------------------------------------


def fields_of(snapshot: Snapshot) -> dict[str, str | None]:
    requests, flush = snapshot.requests, snapshot.flush_p99_ms
    return {
        "server": f"{snapshot.url}, {snapshot.status}, version {snapshot.version}, up {show_age(snapshot.uptime_ms)}",
        "appends": f"{snapshot.appends:,.0f} records/s, {decimal(round(snapshot.append_bytes))}/s",
        "requests": None if requests is None else f"{requests:,.0f}/s",
        "flush p99": None if flush is None else f"{flush:,.1f} ms",
        "stored": f"{snapshot.records:,} records in {snapshot.logs:,} logs, {decimal(snapshot.bytes)}",
        "journal": decimal(snapshot.journal_bytes),
        "memory": decimal(snapshot.rss_bytes),
        "connections": f"{snapshot.connections:,}",
        "pressure": f"{snapshot.pressure:.0%}",
    }


_Table = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]


def tables_of(snapshot: Snapshot) -> list[_Table]:
    """The tables that have rows. All columns but the names are numbers."""
    busiest = [(one.log, f"{one.appends:,.1f}", f"{decimal(round(one.bytes))}/s") for one in snapshot.busiest]
    queues = [
        (one.name, f"{one.ready:,}", f"{one.in_flight:,}", f"{one.delayed:,}", f"{one.dead_lettered:,}")
        for one in snapshot.queues
    ]
    consumers = [(f"{one['topic']}: {one['consumer']}", f"{one['lag']:,}") for one in snapshot.consumers]
    tables: list[_Table] = [
        (("busiest logs", "records/s", "bytes"), busiest),
        (("queues", "ready", "leased", "delayed", "dead-lettered"), queues),
        (("consumers", "lag"), consumers),
    ]
    return [table for table in tables if table[1]]


def _print_once(snapshot: Snapshot) -> None:
    print_fields(fields_of(snapshot))
    for columns, rows in tables_of(snapshot):
        print_line("")
        print_table(columns, rows, right=columns[1:])


def _screen(snapshot: Snapshot) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for name, value in fields_of(snapshot).items():
        if value is not None:
            grid.add_row(Text(name, "bold"), Text(value))
    parts: list[Any] = [grid]
    for columns, rows in tables_of(snapshot):
        table = Table(box=None, pad_edge=False, header_style="bold cyan", padding=(0, 2, 0, 0))
        for at, name in enumerate(columns):
            table.add_column(name, justify="right" if at else "left", min_width=24 if not at else 10)
        for row in rows:
            table.add_row(*map(Text, row))
        parts += ["", table]
    return Group(*parts)

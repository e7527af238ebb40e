"""Reports: the results of a run, and how they are shown in the terminal. They are also stored as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from bench.machine import Machine
from bench.measure import COSTS, Figure, Row, Unit

COLUMNS = ("what", "result (lowest to highest)", "floor", "times the floor's cost", "target")
PEER_COLUMNS = ("what", "result (lowest to highest)", "peer", "times the peer's", "target")


class Report(msgspec.Struct, frozen=True):
    date: str
    machine: Machine
    minutes: float
    rows: list[Row]
    #: Whether it was a quick run, whose figures mean little.
    quick: bool = False


def show(console: Console, report: Report) -> None:
    for group, rows in groups(report):
        table = Table(*columns(rows), title=group, title_justify="left", box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*cells(row), style=None if _is_met(row) else "red")
        console.print(table)
    console.print(summary(report))


def groups(report: Report) -> Iterator[tuple[str, list[Row]]]:
    for group, rows in groupby(report.rows, key=lambda row: row.group):
        yield group, list(rows)


def columns(rows: Sequence[Row]) -> tuple[str, ...]:
    return PEER_COLUMNS if any(row.peer is not None for row in rows) else COLUMNS


def summary(report: Report) -> str:
    took = f"{report.minutes:.0f} minutes" if report.minutes >= 1.5 else f"{report.minutes * 60:.0f} seconds"
    return f"{report.date}: {report.machine}. The run took {took}."


def _is_met(row: Row) -> bool:
    if row.aim is not None and row.times_peer is not None:
        return row.aim.met_by(row.times_peer.median)
    return row.target is None or row.target.met_by(row.result.median)


def cells(row: Row) -> tuple[str, str, str, str, str]:
    if row.peer is not None:
        return _peer_cells(row)
    floor = "" if row.floor is None else f"{number(row.floor.median, row.unit)} ({row.floor_is})"
    times = "" if row.times_floor is None else _times(row.times_floor)
    return row.name, _spread(row.result, row.unit), floor, times, _target(row)


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    bound = "≤" if row.target.unit in COSTS else "≥"
    return f"{bound} {number(row.target.limit, row.unit)}: {'met' if _is_met(row) else 'MISSED'}"


def _peer_cells(row: Row) -> tuple[str, str, str, str, str]:
    assert row.peer is not None
    assert row.times_peer is not None
    aim = _target(row)
    if row.aim is not None:
        bound = "≤" if row.aim.unit in COSTS else "≥"
        aim = f"{bound} {row.aim.limit:g}: {'met' if _is_met(row) else 'MISSED'}"
    peer = f"{_spread(row.peer, row.unit)} ({row.peer_is})"
    return row.name, _spread(row.result, row.unit), peer, _times(row.times_peer), aim


def _spread(figure: Figure, unit: Unit) -> str:
    if figure.low == figure.high:
        return number(figure.median, unit)
    return f"{number(figure.median, unit)} ({_short(figure.low)} to {_short(figure.high)})"


def _times(figure: Figure) -> str:
    if figure.low == figure.high:
        return f"{figure.median:.3g}"
    return f"{figure.median:.3g} ({figure.low:.3g} to {figure.high:.3g})"


def number(value: float, unit: Unit) -> str:
    return f"{_short(value)} {unit}"


def _short(value: float) -> str:
    """Three digits, and a letter for thousands and millions."""
    for limit, divisor, letter in ((1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if value >= limit:
            return f"{value / divisor:.3g}{letter}" if value < 1000 * divisor else f"{value / divisor:,.0f}{letter}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

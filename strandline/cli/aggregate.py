"""``strandline aggregate``: records added up, as a table or as bars."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.bars import Bar, print_bars
from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, connect
from strandline.cli.exits import CommandFailed, Exit
from strandline.cli.output import print_json, print_line, print_table
from strandline.cli.search import Log, Since, Until
from strandline.cli.times import now_ms, parse_length, parse_moment, show_time
from strandline.client import Client
from strandline.client.stream_types import Aggregated, Group

DEFAULT_SINCE = "24h"
#: The statistics of a measure that a table has room for.
STATISTICS = ("count", "sum", "avg", "min", "max", "p95")


def aggregate_command(
    log: Log,
    rollup: Annotated[
        str | None, typer.Argument(metavar="[ROLLUP]", help="What is added up; not needed where there is one.")
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option("--interval", metavar="LENGTH", help="Of those of the rollup; the shortest by default."),
    ] = None,
    since: Since = DEFAULT_SINCE,
    until: Until = None,
    group_by: Annotated[
        list[str] | None, typer.Option("--group-by", "-g", metavar="FIELD", help="Can be given repeatedly.")
    ] = None,
    measures: Annotated[
        list[str] | None, typer.Option("--measure", "-m", metavar="NAME", help="Only this. Can be given repeatedly.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", help="Only records that this finds.")] = None,
    chart: Annotated[bool, typer.Option("--chart", help="Bars, a line per interval.")] = False,
    value: Annotated[
        str | None, typer.Option("--value", metavar="MEASURE.STATISTIC", help="What the bars show: ms.avg.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Add up the records of a log by interval and group, by a rollup of its schema."""
    if value is not None and not chart:
        raise typer.BadParameter("--value is for --chart", param_hint="--value")
    start = parse_moment(since or DEFAULT_SINCE, "--since")
    end = now_ms() + 1 if until is None else parse_moment(until, "--until")
    with connect(url, key) as client:
        rollup, interval = _choose(client, log, rollup, interval)
        found = client.stream(log).aggregate(
            rollup, start=start, end=end, interval=interval, q=query, group_by=group_by, measures=measures
        )
    if as_json:
        print_json({"log": log, "rollup": rollup, "interval": interval, "buckets": found.buckets})
    elif not found.buckets:
        print_line("nothing was found")
    elif chart:
        _print_chart(found, interval, value)
    else:
        _print_table(found)


def _choose(client: Client, log: str, rollup: str | None, interval: str | None) -> tuple[str, str]:
    rollups = client.stream(log).schema().get("search", {}).get("rollups", {})
    if rollup is None:
        if len(rollups) != 1:
            known = f"one of {', '.join(rollups)}" if rollups else "but the schema of this log has none"
            raise CommandFailed(f"name a rollup: {known}", Exit.USAGE if rollups else Exit.CONFLICT)
        rollup = next(iter(rollups))
    if interval is None:
        intervals = rollups.get(rollup, {}).get("intervals", ())
        interval = min(intervals, key=lambda text: parse_length(text, "--interval"), default="1h")
    return rollup, interval


def _print_table(found: Aggregated) -> None:
    groups = [group for bucket in found.buckets for group in bucket.groups]
    keys = list(dict.fromkeys(name for group in groups for name in group.key))
    values = list(dict.fromkeys(name for group in groups for name in _values(group)))
    rows = [
        (
            bucket.start,
            *(str(group.key.get(key, "")) for key in keys),
            *(_shown(_values(group).get(name)) for name in values),
        )
        for bucket in found.buckets
        for group in bucket.groups
    ]
    print_table(("start", *keys, *values), rows, right=values)


def _values(group: Group) -> dict[str, Any]:
    """By measure and statistic: ``ms.avg``; a measure that only counts has its own name."""
    return {
        measure if set(told) == {"count"} else f"{measure}.{statistic}": told[statistic]
        for measure, told in group.measures.items()
        for statistic in STATISTICS
        if told.get(statistic) is not None
    }


def _print_chart(found: Aggregated, interval: str, value: str | None) -> None:
    """Bars of one value, group by group; an interval in which nothing was is a line without a bar."""
    known = [name for bucket in found.buckets for group in bucket.groups for name in _values(group)]
    name = value or known[0]
    if name not in known:
        raise CommandFailed(f"there is no {name!r}: {', '.join(dict.fromkeys(known))}", Exit.USAGE)
    starts = _starts(found, parse_length(interval, "--interval"))
    series: dict[str, dict[str, float]] = {}
    for bucket in found.buckets:
        for group in bucket.groups:
            label = ", ".join(f"{key}={each}" for key, each in group.key.items())
            series.setdefault(label, {})[bucket.start] = _values(group).get(name) or 0
    highest = max(each for values in series.values() for each in values.values())
    for label, values in series.items():
        print_line(f"{name}  {label}".rstrip())
        print_bars([Bar(start, values.get(start, 0), _shown(values.get(start, 0))) for start in starts], highest)


def _starts(found: Aggregated, step: int) -> list[str]:
    """Every interval from the first with anything in it to the last."""
    first, last = (parse_moment(bucket.start, "start") for bucket in (found.buckets[0], found.buckets[-1]))
    return [show_time(at) for at in range(first, last + 1, step)]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"

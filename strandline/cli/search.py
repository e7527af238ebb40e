"""``strandline search`` and ``strandline aggregate``: hits with the matches marked, and sums as a table or as bars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from msgspec import Raw
from rich.text import Text

from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, complete_log, connect
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.output import counted, print_json, print_line, print_table
from strandline.cli.times import now_ms, parse_length, parse_moment, show_time
from strandline.client import Client
from strandline.client.stream_calls import Aggregated, Group, Hit
from strandline.protocols.streams.offsets import decode
from strandline.query.errors import BadQuery
from strandline.query.language import And, Bare, Compare, Node, Not, Or, parse

PAGE_HITS = 100

Log = Annotated[str, typer.Argument(metavar="LOG", help="The log.", autocompletion=complete_log)]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Of this time or later: 1h (ago), ISO 8601 or milliseconds."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Of before this time.")]


class FoundRecord(msgspec.Struct):
    """A hit, for programs."""

    seq: int
    offset: str
    score: float | None
    fields: dict[str, Any]
    data: Raw


def search_command(
    log: Log,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="For example: level:error duration:>=100 timeout")],
    since: Since = None,
    until: Until = None,
    sort: Annotated[
        list[str] | None,
        typer.Option("--sort", metavar="FIELD[:asc]", help="By this field, _score or offset. Can be given repeatedly."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many hits.")] = 20,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Find records of a log whose schema says what can be searched.

    Times are those of the schema's primary timestamp field.
    """
    words = words_of(query)
    with connect(url, key) as client:
        asked = within(client, log, query, since, until)
        stream = client.stream(log, Raw)
        found = list(islice(stream.hits(asked, sort=sort, size=min(limit + 1, PAGE_HITS)), limit + 1))
    hits, more = [_found(hit) for hit in found[:limit]], len(found) > limit
    if as_json:
        print_json({"log": log, "query": asked, "hits": hits, "more": more})
        return
    for hit in hits:
        line = Text.assemble((f"{hit.seq:>6}", "cyan"), "  ")
        line.append(marked(bytes(hit.data).decode(), words))
        print_line(line)
    print_line(counted(len(hits), "hit") + (", and there are more: --limit" if more else ""))


def _found(hit: Hit[Raw]) -> FoundRecord:
    return FoundRecord(decode(hit.offset) or 0, hit.offset, hit.score, hit.fields, hit.source)


def within(client: Client, log: str, query: str, since: str | None, until: str | None) -> str:
    """The query, restricted to a time. Raises CommandFailed where the log does not say what its time is."""
    bounds = [
        (sign, parse_moment(text, option))
        for sign, text, option in ((">=", since, "--since"), ("<", until, "--until"))
        if text is not None
    ]
    if not bounds:
        return query
    field = client.stream(log).schema().get("search", {}).get("primaryTimestampField")
    if field is None:
        raise CommandFailed(f"the schema of {log!r} has no primary timestamp field, which a time is of", Exit.CONFLICT)
    times = " ".join(f'{field}:{sign}"{show_time(max(moment, 1))}"' for sign, moment in bounds)
    return f"({query}) {times}" if query.strip() else times


# --- matches --------------------------------------------------------------------------------------------------------


def words_of(query: str) -> list[str]:
    """What a record was found by, as it may stand in it; nothing that it was not to have. Raises BadParameter."""
    try:
        return [word for word in _words(parse(query)) if word]
    except BadQuery as error:
        raise typer.BadParameter(str(error), param_hint="QUERY") from None


def _words(node: Node) -> Iterator[str]:
    if isinstance(node, And | Or):
        for child in node.children:
            yield from _words(child)
    elif isinstance(node, Bare) or (isinstance(node, Compare) and node.op == "="):
        yield node.value if node.quoted else node.value.removesuffix("*")
    elif isinstance(node, Not):
        return


def marked(text: str, words: list[str]) -> Text:
    """A text with these words marked, where words begin."""
    shown = Text(text)
    if words:
        pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        shown.highlight_regex(re.compile(rf"(?<!\w)(?:{pattern})", re.IGNORECASE), "bold yellow")
    return shown


# --- strandline aggregate -------------------------------------------------------------------------------------------

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


# --- bars -----------------------------------------------------------------------------------------------------------

WIDTH = 40
#: A cell that is filled from the left by so many eighths.
_EIGHTHS = (" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█")


class Bar(NamedTuple):
    label: str
    value: float
    shown: str


def bar_of(value: float, highest: float, width: int = WIDTH) -> str:
    """As long as ``value`` is beside ``highest``, which fills the width; what is more than nothing can be seen."""
    if value <= 0 or highest <= 0:
        return ""
    eighths = max(round(value / highest * width * 8), 1)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def print_bars(bars: list[Bar], highest: float) -> None:
    labels = max(len(bar.label) for bar in bars)
    numbers = max(len(bar.shown) for bar in bars)
    for bar in bars:
        line = Text.assemble(f"{bar.label:<{labels}}  {bar.shown:>{numbers}}  ", (bar_of(bar.value, highest), "cyan"))
        line.rstrip()
        print_line(line)

"""``strandline search`` prints hits with the matches marked; ``strandline aggregate`` prints a table or a chart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer
from msgspec import Raw

from strandline.cli.connection import connect
from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.options import ApiKey, AsJson, LogName, Since, Until, Url
from strandline.cli.output import counted, print_json, print_line, print_table, prints_csv
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import now_ms, parse_duration, parse_moment, show_time
from strandline.client.errors import BadRequest
from strandline.client.search_types import Aggregated, Group, Hit
from strandline.query.errors import BadQuery
from strandline.query.language import And, Bare, Compare, Node, Not, Or, parse

if TYPE_CHECKING:
    from rich.text import Text

    from strandline.client import Client

PAGE_HITS = 100
#: The message of a server for a log without a search configuration, as the protocol of streams publishes it.
NOT_CONFIGURED = "search is not configured for this stream"


class ShownHit(msgspec.Struct):
    """A hit in the JSON output."""

    seq: int
    offset: str
    score: float | None
    fields: dict[str, Any]
    data: Raw


def search_command(
    log: LogName,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Search query, such as: level:error duration:>=100 timeout")
    ],
    since: Since = None,
    until: Until = None,
    sort: Annotated[
        list[str] | None,
        typer.Option(
            "--sort",
            metavar="FIELD",
            help="Sort by a field, _score or offset; append :asc or :desc. Repeat the option for more fields.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of hits.")] = 20,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Search the records of a log. The log needs a search configuration, see `strandline index`.

    --since and --until apply to the primary timestamp field of the configuration.

    Example:
      strandline search requests 'level:error ms:>100' --since 1h --sort ms:desc
    """
    words = words_of(query)
    with connect(url, api_key) as client, naming("log", log):
        asked = within(client, log, query, since, until)
        stream = client.stream(log, Raw)
        try:
            found = list(islice(stream.hits(asked, sort=sort, size=min(limit + 1, PAGE_HITS)), limit + 1))
        except BadRequest as error:
            if error.message != NOT_CONFIGURED:
                raise
            message = f"log {log!r} has no search configuration; propose one with: strandline index infer {log}"
            raise CommandFailed(message, Exit.USAGE) from None
    hits, more = [_found(hit) for hit in found[:limit]], len(found) > limit
    if as_json:
        print_json({"log": log, "query": asked, "hits": hits, "more": more})
        return
    from rich.text import Text

    for hit in hits:
        line = Text.assemble((f"{hit.seq:>6}", "cyan"), "  ")
        line.append(marked(bytes(hit.data).decode(), words))
        print_line(line)
    print_line(counted(len(hits), "hit") + ("; more exist, raise --limit to see them" if more else ""))


def _found(hit: Hit[Raw]) -> ShownHit:
    from strandline.protocols.streams.offsets import decode

    return ShownHit(decode(hit.offset) or 0, hit.offset, hit.score, hit.fields, hit.source)


def within(client: Client, log: str, query: str, since: str | None, until: str | None) -> str:
    """The query, restricted to a time range. Raises CommandFailed if the log has no primary timestamp field."""
    bounds = [
        (sign, parse_moment(text, option))
        for sign, text, option in ((">=", since, "--since"), ("<", until, "--until"))
        if text is not None
    ]
    if not bounds:
        return query
    config = client.stream(log).search_config()
    field = None if config is None else config.get("primaryTimestampField")
    if field is None:
        raise CommandFailed(
            f"the search configuration of log {log!r} has no primary timestamp field; set primaryTimestampField in "
            "it, or search without --since and --until",
            Exit.CONFLICT,
        )
    times = " ".join(f'{field}:{sign}"{show_time(max(moment, 1))}"' for sign, moment in bounds)
    return f"({query}) {times}" if query.strip() else times


# --- matches --------------------------------------------------------------------------------------------------------


def words_of(query: str) -> list[str]:
    """The words of a query that a hit may contain, without negated ones. Raises BadParameter."""
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
    """A text in which these words, and words that start with them, are marked."""
    from rich.text import Text

    shown = Text(text)
    if words:
        pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        shown.highlight_regex(re.compile(rf"(?<!\w)(?:{pattern})", re.IGNORECASE), "bold yellow")
    return shown


# --- strandline aggregate -------------------------------------------------------------------------------------------

DEFAULT_SINCE = "24h"
#: The statistics of a measure that a table shows.
STATISTICS = ("count", "sum", "avg", "min", "max", "p95")


def aggregate_command(
    log: LogName,
    rollup: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROLLUP]", help="Rollup of the search configuration. Default: the only rollup of the log."
        ),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            "--interval", metavar="DURATION", help="Interval of the rollup, such as 1h. Default: the shortest."
        ),
    ] = None,
    since: Since = DEFAULT_SINCE,
    until: Until = None,
    group_by: Annotated[
        list[str] | None,
        typer.Option("--group-by", "-g", metavar="FIELD", help="Group by a field. Repeat the option for more fields."),
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure", "-m", metavar="NAME", help="Only this measure. Repeat the option for more. Default: all."
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", metavar="QUERY", help="Only records that match this search query.")
    ] = None,
    chart: Annotated[bool, typer.Option("--chart", help="Print a bar chart instead of a table.")] = False,
    value: Annotated[
        str | None,
        typer.Option(
            "--value", metavar="MEASURE.STATISTIC", help="Value of the chart, such as ms.avg. Default: the first one."
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Aggregate the records of a log by time and fields, with a rollup of its search configuration.

    Example:
      strandline aggregate requests load --since 7d --interval 1h --group-by level
      strandline aggregate requests --chart --value ms.max
    """
    if value is not None and not chart:
        raise typer.BadParameter("--value needs --chart", param_hint="--value")
    if chart and prints_csv():
        raise typer.BadParameter("--chart cannot be combined with --output csv", param_hint="--chart")
    start = parse_moment(since or DEFAULT_SINCE, "--since")
    end = now_ms() + 1 if until is None else parse_moment(until, "--until")
    with connect(url, api_key) as client:
        rollup, interval = _choose(client, log, rollup, interval)
        found = client.stream(log).aggregate(
            rollup, start=start, end=end, interval=interval, q=query, group_by=group_by, measures=measures
        )
    if as_json:
        print_json({"log": log, "rollup": rollup, "interval": interval, "buckets": found.buckets})
    elif not found.buckets:
        print_line("no records match")
    elif chart:
        _print_chart(found, interval, value)
    else:
        _print_table(found)


def _choose(client: Client, log: str, rollup: str | None, interval: str | None) -> tuple[str, str]:
    with naming("log", log):
        config = client.stream(log).search_config()
    rollups = {} if config is None else config.get("rollups", {})
    if not rollups:
        raise CommandFailed(
            f"log {log!r} has no rollups; add one to its search configuration with strandline index set", Exit.CONFLICT
        )
    if rollup is None:
        if len(rollups) != 1:
            raise CommandFailed(f"log {log!r} has several rollups; specify one of: {', '.join(rollups)}", Exit.USAGE)
        rollup = next(iter(rollups))
    if interval is None:
        intervals = rollups.get(rollup, {}).get("intervals", ())
        interval = min(intervals, key=lambda text: parse_duration(text, "--interval"), default="1h")
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
    """By measure and statistic, such as ``ms.avg``; a measure that only counts has no statistic in its name."""
    return {
        measure if told.sum is None else f"{measure}.{statistic}": getattr(told, statistic)
        for measure, told in group.measures.items()
        for statistic in STATISTICS
        if getattr(told, statistic) is not None
    }


def _print_chart(found: Aggregated, interval: str, value: str | None) -> None:
    """One bar per interval, group by group; an interval without records has no bar."""
    known = [name for bucket in found.buckets for group in bucket.groups for name in _values(group)]
    name = value or known[0]
    if name not in known:
        raise CommandFailed(
            f"unknown value {name!r} for --value; expected one of: {', '.join(dict.fromkeys(known))}", Exit.USAGE
        )
    starts = _starts(found, parse_duration(interval, "--interval"))
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
    """Every interval from the first with records to the last."""
    first, last = (parse_moment(bucket.start, "start") for bucket in (found.buckets[0], found.buckets[-1]))
    return [show_time(at) for at in range(first, last + 1, step)]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"


# --- bars -----------------------------------------------------------------------------------------------------------

WIDTH = 40
#: A cell that is filled from the left, in eighths.
_EIGHTHS = (" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█")


class Bar(NamedTuple):
    label: str
    value: float
    shown: str


def bar_of(value: float, highest: float, width: int = WIDTH) -> str:
    """A bar of a length relative to ``highest``, which fills the width. A positive value is always visible."""
    if value <= 0 or highest <= 0:
        return ""
    eighths = max(round(value / highest * width * 8), 1)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def print_bars(bars: list[Bar], highest: float) -> None:
    labels = max(len(bar.label) for bar in bars)
    numbers = max(len(bar.shown) for bar in bars)
    from rich.text import Text

    for bar in bars:
        line = Text.assemble(f"{bar.label:<{labels}}  {bar.shown:>{numbers}}  ", (bar_of(bar.value, highest), "cyan"))
        line.rstrip()
        print_line(line)

"""``strandline search``: the query language of streams, with what was found marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Raw
from rich.text import Text

from strandline.cli.completion import complete_log
from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, connect
from strandline.cli.exits import CommandFailed, Exit
from strandline.cli.output import counted, print_json, print_line
from strandline.cli.times import parse_moment, show_time
from strandline.client import Client
from strandline.client.stream_types import Hit
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


class Found(msgspec.Struct):
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


def _found(hit: Hit[Raw]) -> Found:
    return Found(decode(hit.offset) or 0, hit.offset, hit.score, hit.fields, hit.source)


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


# --- marking what was found ----------------------------------------------------------------------------------------


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

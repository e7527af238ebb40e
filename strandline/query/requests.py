"""The requests of ``_search`` and ``_aggregate``: parsed, checked and bound, or refused with a reason."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from strandline.nearest_name import did_you_mean
from strandline.query.bound import Bound, bind_search
from strandline.query.config import Rollup, SearchConfig
from strandline.query.errors import BadQuery
from strandline.query.language import parse
from strandline.query.order import OFFSET, SCORE, SortKey, SortValues
from strandline.query.relevance import is_scored
from strandline.query.values import LATEST_DATE, parse_date, plain

DEFAULT_SIZE = 50
MAX_SIZE = 500
#: The maximum duration of a search, whatever it requests.
MAX_TIMEOUT_MS = 3_000
#: More sort keys make no noticeable difference, and each has a cost.
MAX_SORT_KEYS = 16

DIGITS = re.compile(r"[0-9]{1,30}\Z", re.ASCII)
#: Maps an offset in the form that clients use to a seq, or None.
DecodeOffset = Callable[[str], "int | None"]


class SearchRequest(Struct, frozen=True):
    """``after`` has the sort values of the hit to continue after, with a seq for the offset."""

    query: Bound
    size: int
    sort: tuple[SortKey, ...]
    after: SortValues | None
    timeout_ms: int


class AggregateRequest(Struct, frozen=True):
    """Times are in milliseconds; ``first`` is inclusive, ``end`` exclusive. ``include`` is the rollup's own query."""

    rollup: Rollup
    first: int
    end: int
    interval: str
    group_by: tuple[str, ...]
    measures: tuple[str, ...]
    query: Bound | None
    include: Bound | None
    #: The queries of count measures that have one.
    counted: dict[str, Bound]

    @property
    def interval_ms(self) -> int:
        return self.rollup.intervals[self.interval]


# --- the bodies ------------------------------------------------------------------------------------------------------

#: Milliseconds since 1970, or text: a date, or digits for nanoseconds.
Moment = str | Annotated[float, Meta(extra_json_schema={"minimum": 0})]


class SearchBody(Struct, kw_only=True):
    q: str
    size: Annotated[int, Meta(ge=1, le=MAX_SIZE)] | None = DEFAULT_SIZE
    sort: Annotated[list[str], Meta(max_length=MAX_SORT_KEYS)] | None = None
    search_after: list[Any] | None = None
    timeout_ms: Annotated[float, Meta(ge=0)] | None = MAX_TIMEOUT_MS


class AggregateBody(Struct, kw_only=True):
    rollup: str
    first: Moment = field(name="from")
    end: Moment = field(name="to")
    interval: str
    group_by: list[str] | None = None
    measures: Annotated[list[str], Meta(min_length=1)] | None = None
    q: str | None = None


_MOMENT = "a timestamp string or unix milliseconds"
#: The protocol's description of a valid value, for each member.
_MUST_BE = {
    "q": "a string",
    "size": f"an integer between 1 and {MAX_SIZE}",
    "sort": "an array of strings",
    "search_after": "an array",
    "timeout_ms": "a non-negative number",
    "rollup": "a string",
    "from": _MOMENT,
    "to": _MOMENT,
    "interval": "a string",
    "group_by": "an array of strings",
    "measures": "a non-empty array of strings",
}
#: The member that an error of msgspec is about.
_MEMBER = re.compile(r"missing required field `(\w+)`|at `\$\.(\w+)")
B = TypeVar("B", SearchBody, AggregateBody)


def _body(declared: type[B], request: dict[str, Any]) -> B:
    """Convert a body to its struct. Undeclared members are ignored, as the protocol requires."""
    try:
        return msgspec.convert({name: plain(value) for name, value in request.items()}, declared)
    except msgspec.ValidationError as error:
        found = _MEMBER.search(str(error))
        assert found is not None
        name = found[1] or found[2]
        if name == "sort" and "length" in str(error):
            raise BadQuery(f"sort must have at most {MAX_SORT_KEYS} keys") from None
        raise BadQuery(f"{name} must be {_MUST_BE[name]}") from None


def decode_object(body: bytes, what: str) -> dict[str, Any]:
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadQuery(f"{what} must be valid JSON") from None
    if not isinstance(request, dict):
        raise BadQuery(f"{what} must be an object")
    return request


# --- _search ---------------------------------------------------------------------------------------------------------


def parse_search_body(body: bytes, config: SearchConfig | None, decode: DecodeOffset) -> SearchRequest:
    """Parse a JSON body. Raises BadQuery."""
    return read_search(decode_object(body, "search request"), config, decode)


def parse_search_query(
    parameters: Mapping[str, list[str]], config: SearchConfig | None, decode: DecodeOffset
) -> SearchRequest:
    """Parse the parameters of a URL, each with all its values. Raises BadQuery."""
    request: dict[str, Any] = {}
    if "q" not in parameters:
        raise BadQuery("missing q")
    request["q"] = parameters["q"][0]
    if "size" in parameters:
        request["size"] = _number(parameters["size"][0])
    if "timeout_ms" in parameters:
        request["timeout_ms"] = _number(parameters["timeout_ms"][0])
    if "sort" in parameters:
        request["sort"] = [key for value in parameters["sort"] for key in value.split(",") if key.strip()]
    if "search_after" in parameters:
        try:
            request["search_after"] = msgspec.json.decode(parameters["search_after"][0])
        except (msgspec.DecodeError, UnicodeError):
            raise BadQuery("search_after must be an array") from None
    if "track_total_hits" in parameters:
        request["track_total_hits"] = True
    return read_search(request, config, decode)


def read_search(request: dict[str, Any], config: SearchConfig | None, decode: DecodeOffset) -> SearchRequest:
    if config is None or not config.fields:
        raise BadQuery("search is not configured for this stream")
    if "track_total_hits" in request:
        raise BadQuery("track_total_hits is no longer supported")
    body = _body(SearchBody, request)
    query = read_query(body.q, config)
    sort = read_sort(body.sort or [], query, config)
    timeout_ms = MAX_TIMEOUT_MS if body.timeout_ms is None else body.timeout_ms
    return SearchRequest(
        query=query,
        size=DEFAULT_SIZE if body.size is None else body.size,
        sort=sort,
        after=None if body.search_after is None else read_after(body.search_after, sort, decode),
        timeout_ms=int(min(timeout_ms, MAX_TIMEOUT_MS)),
    )


def read_query(text: str, config: SearchConfig) -> Bound:
    return bind_search(parse(text, "q"), config)


def read_sort(asked: list[str], query: Bound, config: SearchConfig) -> tuple[SortKey, ...]:
    """Return the requested or the default keys, always followed by the offset, so that no two hits are equal."""
    keys = [read_sort_key(each, config) for each in asked]
    if not keys and is_scored(query):
        keys.append(SortKey(SCORE, True))
        if config.primary_timestamp is not None:
            field = config.fields[config.primary_timestamp]
            keys.append(SortKey(field.name, True, field))
    if all(key.name != OFFSET for key in keys):
        keys.append(SortKey(OFFSET, True))
    return tuple(keys)


def read_sort_key(text: str, config: SearchConfig) -> SortKey:
    name, colon, direction = text.strip().rpartition(":")
    if not colon:
        name, direction = direction, "desc"
    name, direction = name.strip(), direction.strip().lower()
    if direction not in ("asc", "desc"):
        raise BadQuery(f"invalid sort direction for {name}")
    descending = direction == "desc"
    if name in (SCORE, OFFSET):
        return SortKey(name, descending)
    field = config.resolve(name)
    if field is None:
        raise BadQuery(f"unknown sort field {name}{did_you_mean(name, config.names())}")
    if not field.sortable and field.name != config.primary_timestamp:
        raise BadQuery(f"search field {name} is not sortable")
    return SortKey(field.name, descending, field)


def read_after(value: list[Any], sort: tuple[SortKey, ...], decode: DecodeOffset) -> SortValues:
    if len(value) != len(sort):
        raise BadQuery(f"search_after must have {len(sort)} elements, one for each sort key")
    return tuple(read_after_value(each, key, decode) for each, key in zip(value, sort, strict=True))


def read_after_value(value: object, key: SortKey, decode: DecodeOffset) -> Any:
    """Read one value of an earlier hit's ``sort``. It must have the type of the key."""
    if key.name == OFFSET:
        seq = decode(value) if isinstance(value, str) else None
        if seq is None:
            raise BadQuery("search_after must have an offset in the place of offset")
        return seq
    if key.field is None:
        return _after_number(value, SCORE)
    if value is None:
        return None
    kind = key.field.kind
    if kind == "keyword":
        if not isinstance(value, str):
            raise BadQuery(f"search_after must have a string in the place of {key.name}")
        return value
    if kind == "bool":
        if not isinstance(value, bool):
            raise BadQuery(f"search_after must have a boolean in the place of {key.name}")
        return value
    number = _after_number(value, key.name)
    if kind != "float":
        if number != number // 1:
            raise BadQuery(f"search_after must have a whole number in the place of {key.name}")
        return int(number)
    return float(number)


def _after_number(value: object, name: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadQuery(f"search_after must have a number in the place of {name}")
    try:
        if math.isfinite(value):
            return value
    except OverflowError:
        return value if isinstance(value, int) and name != SCORE else math.copysign(1e308, value)
    raise BadQuery(f"search_after must have a number in the place of {name}")


def _number(text: str) -> object:
    """Return the number in a URL parameter. Any other text is returned unchanged and refused later."""
    try:
        return float(text) if text.strip() == text and "_" not in text else text
    except ValueError:
        return text


# --- _aggregate --------------------------------------------------------------------------------------------------


def parse_aggregate_body(body: bytes, config: SearchConfig | None) -> AggregateRequest:
    """Parse a JSON body. Raises BadQuery."""
    request = decode_object(body, "aggregate request")
    if config is None or not config.fields:
        raise BadQuery("search is not configured for this stream")
    asked = _body(AggregateBody, request)
    rollup = config.rollups.get(asked.rollup)
    if rollup is None:
        raise BadQuery(f"unknown rollup {asked.rollup}{did_you_mean(asked.rollup, config.rollups)}")
    first, end = read_time(asked.first, "from"), read_time(asked.end, "to")
    if end <= first:
        raise BadQuery("to must be greater than from")
    if asked.interval not in rollup.intervals:
        raise BadQuery(f"interval {asked.interval} is not configured for rollup {asked.rollup}")
    return AggregateRequest(
        rollup=rollup,
        first=first,
        end=end,
        interval=asked.interval,
        group_by=read_group_by(asked.group_by or [], rollup, config),
        measures=read_measures(asked.measures, rollup),
        query=None if asked.q is None else read_query(asked.q, config),
        include=None if rollup.include is None else bind_search(rollup.include, config),
        counted={
            measure.name: bind_search(measure.include, config)
            for measure in rollup.measures.values()
            if measure.include is not None
        },
    )


def read_time(value: str | float, name: str) -> int:
    """Return milliseconds. A number is in milliseconds, digits in a string are nanoseconds, and any other string is a
    date."""
    if isinstance(value, str):
        milliseconds = int(value) // 1_000_000 if DIGITS.match(value) else parse_date(value)
    else:
        milliseconds = int(value) if 0 <= value <= LATEST_DATE else None
    if milliseconds is None or not 0 <= milliseconds <= LATEST_DATE:
        raise BadQuery(f"{name} must be a valid timestamp")
    return milliseconds


def read_group_by(asked: list[str], rollup: Rollup, config: SearchConfig) -> tuple[str, ...]:
    names = set()
    for each in asked:
        field = config.resolve(each)
        if field is None or field.name not in rollup.dimensions:
            raise BadQuery(f"group_by field {each} is not configured on rollup {rollup.name}")
        names.add(field.name)
    return tuple(sorted(names))


def read_measures(asked: list[str] | None, rollup: Rollup) -> tuple[str, ...]:
    for each in asked or ():
        if each not in rollup.measures:
            raise BadQuery(f"unknown measure {each} on rollup {rollup.name}")
    return tuple(sorted(rollup.measures if asked is None else set(asked)))

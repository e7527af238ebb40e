"""The requests of ``_search`` and ``_aggregate``: parsed, checked and bound, or refused with a reason."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from strandline.query.bound import Bound, bind_search
from strandline.query.config import Rollup, SearchConfig
from strandline.query.errors import BadQuery
from strandline.query.language import parse
from strandline.query.order import OFFSET, SCORE, SortKey, SortValues
from strandline.query.relevance import is_scored
from strandline.query.values import LATEST_DATE, parse_date

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


# --- _search -----------------------------------------------------------------------------------------------------


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
    query = read_query(request.get("q"), config)
    sort = read_sort(request.get("sort"), query, config)
    return SearchRequest(
        query=query,
        size=read_size(request.get("size")),
        sort=sort,
        after=read_after(request.get("search_after"), sort, decode),
        timeout_ms=read_timeout(request.get("timeout_ms")),
    )


def read_query(text: object, config: SearchConfig) -> Bound:
    if not isinstance(text, str):
        raise BadQuery("q must be a string")
    return bind_search(parse(text, "q"), config)


def read_size(value: object) -> int:
    if value is None:
        return DEFAULT_SIZE
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise BadQuery(f"size must be an integer between 1 and {MAX_SIZE}")
    if not 1 <= value <= MAX_SIZE:
        raise BadQuery(f"size must be an integer between 1 and {MAX_SIZE}")
    return int(value)


def read_timeout(value: object) -> int:
    if value is None:
        return MAX_TIMEOUT_MS
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise BadQuery("timeout_ms must be a non-negative number")
    return int(min(value, MAX_TIMEOUT_MS))


def read_sort(value: object, query: Bound, config: SearchConfig) -> tuple[SortKey, ...]:
    """Return the requested or the default keys, always followed by the offset, so that no two hits are equal."""
    if value is None:
        value = []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadQuery("sort must be an array of strings")
    if len(value) > MAX_SORT_KEYS:
        raise BadQuery(f"sort must have at most {MAX_SORT_KEYS} keys")
    keys = [read_sort_key(each, config) for each in value]
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
        raise BadQuery(f"unknown sort field {name}")
    if not field.sortable and field.name != config.primary_timestamp:
        raise BadQuery(f"search field {name} is not sortable")
    return SortKey(field.name, descending, field)


def read_after(value: object, sort: tuple[SortKey, ...], decode: DecodeOffset) -> SortValues | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise BadQuery("search_after must be an array")
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


def decode_object(body: bytes, what: str) -> dict[str, Any]:
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadQuery(f"{what} must be valid JSON") from None
    if not isinstance(request, dict):
        raise BadQuery(f"{what} must be an object")
    return request


# --- _aggregate --------------------------------------------------------------------------------------------------


def parse_aggregate_body(body: bytes, config: SearchConfig | None) -> AggregateRequest:
    """Parse a JSON body. Raises BadQuery."""
    request = decode_object(body, "aggregate request")
    if config is None or not config.fields:
        raise BadQuery("search is not configured for this stream")
    name = request.get("rollup")
    if not isinstance(name, str):
        raise BadQuery("rollup must be a string")
    rollup = config.rollups.get(name)
    if rollup is None:
        raise BadQuery(f"unknown rollup {name}")
    first, end = read_time(request.get("from"), "from"), read_time(request.get("to"), "to")
    if end <= first:
        raise BadQuery("to must be greater than from")
    interval = request.get("interval")
    if not isinstance(interval, str):
        raise BadQuery("interval must be a string")
    if interval not in rollup.intervals:
        raise BadQuery(f"interval {interval} is not configured for rollup {name}")
    return AggregateRequest(
        rollup=rollup,
        first=first,
        end=end,
        interval=interval,
        group_by=read_group_by(request.get("group_by"), rollup, config),
        measures=read_measures(request.get("measures"), rollup),
        query=None if request.get("q") is None else read_query(request["q"], config),
        include=None if rollup.include is None else bind_search(rollup.include, config),
        counted={
            measure.name: bind_search(measure.include, config)
            for measure in rollup.measures.values()
            if measure.include is not None
        },
    )


def read_time(value: object, name: str) -> int:
    """Return milliseconds. A number is in milliseconds, digits in a string are nanoseconds, and any other string is a
    date."""
    if isinstance(value, str):
        milliseconds = int(value) // 1_000_000 if DIGITS.match(value) else parse_date(value)
        if milliseconds is None or not 0 <= milliseconds <= LATEST_DATE:
            raise BadQuery(f"{name} must be a valid timestamp")
        return milliseconds
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadQuery(f"{name} must be a timestamp string or unix milliseconds")
    if not 0 <= value <= LATEST_DATE:
        raise BadQuery(f"{name} must be a valid timestamp")
    return int(value)


def read_group_by(value: object, rollup: Rollup, config: SearchConfig) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadQuery("group_by must be an array of strings")
    names = set()
    for each in value:
        field = config.resolve(each)
        if field is None or field.name not in rollup.dimensions:
            raise BadQuery(f"group_by field {each} is not configured on rollup {rollup.name}")
        names.add(field.name)
    return tuple(sorted(names))


def read_measures(value: object, rollup: Rollup) -> tuple[str, ...]:
    if value is None:
        return tuple(sorted(rollup.measures))
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise BadQuery("measures must be a non-empty array of strings")
    for each in value:
        if each not in rollup.measures:
            raise BadQuery(f"unknown measure {each} on rollup {rollup.name}")
    return tuple(sorted(set(value)))

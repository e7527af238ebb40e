"""Requests of the streams protocol, and how their answers are read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from strandline.client import stream_types as types
from strandline.client.calls import ALWAYS, Answer, Reading, Request, get, post, query_string, segment
from strandline.client.errors import BadAnswer
from strandline.client.topic_calls import given

JSON_TYPE = "application/json"
#: The longest that the server waits for something.
LONG_POLL_SECONDS = 5.0
#: The server says something at least every 30 s.
SILENCE_SECONDS = 65.0

ROWS = Reading(list[types.StreamRow])
AGGREGATED = Reading(types.Aggregated)
ANYTHING = Reading(dict[str, Any])


@lru_cache(maxsize=256)
def values_reading(kind: Any) -> Reading[list[Any]]:
    return Reading(list[kind])


@lru_cache(maxsize=256)
def found_reading(kind: Any) -> Reading[types.Found[Any]]:
    return Reading(types.Found[kind])


def path_of(name: str) -> str:
    return "/v1/stream/" + "/".join(map(segment, name.split("/")))


def headers(fields: Mapping[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
    """Those that are said. A moment is told by RFC 3339."""
    return tuple((name.encode(), _text(value)) for name, value in fields.items() if value is not None)


def _text(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(moment(value)).encode()


def moment(value: Any) -> Any:
    """A datetime as text; everything else as it is."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def encode(values: list[Any], content_type: str) -> bytes:
    """Records as a body. Of JSON there can be any number, of anything else it is one."""
    if content_type == JSON_TYPE:
        return msgspec.json.encode(values)
    (value,) = values
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"a stream of {content_type} takes bytes or text, not {type(value).__name__}")
    return bytes(value)


def create(path: str, content_type: str | None, body: bytes, fields: Mapping[str, Any]) -> Request:
    """Making the same stream twice is making it once: the server ignores the body the second time."""
    said = headers({"content-type": content_type, **fields})
    return Request("PUT", path, body, said, repeatable=ALWAYS)


def append(path: str, content_type: str, body: bytes, fields: Mapping[str, Any], repeatable: float = 0.0) -> Request:
    said = headers({"content-type": content_type if body else None, **fields})
    return Request("POST", path, body, said, repeatable)


def read(path: str, **query: Any) -> Request:
    return get(path, {name: moment(value) for name, value in query.items()})


def poll(path: str, **query: Any) -> Request:
    timed = {**query, "live": "long-poll", "timeout": f"{LONG_POLL_SECONDS:g}s"}
    return get(path, timed, waits=LONG_POLL_SECONDS)


def search(path: str, **body: Any) -> Request:
    # One that runs out of time tells what it has found until then.
    asked = post(f"{path}/_search", given(**body), repeatable=ALWAYS)
    return Request("POST", asked.target, asked.body, asked.headers, ALWAYS, accepts=(408,))


def aggregate(path: str, **body: Any) -> Request:
    return post(f"{path}/_aggregate", given(**{name: moment(value) for name, value in body.items()}), repeatable=ALWAYS)


def list_streams(prefix: str, after: str | None, limit: int) -> Request:
    return get("/v1/streams" + query_string({"limit": limit, "prefix": prefix or None, "after": after}))


# --- answers -------------------------------------------------------------------------------------------------------


def told(answer_headers: Mapping[str, str], name: str) -> str:
    try:
        return answer_headers[name]
    except KeyError:
        raise BadAnswer(f"the answer lacks {name}: is this a stream of a Strandline?") from None


def is_true(answer_headers: Mapping[str, str], name: str) -> bool:
    return answer_headers.get(name, "").lower() == "true"


def info(answer: Answer) -> types.StreamInfo:
    said = answer.headers
    ttl = said.get("stream-ttl")
    return types.StreamInfo(
        said.get("content-type", ""),
        told(said, "stream-next-offset"),
        is_true(said, "stream-closed"),
        answer.status == 201,
        None if ttl is None else int(ttl),
        said.get("stream-expires-at"),
        is_true(said, "stream-compact"),
    )


def appended(answer: Answer) -> types.Appended:
    said = answer.headers
    duplicate = answer.status == 204 and "producer-seq" in said
    return types.Appended(told(said, "stream-next-offset"), duplicate, is_true(said, "stream-closed"))


def page(answer: Answer, values: Reading[list[Any]]) -> types.StreamPage[Any]:
    said = answer.headers
    is_json = said.get("content-type", "").partition(";")[0].strip().lower() == JSON_TYPE
    return types.StreamPage(
        values(answer) if is_json and answer.body else [],
        b"" if is_json else answer.body,
        told(said, "stream-next-offset"),
        is_true(said, "stream-up-to-date"),
        is_true(said, "stream-closed"),
    )

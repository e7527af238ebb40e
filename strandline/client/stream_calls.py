"""Streams: public types, requests, answers and the state of a producer."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from strandline.client.calls import ALWAYS, Answer, AnswerReader, Request, get, post, query_string, segment
from strandline.client.errors import BadAnswer, Conflict, Fenced, Refused
from strandline.client.retry import UNCERTAIN
from strandline.client.search_types import Aggregated, Found, IndexStatus, Registry
from strandline.client.topic_calls import given

T = TypeVar("T")

#: The offsets before the first record and after the last one.
START = "-1"
NOW = "now"


class StreamInfo(msgspec.Struct, frozen=True):
    """The properties of a stream. ``next_offset`` is its end, ``ttl_seconds`` the sliding window."""

    content_type: str
    next_offset: str
    closed: bool = False
    created: bool = False
    ttl_seconds: int | None = None
    expires_at: str | None = None
    compact: bool = False
    retain_until_in_lake: bool = False
    #: What prevents the configuration from having the expected effect; only when the stream is created.
    warning: str | None = None


class Appended(msgspec.Struct, frozen=True):
    """The result of an append. ``next_offset`` is the offset of its last record. ``duplicate``: the producer had sent
    this append before, it was not applied again, and the offset is the end of the stream."""

    next_offset: str
    duplicate: bool = False
    closed: bool = False


class StreamPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of a stream: ``values`` for a JSON stream, ``data`` for any other. Continue at ``next_offset``.
    ``up_to_date``: there are no more records yet. ``closed``: there will be no more."""

    values: list[T]
    data: bytes
    next_offset: str
    up_to_date: bool
    closed: bool


class StreamRow(msgspec.Struct, frozen=True):
    """A stream in a list. Here ``next_offset`` is the number of the next record, starting at 0."""

    name: str
    next_offset: str
    created_at: str
    expires_at: str | None = None
    profile: str = "generic"


# --- requests -------------------------------------------------------------------------------------------------------

JSON_TYPE = "application/json"
#: The maximum time of a long poll.
LONG_POLL_SECONDS = 5.0
#: The server sends something at least every 30 s.
SILENCE_SECONDS = 65.0

ROWS = AnswerReader(list[StreamRow])
AGGREGATED = AnswerReader(Aggregated)
ANYTHING = AnswerReader(dict[str, Any])
REGISTRY = AnswerReader(Registry)
INDEX_STATUS = AnswerReader(IndexStatus)


@lru_cache(maxsize=256)
def values_reading(kind: Any) -> AnswerReader[list[Any]]:
    return AnswerReader(list[kind])


@lru_cache(maxsize=256)
def found_reading(kind: Any) -> AnswerReader[Found[Any]]:
    return AnswerReader(Found[kind])


def path_of(name: str) -> str:
    return "/v1/stream/" + "/".join(map(segment, name.split("/")))


def headers(fields: Mapping[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that have a value. Times are in RFC 3339."""
    return tuple((name.encode(), _text(value)) for name, value in fields.items() if value is not None)


def _text(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(moment(value)).encode()


def moment(value: Any) -> Any:
    """A datetime as text; other values unchanged."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def encode(values: list[Any], content_type: str) -> bytes:
    """Records as a body: any number for JSON, exactly one otherwise."""
    if content_type == JSON_TYPE:
        return msgspec.json.encode(values)
    (value,) = values
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"a stream of {content_type} accepts bytes or text, got {type(value).__name__}")
    return bytes(value)


def create(path: str, content_type: str | None, body: bytes, fields: Mapping[str, Any]) -> Request:
    """Creating the same stream again has no effect: the server ignores the body the second time."""
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
    # A search that times out answers 408 with the hits found so far.
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
        raise BadAnswer(f"the answer lacks the header {name}: check that the URL is a Strandline server") from None


def is_true(answer_headers: Mapping[str, str], name: str) -> bool:
    return answer_headers.get(name, "").lower() == "true"


def info(answer: Answer) -> StreamInfo:
    said = answer.headers
    ttl = said.get("stream-ttl")
    return StreamInfo(
        said.get("content-type", ""),
        told(said, "stream-next-offset"),
        is_true(said, "stream-closed"),
        answer.status == 201,
        None if ttl is None else int(ttl),
        said.get("stream-expires-at"),
        is_true(said, "stream-compact"),
        is_true(said, "stream-retain-until-in-lake"),
        said.get("stream-warning"),
    )


def appended(answer: Answer) -> Appended:
    said = answer.headers
    duplicate = answer.status == 204 and "producer-seq" in said
    return Appended(told(said, "stream-next-offset"), duplicate, is_true(said, "stream-closed"))


def page(answer: Answer, values: AnswerReader[list[Any]]) -> StreamPage[Any]:
    said = answer.headers
    is_json = said.get("content-type", "").partition(";")[0].strip().lower() == JSON_TYPE
    return StreamPage(
        values(answer) if is_json and answer.body else [],
        b"" if is_json else answer.body,
        told(said, "stream-next-offset"),
        is_true(said, "stream-up-to-date"),
        is_true(said, "stream-closed"),
    )


# --- producers ------------------------------------------------------------------------------------------------------

#: A number that no producer reaches: the server refuses a request with it, and the refusal contains the epoch.
FAR_SEQ = (1 << 53) - 1
#: Random bits of an epoch, so that two programs that start at the same time pick different ones.
CHANCE_BITS = 11


class ProducerState:
    """Numbers requests within an epoch. A producer that starts with a higher epoch fences all others with its id."""

    def __init__(self, id: str | None, epoch: int | None, seq: int) -> None:
        if not id and epoch is not None:
            raise ValueError("an epoch requires a producer id: give id as well")
        self.id = id or f"producer-{secrets.token_hex(12)}"
        # A generated id is new, so its epoch can start at 0.
        self.epoch: int | None = epoch if id else 0
        self.seq = seq
        self._fenced: Fenced | None = None

    def check(self) -> None:
        """Raises Fenced if another producer has taken over."""
        if self._fenced is not None:
            raise self._fenced

    def probe(self) -> dict[str, Any]:
        """The headers of a request that the server refuses with the current epoch."""
        return self._headers(0, FAR_SEQ)

    def learn(self, error: Refused) -> None:
        """Take the epoch from the refusal of a probe."""
        known = 0
        if isinstance(error, Fenced):
            known = int(error.headers["producer-epoch"])
        elif not isinstance(error, Conflict) or "producer-expected-seq" not in error.headers:
            raise error
        now = (time.time_ns() // 1_000_000 << CHANCE_BITS) + random.getrandbits(CHANCE_BITS)
        self.epoch = max(known + 1, now)
        self.seq = 0

    def headers(self) -> dict[str, Any]:
        assert self.epoch is not None
        return self._headers(self.epoch, self.seq)

    def _headers(self, epoch: int, seq: int) -> dict[str, Any]:
        return {"producer-id": self.id, "producer-epoch": epoch, "producer-seq": seq}

    def succeeded(self) -> None:
        self.seq += 1

    def failed(self, error: BaseException) -> None:
        """A refused request was not applied, and its number is free. A request with an unknown outcome may still
        arrive: a new epoch prevents the server from accepting it after later appends."""
        if isinstance(error, Fenced):
            self._fenced = error
        elif not isinstance(error, Refused) or error.status in (500, *UNCERTAIN):
            assert self.epoch is not None
            self.epoch += 1
            self.seq = 0

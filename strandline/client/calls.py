"""Requests and answers, shared by both clients. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from strandline.client.errors import BadAnswer

T = TypeVar("T")

JSON = (b"content-type", b"application/json")
#: For how many seconds an append with an idempotency key may be repeated. Topics remember keys for 120 s by default.
KEYED_SECONDS = 100.0
ALWAYS = float("inf")


class Request(msgspec.Struct, frozen=True):
    """A request. ``repeatable`` is for how many seconds after the first attempt it may be sent again although the
    server may have executed it; 0 if repeating it has a further effect."""

    method: str
    #: The escaped path with the query string.
    target: str
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    repeatable: float = 0.0
    #: Seconds that the server may take in addition to the timeout, because the request is a long poll.
    waits: float = 0.0
    #: Statuses that are not errors, in addition to 2xx.
    accepts: tuple[int, ...] = ()
    #: The URL of the only server that the request is for, because its signature contains the host; None: any.
    server: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """The answer of a request that the server did not refuse."""

    status: int
    #: Header names in lower case.
    headers: Mapping[str, str]
    body: bytes


def get(path: str, query: Mapping[str, Any] | None = None, *, waits: float = 0.0) -> Request:
    return Request("GET", path + query_string(query), repeatable=ALWAYS, waits=waits)


def put(path: str, body: object) -> Request:
    """A request that creates or changes something. Repeating it has no further effect."""
    return Request("PUT", path, msgspec.json.encode(body), (JSON,), repeatable=ALWAYS)


def delete(path: str, query: Mapping[str, Any] | None = None) -> Request:
    return Request("DELETE", path + query_string(query), repeatable=ALWAYS)


def post(path: str, body: object, *, repeatable: float = 0.0, waits: float = 0.0) -> Request:
    return Request("POST", path, msgspec.json.encode(body), (JSON,), repeatable, waits)


def any_request(method: str, path: str, body: object, query: Mapping[str, Any] | None) -> Request:
    repeatable = ALWAYS if method in ("GET", "HEAD", "PUT", "DELETE") else 0.0
    if body is None:
        return Request(method, path + query_string(query), repeatable=repeatable)
    return Request(method, path + query_string(query), msgspec.json.encode(body), (JSON,), repeatable)


def segment(text: str) -> str:
    """Text as one segment of a path."""
    # A segment of only dots would change the path.
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe=":.-_~!$'()*,;=@")


def query_string(query: Mapping[str, Any] | None) -> str:
    """The query string. Omits members that are None; writes booleans as ``true`` and ``false``."""
    if not query:
        return ""
    given = {name: _text(value) for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class AnswerReader(Generic[T]):
    """Decodes answers as one type."""

    __slots__ = ("_decoder",)

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def __call__(self, answer: Answer | bytes | str) -> T:
        body = answer.body if isinstance(answer, Answer) else answer
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadAnswer(f"the server sent an unexpected answer: {error}") from error

"""A request and its answer, as both clients have them: nothing here talks to anybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from strandline.client.errors import BadAnswer

T = TypeVar("T")

JSON = (b"content-type", b"application/json")
#: An append with an idempotency key may be repeated for so long: topics remember keys for two minutes unless they are
#: configured otherwise.
KEYED_SECONDS = 100.0
ALWAYS = float("inf")


class Request(msgspec.Struct, frozen=True):
    """``repeatable`` is for how many seconds after the first try it may be sent again although it may have been done:
    0 if doing it twice is not the same as doing it once."""

    method: str
    #: The path, escaped, with the query.
    target: str
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    repeatable: float = 0.0
    #: How much longer than usual the server may take: it was told to wait.
    waits: float = 0.0
    #: Statuses that are answers too, besides those of success.
    accepts: tuple[int, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """What the server said, if it did not refuse."""

    status: int
    #: Names in lower case.
    headers: Mapping[str, str]
    body: bytes


def get(path: str, query: Mapping[str, Any] | None = None, *, waits: float = 0.0) -> Request:
    return Request("GET", path + query_string(query), repeatable=ALWAYS, waits=waits)


def put(path: str, body: object) -> Request:
    """Makes or changes something: doing it twice is doing it once."""
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
    """A text as one part of a path."""
    # One that is nothing but dots would mean another path.
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe=":.-_~!$'()*,;=@")


def query_string(query: Mapping[str, Any] | None) -> str:
    """What is None is left out; true and false are told as the server wants them."""
    if not query:
        return ""
    given = {name: _text(value) for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Reading(Generic[T]):
    """Reads answers as one type."""

    __slots__ = ("_decoder",)

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def __call__(self, answer: Answer | bytes | str) -> T:
        body = answer.body if isinstance(answer, Answer) else answer
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadAnswer(f"the answer is not what was expected: {error}") from error

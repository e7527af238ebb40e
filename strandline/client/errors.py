"""Everything that can go wrong between a program and its server: one small hierarchy.

``Refused`` is what the server answered; its subclasses are named after what a program may want to do about it. The
four protocols have their own codes; ``code`` is always the one that the server gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

#: A body that is no error of a Strandline, as much of it as is shown.
SHOWN_CHARACTERS = 300


class StrandlineError(Exception):
    """Any error of this client."""


class BadUrl(ValueError):
    """The URL cannot be that of a server."""


class Unreachable(StrandlineError):
    """There was no answer. ``sent``: the request may have reached the server, so nobody knows whether it was done."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(Unreachable):
    """There was no answer in time."""


class BadAnswer(StrandlineError):
    """The answer cannot be understood: it came from something else than a Strandline, or data is not of the type that
    was asked for."""


class RecordsLost(StrandlineError):
    """Records are gone although nobody deleted them. ``tombstone`` says which, ``after`` is where to go on from."""

    def __init__(self, message: str, tombstone: Any, after: int) -> None:
        super().__init__(message)
        self.tombstone = tombstone
        self.after = after


class BadElement(StrandlineError):
    """An element of a document that must not be taken for what it looks like. ``ts`` says which."""

    def __init__(self, ts: int, reason: str) -> None:
        super().__init__(f"the element at {ts} was not accepted: {reason}")
        self.ts = ts


class WrongAuthor(BadElement):
    """It is not signed, not by whom it should be, or was changed after it was signed."""


class Unreadable(BadElement):
    """It cannot be decrypted."""


class Refused(StrandlineError):
    """The server refused: ``status`` of HTTP, ``code`` to decide by, ``message`` for people, ``detail`` with the rest
    of what the answer says, ``retry_after`` in seconds if the server asks for patience."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        detail: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{message} ({status}{f' {code}' if code else ''})")
        self.status = status
        self.code = code
        self.message = message
        self.detail: dict[str, Any] = dict(detail or {})
        self.retry_after = retry_after
        self.headers: Mapping[str, str] = headers or {}


class BadRequest(Refused):
    """The request makes no sense to the server, or is too large."""


class NotAuthenticated(Refused):
    """A key, a token or a signature is missing or wrong."""


class Forbidden(Refused):
    """Whoever asks may not do this."""


class Fenced(Forbidden):
    """Another producer has taken over with a higher epoch."""


class NotFound(Refused):
    """What the request is about is not there."""


class Conflict(Refused):
    """Things are not as the request takes them to be."""


class Closed(Conflict):
    """The stream is closed: nothing can be appended any more."""


class Gone(Refused):
    """It was there, and is gone: a deleted stream that is kept for its forks, or records that a cap took."""


class Full(Refused):
    """There is no room: the topic rejects what does not fit, or the disk is full."""


class Busy(Refused):
    """The server is too busy, not ready, or a limit is reached. What was asked was not done.

    With the code ``read_only`` the server's journal failed, and the outcome of a write is unknown.
    """


class ServerFault(Refused):
    """Something is wrong with the server, or with a proxy in front of it."""


#: Codes that say more than their status.
_BY_CODE: dict[str, type[Refused]] = {
    "stale_epoch": Fenced,
    "topic_full": Full,
    "disk_full": Full,
}
_BY_STATUS: dict[int, type[Refused]] = {
    401: NotAuthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: BadRequest,
    429: Busy,
    503: Busy,
    507: Full,
}


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> Refused:
    """The exception for an answer that is no success."""
    code, message, detail = _told(body)
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (ServerFault if status >= 500 else BadRequest)
    if kind is Conflict and "stream-closed" in headers:
        kind = Closed
    return kind(status, code, message or f"the server answered {status}", detail, _retry_after(headers), headers)


def _told(body: bytes) -> tuple[str, str, dict[str, Any]]:
    """Code, message and detail. Topics, streams and tables send an object as ``error``, collections a text."""
    try:
        answer = msgspec.json.decode(body)
        error = answer["error"]
    except (msgspec.DecodeError, TypeError, KeyError):
        return "", body.decode(errors="replace").strip()[:SHOWN_CHARACTERS], {}
    if isinstance(error, str):
        rest = {name: value for name, value in answer.items() if name != "error"}
        return error, str(rest.get("message", error)), rest
    if not isinstance(error, dict):
        return "", str(error), {}
    rest = {name: value for name, value in error.items() if name not in ("code", "message", "detail")}
    detail = error.get("detail")
    if isinstance(detail, dict):
        rest |= detail
    return str(error.get("code", "")), str(error.get("message", "")), rest


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None

"""The exceptions of the client, in one small hierarchy.

``Refused`` means that the server answered with an error. Its subclasses are named after what a program can do about it.
The four protocols have their own error codes; ``code`` is always the one that the server sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

#: The maximum number of characters shown of an error body that is not in Strandline's format.
SHOWN_CHARACTERS = 300


class StrandlineError(Exception):
    """The base of all errors of this client."""

    #: The URL of the server that failed, if the client has other servers and asks the next one from now on.
    server: str | None = None


class BadUrl(ValueError):
    """The URL is not a valid server URL."""


class Unreachable(StrandlineError):
    """There was no answer. With ``sent`` the request may have reached the server, and its outcome is unknown."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(Unreachable):
    """There was no answer in time."""


class BadAnswer(StrandlineError):
    """The answer cannot be decoded: it did not come from a Strandline server, or its data does not have the expected
    type."""


class RecordsLost(StrandlineError):
    """Retention or a crash removed records. ``tombstone`` says which ones; continue reading after ``after``."""

    def __init__(self, message: str, tombstone: Any, after: int) -> None:
        super().__init__(message)
        self.tombstone = tombstone
        self.after = after


class BadElement(StrandlineError):
    """An element of a document, or a regular document, failed verification or decryption. ``ts`` identifies the
    element; for a regular document it is the time of the pull."""

    def __init__(self, ts: int, reason: str, what: str | None = None) -> None:
        super().__init__(f"{what or f'the element at {ts}'} was not accepted: {reason}")
        self.ts = ts


class WrongAuthor(BadElement):
    """The element is not signed, has the wrong author, or was changed after it was signed."""


class Unreadable(BadElement):
    """The element cannot be decrypted."""


class Refused(StrandlineError):
    """The server refused the request. ``status`` is the HTTP status, ``code`` the error code for programs, ``message``
    the text for people, ``detail`` the other members of the error, ``retry_after`` the server's retry hint in
    seconds."""

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
    """The request is invalid or too large."""


class NotAuthenticated(Refused):
    """An API key, a token or a signature is missing or invalid."""


class Forbidden(Refused):
    """The caller does not have the permission."""


class Fenced(Forbidden):
    """Another producer has taken over with a higher epoch, or other members of a consumer group got the shares of this
    one."""


class NotFound(Refused):
    """The requested object does not exist."""


class Conflict(Refused):
    """The request conflicts with the current state."""


class Closed(Conflict):
    """The stream is closed and accepts no more appends."""


class Gone(Refused):
    """The object no longer exists: a deleted stream that is kept for its forks, or records that retention removed."""


class Full(Refused):
    """There is no room: the topic rejects new records at its cap, or the disk is full."""


class Busy(Refused):
    """The server is busy or not ready, or a limit is reached. The request was not executed.

    With the code ``read_only`` the server's journal failed, and with ``replica_behind`` its replica was too slow: the
    outcome of a write is unknown then.
    """


class ServerFault(Refused):
    """The server, or a proxy in front of it, failed."""


#: Codes that are more specific than their status.
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
    """The exception for an error answer."""
    code, message, detail = _told(body)
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (ServerFault if status >= 500 else BadRequest)
    if kind is Conflict and "stream-closed" in headers:
        kind = Closed
    return kind(status, code, message or f"the server answered {status}", detail, _retry_after(headers), headers)


def _told(body: bytes) -> tuple[str, str, dict[str, Any]]:
    """The code, message and detail of an error. Topics, streams and tables send an object as ``error``, collections
    send text."""
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

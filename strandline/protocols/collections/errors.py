"""Refusals in the format of the protocol: a body with a member ``error``, and further members for some errors.

The texts are part of the protocol: clients compare them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.collections.errors import Code, CollectionError, invalid_path
from strandline.engine.errors import BadName
from strandline.protocols.collections.wire import CollectionErrorAnswer, encode
from strandline.service import problems
from strandline.service.http import Reply
from strandline.service.problems import (
    DAMAGED_DATA,
    DISK_FULL,
    FORBIDDEN,
    INTERNAL,
    INVALID_REQUEST,
    LOG_FULL,
    LOG_NOT_FOUND,
    METHOD_NOT_ALLOWED,
    NO_REPLICA,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    NOT_READY,
    NOT_WRITABLE,
    PAYLOAD_TOO_LARGE,
    READ_ONLY,
    RECORD_TOO_LARGE,
    REPLICA_AWAY,
    REPLICA_BEHIND,
    SHUTTING_DOWN,
    STANDBY,
    THROTTLED,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA_TYPE,
    Headers,
    Problem,
    Refusal,
    by_code,
)

#: The word for a log in collections.
NOUN = "document"

CONFLICT = Problem(
    "conflict",
    409,
    "`non_monotonic_timestamp`: the time is not later than that of the last element; `append_limit_exceeded`: the "
    "document has as many elements as it may have; `hash_mismatch`: the regular document has another version than the "
    "one to replace; `not_a_document`: another protocol has a log of this name.",
)
UNAVAILABLE = Problem(
    "unavailable",
    503,
    "The server is starting or shutting down, or the topic for the events of the collection refuses the event. Nothing "
    "was stored.",
)
NO_ROOM = Problem("no_room", 507, "The disk or the document is full. Nothing was stored.")
_NOT_FOUND = NOT_FOUND.renamed(meaning="No collection has documents at this path.")
_PAYLOAD_TOO_LARGE = PAYLOAD_TOO_LARGE.renamed(meaning="The body is larger than the collection allows.")

#: The shared codes under the names of collections. Error bodies have a text instead of a code; codes group them in the
#: documentation.
RENAMED = {
    INVALID_REQUEST: INVALID_REQUEST.renamed("bad_request", "The request is not valid; `error` says why."),
    UNAUTHORIZED: UNAUTHORIZED.renamed(meaning="The certificate or the signature of the request is not valid."),
    FORBIDDEN: FORBIDDEN.renamed(meaning="The caller may not do this, or the proof of the author is not valid."),
    NOT_FOUND: _NOT_FOUND,
    LOG_NOT_FOUND: _NOT_FOUND,
    NOT_WRITABLE: CONFLICT,
    PAYLOAD_TOO_LARGE: _PAYLOAD_TOO_LARGE,
    RECORD_TOO_LARGE: _PAYLOAD_TOO_LARGE,
    LOG_FULL: NO_ROOM,
    THROTTLED: THROTTLED.renamed("rate_limited", "The caller exceeds a rate limit, or the server is busy."),
    NOT_READY: UNAVAILABLE,
    SHUTTING_DOWN: UNAVAILABLE,
    **{
        problem: problem.renamed(meaning=f"`{problem.code}`: {problem.meaning}")
        for problem in (READ_ONLY, STANDBY, REPLICA_BEHIND, REPLICA_AWAY, NO_REPLICA)
    },
    DAMAGED_DATA: DAMAGED_DATA.renamed(
        meaning="`damaged_data`: a file with the elements is damaged or missing; `file` names it."
    ),
    DISK_FULL: NO_ROOM,
}
#: The shared errors whose code is the text of the body.
_CODED = tuple(
    RENAMED[problem] for problem in (READ_ONLY, STANDBY, REPLICA_BEHIND, REPLICA_AWAY, NO_REPLICA, DAMAGED_DATA)
)

PROBLEMS = by_code(
    dict.fromkeys(
        (
            *RENAMED.values(),
            CONFLICT,
            METHOD_NOT_ALLOWED,
            NOT_ACCEPTABLE,
            UNSUPPORTED_MEDIA_TYPE,
            INTERNAL,
            UNAVAILABLE,
        )
    )
)


class CollectionRefusal(Exception):
    """A request, or an entry of a batch, is answered with an error."""

    def __init__(self, status: int, text: str, more: Mapping[str, Any] | None = None, headers: Headers = ()) -> None:
        super().__init__(text)
        self.status = status
        self.answer = CollectionErrorAnswer(text, **(more or {}))
        self.headers = headers

    def reply(self) -> Reply:
        return Reply(encode(self.answer), self.status, headers=self.headers)


# --- requests that cannot be read -------------------------------------------------------------------------------------


def no_such_path() -> CollectionRefusal:
    return CollectionRefusal(404, "Not Found")


def too_large() -> CollectionRefusal:
    return CollectionRefusal(413, "Payload too large")


def wrong_media_type() -> CollectionRefusal:
    return CollectionRefusal(415, "Content-Type must be application/json")


def not_an_object() -> CollectionRefusal:
    return CollectionRefusal(400, "Body must be a JSON object")


def repeated_member(name: str) -> CollectionRefusal:
    return CollectionRefusal(400, f"Body repeats the member {name!r}: send each name once per object")


def too_deep() -> CollectionRefusal:
    return CollectionRefusal(400, "Body nesting too deep")


def invalid(what: str) -> CollectionRefusal:
    """A parameter of the query: ``checkpoint``, ``last``, ``limit``."""
    return CollectionRefusal(400, f"Invalid {what}")


# --- errors of collections --------------------------------------------------------------------------------------------

#: The status and the text of each code. Without a text, the message of the error is the text.
_REFUSALS: dict[Code, tuple[int, str | None]] = {
    "path_not_found": (404, "Not Found"),
    "invalid_path": (400, "Invalid path parameter"),
    "not_a_document": (409, "not_a_document"),
    "unauthorized": (401, "Unauthorized"),
    "forbidden": (403, "Forbidden"),
    "field_not_writable": (403, None),
    "rate_limited": (429, "Rate limit exceeded"),
    "nonces_full": (503, "Too many signed requests"),
    "role_resolver_timeout": (503, "Unauthorized"),
    "role_enricher_timeout": (503, "Authorization error"),
    "role_enricher_failed": (500, "Authorization error"),
    "invalid_data": (400, "Missing or invalid data"),
    "too_deep": (400, "Body nesting too deep"),
    "too_large": (413, None),
    "schema_violation": (400, None),
    "missing_proof": (400, "append requires authorPubkey and authorSignature"),
    "foreign_author": (403, "append author must be the request presenter"),
    "invalid_proof": (403, "invalid append author signature"),
    "invalid_time": (400, "ts must be a non-negative integer"),
    "time_in_future": (400, "ts is too far in the future"),
    "time_not_increasing": (409, "non_monotonic_timestamp"),
    "document_full": (409, "append_limit_exceeded"),
    "queue_unavailable": (503, "queue_unavailable"),
    "invalid_base_hash": (400, "baseHash must be a string or null"),
    "hash_mismatch": (409, "hash_mismatch"),
    "incomplete_proof": (400, "author proof requires authorPubkey and authorSignature"),
    "foreign_document_author": (403, "document author must be the request presenter"),
    "invalid_document_proof": (403, "invalid document author signature"),
    "bound_required": (400, "pull_bound_required"),
    "full_with_bounds": (400, "full_with_bounds"),
    "full_not_allowed": (400, "full_not_allowed"),
    "checkpoint_too_old": (400, "checkpoint_too_old"),
}
#: Codes whose answer has the message of the error as well.
_EXPLAINED: frozenset[Code] = frozenset(("not_a_document", "queue_unavailable"))


def collection_refused(error: CollectionError) -> CollectionRefusal:
    """The refusal for an error of a collection."""
    status, text = _REFUSALS[error.code]
    more = {"message": str(error), **error.details} if error.code in _EXPLAINED else error.details
    wait = error.retry_after_ms
    headers = () if wait is None else (problems.retry_after(wait),)
    return CollectionRefusal(status, str(error) if text is None else text, more, headers)


# --- errors of the engine and of the server ---------------------------------------------------------------------------


def _of_refusal(refusal: Refusal) -> CollectionRefusal:
    """A refusal, with the texts of collections."""
    refusal = refusal.renamed(RENAMED)
    if refusal.status == 413:
        return too_large()
    if refusal.problem in _CODED:
        more = {"message": refusal.message, **(refusal.detail or {})}
        return CollectionRefusal(refusal.status, refusal.code, more, refusal.headers)
    return CollectionRefusal(refusal.status, refusal.message, headers=refusal.headers)


def refuse(refusal: Refusal) -> Reply:
    return _of_refusal(refusal).reply()


def refused_by(error: Exception) -> CollectionRefusal | None:
    """The refusal for an error; None if the error is unexpected."""
    if isinstance(error, CollectionRefusal):
        return error
    if isinstance(error, BadName):
        error = invalid_path()
    if isinstance(error, CollectionError):
        return collection_refused(error)
    refusal = problems.refusal_of(error, NOUN)
    return None if refusal is None else _of_refusal(refusal)


def reply_to(error: Exception) -> Reply | None:
    refused = refused_by(error)
    return None if refused is None else refused.reply()

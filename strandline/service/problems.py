"""The error codes that the protocols share, and the code of each exception of the engine and the domain packages.

Every code is declared once, with its status, its retry hint and its sentence in the documentation: shared codes here,
the codes of one protocol in the ``errors.py`` of its package. A protocol renames shared codes if its clients know other
names, and defines the shape of error bodies. To answer a new exception, add a line to ``RULES``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from strandline.delivery.queues.jobs import QueueError
from strandline.engine.errors import (
    SOON_MS,
    BadConfig,
    BadName,
    BadRequest,
    BatchTooLarge,
    DamagedFile,
    DiskFull,
    EngineClosed,
    FollowsLeader,
    JournalFailed,
    LogFull,
    NoReplica,
    NotWritable,
    QuotaExceeded,
    RecordTooLarge,
    ReplicaAway,
    ReplicaBehind,
    SealingBehind,
    UnknownLog,
)
from strandline.extras import extra_of, install
from strandline.query.errors import QueryError

Headers = tuple[tuple[bytes, bytes], ...]


class Problem(msgspec.Struct, frozen=True):
    """An error code, as clients and the documentation know it."""

    code: str
    status: int
    #: The text in the documentation: when the error occurs, and what to do.
    meaning: str
    #: The default retry hint; None: repeating the request does not help.
    retry_after_ms: int | None = None

    @property
    def retry(self) -> bool:
        """Whether the answer has a ``Retry-After``."""
        return self.retry_after_ms is not None

    def renamed(
        self, code: str | None = None, meaning: str | None = None, *, retry_after_ms: int | None = None
    ) -> Problem:
        """The same problem under the code, or with the sentence, of a protocol."""
        return Problem(
            self.code if code is None else code,
            self.status,
            self.meaning if meaning is None else meaning,
            self.retry_after_ms if retry_after_ms is None else retry_after_ms,
        )


def by_code(problems: Iterable[Problem]) -> dict[str, Problem]:
    """The problems of a protocol by code, sorted by status."""
    found: dict[str, Problem] = {}
    for problem in sorted(problems, key=lambda problem: problem.status):
        assert problem.code not in found, f"the code {problem.code!r} is declared twice"
        found[problem.code] = problem
    return found


# --- the shared codes ------------------------------------------------------------------------------------------------

#: The retry hint for errors that an operator has to fix, by freeing space or restarting the server.
LATER_MS = 5_000

INVALID_REQUEST = Problem(
    "invalid_request", 400, "The request is not valid. The message names the value and what is expected; correct it."
)
RECORD_TOO_LARGE = Problem(
    "record_too_large",
    400,
    "A record exceeds the size limit, or the write exceeds what the log can ever hold. Send smaller records.",
)
UNAUTHORIZED = Problem("unauthorized", 401, "The API key is missing or not valid.")
FORBIDDEN = Problem(
    "forbidden",
    403,
    "The API key lacks a scope, or may not access this name. On a server without API keys, the host or the origin of "
    "the page is not allowed.",
)
NOT_FOUND = Problem("not_found", 404, "Nothing exists at this path.")
LOG_NOT_FOUND = Problem("log_not_found", 404, "The log does not exist, or the API key may not see it.")
METHOD_NOT_ALLOWED = Problem(
    "method_not_allowed", 405, "The path does not support this method; `Allow` lists the methods that it supports."
)
NOT_ACCEPTABLE = Problem(
    "not_acceptable", 406, "The answer is an event stream. Send `Accept: text/event-stream`, or no `Accept`."
)
NOT_A_QUEUE = Problem("not_a_queue", 409, "The log is not a queue. Only queues have jobs.")
NOT_WRITABLE = Problem(
    "not_writable",
    409,
    "The log cannot be changed through this protocol: it belongs to a table, a collection or the server, or it is a "
    "stream that is closed or has a schema or a profile. Use the protocol that owns it.",
)
NO_REPLICA = Problem(
    "no_replica",
    409,
    "The log has the durability `replicated`, and the server runs without a replica. Nothing was written. Start the "
    "server with `--replica`, or give the log another durability.",
)
PAYLOAD_TOO_LARGE = Problem(
    "payload_too_large", 413, "The body exceeds a limit of the server, as sent or decompressed. Send it in parts."
)
UNSUPPORTED_MEDIA_TYPE = Problem(
    "unsupported_media_type",
    415,
    "The `Content-Type` is not supported, or the `Content-Encoding` is neither gzip nor deflate.",
)
LOG_FULL = Problem(
    "log_full", 422, "The log is full and rejects new records. Delete records, or raise its retention limits."
)
THROTTLED = Problem(
    "throttled",
    429,
    "The server is busy, or a limit is reached (`limit` in the details names it). Nothing was written.",
    SOON_MS,
)
DAMAGED_DATA = Problem(
    "damaged_data",
    500,
    "A file with the records is damaged or missing; `file` in the details names it. Other records can be read.",
)
INTERNAL = Problem("internal", 500, "The server failed; its log has the details.")
NOT_INSTALLED = Problem(
    "not_installed",
    501,
    "The server lacks a Python package that this needs. Install the extra that `extra` in the details names where the "
    "server runs, and restart it.",
)
NOT_READY = Problem(
    "not_ready", 503, "The server is starting and replays its journal; `replay_progress` rises to 1.", SOON_MS
)
SHUTTING_DOWN = Problem("shutting_down", 503, "The server is shutting down.", SOON_MS)
STANDBY = Problem(
    "standby",
    503,
    "The server is a standby, another server has taken over from it, or it is a follower. A follower answers reads "
    "only, and a read with `min_seq` only once it has that record. Use the server at the address `leader` in the "
    "details, if it is known.",
    SOON_MS,
)
READ_ONLY = Problem(
    "read_only",
    503,
    "The journal failed, or another server took over while the write was in progress; the message says which. After a "
    "failure of the journal, reads work, and the server refuses writes until it is restarted. The outcome of a write "
    "that was in progress is unknown.",
    LATER_MS,
)
REPLICA_BEHIND = Problem(
    "replica_behind",
    503,
    "The server has stored the write, but the replica has not stored it within `replica_timeout_ms`. Its outcome is "
    "unknown: it takes effect when the replica has it. Repeat it with the same idempotency key or producer.",
    SOON_MS,
)
REPLICA_AWAY = Problem(
    "replica_away",
    503,
    "The log has the durability `replicated`, and the replica cannot be reached. Nothing was written.",
    SOON_MS,
)
DISK_FULL = Problem("disk_full", 507, "The disk is full. Nothing was written. Free space, then retry.", LATER_MS)


# --- refusals --------------------------------------------------------------------------------------------------------


class Refusal(Exception):
    """The server refuses a request. Handlers and the gate raise it; the protocol turns it into a reply.

    ``retry_after_ms`` replaces the problem's retry hint. ``allow`` lists the methods of a path.
    """

    def __init__(
        self,
        problem: Problem,
        message: str,
        detail: Mapping[str, object] | None = None,
        *,
        retry_after_ms: int | None = None,
        allow: str | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message)
        self.problem = problem
        self.message = message
        self.detail = detail
        self._retry_after_ms = retry_after_ms
        self.allow = allow
        self._headers = headers

    @property
    def status(self) -> int:
        return self.problem.status

    @property
    def code(self) -> str:
        return self.problem.code

    @property
    def headers(self) -> Headers:
        """The headers of the reply."""
        headers = list(self._headers)
        wait = self.problem.retry_after_ms if self._retry_after_ms is None else self._retry_after_ms
        if wait is not None:
            headers.append(retry_after(wait))
        if self.allow is not None:
            headers.append((b"allow", self.allow.encode()))
        return tuple(headers)

    def renamed(self, codes: Mapping[Problem, Problem], members: Mapping[str, str] | None = None) -> Refusal:
        """The same refusal with a protocol's codes and names of detail members. If the protocol's code has no retry
        hint, the original hint stays."""
        problem = codes.get(self.problem, self.problem)
        hint = self._retry_after_ms
        if hint is None and problem.retry_after_ms is None:
            hint = self.problem.retry_after_ms
        detail = self.detail
        if members and detail is not None:
            detail = {members.get(name, name): value for name, value in detail.items()}
        return Refusal(
            problem,
            self.message,
            detail,
            retry_after_ms=hint,
            allow=self.allow,
            headers=self._headers,
        )


def retry_after(milliseconds: int) -> tuple[bytes, bytes]:
    """The Retry-After header in whole seconds, rounded up so that clients do not retry too early."""
    return b"retry-after", b"%d" % -(-milliseconds // 1000)


class ErrorBody(msgspec.Struct):
    code: str
    message: str
    detail: Mapping[str, Any] | UnsetType = UNSET


class ErrorAnswer(msgspec.Struct):
    """The body of an error, unless a protocol defines its own. Programs use ``code``; ``message`` is for people."""

    error: ErrorBody


def error_body(refusal: Refusal) -> bytes:
    """The encoded :class:`ErrorAnswer` of a refusal."""
    detail = UNSET if refusal.detail is None else refusal.detail
    return msgspec.json.encode(ErrorAnswer(ErrorBody(refusal.code, refusal.message, detail)))


# --- refusals of several protocols -----------------------------------------------------------------------------------


def invalid(message: str, detail: Mapping[str, object] | None = None) -> Refusal:
    return Refusal(INVALID_REQUEST, message, detail)


def unauthorized() -> Refusal:
    return Refusal(UNAUTHORIZED, "a valid API key is required")


def lacks_scope(scope: str) -> Refusal:
    return Refusal(FORBIDDEN, f"the API key lacks the {scope} scope")


def may_not_touch(name: str, member: str | None = None) -> Refusal:
    """``member`` is the member of the details that holds the name."""
    return Refusal(FORBIDDEN, f"the API key may not access {name!r}", None if member is None else {member: name})


def log_not_found(name: str, noun: str = "log") -> Refusal:
    refusal = refusal_of(UnknownLog(name), noun)
    assert refusal is not None
    return refusal


def not_a_queue(name: str, noun: str = "log") -> Refusal:
    return Refusal(NOT_A_QUEUE, f"{noun} {name!r} is not a queue", {noun: name})


def not_writable(name: str, why: str, noun: str = "log") -> Refusal:
    return Refusal(NOT_WRITABLE, f"{noun} {name!r} cannot be written to here: {why}", {noun: name})


def body_too_large(limit: int) -> Refusal:
    return Refusal(PAYLOAD_TOO_LARGE, f"the body is larger than {limit} bytes", {"max": limit})


def limit_reached(limit: str, maximum: int) -> Refusal:
    """``limit`` is the name of a setting."""
    return Refusal(THROTTLED, f"the limit {limit}={maximum} is reached", {"limit": limit, "max": maximum})


def too_many_streams() -> Refusal:
    return Refusal(THROTTLED, "too many streams are open")


def shutting_down() -> Refusal:
    return Refusal(SHUTTING_DOWN, "the server is shutting down")


def not_installed(what: str, package: str) -> Refusal:
    """``what`` needs a package that the server does not have."""
    extra = extra_of(package)
    return Refusal(
        NOT_INSTALLED,
        f"{what} needs the Python package {package!r}, which is not installed on the server; run `{install(extra)}` "
        "there, and restart the server",
        {"extra": extra},
    )


def internal() -> Refusal:
    return Refusal(INTERNAL, "internal error; the server's log has the details")


# --- errors of the engine and of the domain packages -----------------------------------------------------------------


class Throttled(Exception):
    """The server is too busy for a request."""

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(f"the server is busy; retry after {retry_after_ms} ms")
        self.retry_after_ms = retry_after_ms


class Rule(msgspec.Struct, frozen=True):
    """The answer to an exception.

    ``detail`` lists the attributes of the exception that the answer shows. ``name``, the name of the log, is shown
    under the protocol's word for a log; ``retry_after_ms`` is the retry hint. ``message`` is a format string with the
    fields ``noun`` and ``error``; without it the answer shows the text of the exception.
    """

    error: type[Exception]
    problem: Problem
    detail: tuple[str, ...] = ()
    message: str = ""

    def refusal(self, error: Exception, noun: str) -> Refusal:
        hint: int | None = getattr(error, "retry_after_ms", None)
        facts: dict[str, object] = {}
        for fact in self.detail:
            if fact == "name":
                facts[noun] = error.name  # type: ignore[attr-defined]
            elif fact == "retry_after_ms":
                facts[fact] = self.problem.retry_after_ms if hint is None else hint
            else:
                facts[fact] = getattr(error, fact)
        message = self.message.format(noun=noun, error=error) if self.message else str(error)
        return Refusal(self.problem, message, facts or None, retry_after_ms=hint)


#: The first match counts, so list a subclass before its base class.
RULES: tuple[Rule, ...] = (
    Rule(UnknownLog, LOG_NOT_FOUND, ("name",), "{noun} {error.name!r} does not exist"),
    Rule(
        LogFull,
        LOG_FULL,
        ("name", "cap_records", "cap_bytes", "head", "earliest"),
        "{noun} {error.name!r} is full and rejects new records",
    ),
    Rule(Throttled, THROTTLED, ("retry_after_ms",)),
    Rule(QuotaExceeded, THROTTLED, ("limit", "max")),
    Rule(NotWritable, NOT_WRITABLE, ("name",), "{noun} {error.name!r} cannot be changed here: {error.why}"),
    Rule(SealingBehind, THROTTLED, ("retry_after_ms",)),
    Rule(BatchTooLarge, RECORD_TOO_LARGE, ("name",)),
    Rule(RecordTooLarge, RECORD_TOO_LARGE),
    Rule(BadRequest, INVALID_REQUEST),
    Rule(BadName, INVALID_REQUEST),
    Rule(BadConfig, INVALID_REQUEST),
    Rule(QueueError, INVALID_REQUEST),
    Rule(QueryError, INVALID_REQUEST),
    Rule(msgspec.ValidationError, INVALID_REQUEST),
    Rule(msgspec.DecodeError, INVALID_REQUEST, message="the request is not valid JSON: {error}"),
    Rule(msgspec.MsgspecError, INVALID_REQUEST),
    Rule(UnicodeDecodeError, INVALID_REQUEST, message="the body is not valid UTF-8: {error}"),
    Rule(RecursionError, INVALID_REQUEST, message="the JSON is nested too deeply"),
    Rule(EngineClosed, SHUTTING_DOWN, message="the server is shutting down"),
    Rule(DiskFull, DISK_FULL),
    Rule(
        DamagedFile,
        DAMAGED_DATA,
        ("file",),
        "the records cannot be read: {error.file} is damaged or missing; the server's log says why",
    ),
    Rule(FollowsLeader, STANDBY, ("leader",)),
    Rule(JournalFailed, READ_ONLY, ("retry_after_ms",)),
    Rule(ReplicaBehind, REPLICA_BEHIND, ("waited_ms", "retry_after_ms")),
    Rule(
        ReplicaAway,
        REPLICA_AWAY,
        ("name", "retry_after_ms"),
        "{noun} {error.name!r} has the durability replicated, and the replica cannot be reached; nothing was written",
    ),
    Rule(
        NoReplica,
        NO_REPLICA,
        ("name",),
        "{noun} {error.name!r} has the durability replicated, and this server has no replica; nothing was written",
    ),
)


def refusal_of(error: Exception, noun: str = "log") -> Refusal | None:
    """The refusal for an exception; None if clients must not see it. ``noun`` is the protocol's word for a log."""
    if isinstance(error, Refusal):
        return error
    for rule in RULES:
        if isinstance(error, rule.error):
            return rule.refusal(error, noun)
    return None

"""The error codes of topics: ``{"error": {"code", "message", "detail"}}``."""

from __future__ import annotations

from strandline.engine.errors import QuotaExceeded
from strandline.service import http, problems
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
    NOT_A_QUEUE,
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
    Problem,
    Refusal,
    by_code,
    limit_reached,
)

#: The word for a log in topics.
NOUN = "topic"

BATCH_TOO_LARGE = Problem(
    "batch_too_large", 400, "The request has more records or seqs than one request may have. Send several requests."
)
TOPIC_NOT_FOUND = LOG_NOT_FOUND.renamed("topic_not_found", "The topic does not exist.")
ROUTER_NOT_FOUND = Problem("router_not_found", 404, "The router does not exist.")
CONSUMER_NOT_FOUND = Problem("consumer_not_found", 404, "The consumer has not committed a position.")
GROUP_NOT_FOUND = Problem("group_not_found", 404, "The consumer group does not exist. Its first member creates it.")
GROUP_HAS_MEMBERS = Problem(
    "group_has_members", 409, "The consumer group has members. Stop them, or wait until their leases end."
)
TOPIC_EXISTS_INCOMPATIBLE = Problem(
    "topic_exists_incompatible",
    409,
    "The request would change what cannot be changed: the type of a topic, the source or destination of a router, or "
    "the only source of a destination. Delete it first.",
)
TOPIC_HAS_FORKS = Problem("topic_has_forks", 409, "Streams are forked from the topic. Delete the forks first.")
TOPIC_NOT_EMPTY = Problem("topic_not_empty", 409, "The request has `if_empty`, and the topic has records.")
ROUTER_CYCLE = Problem(
    "router_cycle", 409, "The router would copy records in a circle; `detail.cycle` is the path of the circle."
)
NOT_JSON = Problem("not_json", 409, "The log is a stream that does not hold JSON. Use the streams protocol.")
TOPIC_FULL = LOG_FULL.renamed(
    "topic_full", "The topic is full and rejects new records. Delete records, or raise its retention limits."
)

#: The codes that only messages on a WebSocket have.
INVALID_JSON = Problem("invalid_json", 400, "The message is not valid JSON, or not a known command.")
UNSUPPORTED_MESSAGE = Problem("unsupported_message", 400, "The message is binary. Send text.")
SERVER_SHUTTING_DOWN = SHUTTING_DOWN.renamed("server_shutting_down")

#: The shared codes that topics rename or describe differently.
RENAMED = {
    LOG_NOT_FOUND: TOPIC_NOT_FOUND,
    LOG_FULL: TOPIC_FULL,
    NOT_FOUND: NOT_FOUND.renamed(
        meaning="Nothing exists at this path, the watch session does not exist or has expired, or the request does "
        "not open a WebSocket."
    ),
}
#: The detail members that topics rename.
MEMBERS = {"log": NOUN, "head": "head_seq", "earliest": "earliest_seq"}

PROBLEMS = by_code(
    [
        INVALID_REQUEST,
        BATCH_TOO_LARGE,
        RECORD_TOO_LARGE,
        UNAUTHORIZED,
        FORBIDDEN,
        RENAMED[NOT_FOUND],
        TOPIC_NOT_FOUND,
        ROUTER_NOT_FOUND,
        CONSUMER_NOT_FOUND,
        GROUP_NOT_FOUND,
        METHOD_NOT_ALLOWED,
        NOT_ACCEPTABLE,
        TOPIC_EXISTS_INCOMPATIBLE,
        TOPIC_HAS_FORKS,
        TOPIC_NOT_EMPTY,
        GROUP_HAS_MEMBERS,
        NOT_A_QUEUE,
        ROUTER_CYCLE,
        NOT_JSON,
        NOT_WRITABLE,
        NO_REPLICA,
        PAYLOAD_TOO_LARGE,
        UNSUPPORTED_MEDIA_TYPE,
        TOPIC_FULL,
        THROTTLED,
        DAMAGED_DATA,
        INTERNAL,
        NOT_READY,
        STANDBY,
        SHUTTING_DOWN,
        READ_ONLY,
        REPLICA_BEHIND,
        REPLICA_AWAY,
        DISK_FULL,
    ]
)


def topic_not_found(name: str) -> Refusal:
    return problems.log_not_found(name, NOUN)


def not_a_queue(name: str) -> Refusal:
    return problems.not_a_queue(name, NOUN)


def cannot_read(name: str, error: Exception) -> Refusal:
    """The last message to a reader of a topic whose records cannot be read."""
    refusal = refusal_of(error)
    if refusal is None or refusal.problem is not DAMAGED_DATA:
        return Refusal(INTERNAL, f"the topic cannot be read: {error}", {NOUN: name})
    return Refusal(DAMAGED_DATA, refusal.message, {NOUN: name, **(refusal.detail or {})})


def refusal_of(error: Exception) -> Refusal | None:
    """The refusal for an exception, with the codes of topics; None if the exception has no code."""
    refusal = problems.refusal_of(error, NOUN)
    if isinstance(error, QuotaExceeded) and error.limit == "max_logs":
        # Clients of topics know the limit by this name.
        refusal = limit_reached("max_topics", error.max)
    return None if refusal is None else refusal.renamed(RENAMED, MEMBERS)


def reply_to(error: Exception) -> Reply | None:
    """The reply to an exception that has a code; None for any other exception."""
    refusal = refusal_of(error)
    return None if refusal is None else http.refuse(refusal)


def refuse(refusal: Refusal) -> Reply:
    return http.refuse(refusal.renamed(RENAMED, MEMBERS))

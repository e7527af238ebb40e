"""Errors of collections. Declarations that cannot be served raise :class:`BadCollections`. Every other error is a
:class:`CollectionError` with a code; then nothing was changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from strandline.engine.errors import SOON_MS

#: A document cannot be found by its path:
#:
#: - ``path_not_found``: no collection has documents at this path.
#: - ``invalid_path``: a value in the path has characters that paths cannot have.
#: - ``not_a_document``: another protocol created a log of this name, or a collection with the other kind of documents.
#:
#: The caller is not allowed to do it:
#:
#: - ``unauthorized``: the certificate, the signature or the nonce of the request is not valid.
#: - ``forbidden``: the caller has no role that allows this, or the certificate does not cover it.
#: - ``field_not_writable``: the data has a field that only other roles may send.
#: - ``rate_limited``: the caller has used up a rate limit.
#: - ``nonces_full``: the server has reached its maximum of recent signed requests, and refuses further ones for now.
#: - ``role_resolver_timeout``: the application's role resolver took too long.
#: - ``role_enricher_timeout``: the application's role enricher took too long.
#: - ``role_enricher_failed``: the application's role enricher raised an exception.
#:
#: The element cannot be appended:
#:
#: - ``invalid_data``: the data is not a JSON object.
#: - ``too_deep``, ``too_large``: the data is nested too deeply, or has too many bytes.
#: - ``schema_violation``: the data does not match the schema of the collection.
#: - ``missing_proof``, ``foreign_author``, ``invalid_proof``: the author's signature is missing, is by another key than
#:   the request, or does not match.
#: - ``invalid_time``, ``time_in_future``, ``time_not_increasing``: the element's time is not a whole number, is too far
#:   ahead of the clock, or is not later than the last element.
#: - ``document_full``: the document has the maximum number of elements.
#: - ``queue_unavailable``: the queue event of the push cannot be written.
#:
#: The regular document cannot be replaced:
#:
#: - ``invalid_base_hash``: the base hash is neither text nor absent.
#: - ``hash_mismatch``: the base hash is not that of the current version.
#: - ``incomplete_proof``, ``foreign_document_author``, ``invalid_document_proof``: the author's signature is
#:   incomplete, is by another key than the request, or does not match.
#:
#: The elements cannot be pulled:
#:
#: - ``bound_required``: the pull has no bound.
#: - ``full_with_bounds``: a full pull cannot have other bounds.
#: - ``full_not_allowed``: the collection does not allow full pulls.
#: - ``checkpoint_too_old``: the checkpoint is older than the collection accepts.
Code = Literal[
    "path_not_found",
    "invalid_path",
    "not_a_document",
    "unauthorized",
    "forbidden",
    "field_not_writable",
    "rate_limited",
    "nonces_full",
    "role_resolver_timeout",
    "role_enricher_timeout",
    "role_enricher_failed",
    "invalid_data",
    "too_deep",
    "too_large",
    "schema_violation",
    "missing_proof",
    "foreign_author",
    "invalid_proof",
    "invalid_time",
    "time_in_future",
    "time_not_increasing",
    "document_full",
    "queue_unavailable",
    "invalid_base_hash",
    "hash_mismatch",
    "incomplete_proof",
    "foreign_document_author",
    "invalid_document_proof",
    "bound_required",
    "full_with_bounds",
    "full_not_allowed",
    "checkpoint_too_old",
]


class BadCollections(ValueError):
    """Collections that cannot be served. ``errors`` lists all errors. The message has ``warnings`` as well, because a
    misspelt option is often the reason for an error about the option that it stands for."""

    def __init__(self, errors: Sequence[str], warnings: Sequence[str] = ()) -> None:
        lines = [*errors, *(f"warning: {warning}" for warning in warnings)]
        super().__init__("the collections cannot be served:" + "".join(f"\n  - {line}" for line in lines))
        self.errors = tuple(errors)


class CollectionError(Exception):
    """A request to a collection was refused, and nothing was changed.

    ``retry_after_ms`` says when to retry, if that can help. ``details`` are the members that the error has beside its
    message: ``latest`` of ``time_not_increasing``; ``limit`` of ``document_full``; ``path`` and ``validator`` of
    ``schema_violation``; ``current_hash`` of ``hash_mismatch``.
    """

    def __init__(self, code: Code, message: str, *, retry_after_ms: int | None = None, **details: Any) -> None:
        super().__init__(message)
        self.code: Code = code
        self.retry_after_ms = retry_after_ms
        self.details = details

    def __repr__(self) -> str:
        return f"CollectionError({self.code}: {self})"


def unauthorized() -> CollectionError:
    """The message does not name the reason: an attacker must not learn which check failed."""
    return CollectionError("unauthorized", "the request is not authenticated")


def forbidden() -> CollectionError:
    return CollectionError("forbidden", "the caller has no permission for this operation")


def invalid_path() -> CollectionError:
    return CollectionError("invalid_path", "the path has characters that are not allowed in the path of a document")


def queue_unavailable(why: str) -> CollectionError:
    """Retrying helps once the topic accepts records again, which can be soon."""
    message = f"the queue event of this push cannot be written: {why}. Nothing was stored"
    return CollectionError("queue_unavailable", message, retry_after_ms=SOON_MS)

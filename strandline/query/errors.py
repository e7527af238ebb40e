"""Errors in queries. Every message is ready to be shown to the caller."""

from __future__ import annotations


class QueryError(ValueError):
    """Base class of all errors that this package raises on purpose. They are always the caller's fault."""


class BadQuery(QueryError):
    """A query that does not parse, names an unknown field, or uses a field in a way that it does not support."""


class BadSearchConfig(QueryError):
    """An invalid search configuration. The message names the location in the document."""


class BadPointer(QueryError):
    """A text that is not a JSON pointer."""

    def __init__(self, pointer: str) -> None:
        super().__init__("invalid json pointer")
        self.pointer = pointer

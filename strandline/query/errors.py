"""What can be wrong with a question: every message is ready to be shown to the one who asked."""

from __future__ import annotations


class QueryError(ValueError):
    """Base of everything the query room raises on purpose; the fault is always the caller's."""


class BadQuery(QueryError):
    """A query that does not parse, names an unknown field, or asks a field for what it cannot answer."""


class BadSearchConfig(QueryError):
    """A search configuration that breaks a rule; the message names the place in the document."""


class BadPointer(QueryError):
    """A text that is no JSON pointer."""

    def __init__(self, pointer: str) -> None:
        super().__init__("invalid json pointer")
        self.pointer = pointer

"""What can go wrong with an SQL query."""

from __future__ import annotations

from typing import Literal

Reason = Literal["statement", "not_found", "not_allowed", "conflict", "failed"]


class QueryFailed(Exception):
    """A query that cannot be answered. ``reason`` says what kind of problem it is."""

    def __init__(self, message: str, reason: Reason = "failed") -> None:
        super().__init__(message)
        self.reason: Reason = reason

"""Errors in a schema, a lens, a profile, or a record that is validated against them."""

from __future__ import annotations


class SchemaError(ValueError):
    """An error caused by the caller. The message is ready to be shown. ``status`` is 409 if another update came first,
    otherwise 400."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status

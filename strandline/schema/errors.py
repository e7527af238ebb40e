"""What can be wrong with a schema, a lens, a profile, or a record that is held against them."""

from __future__ import annotations


class SchemaError(ValueError):
    """The fault is the caller's, and the message is ready to be shown. ``status`` is 409 where the caller has been
    overtaken by somebody else, and 400 everywhere else."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status

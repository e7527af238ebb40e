"""The errors of tables. An invalid declaration is refused when it is made; every other error is a :class:`TableError`
with a code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, Unpack

from strandline.nearest_name import did_you_mean

#: NOT_AUTHENTICATED: the operation requires a user. VALIDATION_FAILED: a value is not valid. RATE_LIMITED: the user
#: appends too many rows. NOT_FOUND: the row, parent, table or operation does not exist. CONFLICT: the row was changed,
#: or the name is taken. FORBIDDEN: the row belongs to another user. The others end live views.
Code = Literal[
    "NOT_AUTHENTICATED",
    "VALIDATION_FAILED",
    "RATE_LIMITED",
    "NOT_FOUND",
    "CONFLICT",
    "FORBIDDEN",
    "THROTTLED",
    "UNAVAILABLE",
    "DAMAGED_DATA",
    "INTERNAL",
]


class BadDeclaration(ValueError):
    """A declaration that is not valid, or that cannot be bound."""


class MisusedHook(RuntimeError):
    """A hook did something that hooks cannot do; the message says what to do instead. Nothing was written."""


class ErrorMembers(TypedDict, total=False):
    """The members that some errors have beside code and message, as clients see them."""

    table: str
    op: str
    fields: list[str]
    fieldErrors: dict[str, str]
    retryAfter: int
    limit: dict[str, int]
    index: int
    updatedAt: int


_MEMBERS = ErrorMembers.__annotations__.keys()


class TableError(Exception):
    """Nothing was changed. ``more`` are further members of the error."""

    def __init__(self, code: Code, message: str, **more: Unpack[ErrorMembers]) -> None:
        super().__init__(message)
        for name in more.keys() - _MEMBERS:
            raise TypeError(f"unknown member {name!r} of an error{did_you_mean(name, _MEMBERS)}")
        self.code = code
        self.message = message
        self.more = more

    def __repr__(self) -> str:
        return f"TableError({self.code}: {self.message})"

    @property
    def fields(self) -> list[str]:
        """The fields that are not valid."""
        return self.more.get("fields", [])

    @property
    def field_errors(self) -> dict[str, str]:
        """What is wrong with each field."""
        return self.more.get("fieldErrors", {})

    @property
    def retry_after(self) -> int | None:
        """After how many milliseconds to retry."""
        return self.more.get("retryAfter")


def invalid(message: str, *fields: str) -> TableError:
    """A request that is not valid because of these fields."""
    if not fields:
        return TableError("VALIDATION_FAILED", message)
    return TableError("VALIDATION_FAILED", message, fields=list(fields), fieldErrors=dict.fromkeys(fields, message))


def invalid_fields(errors: Mapping[str, str], otherwise: str) -> TableError:
    """These fields are not valid. If no field can be named, ``otherwise`` says what is wrong."""
    names = list(errors)
    message = f"Invalid: {', '.join(names) if names else otherwise}"
    return TableError("VALIDATION_FAILED", message, fields=names, fieldErrors=dict(errors))

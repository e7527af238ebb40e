"""The errors of tables. An invalid declaration raises :class:`BadDeclaration`; every other error is a
:class:`TableError` with a code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, Unpack, get_args

import msgspec

from strandline.nearest_name import did_you_mean

#: NOT_AUTHENTICATED: the operation requires a user. VALIDATION_FAILED: a value is not valid. RATE_LIMITED: the user
#: appends too many rows. NOT_FOUND: the row, parent, table or operation does not exist. CONFLICT: the row was changed,
#: or the name is taken. FORBIDDEN: the row belongs to another user. HOOK_FAILED: a hook failed, so nothing was written.
#: THROTTLED: too many hooks are waiting. UNAVAILABLE: the tables are closed, or the user cannot be identified now. The
#: others end live views.
Code = Literal[
    "NOT_AUTHENTICATED",
    "VALIDATION_FAILED",
    "RATE_LIMITED",
    "NOT_FOUND",
    "CONFLICT",
    "FORBIDDEN",
    "HOOK_FAILED",
    "THROTTLED",
    "UNAVAILABLE",
    "DAMAGED_DATA",
    "INTERNAL",
]


CODES: tuple[Code, ...] = get_args(Code)


class BadDeclaration(ValueError):
    """The table cannot be declared or bound in this way."""


class MisusedHook(RuntimeError):
    """A hook did something that hooks must not do; the message says what to do instead. Nothing was written."""


class ErrorMembers(TypedDict, total=False):
    """Additional members of some errors, as clients see them."""

    table: str
    op: str
    fields: list[str]
    fieldErrors: dict[str, str]
    retryAfter: int
    limit: dict[str, int]
    index: int
    updatedAt: int
    hook: str


_MEMBERS = ErrorMembers.__annotations__.keys()


class TableError(Exception):
    """A failed operation; nothing was changed. ``more`` holds additional members of the error.

    Hooks and ``identify`` raise it, too. Raises TypeError for a code or a member that clients do not know.
    """

    def __init__(self, code: Code, message: str, **more: Unpack[ErrorMembers]) -> None:
        super().__init__(message)
        if code not in CODES:
            raise TypeError(f"unknown code {code!r} of an error; expected one of {', '.join(CODES)}")
        if not isinstance(message, str):
            raise TypeError(f"the message of an error must be text, not {message!r}")
        for name in more.keys() - _MEMBERS:
            raise TypeError(f"unknown member {name!r} of an error{did_you_mean(name, _MEMBERS)}")
        if more:
            try:
                msgspec.convert(more, ErrorMembers)
            except msgspec.ValidationError as error:
                raise TypeError(f"invalid member of an error: {error}") from None
        self.code = code
        self.message = message
        self.more = more

    def __repr__(self) -> str:
        return f"TableError({self.code}: {self.message})"

    @property
    def fields(self) -> list[str]:
        """The invalid fields."""
        return self.more.get("fields", [])

    @property
    def field_errors(self) -> dict[str, str]:
        """The reason for each invalid field."""
        return self.more.get("fieldErrors", {})

    @property
    def retry_after(self) -> int | None:
        """The time in milliseconds after which to retry."""
        return self.more.get("retryAfter")


class FailedHookWrite(TableError):
    """An operation of a hook through its context failed. If the hook does not handle it, the hook has failed."""


def invalid(message: str, *fields: str) -> TableError:
    """A VALIDATION_FAILED error caused by these fields."""
    if not fields:
        return TableError("VALIDATION_FAILED", message)
    return TableError("VALIDATION_FAILED", message, fields=list(fields), fieldErrors=dict.fromkeys(fields, message))


def invalid_fields(errors: Mapping[str, str], otherwise: str) -> TableError:
    """A VALIDATION_FAILED error with the reason for each field, or with ``otherwise`` if the error concerns no single
    field."""
    names = list(errors)
    message = f"Invalid: {', '.join(names) if names else otherwise}"
    return TableError("VALIDATION_FAILED", message, fields=names, fieldErrors=dict(errors))

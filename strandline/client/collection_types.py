"""What the documents of collections look like to a program."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import field

T = TypeVar("T")

#: The member of a document that its elements are in, unless its collection says otherwise.
USUAL_FIELD = "items"
#: What happens when an element is not by whom it should be or cannot be decrypted.
ElementErrors = Literal["throw", "skip"]


class Element(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """An element of a document. ``ts`` is in milliseconds, and no two elements of a document have the same.

    The signature is over the data as it is stored. Where that is encrypted and ``data`` is not any more, the signature
    has been checked before, or nobody asked for it.
    """

    ts: int
    data: T
    author: str | None = field(default=None, name="authorPubkey")
    signature: str | None = field(default=None, name="authorSignature")


class Appended(msgspec.Struct, frozen=True):
    """``timestamp`` is the time of the element. ``hash`` is that of the document with the element as its last; it is
    None if only a look at the document showed that a try whose answer was lost had been successful."""

    hash: str | None
    timestamp: int


class Pulled(msgspec.Struct, Generic[T], frozen=True):
    """Elements of a document, in the order of their times. ``hash`` tells versions of the document apart and is empty
    if there is none; ``timestamp`` is the time of the pull. ``more``: the server gave the oldest of what was asked for,
    and there is more behind the last element."""

    elements: list[Element[T]]
    hash: str
    timestamp: int
    more: bool = False


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One document of a batch: the parameters of its path, and how much of it."""

    params: dict[str, str | int] = {}
    since: int | None = None
    last: int | None = None
    limit: int | None = None
    field: str = USUAL_FIELD


class NotPulled(msgspec.Struct, frozen=True):
    """Why one document of a batch was refused; the others are not affected."""

    code: str


Entry = Pulled[dict[str, Any]] | NotPulled

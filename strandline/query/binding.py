"""Queries bound to a search configuration: names resolved, capabilities checked, values canonical.

What is refused is refused here, before a single record is looked at.
"""

from __future__ import annotations

from msgspec import Struct

from strandline.query.config import Field
from strandline.query.language import Operator

#: A canonical value: keywords and texts are str, integers and dates (ms) int, floats float, bools bool.
Value = str | int | float | bool


class AndB(Struct, frozen=True):
    children: tuple[Bound, ...]


class OrB(Struct, frozen=True):
    children: tuple[Bound, ...]


class AnyOfB(Struct, frozen=True):
    """A bare term over the default fields: like OrB, except that it scores as its best child does, not as their sum."""

    children: tuple[EqualB | PrefixB | TextB, ...]


class NotB(Struct, frozen=True):
    child: Bound


class HasB(Struct, frozen=True):
    """At least one value."""

    field: Field


class EqualB(Struct, frozen=True):
    """A value equal to ``value``; never of a text field. ``boost`` is its score, 0 unless it comes from a bare term."""

    field: Field
    value: Value
    boost: float = 0.0


class RangeB(Struct, frozen=True):
    """A value that stands in ``op`` (never "=") to ``value``; never of a keyword or text field."""

    field: Field
    op: Operator
    value: Value


class PrefixB(Struct, frozen=True):
    """A keyword that begins with ``prefix`` (normalised). ``boost`` as in EqualB."""

    field: Field
    prefix: str
    boost: float = 0.0


class TextB(Struct, frozen=True):
    """A text with all ``tokens`` (at least one) in one value, consecutive if ``phrase``.

    With ``prefix`` the last token is only the beginning of one. A phrase has two tokens or more, and its field
    has positions."""

    field: Field
    tokens: tuple[str, ...]
    phrase: bool = False
    prefix: bool = False
    boost: float = 1.0


Bound = AndB | OrB | AnyOfB | NotB | HasB | EqualB | RangeB | PrefixB | TextB

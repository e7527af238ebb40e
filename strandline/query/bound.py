"""Queries bound to a search configuration: names resolved, capabilities checked, values canonical.

Invalid queries are refused here, before any record is examined.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from strandline.nearest_name import MAX_QUOTED, did_you_mean
from strandline.query.config import DefaultField, Field, SearchConfig
from strandline.query.errors import BadQuery
from strandline.query.language import And, Bare, Compare, Has, Node, Not, Operator, Or
from strandline.query.values import Value, parse_value, tokens

_EXPECTED = {
    "keyword": "a string",
    "integer": "an integer",
    "float": "a number",
    "date": "a time in RFC 3339 or milliseconds",
    "bool": "true or false",
}


class AndB(Struct, frozen=True):
    children: tuple[Bound, ...]


class OrB(Struct, frozen=True):
    children: tuple[Bound, ...]


class AnyOfB(Struct, frozen=True):
    """A bare term over the default fields: like OrB, except that its score is that of its best child, not the sum."""

    children: tuple[EqualB | PrefixB | TextB, ...]


class NotB(Struct, frozen=True):
    child: Bound


class HasB(Struct, frozen=True):
    """At least one value."""

    field: Field


class EqualB(Struct, frozen=True):
    """A value equal to ``value``; not for text fields. ``boost`` is its score, 0 unless it comes from a bare term."""

    field: Field
    value: Value
    boost: float = 0.0


class RangeB(Struct, frozen=True):
    """A value that compares to ``value`` by ``op`` (never "="); not for keyword and text fields."""

    field: Field
    op: Operator
    value: Value


class PrefixB(Struct, frozen=True):
    """A keyword that starts with ``prefix`` (normalised). ``boost`` as in EqualB."""

    field: Field
    prefix: str
    boost: float = 0.0


class TextB(Struct, frozen=True):
    """A text with all ``tokens`` (at least one) in one value, consecutive if ``phrase``.

    With ``prefix``, the last token matches any token that starts with it. A phrase has at least two tokens, and its
    field has positions.
    """

    field: Field
    tokens: tuple[str, ...]
    phrase: bool = False
    prefix: bool = False
    boost: float = 1.0


Bound = AndB | OrB | AnyOfB | NotB | HasB | EqualB | RangeB | PrefixB | TextB

Leaf = Has | Compare | Bare


def bind_filter(node: Node, config: SearchConfig) -> Bound:
    """Bind the query of a filtered read: no bare terms, no prefixes, no text. Raises BadQuery."""
    return bind(node, lambda leaf: filter_clause(leaf, config))


def bind_search(node: Node, config: SearchConfig) -> Bound:
    """Bind the query of a search or an aggregation. Raises BadQuery."""
    return bind(node, lambda leaf: search_clause(leaf, config))


def bind(node: Node, clause: Callable[[Leaf], Bound]) -> Bound:
    if isinstance(node, And):
        return AndB(tuple(bind(child, clause) for child in node.children))
    if isinstance(node, Or):
        return OrB(tuple(bind(child, clause) for child in node.children))
    if isinstance(node, Not):
        return NotB(bind(node.child, clause))
    return clause(node)


def filter_clause(leaf: Leaf, config: SearchConfig) -> Bound:
    if isinstance(leaf, Bare):
        raise BadQuery(f"filter term {leaf.value!r} needs a field")
    name = leaf.field
    field = config.resolve(name)
    if field is None:
        raise BadQuery(f"filter field {name} is not indexed{did_you_mean(name, config.names())}")
    if isinstance(leaf, Has):
        if not (field.exists or field.exact or field.column):
            raise BadQuery(f"filter field {name} does not support has: filters")
        return HasB(field)
    if leaf.op == "=":
        if field.kind == "text" or not (field.exact or field.column):
            raise BadQuery(f"filter field {name} does not support equality filters")
    elif not field.column or field.kind not in ("integer", "float", "date"):
        raise BadQuery(f"comparison operator not supported for filter field {name}")
    value = bound_value(field, leaf.value, f"filter field {name}")
    return EqualB(field, value) if leaf.op == "=" else RangeB(field, leaf.op, value)


def search_clause(leaf: Leaf, config: SearchConfig) -> Bound:
    if isinstance(leaf, Bare):
        return bare_clause(leaf, config)
    name = leaf.field
    if name == "contains":
        raise BadQuery("contains: is not supported on _search yet")
    field = config.resolve(name)
    if field is None:
        raise BadQuery(f"unknown search field {name}{did_you_mean(name, config.names())}")
    if isinstance(leaf, Has):
        if not (field.exists or field.exact or field.column or field.kind == "text"):
            raise BadQuery(f"search field {name} does not support has:")
        return HasB(field)
    if field.kind in ("keyword", "text"):
        if leaf.op != "=":
            raise BadQuery(f"search field {name} does not support comparisons")
        if field.kind == "text":
            return text_clause(name, field, leaf.value, leaf.quoted)
        return keyword_clause(name, field, leaf.value)
    return typed_clause(name, field, leaf)


def typed_clause(name: str, field: Field, leaf: Compare) -> EqualB | RangeB:
    if leaf.op != "=" and not field.column:
        raise BadQuery(f"search field {name} does not support comparisons")
    if not (field.exact or field.column):
        raise BadQuery(f"search field {name} does not support equality")
    value = bound_value(field, leaf.value, f"search field {name}")
    return EqualB(field, value) if leaf.op == "=" else RangeB(field, leaf.op, value)


def bound_value(field: Field, text: str, what: str) -> Value:
    """Return the canonical form of a value in a query. ``what`` names the field in the error."""
    value = parse_value(field, text)
    if value is None:
        shown = text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"
        raise BadQuery(f"invalid value for {what}: expected {_EXPECTED[field.kind]}, not {shown!r}")
    return value


def keyword_clause(name: str, field: Field, value: str, boost: float = 0.0) -> EqualB | PrefixB:
    """Match whole values or, with a trailing star, prefixes. The same applies in quotes."""
    beginning = without_star(value)
    if beginning is not None:
        if not field.prefix:
            raise BadQuery(f"search field {name} does not support prefix queries")
        return PrefixB(field, field.normalise(beginning), boost)
    if not field.exact:
        raise BadQuery(f"search field {name} does not support exact queries")
    return EqualB(field, field.normalise(value), boost)


def text_clause(name: str, field: Field, value: str, quoted: bool, boost: float = 1.0) -> TextB:
    """Match the words of a value, in quotes as a phrase. With a trailing star, the last word is a prefix; every text
    field supports this, because its words are indexed in order."""
    words = tuple(tokens(value))
    if not words:
        raise BadQuery(f"the query for search field {name} contains no letter or digit")
    beginning = without_star(value)
    prefix = beginning is not None and beginning[-1].isalnum()
    phrase = quoted and len(words) > 1
    if phrase and not field.positions:
        raise BadQuery(f"search field {name} does not support phrase queries")
    return TextB(field, words, phrase, prefix, boost)


def without_star(value: str) -> str | None:
    """Return the prefix if ``value`` ends with a star, otherwise None. A star alone is not a prefix."""
    return value[:-1] if len(value) > 1 and value.endswith("*") else None


def bare_clause(leaf: Bare, config: SearchConfig) -> Bound:
    """Bind a term to the default fields that can answer it. Raises BadQuery if none can.

    Each field reads the term by its own rules: words for a text, the whole value or a prefix for a keyword, a number,
    date or boolean for the others.
    """
    defaults = config.default_fields or tuple(
        DefaultField(field.name) for field in config.fields.values() if field.kind == "text"
    )
    if not defaults:
        raise BadQuery(f"search term {leaf.value!r} needs a field: no default fields are configured")
    found: list[EqualB | PrefixB | TextB] = []
    refusals: list[str] = []
    for default in defaults:
        try:
            found.append(default_clause(leaf, config.fields[default.field], default.boost))
        except BadQuery as refusal:
            refusals.append(str(refusal))
    if not found:
        raise BadQuery(refusals[0])
    return found[0] if len(found) == 1 else AnyOfB(tuple(found))


def default_clause(leaf: Bare, field: Field, boost: float) -> EqualB | PrefixB | TextB:
    if field.kind == "text":
        return text_clause(field.name, field, leaf.value, leaf.quoted, boost)
    if field.kind == "keyword":
        return keyword_clause(field.name, field, leaf.value, boost)
    equal = typed_clause(field.name, field, Compare(field.name, "=", leaf.value, leaf.quoted))
    return EqualB(field, equal.value, boost)

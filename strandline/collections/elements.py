"""Validates elements before they are appended: dropped members, the schema, the author's proof and the time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.collections.errors import CollectionError
from strandline.late_import import LateModule
from strandline.signing.author_proofs import DOMAIN, Proof, meta_of
from strandline.signing.canonical_json import canonical, parse
from strandline.signing.keys import verify

if TYPE_CHECKING:
    import jsonschema_rs
else:
    jsonschema_rs = LateModule("jsonschema_rs")

#: The maximum depth of nested objects and arrays, counting the object ``{"data": …}`` around an element. The limit
#: protects the stacks of recursive parsers, in the server and in clients.
MAX_DEPTH = 64
#: How far the time of an element may be ahead of the server's clock. This is the allowed difference of client clocks.
MAX_AHEAD_MS = 300_000

#: Members with these names are dropped from nested objects, because some programs interpret them as parts of their
#: language. Objects in arrays keep them, because the published servers keep them and authors sign them.
DROPPED = frozenset({"__proto__", "constructor", "prototype", "__class__", "__dict__"})

#: A document whose text matches none of these is stored unchanged. A name may be written with escapes. A number that is
#: too large for a double has three digits of exponent, or more than three hundred digits.
_SUSPECT = re.compile(rb"__proto__|constructor|prototype|__class__|__dict__|\\u|[eE]\+?[0-9]{3}|[0-9]{309}")
#: Halves of surrogate pairs, as the canonical form writes them.
_LONE = re.compile(rb"\\ud[89a-f][0-9a-f]{2}")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class NewElement(NamedTuple):
    """An element to append: the data as it is stored and in canonical form, and the meta data of the record."""

    data: bytes
    canonical: bytes
    meta: bytes | None


# --- The data ---------------------------------------------------------------------------------------------------------


def sanitise(document: dict[str, Any], raw: bytes) -> tuple[dict[str, Any], bool]:
    """Return the document to store, and whether it differs from the given one. ``raw`` is the text it was parsed
    from."""
    if _SUSPECT.search(raw) is None:
        return document, False
    kept = _without_dropped(document)
    finite = _finite(kept)
    return finite, kept != document or finite is not kept


def _without_dropped(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_dropped(value) if isinstance(value, dict) else value
        for name, value in document.items()
        if name not in DROPPED
    }


def _finite(value: Any) -> Any:
    """Replace numbers that a double cannot hold by null. Returns the same object if there are none."""
    if isinstance(value, dict):
        members = {name: _finite(member) for name, member in value.items()}
        return value if all(members[name] is value[name] for name in members) else members
    if isinstance(value, list):
        elements = [_finite(element) for element in value]
        return value if all(map(lambda new, old: new is old, elements, value)) else elements
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, int) and abs(value).bit_length() > 1024:
        return None
    return value


def is_deep(text: bytes) -> bool:
    """Whether JSON text is nested deeper than :data:`MAX_DEPTH`."""
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return False
    depth = 0
    for byte in _STRING.sub(b"", text):
        if byte in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif byte in b"}]":
            depth -= 1
    return False


class BadObjectSchema(ValueError):
    """A schema that cannot be compiled."""


class ObjectSchema:
    """The JSON Schema of a collection, compiled once. Draft 7 unless the schema names another draft; references to
    other documents are not followed."""

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises BadObjectSchema."""
        try:
            rules = dict(schema)
            kind = jsonschema_rs.validator_cls_for(rules) if "$schema" in rules else jsonschema_rs.Draft7Validator
            self._validator = kind(rules, offline=True)
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise BadObjectSchema(str(error).partition("\n")[0]) from None

    def check(self, document: dict[str, Any]) -> None:
        """Raise :class:`CollectionError` (``schema_violation``) for the first rule that a document breaks."""
        try:
            error = next(iter(self._validator.iter_errors(document)), None)
        except ValueError:
            # The validator rejects lone surrogates, so it gets the document with replacement characters.
            error = next(iter(self._validator.iter_errors(parse(_LONE.sub(rb"\\ufffd", canonical(document))))), None)
        if error is not None:
            raise CollectionError(
                "schema_violation",
                f"Schema validation failed: {error.message}",
                path=list(error.instance_path),
                validator=error.kind.name,
            )


# --- The author and the time ------------------------------------------------------------------------------------------


def make_element(
    document_key: str,
    data: dict[str, Any],
    raw: bytes,
    author: tuple[Any, Any],
    *,
    proof_required: bool,
    presenter: str | None,
) -> tuple[NewElement, bytes]:
    """Return the element to store, and the text of the data as it was sent, for a queue event.

    ``raw`` is the text that ``data`` was parsed from. ``author`` is the public key and the signature as they were sent;
    they are stored if both are text. ``presenter`` is the key that signed the request, if any. If a proof is required,
    the presenter must be the author. Raises :class:`CollectionError`.
    """
    kept, changed = sanitise(data, raw)
    form = canonical(kept)
    pubkey, signature = author
    signed = isinstance(pubkey, str) and isinstance(signature, str)
    if proof_required:
        if not signed:
            raise CollectionError("missing_proof", "the collection requires elements signed by their author")
        if presenter is not None and pubkey != presenter:
            raise CollectionError("foreign_author", "the author of the element must be the signer of the request")
        if not verify(pubkey, signature, b'%b{"d":%b,"k":%b}' % (DOMAIN, form, canonical(document_key))):
            raise CollectionError(
                "invalid_proof", "the author's signature does not match the data and the path of the document"
            )
    meta = meta_of(Proof(pubkey, signature)) if signed else None
    if not changed:
        return NewElement(raw, form, meta), raw
    return NewElement(form, form, meta), canonical(data)


def check_time(value: Any, now: int) -> int | None:
    """Return the time that a client gives to an element, or None if the server assigns it. A float with an integral
    value is accepted, because JSON does not distinguish the two. Raises :class:`CollectionError`."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CollectionError("invalid_time", f"ts is {value!r}; expected a whole number of milliseconds, 0 or more")
    if value > now + MAX_AHEAD_MS:
        raise CollectionError(
            "time_in_future", f"ts is more than {MAX_AHEAD_MS // 60_000} minutes ahead of the server's clock"
        )
    return value

"""What is not kept of an element: names that turn into something else in the hands of careless programs, and numbers
that are none."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

#: Members with these names are dropped from objects, and from objects in objects. What is in an array is left as it
#: is: that is what authors have signed.
DROPPED = frozenset({"__proto__", "constructor", "prototype", "__class__", "__dict__"})

#: Without any of these in its text a document has nothing to lose. A name may be written with escapes; a number that is
#: too large for a double has three digits of exponent, or more than three hundred digits.
_SUSPECT = re.compile(rb"__proto__|constructor|prototype|__class__|__dict__|\\u|[eE]\+?[0-9]{3}|[0-9]{309}")


def sanitise(document: dict[str, Any], raw: bytes) -> tuple[dict[str, Any], bool]:
    """The document as it is kept, and whether that is another one. ``raw`` is the text that it was parsed from."""
    if _SUSPECT.search(raw) is None:
        return document, False
    kept = _without(document)
    finite = _finite(kept)
    return finite, kept != document or finite is not kept


def _without(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without(value) if isinstance(value, dict) else value
        for name, value in document.items()
        if name not in DROPPED
    }


def _finite(value: Any) -> Any:
    """The same with null for what is no number; the very same object if there is nothing of that kind in it."""
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

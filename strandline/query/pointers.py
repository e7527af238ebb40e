"""JSON pointers (RFC 6901): the location of a value in a document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import UNSET, UnsetType

from strandline.query.errors import BadPointer

#: The number of cached pointers. They come from search configurations and registries, of which few are in use at a
#: time.
PARSED_POINTERS = 4096

BAD_ESCAPE = re.compile(r"~(?![01])")
ARRAY_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,17})\Z", re.ASCII)


@lru_cache(PARSED_POINTERS)
def parse_pointer(pointer: str) -> tuple[str, ...]:
    """Return the unescaped segments of ``pointer``; none for the empty pointer, which is the whole document.

    Raises BadPointer.
    """
    if not pointer:
        return ()
    if pointer[0] != "/" or BAD_ESCAPE.search(pointer):
        raise BadPointer(pointer)
    return tuple(segment.replace("~1", "/").replace("~0", "~") for segment in pointer[1:].split("/"))


def pointer_to(path: Iterable[str]) -> str:
    """Return the pointer to the member at a path of names."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)


def resolve(document: object, segments: tuple[str, ...]) -> object | UnsetType:
    """Return the value at ``segments`` in a decoded document; UNSET if there is none (null is a value)."""
    found = document
    for segment in segments:
        if isinstance(found, dict):
            if segment not in found:
                return UNSET
            found = found[segment]
        elif isinstance(found, list):
            if not ARRAY_INDEX.match(segment) or int(segment) >= len(found):
                return UNSET
            found = found[int(segment)]
        else:
            return UNSET
    return found

"""A storage path: where the documents of a collection are, and what they are called.

A placeholder in braces stands for one whole segment. The path with its placeholders filled in is the key of a document:
the name of its log, and what authors sign.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

#: The placeholder that stands for whoever asks.
IDENTITY = "identity"

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_VALUE = re.compile(r"[a-zA-Z0-9._:@-]+")
_UNSAFE = re.compile(r"\.\.|//|[\x00-\x1f]")


class BadTemplate(ValueError):
    """A storage path that cannot be one. The message says why."""


class Template:
    """One storage path, taken apart."""

    __slots__ = ("_parts", "names", "text")

    def __init__(self, text: str) -> None:
        _check(text)
        self.text = text
        #: Per segment the literal text, or the name of the placeholder.
        self._parts: tuple[tuple[str, str], ...] = tuple(_part(segment) for segment in text.split("/"))
        #: The placeholders, from left to right.
        self.names: tuple[str, ...] = tuple(name for _, name in self._parts if name)

    @property
    def length(self) -> int:
        """How many segments it has."""
        return len(self._parts)

    @property
    def ends_in_placeholder(self) -> bool:
        return bool(self._parts[-1][1])

    @property
    def has_identity(self) -> bool:
        return IDENTITY in self.names

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """What the placeholders are in a path of these (decoded) segments; None if it is another path. The values may
        be anything but empty: see :func:`values_fit`."""
        if len(segments) != len(self._parts):
            return None
        params: dict[str, str] = {}
        for (literal, name), segment in zip(self._parts, segments, strict=True):
            if name:
                if not segment:
                    return None
                params[name] = segment
            elif literal != segment:
                return None
        return params

    def match_prefix(self, segments: Sequence[str]) -> dict[str, str] | None:
        """The same for a path without the last segment, which is where the documents are listed."""
        return self.match([*segments, "-"]) if len(segments) == len(self._parts) - 1 else None

    def key(self, params: Mapping[str, str]) -> str:
        """The key of the document with these parameters. Every placeholder must be among them."""
        return "/".join([params[name] if name else literal for literal, name in self._parts])

    def prefix(self, params: Mapping[str, str]) -> str:
        """What the keys of all documents begin with that differ in the last segment alone."""
        return "".join([(params[name] if name else literal) + "/" for literal, name in self._parts[:-1]])

    def __repr__(self) -> str:
        return f"<Template {self.text}>"


def segments_of(raw_path: str) -> list[str]:
    """The segments of a raw path, each decoded by itself: an encoded slash does not make two of one."""
    return [unquote(segment) if "%" in segment else segment for segment in raw_path.split("/")]


def values_fit(params: Mapping[str, str]) -> bool:
    """Whether all values are of letters, digits and ``._:@-``."""
    return all(_VALUE.fullmatch(value) for value in params.values())


def key_is_safe(key: str) -> bool:
    """Whether a key is free of ``..``, of empty segments and of control characters."""
    return _UNSAFE.search(key) is None


def _part(segment: str) -> tuple[str, str]:
    found = _PLACEHOLDER.fullmatch(segment)
    return ("", found[1]) if found else (segment, "")


def _check(text: str) -> None:
    if text.startswith("/"):
        raise BadTemplate("it must not start with /")
    if not text:
        raise BadTemplate("it is empty")
    if not all(text.split("/")):
        raise BadTemplate("it has an empty segment")
    if not key_is_safe(text):
        raise BadTemplate("it must not contain .. or a control character")
    names = _PLACEHOLDER.findall(text)
    if len(names) != len(set(names)):
        raise BadTemplate("a placeholder occurs twice in it")
    for segment in text.split("/"):
        if ("{" in segment or "}" in segment) and not _PLACEHOLDER.fullmatch(segment):
            raise BadTemplate(
                f"{segment!r} is no placeholder: one is a whole segment in braces, of letters, digits and underscores"
            )

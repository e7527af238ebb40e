"""Paths: where the documents of a collection are, and which document belongs to a path.

A placeholder in braces stands for one whole segment of a storage path. The path with its placeholders filled in is the
key of a document: the name of its log, and a part of what authors sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from strandline.collections.config import READ, WRITE, AppendOnly, Collection
from strandline.collections.elements import ObjectSchema
from strandline.collections.errors import CollectionError, invalid_path
from strandline.collections.events import Announcer

#: The placeholder that stands for the identity of the caller.
IDENTITY = "identity"

#: The maximum number of cached paths per operation. An entry takes about half a kilobyte.
MAX_RESOLVED = 16_384

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_VALUE = re.compile(r"[a-zA-Z0-9._:@-]+")
_UNSAFE = re.compile(r"\.\.|//|[\x00-\x1f]")


class BadStoragePath(ValueError):
    """An invalid storage path. The message gives the reason."""


class StoragePath:
    """A storage path, parsed."""

    __slots__ = ("_parts", "names", "text")

    def __init__(self, text: str) -> None:
        _check(text)
        self.text = text
        #: For each segment the literal text, or the name of the placeholder.
        self._parts: tuple[tuple[str, str], ...] = tuple(_part(segment) for segment in text.split("/"))
        #: The placeholders, from left to right.
        self.names: tuple[str, ...] = tuple(name for _, name in self._parts if name)

    @property
    def length(self) -> int:
        """The number of segments."""
        return len(self._parts)

    @property
    def starts_with_placeholder(self) -> bool:
        return bool(self._parts[0][1])

    @property
    def ends_in_placeholder(self) -> bool:
        return bool(self._parts[-1][1])

    @property
    def has_identity(self) -> bool:
        return IDENTITY in self.names

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """The values of the placeholders in a path of these (decoded) segments, or None if the path does not match.
        Values are not empty, but may have any characters: see :func:`values_fit`."""
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
        """The values of the placeholders in a path without the last segment: the path at which documents are listed."""
        return self.match([*segments, "-"]) if len(segments) == len(self._parts) - 1 else None

    def key(self, params: Mapping[str, str]) -> str:
        """The key of the document with these values. Every placeholder needs one."""
        return "/".join([params[name] if name else literal for literal, name in self._parts])

    def prefix(self, params: Mapping[str, str]) -> str:
        """The common start of the keys of all documents that differ only in the last segment."""
        return "".join([(params[name] if name else literal) + "/" for literal, name in self._parts[:-1]])

    def __repr__(self) -> str:
        return f"<Template {self.text}>"


def segments_of(raw_path: str) -> list[str]:
    """Split a raw path into segments. Each segment is decoded separately, so an encoded slash does not split it."""
    return [unquote(segment) if "%" in segment else segment for segment in raw_path.split("/")]


def values_fit(params: Mapping[str, str]) -> bool:
    """Whether all values consist of letters, digits and ``._:@-``."""
    return all(_VALUE.fullmatch(value) for value in params.values())


def key_is_safe(key: str) -> bool:
    """Whether a key has no ``..``, no empty segments and no control characters."""
    return _UNSAFE.search(key) is None


def _part(segment: str) -> tuple[str, str]:
    found = _PLACEHOLDER.fullmatch(segment)
    return ("", found[1]) if found else (segment, "")


def _check(text: str) -> None:
    if text.startswith("/"):
        raise BadStoragePath("it must not start with /")
    if not text:
        raise BadStoragePath("it must not be empty")
    if not all(text.split("/")):
        raise BadStoragePath("it must not have an empty segment")
    if not key_is_safe(text):
        raise BadStoragePath("it must not contain .. or a control character")
    names = _PLACEHOLDER.findall(text)
    if len(names) != len(set(names)):
        raise BadStoragePath("it must not have the same placeholder twice")
    for segment in text.split("/"):
        if ("{" in segment or "}" in segment) and not _PLACEHOLDER.fullmatch(segment):
            raise BadStoragePath(
                f"{segment!r} is not a placeholder: a placeholder is a whole segment of letters, digits and "
                "underscores in braces"
            )


# --- Documents by path ------------------------------------------------------------------------------------------------


def document_path(collection: Collection) -> StoragePath:
    """The path of the documents of a collection. Members of a bundle share a storage path, and each has its documents
    one level below it. Raises :class:`BadStoragePath`."""
    if collection.bundle is None:
        return StoragePath(collection.storage_path)
    return StoragePath(f"{collection.storage_path}/{collection.name}")


class BoundCollection:
    """A declared collection with its compiled parts: the storage path, the schema and the announcer of its events."""

    __slots__ = ("announcer", "collection", "namespace", "path", "schema")

    def __init__(self, collection: Collection, namespace: str = "") -> None:
        self.collection = collection
        self.namespace = namespace
        self.path = document_path(collection)
        self.schema = None if collection.object_schema is None else ObjectSchema(collection.object_schema)
        self.announcer: Announcer | None = None


class PathMatch(NamedTuple):
    """The collection that a path belongs to, and the values of its placeholders."""

    bound: BoundCollection
    params: dict[str, str]


class DocumentPath(NamedTuple):
    """The path of a document, whether or not the document exists."""

    bound: BoundCollection
    params: Mapping[str, str]
    key: str
    #: Whether ``key`` can be the key of a document. Callers are identified before an unsafe key is refused.
    is_safe: bool

    @property
    def collection(self) -> Collection:
        return self.bound.collection

    @property
    def is_regular(self) -> bool:
        """Whether it is the path of a regular document. All others consist of elements."""
        return self.bound.collection.append_only is None

    @property
    def rules(self) -> AppendOnly:
        """How elements are appended and pulled. Regular documents have no such rules."""
        rules = self.bound.collection.append_only
        assert rules is not None
        return rules


class Bundle(NamedTuple):
    """Collections that are pulled together, at their common storage path."""

    path: StoragePath
    members: list[BoundCollection]


class BundlePath(NamedTuple):
    """The path at which the documents of a bundle are pulled."""

    members: Sequence[BoundCollection]
    params: Mapping[str, str]
    is_safe: bool


class PathIndex:
    """Finds documents of one namespace by their paths. Where several collections match, the first declared one wins."""

    def __init__(self, collections: Sequence[Collection], namespace: str = "") -> None:
        self._by_name: dict[str, BoundCollection] = {one.name: BoundCollection(one, namespace) for one in collections}
        self._by_length: dict[int, list[tuple[StoragePath, BoundCollection]]] = {}
        #: A cache, because most paths are requested repeatedly.
        self._resolved: dict[str, dict[str, DocumentPath]] = {READ: {}, WRITE: {}}
        self._bundles: dict[str, Bundle] = {}
        for bound in self:
            self._by_length.setdefault(bound.path.length, []).append((bound.path, bound))
            bundle, path = bound.collection.bundle, bound.collection.storage_path
            if bundle is not None:
                self._bundles.setdefault(bundle, Bundle(StoragePath(path), [])).members.append(bound)

    def __iter__(self) -> Iterator[BoundCollection]:
        return iter(self._by_name.values())

    def get(self, name: str) -> BoundCollection | None:
        return self._by_name.get(name)

    def resolve(self, path: str, op: str) -> DocumentPath:
        """Return the document at a raw path, for reading or writing. Raises :class:`CollectionError`."""
        known = self._resolved[op]
        found = known.get(path)
        if found is None:
            found = self._resolve(path, op)
            if len(known) >= MAX_RESOLVED:
                known.clear()
            known[path] = found
        return found

    def _resolve(self, path: str, op: str) -> DocumentPath:
        bound, params = _checked(self.find(segments_of(path), op))
        key = bound.path.key(params)
        return DocumentPath(bound, params, key, key_is_safe(key))

    def resolve_bundle(self, path: str) -> BundlePath | None:
        """Return the bundle that is pulled at a raw path, if there is one. Raises :class:`CollectionError`."""
        if not self._bundles:
            return None
        segments = segments_of(path)
        for bundle in self._bundles.values():
            params = bundle.path.match(segments)
            if params is not None:
                if not values_fit(params):
                    raise invalid_path()
                return BundlePath(bundle.members, params, key_is_safe(bundle.path.key(params)))
        return None

    def resolve_list(self, path: str) -> PathMatch:
        """Return the listable collection whose documents are below a raw path. Raises :class:`CollectionError`."""
        return _checked(self.find_list(segments_of(path) if path else []))

    def find(self, segments: Sequence[str], op: str) -> PathMatch | None:
        """The collection with a document at these (decoded) segments that allows ``op`` (read or write)."""
        for path, bound in self._by_length.get(len(segments), ()):
            if bound.collection.pull_only if op == WRITE else bound.collection.push_only:
                continue
            params = path.match(segments)
            if params is not None:
                return PathMatch(bound, params)
        return None

    def owner_of(self, key: str) -> Collection | None:
        """The collection of the document with this key. A storage path that starts with a placeholder owns no names,
        because it would match the logs of all other protocols."""
        found = self.find(key.split("/"), WRITE)
        if found is None or found.bound.path.starts_with_placeholder or not values_fit(found.params):
            return None
        collection = found.bound.collection
        return collection if collection.is_stored else None

    def belongs(self, key: str, bound: BoundCollection) -> bool:
        """Whether a key that matches the path of the collection is not that of a document of another collection, which
        comes first."""
        segments = key.split("/")
        first = next(
            (path for path, _ in self._by_length[len(segments)] if path.match(segments) is not None), bound.path
        )
        return first.text == bound.path.text

    def serves(self, key: str, bound: BoundCollection) -> bool:
        """Whether a pull of the document with this key goes to the collection, and not to one that is declared
        before it."""
        found = self.find(key.split("/"), READ)
        return found is not None and found.bound is bound

    def find_list(self, segments: Sequence[str]) -> PathMatch | None:
        """The listable collection whose documents are below these (decoded) segments."""
        for bound in self:
            params = bound.path.match_prefix(segments) if bound.collection.listable else None
            if params is not None:
                params.pop(bound.path.names[-1])
                return PathMatch(bound, params)
        return None


def _checked(match: PathMatch | None) -> PathMatch:
    if match is None:
        raise CollectionError("path_not_found", "no collection has documents at this path")
    if not values_fit(match.params):
        raise invalid_path()
    return match

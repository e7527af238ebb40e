"""Propose a search configuration from a sample of a log's records.

The proposal is a start for a person to change: each scalar member becomes a field of the kind that fits most of its
values, with the capabilities that queries on this kind use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from strandline.query.config import Kind
from strandline.query.pointers import pointer_to
from strandline.query.values import MOMENT, date, scalars

#: The number of records in a sample, and the bytes of their payloads.
SAMPLE_RECORDS = 1_000
SAMPLE_BYTES = 4 << 20
#: Members below this level are left out: few people search them, and documents may be nested deeply.
MAX_DEPTH = 4
#: More fields than this make an index large, and usually come from objects that have ids as member names.
MAX_FIELDS = 64
#: The number of members that are counted, for the same reason.
MAX_MEMBERS = 2_000
#: A bare term is searched in at most this number of keyword fields, if there is no text.
MAX_DEFAULTS = 8
#: Longer texts are cut in examples.
EXAMPLE_CHARACTERS = 80

#: A string is prose if it has this number of words, or is this long and has two words.
_PROSE_WORDS, _PROSE_CHARACTERS = 4, 32
#: A field is a text if at least this fraction of its strings are prose.
_PROSE_FRACTION = 0.2
#: A string of this length that is not prose is a blob, which is not worth a field.
_BLOB_CHARACTERS = 512
#: Numbers are dates if they are milliseconds of the years 2000 to 2099 and the name of the member suggests a time.
_EPOCH_MS = range(946_684_800_000, 4_102_444_800_000)
_TIME_WORDS = frozenset({"ts", "at", "time", "date", "timestamp", "created", "updated", "modified", "when"})
_UNITS = frozenset({"ms", "millis"})
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
#: The usual names of the time of an event, best first.
_PRIMARY_NAMES = ("timestamp", "ts", "time", "at", "date", "datetime", "createdat", "created", "eventtime")
#: Names that have another meaning in queries.
_RESERVED = frozenset({"has", "contains", "and", "or", "not", "offset"})
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]+")
_MAX_NAME = 64

_CAPABILITIES: dict[Kind, dict[str, Any]] = {
    "keyword": {"exact": True, "prefix": True, "sortable": True},
    "text": {"analyzer": "unicode_word_v1", "prefix": True, "positions": True},
    "integer": {"exact": True, "column": True, "sortable": True, "aggregatable": True},
    "float": {"exact": True, "column": True, "sortable": True, "aggregatable": True},
    "date": {"exact": True, "column": True, "sortable": True},
    "bool": {"exact": True, "column": True},
}

_decode = msgspec.json.Decoder().decode


class InferredField(Struct, frozen=True):
    """A proposed field: its name and kind, where it is, in how many records of the sample, and one of its values."""

    name: str
    kind: Kind
    json_pointer: str
    records: int
    example: str | int | float | bool


class Inference(Struct, frozen=True):
    """``records`` of the sample are JSON objects. ``fields`` are new, and ``search`` is the proposed configuration: the
    installed one with these fields. It is None if there are neither."""

    records: int
    fields: list[InferredField]
    search: dict[str, Any] | None


def infer_search(payloads: Iterable[bytes], installed: dict[str, Any] | None = None) -> Inference:
    """Propose a search configuration for records with these payloads, as an addition to the document of an installed
    one. The proposal is valid, and each new field has a value in at least one of the records."""
    members: dict[tuple[str, ...], _Member] = {}
    records = 0
    for payload in payloads:
        try:
            document = _decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if not isinstance(document, dict):
            continue
        records += 1
        for path, values in _leaves(document):
            member = members.get(path)
            if member is None:
                if len(members) == MAX_MEMBERS:
                    continue
                member = members[path] = _Member(path)
            member.add(values)
    before = installed or {"fields": {}}
    fields = _fields(members.values(), before)
    return Inference(records, fields, _search(fields, records, before) if fields else installed)


def _leaves(document: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], list[str | int | float | bool]]]:
    """The scalar members of a document, with their paths. An array stands for its scalars. A pointer cannot reach the
    members of objects in an array."""
    waiting: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), document)]
    while waiting:
        above, node = waiting.pop()
        for name, value in node.items():
            path = (*above, name)
            if isinstance(value, dict):
                if len(path) < MAX_DEPTH:
                    waiting.append((path, value))
            elif values := scalars(value):
                yield path, values


class _Member:
    """The values of one member in the sample."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        self.records = 0
        self._examples: dict[str, str | int | float | bool] = {}
        #: By class of values: strings, booleans, integers and other numbers.
        self._counts = {"str": 0, "bool": 0, "int": 0, "float": 0}
        self._times = self._prose = self._blobs = self._epochs = 0

    def add(self, values: list[str | int | float | bool]) -> None:
        self.records += 1
        for value in values:
            kind = type(value).__name__
            self._counts[kind] += 1
            self._examples.setdefault(kind, value)
            if isinstance(value, str):
                self._add_text(value)
            elif isinstance(value, int):
                self._epochs += value in _EPOCH_MS

    def _add_text(self, value: str) -> None:
        words = len(value[:_BLOB_CHARACTERS].split(maxsplit=_PROSE_WORDS))
        if words >= _PROSE_WORDS or (words > 1 and len(value) > _PROSE_CHARACTERS):
            self._prose += 1
        elif len(value) >= _BLOB_CHARACTERS:
            self._blobs += 1
        elif MOMENT.match(value) and date(value) is not None:
            self._times += 1

    @property
    def _numbers(self) -> int:
        return self._counts["int"] + self._counts["float"]

    def kind(self) -> Kind | None:
        """The kind that most of the values have; None if the member is not worth a field."""
        texts, booleans = self._counts["str"], self._counts["bool"]
        if max(texts, booleans) < self._numbers:
            return self._kind_of_numbers()
        if texts < booleans:
            return "bool"
        if self._times == texts:
            return "date"
        if self._blobs == texts:
            return None
        return "text" if self._prose >= _PROSE_FRACTION * texts else "keyword"

    def _kind_of_numbers(self) -> Kind:
        if self._counts["float"]:
            return "float"
        return "date" if self._epochs == self._counts["int"] and _names_time(self.path[-1]) else "integer"

    def example(self, kind: Kind) -> str | int | float | bool:
        """A value of this kind, shortened."""
        if kind == "bool":
            return self._examples["bool"]
        if kind in ("keyword", "text") or (kind == "date" and self._counts["str"] >= max(self._numbers, 1)):
            text = str(self._examples["str"])
            return text if len(text) <= EXAMPLE_CHARACTERS else f"{text[:EXAMPLE_CHARACTERS]}…"
        return self._examples["float" if kind == "float" else "int"]


def _names_time(name: str) -> bool:
    """Whether a name ends in a word for a time, such as ``createdAt`` and ``ts_ms``."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if len(words) > 1 and words[-1] in _UNITS:
        words.pop()
    return bool(words) and words[-1] in _TIME_WORDS


def _fields(members: Iterable[_Member], before: dict[str, Any]) -> list[InferredField]:
    """The members without a field that are most frequent, in the order of their first occurrence."""
    bound = {binding["jsonPointer"] for field in before["fields"].values() for binding in field["bindings"]}
    kept = [
        (member, kind)
        for member in members
        if (kind := member.kind()) is not None and pointer_to(member.path) not in bound
    ]
    most = max(MAX_FIELDS - len(before["fields"]), 0)
    if len(kept) > most:
        frequent = sorted(range(len(kept)), key=lambda place: (-kept[place][0].records, place))[:most]
        kept = [kept[place] for place in sorted(frequent)]
    names = {*before["fields"], *before.get("aliases", ())}
    fields = []
    for member, kind in kept:
        name = _name(member.path, names)
        names.add(name)
        fields.append(InferredField(name, kind, pointer_to(member.path), member.records, member.example(kind)))
    return fields


def _name(path: tuple[str, ...], taken: set[str]) -> str:
    """The name of a field in queries: the path with dots, without characters that names cannot have."""
    name = _NOT_IN_NAMES.sub("_", ".".join(path)).lstrip("._-")[:_MAX_NAME] or "field"
    if name.lower() in _RESERVED:
        name += "_value"
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name[: _MAX_NAME - len(str(number)) - 1]}-{number}"
    return unique


def _search(fields: list[InferredField], records: int, before: dict[str, Any]) -> dict[str, Any]:
    search: dict[str, Any] = {}
    primary = _primary(fields, records)
    if primary is not None:
        search["primaryTimestampField"] = primary
    defaults = [field.name for field in fields if field.kind == "text"]
    defaults = defaults or [field.name for field in fields if field.kind == "keyword"][:MAX_DEFAULTS]
    if defaults:
        search["defaultFields"] = [{"field": name} for name in defaults]
    search |= before
    search["fields"] = before["fields"] | {
        field.name: {
            "kind": field.kind,
            "bindings": [{"version": 1, "jsonPointer": field.json_pointer}],
            **_CAPABILITIES[field.kind],
        }
        for field in fields
    }
    return search


def _primary(fields: list[InferredField], records: int) -> str | None:
    """The date that most likely is the time of the event: at least every second record has it, and the best name."""

    def rank(field: InferredField) -> tuple[int, int]:
        last = field.json_pointer.rpartition("/")[2].lower().replace("_", "").replace("-", "")
        named = _PRIMARY_NAMES.index(last) if last in _PRIMARY_NAMES else len(_PRIMARY_NAMES)
        return named, field.json_pointer.count("/")

    dates = [field for field in fields if field.kind == "date" and field.records * 2 >= records]
    return min(dates, key=rank).name if dates else None

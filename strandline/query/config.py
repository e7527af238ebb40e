"""A search configuration: which fields of a stream's records can be queried, and how.

``config_parser.py`` reads it from a JSON document and checks it.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from strandline.query.language import Node

Kind = Literal["keyword", "text", "integer", "float", "date", "bool"]
MeasureKind = Literal["count", "summary", "summary_parts"]


class Binding(Struct, frozen=True):
    """Where a field is in records of schema version ``version`` and later, up to the next binding."""

    version: int
    pointer: str


class Field(Struct, frozen=True):
    """One searchable field. ``bindings`` ascend by version."""

    name: str
    kind: Kind
    bindings: tuple[Binding, ...]
    normalizer: str | None = None
    analyzer: str | None = None
    exact: bool = False
    prefix: bool = False
    column: bool = False
    exists: bool = False
    sortable: bool = False
    aggregatable: bool = False
    contains: bool = False
    positions: bool = False

    def binding(self, version: int) -> Binding | None:
        """Return the binding for records of this schema version: the latest that is not newer. Records of a log
        without a schema (version 0) have the binding of version 1."""
        for binding in reversed(self.bindings):
            if binding.version <= max(version, 1):
                return binding
        return None

    def normalise(self, text: str) -> str:
        """Return the canonical form of a keyword."""
        return text.lower() if self.normalizer == "lowercase_v1" else text


class Measure(Struct, frozen=True):
    """A measure of a rollup. ``include`` belongs to "count", ``field`` and ``histogram`` (log2_v1) to "summary",
    ``pointers`` (count, sum, min, max and optionally histogram) to "summary_parts"."""

    name: str
    kind: MeasureKind
    include: Node | None = None
    field: str | None = None
    histogram: bool = False
    pointers: tuple[str, ...] | None = None


class Rollup(Struct, frozen=True):
    """A declared aggregation. ``intervals`` maps the declared texts to milliseconds."""

    name: str
    timestamp_field: str
    intervals: dict[str, int]
    measures: dict[str, Measure]
    include: Node | None = None
    dimensions: tuple[str, ...] = ()


class DefaultField(Struct, frozen=True):
    """A field that bare terms are searched in."""

    field: str
    boost: float = 1.0


class SearchConfig(Struct, frozen=True):
    """Everything that can be queried in one stream. Without fields, nothing can."""

    fields: dict[str, Field] = {}
    aliases: dict[str, str] = {}
    default_fields: tuple[DefaultField, ...] = ()
    contains_default_fields: tuple[str, ...] = ()
    primary_timestamp: str | None = None
    rollups: dict[str, Rollup] = {}
    profile: str | None = None
    #: The declaration itself, with trimmed names and without flags that are not true.
    declared: dict[str, Any] = {}

    def resolve(self, name: str) -> Field | None:
        """Return the field with this name or alias."""
        field = self.fields.get(name)
        if field is None and name in self.aliases:
            field = self.fields[self.aliases[name]]
        return field

    def names(self) -> list[str]:
        """The names and aliases of the fields."""
        return [*self.fields, *self.aliases]

    def document(self) -> dict[str, Any]:
        """The configuration as it is stored and shown. Parsing it again returns this configuration. Do not modify
        it."""
        return self.declared

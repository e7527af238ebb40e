"""The registry of a stream: its schemas by version, the lenses between them, where each version starts, and its
searchable fields. A log without a schema can have a registry for its searchable fields alone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from strandline.query.config import SearchConfig
from strandline.query.config_parser import parse_search_config
from strandline.query.declaration import SearchDeclaration
from strandline.schema.errors import SchemaError
from strandline.schema.lenses import Lens, LensDocument, Version, parse_lens
from strandline.schema.promotion import Step, compile_steps, duplicate
from strandline.schema.routing import RoutingKey, parse_routing_key
from strandline.schema.updates import API_VERSION, ApiVersion, check_sequence, parse_update, updated
from strandline.schema.validation import Validation, bounded

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class SchemaBoundary(msgspec.Struct):
    offset: Version
    version: Version


class RegistryDocument(msgspec.Struct, kw_only=True, rename="camel"):
    """A registry as JSON. Search configuration and lenses are the given ones, checked and with trimmed names."""

    api_version: ApiVersion
    schema: str
    current_version: Version
    routing_key: RoutingKey | UnsetType = UNSET
    search: SearchDeclaration | UnsetType = UNSET
    boundaries: list[SchemaBoundary]
    schemas: dict[str, Any]
    lenses: dict[str, LensDocument]


@dataclass(frozen=True)
class Registry:
    """An immutable value. Its compiled parts belong to the object, so a stream that is recreated under the same name
    shares nothing with the earlier one.

    ``boundaries`` ascend. Records from the sequence number of a boundary on (the protocol's, a seq minus one) have its
    version; before the first boundary they have version 0.
    """

    schema: str
    current_version: int = 0
    routing_key: RoutingKey | None = None
    search: SearchConfig | None = None
    boundaries: tuple[tuple[int, int], ...] = ()
    schemas: Mapping[int, Any] = field(default_factory=dict)
    #: By the version that they promote from.
    lenses: Mapping[int, Lens] = field(default_factory=dict)

    @classmethod
    def empty(cls, name: str) -> Registry:
        """Return the registry of a stream without a schema."""
        return cls(name)

    @classmethod
    def installed(
        cls, name: str, schema: Any, *, routing_key: RoutingKey | None = None, search: SearchConfig | None = None
    ) -> Registry:
        """Return a registry with a first schema, which applies from the first record on."""
        return cls(name, 1, routing_key, search, ((0, 1),), {1: schema})

    # --- as documents ------------------------------------------------------------------------------------------------

    def document(self) -> RegistryDocument:
        """Return the registry as it is shown. Unset members are omitted."""
        return RegistryDocument(
            api_version=API_VERSION,
            schema=self.schema,
            current_version=self.current_version,
            routing_key=UNSET if self.routing_key is None else self.routing_key,
            search=UNSET if self.search is None else cast(SearchDeclaration, self.search.document()),
            boundaries=[SchemaBoundary(sequence, version) for sequence, version in self.boundaries],
            schemas={str(version): schema for version, schema in self.schemas.items()},
            lenses={str(version): cast(LensDocument, lens.document) for version, lens in self.lenses.items()},
        )

    def stored(self) -> bytes:
        """Return the stored form for ``load``: JSON, because it preserves numbers of any size."""
        return _encode(self.document())

    def note(self) -> bytes | None:
        """Return what a log stores: the stored form, or None if the registry is that of a log without one."""
        return None if self == Registry.empty(self.schema) else self.stored()

    @classmethod
    def load(cls, stored: bytes) -> Registry:
        document = _decode(stored)
        return cls(
            document["schema"],
            document["currentVersion"],
            parse_routing_key(document.get("routingKey")),
            parse_search_config(document["search"]) if "search" in document else None,
            tuple((boundary["offset"], boundary["version"]) for boundary in document["boundaries"]),
            {int(version): schema for version, schema in document["schemas"].items()},
            {int(version): parse_lens(lens) for version, lens in document["lenses"].items()},
        )

    # --- changing ----------------------------------------------------------------------------------------------------

    def update(self, body: bytes, *, next_sequence: int) -> Registry:
        """Return the registry after an update, for a stream whose next record gets this sequence number. Raises
        SchemaError.

        The duration depends on the size of the schemas. If records were appended in the meantime, use ``moved``.
        """
        with bounded():
            return updated(self, parse_update(body), next_sequence)

    def moved(self, before: Registry, next_sequence: int) -> Registry:
        """Return this registry, an update of ``before``, with its new boundary moved to the next sequence number.
        Raises SchemaError."""
        if self.current_version == before.current_version:
            return self
        check_sequence(next_sequence, first=self.current_version == 1)
        return replace(self, boundaries=(*self.boundaries[:-1], (next_sequence, self.current_version)))

    def cut(self, next_sequence: int) -> Registry:
        """Return the registry for a fork of the stream before the record with this sequence number. Later records of
        the fork have the current version, whatever they have in this stream."""
        return replace(
            self, boundaries=tuple((min(place, next_sequence), version) for place, version in self.boundaries)
        )

    # --- versions ----------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> list[tuple[int, int]]:
        """Return the first seq of each version that can have records, ascending."""
        return [(sequence + 1, version) for sequence, version in self._ranges]

    @cached_property
    def _ranges(self) -> tuple[tuple[int, int], ...]:
        """Return the boundaries without those that another boundary at the same position has replaced."""
        return tuple(dict(self.boundaries).items())

    @cached_property
    def _starts(self) -> list[int]:
        return [sequence + 1 for sequence, _ in self._ranges]

    def version_at(self, seq: int) -> int:
        """Return the version of the record with this seq (the first is 1)."""
        place = bisect_right(self._starts, seq)
        return self._ranges[place - 1][1] if place else 0

    def versions_at(self, seqs: Sequence[int]) -> list[int]:
        """Return the versions of records, given their seqs in ascending order."""
        if not seqs or self.version_at(seqs[0]) == self.version_at(seqs[-1]):
            return [self.version_at(seqs[0])] * len(seqs) if seqs else []
        return [self.version_at(seq) for seq in seqs]

    # --- writing -----------------------------------------------------------------------------------------------------

    @cached_property
    def _validation(self) -> Validation:
        return Validation(self.schemas[self.current_version])

    def check(self, documents: Sequence[Any]) -> None:
        """Raise SchemaError unless all documents conform to the current schema, if there is one."""
        if self.current_version:
            self._validation.check(documents)

    def keys_of(self, documents: Sequence[Any], header_key: str | None) -> list[str | None] | None:
        """Return the routing key of each document: by pointer if one is configured, otherwise the header's; None: no
        keys. Raises SchemaError."""
        if self.routing_key is None:
            return None if header_key is None else [header_key] * len(documents)
        if header_key is not None:
            raise SchemaError("Stream-Key not allowed when routingKey is configured")
        return self.routing_key.keys_of(documents)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def promotes(self) -> bool:
        """Whether records may exist that are not of the current version. If not, all are read as stored."""
        return len(self._ranges) > 1

    @cached_property
    def _steps(self) -> dict[int, Step]:
        """Return, by version, the function that promotes a document to the current version. Version 0 has no lens."""
        steps: dict[int, Step] = {}
        operations: tuple[Any, ...] = ()
        for version in range(self.current_version - 1, 0, -1):
            operations = self.lenses[version].operations + operations
            steps[version] = compile_steps(operations)
        return steps

    def promote(self, seq: int, document: Any) -> Any:
        """Promote the document of the record with this seq to the current version. Does not change its argument. Raises
        SchemaError if a lens fails."""
        step = self._steps.get(self.version_at(seq))
        return document if step is None else step(duplicate(document))

    def promote_rows(self, seqs: Sequence[int], data: Sequence[bytes]) -> list[bytes]:
        """Promote stored records. ``seqs`` ascend."""
        rows = list(data)
        for (_, version), start, end in zip(self._ranges, self._starts, self._starts[1:], strict=False):
            step = self._steps.get(version)
            first, last = bisect_left(seqs, start), bisect_left(seqs, end)
            if step is not None and first < last:
                rows[first:last] = _promoted(rows[first:last], step)
        return rows


def _promoted(rows: list[bytes], step: Step) -> list[bytes]:
    try:
        return [_encode(step(_decode(row))) for row in rows]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SchemaError("lens failed: a record is not JSON") from None

"""Payloads as typed columns: the Arrow types that the schema of a log declares, and the conversion of records.

The data source and the lake both use this, so they agree. Records of older versions are promoted by the lenses first. A
record that cannot be promoted, or does not match the columns, has nulls in them and its text in ``_corrupt``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Optional, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry
from strandline.schema.structure import types_of

#: The column with the text of a record that does not match the current version.
CORRUPT = "_corrupt"
#: The only column of payloads that are not objects.
VALUE = "value"
#: Deeper structures become JSON text.
MAX_DEPTH = 16
#: Records are converted in blocks of this many. One record that Arrow does not accept makes its block slow.
BLOCK_ROWS = 8192

_Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_SCALARS: dict[frozenset[str], Any] = {
    frozenset({"string"}): pa.string(),
    frozenset({"integer"}): pa.int64(),
    frozenset({"number"}): pa.float64(),
    frozenset({"integer", "number"}): pa.float64(),
    frozenset({"boolean"}): pa.bool_(),
}
#: Marks JSON text: a string array whose values are kept as they are.
_JSON_TEXT = {b"strandline": b"json"}
_FAULTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


class PayloadColumns:
    """The columns of the payloads of a log.

    Each property of the current schema is a column, in the order of the schema: string, long, double, boolean, struct
    or array where the schema declares that, and JSON text where it allows several types or none is declared. A property
    whose name is ``taken``, or differs from another only in case, gets the prefix ``data_``, because Spark does not
    distinguish such names. ``_corrupt`` is the last column.
    """

    def __init__(self, registry: Registry, taken: Iterable[str] = ()) -> None:
        document = registry.schemas.get(registry.current_version, True)
        properties = _properties(document)
        self._registry = registry
        self._is_object = bool(properties)
        fields = [_field(name, schema) for name, schema in (properties or {VALUE: document}).items()]
        names = _distinct([field.name for field in fields], [*taken, CORRUPT])
        self._fields = fields
        #: The schema of ``arrays``.
        self.schema = pa.schema(
            [
                *(field.with_name(name).remove_metadata() for name, field in zip(names, fields, strict=True)),
                pa.field(CORRUPT, pa.string()),
            ]
        )
        kind = _struct(fields) if self._is_object else _decoded(fields[0])
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode
        self._parser = _BlockParser(fields) if self._is_object else None

    @property
    def has_types(self) -> bool:
        """Whether the schema declares more than that there is JSON."""
        return self._is_object or not _is_json_text(self._fields[0])

    def arrays(self, seqs: Sequence[int], payloads: Sequence[bytes]) -> list[Any]:
        """Stored records, with ascending seqs, as columns."""
        promoted = promote(self._registry, seqs, payloads)
        blocks = []
        for start in range(0, len(payloads), BLOCK_ROWS) or (0,):
            end = start + BLOCK_ROWS
            blocks.append(self._block(payloads[start:end], promoted[start:end]))
        if len(blocks) == 1:
            return blocks[0]
        return [pa.concat_arrays(parts) for parts in zip(*blocks, strict=True)]

    def _block(self, payloads: Sequence[bytes], promoted: Sequence[bytes | None]) -> list[Any]:
        if self._parser is not None and None not in promoted:
            arrays = self._parser.arrays(cast(Sequence[bytes], promoted))
            if arrays is not None:
                return [*arrays, pa.nulls(len(payloads), pa.string())]
        return self._row_by_row(payloads, promoted)

    def _row_by_row(self, payloads: Sequence[bytes], promoted: Sequence[bytes | None]) -> list[Any]:
        decoded: list[Any] = []
        corrupt: list[str | None] = []
        for payload, row in zip(payloads, promoted, strict=True):
            try:
                if row is None:
                    raise ValueError
                value, fault = self._read(row), None
            except _FAULTS:
                value, fault = None, payload.decode(errors="replace")
            decoded.append(value)
            corrupt.append(fault)
        if self._is_object:
            arrays = [_column(decoded, number, field) for number, field in enumerate(self._fields)]
        else:
            arrays = [_array(decoded, self._fields[0])]
        return [*arrays, pa.array(corrupt, pa.string())]

    def _read(self, row: bytes) -> Any:
        try:
            return self._decode(row)
        except msgspec.ValidationError:
            # In JSON Schema, 1.0 is an integer.
            return self._decode(msgspec.json.encode(_with_whole_numbers(msgspec.json.decode(row))))


def promote(registry: Registry, seqs: Sequence[int], payloads: Sequence[bytes]) -> list[bytes | None]:
    """Stored records promoted to the current version; None where that fails. The seqs must ascend."""
    if not registry.promotes:
        return list(payloads)
    try:
        return list(registry.promote_rows(seqs, payloads))
    except SchemaError:
        return [_promoted(registry, seq, payload) for seq, payload in zip(seqs, payloads, strict=True)]


def _promoted(registry: Registry, seq: int, payload: bytes) -> bytes | None:
    try:
        return registry.promote_rows([seq], [payload])[0]
    except SchemaError:
        return None


# --- blocks of records, parsed by Arrow -------------------------------------------------------------------------------


class _BlockParser:
    """Parses many objects at once, three times as fast as one by one. Returns the same columns, or None for a block
    that it may read differently.

    Arrow reads a sequence of objects and does not know where a record ends. So every record is decoded separately
    first, without its columns: then each is one complete object, and the objects and the records are the same.
    Properties with JSON text, which Arrow cannot return, are decoded in that step.
    """

    def __init__(self, fields: Sequence[Any]) -> None:
        self._fields = fields
        self._texts = [field for field in fields if _has_json_text(field)]
        self._schema = pa.schema([field for field in fields if not _has_json_text(field)])
        self._floats = [field.name for field in self._schema if _has_floats(field.type)]
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(_struct(self._texts)).decode

    def arrays(self, rows: Sequence[bytes]) -> list[Any] | None:
        try:
            texts = list(map(self._decode, rows))
            parsed = self._parse(b"\n".join([*rows, b""])) if self._schema.names and rows else None
        except _FAULTS:  # errors of Arrow are ValueErrors
            return None
        if parsed is not None and (parsed.num_rows != len(rows) or not self._is_finite(parsed)):
            return None
        return [self._array(field, texts, parsed) for field in self._fields]

    def _parse(self, block: bytes) -> Any:
        # Imported when it is needed: it takes a while, and most processes never parse.
        import pyarrow.json as pj

        block.decode()  # Arrow does not check that text is valid
        return pj.read_json(
            pa.BufferReader(block),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pj.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore"),
        )

    def _is_finite(self, parsed: Any) -> bool:
        """Whether no number is too large for a double. Such a number is an error, but Arrow reads it as infinite."""
        return all(_is_finite(chunk) for name in self._floats for chunk in parsed.column(name).chunks)

    def _array(self, field: Any, texts: Sequence[Any], parsed: Any) -> Any:
        for number, each in enumerate(self._texts):
            if each is field:
                return _column(texts, number, field)
        return pa.nulls(0, field.type) if parsed is None else parsed.column(field.name).combine_chunks()


def _has_json_text(field: Any) -> bool:
    kind = field.type
    return _is_json_text(field) or any(_has_json_text(kind.field(number)) for number in range(kind.num_fields))


def _has_floats(kind: Any) -> bool:
    return pa.types.is_floating(kind) or any(_has_floats(kind.field(n).type) for n in range(kind.num_fields))


def _is_finite(array: Any) -> bool:
    kind = array.type
    if pa.types.is_struct(kind):
        return all(map(_is_finite, array.flatten()))
    if pa.types.is_list(kind):
        return _is_finite(array.flatten())
    return not pa.types.is_floating(kind) or pc.all(pc.is_finite(array)).as_py() is not False


# --- from JSON Schema to Arrow ---------------------------------------------------------------------------------------


def _properties(schema: Any) -> dict[str, Any]:
    """The declared properties of an object; empty if the schema does not declare an object."""
    if not isinstance(schema, dict) or types_of(schema) - {"null"} != {"object"}:
        return {}
    return {name: each for name, each in schema.get("properties", {}).items() if each is not False}


def _field(name: str, schema: Any, depth: int = 0) -> Any:
    types = types_of(schema) - {"null"}
    if types in _SCALARS:
        return pa.field(name, _SCALARS[types])
    if depth < MAX_DEPTH and types == {"object"}:
        properties = _properties(schema)
        inner = _distinct(list(properties), ())
        if properties and inner == list(properties):
            return pa.field(name, pa.struct([_field(each, of, depth + 1) for each, of in properties.items()]))
    if depth < MAX_DEPTH and types == {"array"} and isinstance(schema, dict):
        items = schema.get("items")
        if isinstance(items, dict) and "prefixItems" not in schema:
            return pa.field(name, pa.list_(_field("element", items, depth + 1)))
    return pa.field(name, pa.string(), metadata=_JSON_TEXT)


def _distinct(names: Sequence[str], taken: Iterable[str]) -> list[str]:
    used = {name.lower() for name in taken}
    found = []
    for name in names:
        while name.lower() in used:
            name = f"data_{name}"
        used.add(name.lower())
        found.append(name)
    return found


# --- from JSON to Arrow ----------------------------------------------------------------------------------------------


def _is_json_text(field: Any) -> bool:
    return field.metadata == _JSON_TEXT


def _decoded(field: Any) -> Any:
    """The type that msgspec decodes a value of the field to."""
    kind = field.type
    if _is_json_text(field):
        return msgspec.Raw  # also for null
    if pa.types.is_struct(kind):
        return Optional[_struct(list(kind))]  # noqa: UP045
    if pa.types.is_list(kind):
        return Optional[list[_decoded(kind.value_field)]]  # type: ignore[misc]  # noqa: UP045
    return {pa.string(): str | None, pa.int64(): _Integer | None, pa.float64(): float | None, pa.bool_(): bool | None}[
        kind
    ]


def _struct(fields: Sequence[Any]) -> Any:
    """A type with one attribute per field. JSON names need not be valid Python names."""
    names = [f"f{number}" for number in range(len(fields))]
    members = [(name, _decoded(field), None) for name, field in zip(names, fields, strict=True)]
    spoken = {name: field.name for name, field in zip(names, fields, strict=True)}
    return msgspec.defstruct("Payload", members, rename=cast(Mapping[str, str], spoken))


def _column(rows: Sequence[Any], number: int, field: Any) -> Any:
    name = f"f{number}"
    return _array([None if row is None else getattr(row, name) for row in rows], field)


def _array(values: Sequence[Any], field: Any) -> Any:
    kind = field.type
    if _is_json_text(field):
        return pa.array([None if value in (None, b"null") else bytes(value).decode() for value in values], kind)
    if pa.types.is_struct(kind):
        children = [_column(values, number, each) for number, each in enumerate(kind)]
        missing = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    if pa.types.is_list(kind):
        lengths = [0 if value is None else len(value) for value in values]
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        flat = list(chain.from_iterable(value for value in values if value is not None))
        missing = pa.array([value is None for value in values], pa.bool_())
        return pa.ListArray.from_arrays(offsets, _array(flat, kind.value_field), type=kind, mask=missing)
    return pa.array(values, kind)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_whole_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

"""Records as the columns of a data frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from strandline.history.columns import RECORDS
from strandline.pipeline.source.options import Payload
from strandline.pipeline.source.variants import variants
from strandline.pipeline.typed_columns import PayloadColumns
from strandline.schema.registry import Registry

#: What every record has, whatever becomes of its payload.
RECORD_COLUMNS = ("log", "epoch", "seq", "ts", "key", "node", "meta")
_SPARK_TYPES = {
    "log": "string", "epoch": "long", "seq": "long", "ts": "timestamp", "key": "string", "node": "string",
    "meta": "string", "data": "string",
}  # fmt: skip


class NoColumns(ValueError):
    """A log whose payloads cannot be read as columns, or not as those of the others."""


def frame_schema(payload: Payload, columns: Any = None) -> Any:
    """The schema of a data frame; ``columns`` are those of the payloads, as an Arrow schema, if they become columns."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType, VariantType, _parse_datatype_json_string

    kinds: dict[str, Any] = {name: _parse_datatype_json_string(f'"{kind}"') for name, kind in _SPARK_TYPES.items()}
    if payload == "bytes":
        kinds["meta"] = kinds["data"] = _parse_datatype_json_string('"binary"')
    elif payload == "variant":
        kinds["data"] = VariantType()
    fields = [StructField(name, kinds[name]) for name in RECORD_COLUMNS]
    if columns is None:
        return StructType([*fields, StructField("data", kinds["data"])])
    return StructType([*fields, *from_arrow_schema(columns).fields])


def payload_columns(log: str, registry: bytes | None) -> PayloadColumns:
    """Raises NoColumns."""
    loaded = None if registry is None else Registry.load(registry)
    if loaded is None or not loaded.current_version:
        raise NoColumns(f"payload=columns needs a schema, and log {log!r} has none; read it as string or variant")
    return PayloadColumns(loaded, RECORD_COLUMNS)


def shaper(payload: Payload, schema: Any, registry: bytes | None = None, log: str = "") -> Callable[[Any], Any]:
    """What makes batches of ``schema``, as Arrow has it, of batches of one log's ``RECORDS``."""
    from pyspark.sql.pandas.types import to_arrow_schema

    target = to_arrow_schema(schema, timezone="UTC")
    columns = payload_columns(log, registry) if payload == "columns" else None

    def shape(batch: Any) -> Any:
        arrays = dict(zip(RECORDS.names, batch.columns, strict=True))
        if columns is not None:
            found = columns.arrays(arrays["seq"].to_pylist(), arrays["data"].to_pylist())
            arrays |= dict(zip(columns.schema.names, found, strict=True))
        elif payload == "variant":
            if "data" in target.names:
                arrays["data"] = variants(arrays["data"].to_pylist(), target.field("data").type)
        elif payload == "string":
            arrays["data"] = as_text(arrays["data"])
        if payload != "bytes":
            arrays["meta"] = as_text(arrays["meta"])
        return pa.RecordBatch.from_arrays([_fitting(arrays, field, batch.num_rows) for field in target], schema=target)

    return shape


def _fitting(arrays: dict[str, Any], field: Any, rows: int) -> Any:
    array = arrays.get(field.name)
    if array is None:
        # The schema of the log has changed since the query began, and this is no part of it any more.
        return pa.nulls(rows, field.type)
    return array if array.type == field.type else array.cast(field.type)


def as_text(column: Any) -> Any:
    """Bytes as text, and null where they are none."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else _text(value) for value in column.to_pylist()], pa.string())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def check_schema(chosen: Any, offered: Any) -> None:
    """A schema that a user gives may leave columns out and order them, and nothing else."""
    kinds = {field.name: field.dataType for field in offered.fields}
    for field in chosen.fields:
        if field.name not in kinds:
            raise NoColumns(f"there is no column {field.name!r}; there are {', '.join(kinds)}")
        if field.dataType != kinds[field.name]:
            wanted = kinds[field.name].simpleString()
            raise NoColumns(f"column {field.name!r} is {wanted}, not {field.dataType.simpleString()}")

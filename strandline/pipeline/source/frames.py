"""Turns the rows of a DataFrame into records to append.

========================= =============================================================================================
column                    meaning
========================= =============================================================================================
``data``                  the payload: text and bytes as they are, other types as JSON
no ``data``               all other columns together are the payload, as a JSON object without nulls
``key``, ``node``         text, both optional
``meta``                  JSON as text or bytes, optional
``log``                   the log that the row goes to, unless the option ``log`` sets one for all rows
``source``, ``position``  where the row comes from, optional: positions of a source ascend (see ``progress``)
========================= =============================================================================================

A DataFrame that was read from logs has ``log``, ``epoch`` and ``seq``. If the option ``log`` sets the target, these
columns identify the source of a row; then they and ``ts`` are not part of the payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    VariantType,
    VariantVal,
)

#: The schema of converted rows. ``source`` and ``position`` are null if unknown.
ROWS = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("node", pa.string()),
        pa.field("meta", pa.binary()),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("position", pa.int64()),
    ]
)
#: The columns of an append.
APPENDED = ("key", "node", "meta", "data")
_SPECIAL = ("log", "key", "node", "meta", "source", "position")
_ORIGIN = ("log", "epoch", "seq")

_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=str).encode


class BadFrame(ValueError):
    """A DataFrame whose rows cannot become records. The message gives the reason."""


class FrameShape:
    """Converts rows of one schema into records. ``log`` is the target of all rows; None takes it from each row. Without
    ``positions``, it does not matter where rows come from.

    Raises BadFrame.
    """

    def __init__(self, schema: StructType, log: str | None, *, positions: bool = True) -> None:
        self._log = log
        kinds: dict[str, DataType] = {field.name.lower(): field.dataType for field in schema.fields}
        if len(kinds) < len(schema.fields):
            raise BadFrame("several columns have the same name")
        if log is None and "log" not in kinds:
            raise BadFrame("no target log: set the option log, or add a column log")
        if ("source" in kinds) != ("position" in kinds):
            raise BadFrame("the columns source and position belong together: add the missing one, or drop the other")
        self._from_logs = log is not None and all(name in kinds for name in _ORIGIN)
        self.has_positions = positions and ("position" in kinds or self._from_logs)
        self._names = list(kinds)
        _check_kinds(kinds, self._from_logs, log is None)
        self._payload = self._payload_columns(kinds)

    def _payload_columns(self, kinds: dict[str, DataType]) -> dict[str, Callable[[Any], Any] | None]:
        """The columns of the payload with their converters; only ``data`` if that column exists."""
        if "data" in kinds:
            others = [name for name in kinds if name not in (*_SPECIAL, *_ORIGIN, "ts", "data")]
            if others:
                raise BadFrame(
                    f"the columns {', '.join(others)} would be lost next to the column data: drop data to have all "
                    "columns in the payload, or drop these columns"
                )
            return {"data": _json_of(kinds["data"])}
        no_part = {*_SPECIAL, *(("epoch", "seq", "ts") if self._from_logs else ())}
        found = {name: _json_of(kind) for name, kind in kinds.items() if name not in no_part}
        if not found:
            raise BadFrame("no column for the payload: add a column data, or other columns")
        return found

    def rows(self, batch: Any) -> Any:
        """Convert a batch of the DataFrame to a batch of ``ROWS``."""
        columns = dict(zip(self._names, batch.columns, strict=True))
        count = batch.num_rows
        source, position = (columns.get(name) if self.has_positions else None for name in ("source", "position"))
        if source is None and self.has_positions:
            source = pc.binary_join_element_wise(
                columns["log"].cast(pa.string()), columns["epoch"].cast(pa.string()), "@"
            )
            position = columns["seq"]
        found = {
            "log": columns["log"] if self._log is None else pa.array([self._log]).take(pa.array([0] * count)),
            "key": columns.get("key"),
            "node": columns.get("node"),
            "meta": columns.get("meta"),
            "data": self._data(columns, count),
            "source": source,
            "position": position,
        }
        arrays = [
            pa.nulls(count, field.type) if found[field.name] is None else _cast(found[field.name], field.type)
            for field in ROWS
        ]
        for field, array in zip(ROWS, arrays, strict=True):
            needed = not field.nullable or (self.has_positions and field.name in ("source", "position"))
            if needed and array.null_count:
                raise BadFrame(f"column {field.name} contains null")
        return pa.RecordBatch.from_arrays(arrays, schema=ROWS)

    def _data(self, columns: dict[str, Any], count: int) -> Any:
        if "data" in self._payload:
            convert = self._payload["data"]
            if convert is None:
                return columns["data"]
            values = columns["data"].to_pylist()
            return pa.array([None if value is None else _encode(convert(value)) for value in values], pa.binary())
        rows: list[dict[str, Any]] = [{} for _ in range(count)]
        for name, convert in self._payload.items():
            for row, value in zip(rows, columns[name].to_pylist(), strict=True):
                if value is not None:
                    row[name] = value if convert is None else convert(value)
        return pa.array([_encode(row) for row in rows], pa.binary())


def _check_kinds(kinds: dict[str, DataType], from_logs: bool, by_row: bool) -> None:
    wanted: dict[str, tuple[type[DataType], ...]] = {
        "key": (StringType,), "node": (StringType,), "meta": (StringType, BinaryType), "source": (StringType,),
        "position": (IntegralType,),
    }  # fmt: skip
    if by_row or from_logs:
        wanted["log"] = (StringType,)
    if from_logs:
        wanted["epoch"] = wanted["seq"] = (IntegralType,)
    for name, fits in wanted.items():
        if name in kinds and not isinstance(kinds[name], fits):
            names = " or ".join({"IntegralType": "an integer"}.get(f.__name__, f.__name__[:-4].lower()) for f in fits)
            raise BadFrame(f"column {name} must be {names}, got {kinds[name].simpleString()}")


def _cast(array: Any, kind: Any) -> Any:
    return array if array.type == kind else array.cast(kind)


def _json_of(kind: DataType) -> Callable[[Any], Any] | None:
    """A function that makes a value of Arrow encodable as JSON; None for text and bytes, which are used as they are."""
    if isinstance(kind, (StringType, BinaryType)):
        return None
    return _plain(kind)


def _plain(kind: DataType) -> Callable[[Any], Any]:
    if isinstance(kind, VariantType):
        return lambda value: msgspec.Raw(VariantVal(value["value"], value["metadata"]).toJson().encode())
    if isinstance(kind, StructType):
        fields = [(field.name, _optional(field.dataType)) for field in kind.fields]
        return lambda value: {name: make(value[name]) for name, make in fields if value[name] is not None}
    if isinstance(kind, ArrayType):
        element = _optional(kind.elementType)
        return lambda value: [element(each) for each in value]
    if isinstance(kind, MapType):
        inner = _optional(kind.valueType)
        return lambda value: {str(name): inner(each) for name, each in value}
    return lambda value: value


def _optional(kind: DataType) -> Callable[[Any], Any]:
    make = _plain(kind)
    return lambda value: None if value is None else make(value)


# --- rows sent to the driver ---------------------------------------------------------------------------------------


def packed(batches: Sequence[Any]) -> bytes:
    """Rows as bytes, to send to the driver."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for batch in batches:
            writer.write(batch)
    rows: bytes = sink.getvalue().to_pybytes()
    return rows


def unpacked(parts: Sequence[bytes]) -> Any:
    """The rows of all parts as one table, in order."""
    return pa.concat_tables([ROWS.empty_table(), *(pa.ipc.open_stream(part).read_all() for part in parts)])


def by_log(rows: Any) -> Iterator[tuple[str, Any]]:
    """The rows of each log, in order."""
    names = pc.unique(rows.column("log")).to_pylist()
    for name in sorted(names):
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(rows.column("log"), name))


def appended(rows: Any) -> Any:
    """The columns of an append, without columns that are entirely null."""
    kept = [name for name in APPENDED if name == "data" or rows.column(name).null_count < rows.num_rows]
    return rows.select(kept)

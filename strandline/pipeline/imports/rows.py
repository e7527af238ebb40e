"""Reads the rows of a part of a file with their numbers, and reports invalid ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from strandline.pipeline.imports.files import CsvType, RowShape, SourcePart, UnreadableFile
from strandline.pipeline.imports.records import BadRow, Making, NewRecord

CHUNK_BYTES = 1 << 20
BATCH_ROWS = 8192
#: The maximum length of a line.
MAX_LINE_BYTES = 64 << 20


class SourceRow(NamedTuple):
    """A row by its number in the part, starting at 1: a record, or the reason why it is invalid; neither for a blank
    row. In CSV the number counts rows including the header, in JSON lines."""

    number: int
    record: NewRecord | None
    fault: str = ""


def read_rows(part: SourcePart, shape: RowShape) -> Iterator[SourceRow]:
    """The rows of a part, in order. Raises UnreadableFile."""
    making = Making(shape)
    try:
        _check_unchanged(part)
        if shape.format == "jsonl":
            yield from _lines(part, making)
        elif shape.format == "csv":
            yield from _csv_rows(part, shape, making)
        else:
            yield from _parquet_rows(part, shape, making)
        _check_unchanged(part)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise UnreadableFile(f"cannot read {part.file.path}: {error}") from None


def _check_unchanged(part: SourcePart) -> None:
    file = part.file
    if file.place.state(file.name) != (file.size, file.mark):
        raise UnreadableFile(f"{file.path} changed during the import: run it again")


def _row(number: int, making: Any, what: Any) -> SourceRow:
    try:
        return SourceRow(number, making(what))
    except BadRow as error:
        return SourceRow(number, None, str(error))


@contextmanager
def _stream(part: SourcePart) -> Iterator[Any]:
    """The decompressed bytes of the file."""
    with part.file.place.open(part.file.name) as file:
        if part.file.compression is None:
            yield file
        else:
            yield pa.CompressedInputStream(file, part.file.compression)


# --- JSON lines ------------------------------------------------------------------------------------------------------


def _lines(part: SourcePart, making: Making) -> Iterator[SourceRow]:
    for number, line in enumerate(_split(part), 1):
        line = line.strip(b" \t\r")
        if number == 1 and part.start == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        yield _row(number, making.of_line, line) if line else SourceRow(number, None)


def _split(part: SourcePart) -> Iterator[bytes]:
    """The lines that start in the part."""
    with _stream(part) as stream:
        at = part.start
        rest = b""
        if at:
            # A line that continues here belongs to the previous part, unless it ends right before this one.
            stream.seek(at - 1)
            at -= 1
            skipping = True
        else:
            skipping = False
        begun = at
        while chunk := bytes(stream.read(CHUNK_BYTES)):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if skipping:
                    skipping = False
                elif part.end is not None and begun >= part.end:
                    return
                else:
                    yield line
                begun += len(line) + 1
            if part.end is not None and begun >= part.end:
                return
            if len(rest) > MAX_LINE_BYTES:
                raise UnreadableFile(f"{part.file.path} has a line of more than {MAX_LINE_BYTES} bytes")
        if rest and not skipping and (part.end is None or begun < part.end):
            yield rest


# --- CSV -------------------------------------------------------------------------------------------------------------


def _csv_rows(part: SourcePart, shape: RowShape, making: Making) -> Iterator[SourceRow]:
    if not part.file.size:
        return
    names = _heading(part, shape)
    _check_columns(part, names, shape)
    types = {name: kind for name, kind in shape.types.items() if kind != "string"}
    faults: list[tuple[int, str]] = []

    def skip(row: Any) -> str:
        faults.append((row.number, f"{row.actual_columns} columns, expected {row.expected_columns}"))
        return "skip"

    with _stream(part) as stream:
        reader = _csv_reader(stream, shape, dict.fromkeys(names, pa.binary()), skip)
        number = 1
        for batch in reader:
            for values in zip(*map(_texts, batch.columns), strict=True):
                number += 1
                while faults and faults[0][0] <= number:
                    yield SourceRow(faults[0][0], None, faults.pop(0)[1])
                    number += 1
                yield _row(number, lambda found: making.of_row(_typed(names, found, types)), values)
        for place, fault in faults:
            yield SourceRow(place, None, fault)


def _heading(part: SourcePart, shape: RowShape) -> list[str]:
    with _stream(part) as stream:
        reader = _csv_reader(stream, shape, {}, lambda row: "skip")
        try:
            names: list[str] = reader.schema.names
        except UnicodeDecodeError:
            raise UnreadableFile(
                f"the column names of {part.file.path} are not valid UTF-8: convert the file"
            ) from None
        return names


def _check_columns(part: SourcePart, names: list[str], shape: RowShape) -> None:
    if len(set(names)) < len(names):
        raise UnreadableFile(f"{part.file.path} has several columns with the same name")
    missing = sorted({*shape.columns, *shape.types} - set(names))
    if missing:
        raise UnreadableFile(f"{part.file.path} has no column {', '.join(missing)}; its columns are {', '.join(names)}")


def _csv_reader(stream: Any, shape: RowShape, types: dict[str, Any], skip: Any) -> Any:
    return pyarrow.csv.open_csv(
        stream,
        # Row numbers are only available without threads.
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=CHUNK_BYTES * 4),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=shape.delimiter, newlines_in_values=True, invalid_row_handler=skip
        ),
        # An empty value is null, unless it is quoted.
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _texts(column: Any) -> list[str | None] | list[bytes | None]:
    """The values as text; as bytes if any of them is not valid."""
    try:
        values: list[str | None] = column.cast(pa.string()).to_pylist()
        return values
    except pa.ArrowInvalid:
        return cast(list[bytes | None], column.to_pylist())


def _typed(names: list[str], values: tuple[str | bytes | None, ...], types: Mapping[str, CsvType]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(names, values, strict=True))
    for name, value in row.items():
        if value is not None and (name in types or isinstance(value, bytes)):
            row[name] = _value(name, value, types.get(name, "string"))
    return row


def _value(name: str, value: str | bytes, kind: CsvType) -> Any:
    text: str | bytes = value
    try:
        text = value if isinstance(value, str) else value.decode()
        return _as_type(text, kind)
    except UnicodeDecodeError:
        raise BadRow(f"{name!r} is not valid UTF-8") from None
    except (ValueError, msgspec.MsgspecError, RecursionError):
        raise BadRow(f"invalid {kind} in {name!r}: {text!r}") from None


def _as_type(text: str, kind: CsvType) -> Any:
    if kind == "string":
        return text
    if kind in ("long", "double") and ("_" in text or not text.isascii()):
        raise ValueError  # Python would take them for digits, other programs do not
    if kind == "long":
        return int(text)
    if kind == "double":
        return _finite(float(text))
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower()) if text.lower() in ("true", "false") else _refuse()
    return msgspec.json.decode(text)


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError  # JSON has no such number
    return number


def _refuse() -> bool:
    raise ValueError


# --- Parquet ---------------------------------------------------------------------------------------------------------


def _parquet_rows(part: SourcePart, shape: RowShape, making: Making) -> Iterator[SourceRow]:
    with part.file.place.open(part.file.name) as reader:
        file = pq.ParquetFile(reader)
        names = file.schema_arrow.names
        _check_columns(part, names, shape)
        end = file.num_row_groups if part.end is None else part.end
        number = 0
        for batch in file.iter_batches(BATCH_ROWS, list(range(part.start, end))):
            columns = [_python_values(name, column) for name, column in zip(names, batch.columns, strict=True)]
            for values in zip(*columns, strict=True):
                number += 1
                yield _row(number, lambda found: making.of_row(_without_faults(names, found)), values)


def _python_values(name: str, column: Any) -> list[Any]:
    """The values; a fault in place of each one that Python cannot represent, such as the year 20000."""
    type = _in_microseconds(column.type)
    if type != column.type:
        column = column.cast(type, safe=False)
    try:
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    except (ValueError, OverflowError, TypeError):
        return [_python_value(name, value) for value in column]


def _python_value(name: str, value: Any) -> Any:
    try:
        return value.as_py(maps_as_pydicts="lossy")
    except (ValueError, OverflowError, TypeError) as error:
        return _Fault(f"invalid value in {name!r}: {error}")


class _Fault(NamedTuple):
    why: str


def _without_faults(names: list[str], values: tuple[Any, ...]) -> dict[str, Any]:
    for value in values:
        if type(value) is _Fault:
            raise BadRow(value.why)
    return dict(zip(names, values, strict=True))


def _in_microseconds(type: Any) -> Any:
    """The type with times in microseconds instead of nanoseconds, which Python does not have."""
    if pa.types.is_timestamp(type) and type.unit == "ns":
        return pa.timestamp("us", type.tz)
    if pa.types.is_time64(type):
        return pa.time64("us")
    if pa.types.is_duration(type) and type.unit == "ns":
        return pa.duration("us")
    if pa.types.is_list(type):
        return pa.list_(_field_in_microseconds(type.value_field))
    if pa.types.is_large_list(type):
        return pa.large_list(_field_in_microseconds(type.value_field))
    if pa.types.is_struct(type):
        return pa.struct([_field_in_microseconds(field) for field in type])
    return type


def _field_in_microseconds(field: Any) -> Any:
    return field.with_type(_in_microseconds(field.type))

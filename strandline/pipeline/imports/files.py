"""The files of an import, their parts, and the mapping of columns to records."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Literal, get_args

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.lake.location import Lake
from strandline.query.errors import BadPointer
from strandline.query.pointers import parse_pointer

Format = Literal["parquet", "jsonl", "csv"]
CsvType = Literal["string", "long", "double", "boolean", "json"]
CSV_TYPES: tuple[CsvType, ...] = get_args(CsvType)


class BadShape(ValueError):
    """The options are invalid. The message gives the reason."""


class RowShape(msgspec.Struct, frozen=True, kw_only=True):
    """The mapping of columns to records. In JSON lines, columns are the members of the objects. Without a
    ``data_column`` the whole row is the payload, as a JSON object without nulls, or as the original line. ``exported``:
    the files come from an export, which defines all columns. Rows without a ``log_column`` go to ``log``."""

    format: Format
    log: str = ""
    exported: bool = False
    log_column: str | None = None
    key_column: str | None = None
    #: A JSON pointer into the payload.
    key_path: str | None = None
    node_column: str | None = None
    meta_column: str | None = None
    ts_column: str | None = None
    data_column: str | None = None
    keep_ts: bool = False
    delimiter: str = ","
    #: CSV columns that are not text.
    types: dict[str, CsvType] = {}
    #: Logs whose payloads are not JSON.
    not_json: list[str] = []

    def check(self) -> None:
        """Raises BadShape."""
        if not self.log and self.log_column is None and not self.exported:
            raise BadShape("specify the log to append to with --log, or the column with its name with --log-column")
        if self.key_column is not None and self.key_path is not None:
            raise BadShape("--key-column cannot be combined with --key-path")
        if self.exported and self.columns:
            raise BadShape(
                "--exported cannot be combined with options for columns: an export describes its own columns"
            )
        if self.keep_ts and not self.exported:
            raise BadShape(
                "--keep-ts needs --exported; for other files, specify the column of the time with --ts-column"
            )
        if self.log and self.log_column is not None:
            raise BadShape("--log cannot be combined with --log-column")
        if self.format != "csv" and (self.types or self.delimiter != ","):
            raise BadShape("--type and --delimiter need CSV files")
        if len(self.delimiter) != 1 or not self.delimiter.isascii():
            raise BadShape(f"--delimiter is {self.delimiter!r}; expected one character")
        if self.key_path is not None:
            try:
                parse_pointer(self.key_path)
            except BadPointer as error:
                raise BadShape(str(error)) from None

    @property
    def columns(self) -> list[str]:
        """The columns that are mapped to a part of the record."""
        named = (self.log_column, self.key_column, self.node_column, self.meta_column, self.ts_column, self.data_column)
        return [name for name in named if name is not None]

    @property
    def has_times(self) -> bool:
        return self.ts_column is not None or self.keep_ts


# --- Files and their parts ------------------------------------------------------------------------------------------

#: The approximate size of a part: bytes of JSON lines, rows of Parquet. Each is a few seconds of work.
PART_BYTES = 32 << 20
PART_ROWS = 250_000
#: Compression by file extension. Compressed files cannot be read from the middle.
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}


#: The format by file extension, before the extension of a compression. Parquet is compressed inside of the file.
EXTENSIONS: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class UnknownFormat(Exception):
    """The names of the files do not say their format. The message has the valid ones."""


class NothingToImport(Exception):
    """No files were found."""


class UnreadableFile(Exception):
    """A file has the wrong format or cannot be read. The message names it."""


class SourceFile(msgspec.Struct, frozen=True, array_like=True):
    """A file. Its ``size`` or ``mark`` changes when the file changes."""

    place: Lake
    name: str
    size: int
    mark: str

    @property
    def path(self) -> str:
        return self.place.place_of(self.name)

    @property
    def extension(self) -> str:
        return os.path.splitext(self.name)[1].lower()

    @property
    def compression(self) -> str | None:
        return COMPRESSED.get(self.extension)


class SourcePart(msgspec.Struct, frozen=True, array_like=True):
    """A range of a file: bytes of JSON lines, or row groups of Parquet. ``end`` is None for a file that is read as a
    whole. ``number`` is the position in the order of all parts."""

    number: int
    file: SourceFile
    start: int = 0
    end: int | None = None


def find_files(sources: Sequence[str]) -> list[SourceFile]:
    """Files, the files of directories, matches of patterns, and objects in object stores; in the given order, and by
    name within each. Names that start with ``_`` or ``.`` are skipped. Raises NothingToImport, UnreadableFile."""
    found: dict[str, SourceFile] = {}
    for source in sources:
        files = list(_in_store(source) if "://" in source else _on_disk(source))
        if not files:
            raise NothingToImport(f"no files found: {source}")
        found |= {file.path: file for file in files}
    for path in found:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UnreadableFile(f"the name of the file {path!a} is not valid UTF-8: rename it") from None
    return list(found.values())


def _on_disk(source: str) -> Iterator[SourceFile]:
    paths = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
    for path in paths:
        place = Lake.at(path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path)))
        if os.path.isdir(path):
            yield from _files(place)
        elif os.path.exists(path) and not os.path.isfile(path):
            raise UnreadableFile(
                f"{path} is a pipe or a device; an import needs a file, because it reads it several times"
            )
        elif (state := place.state(os.path.basename(path))) is not None:
            yield SourceFile(place, os.path.basename(path), *state)


def _in_store(source: str) -> Iterator[SourceFile]:
    parent, _, name = source.rstrip("/").rpartition("/")
    if not source.endswith("/") and not parent.endswith(":/"):
        place = Lake.at(parent)
        state = place.state(name)
        if state is not None:
            yield SourceFile(place, name, *state)
            return
    yield from _files(Lake.at(source))


def _files(place: Lake) -> Iterator[SourceFile]:
    for name, state in sorted(place.states("").items()):
        if not any(part.startswith(("_", ".")) for part in name.split("/")):
            yield SourceFile(place, name, *state)


def format_of(files: Sequence[SourceFile]) -> Format:
    """The format of all files, from their extensions. Raises UnknownFormat."""
    formats: dict[Format, str] = {}
    for file in files:
        extension = os.path.splitext(file.name[: -len(file.extension)] if file.compression else file.name)[1].lower()
        format = EXTENSIONS.get(extension)
        if format is None or (format == "parquet" and file.compression):
            raise UnknownFormat(
                f"the name of {file.path} does not say its format: specify --format, or use one of the extensions "
                f"{', '.join(EXTENSIONS)} ({', '.join(COMPRESSED)} may follow those of text)"
            )
        formats.setdefault(format, file.path)
    if len(formats) > 1:
        found = " and ".join(f"{path} ({format})" for format, path in formats.items())
        raise UnknownFormat(f"the files have different formats: {found}; import each format by itself")
    return next(iter(formats))


def parts_of(files: Sequence[SourceFile], format: Format) -> list[SourcePart]:
    """All parts, in order. Raises UnreadableFile."""
    parts: list[SourcePart] = []
    for file in files:
        for start, end in _ranges(file, format):
            parts.append(SourcePart(len(parts), file, start, end))
    return parts


def _ranges(file: SourceFile, format: Format) -> Iterator[tuple[int, int | None]]:
    if format == "parquet":
        yield from _row_groups(file)
    elif format == "jsonl" and file.compression is None:
        for start in range(0, file.size, PART_BYTES):
            yield start, min(start + PART_BYTES, file.size)
    else:
        # A CSV value may contain line breaks, so the start of a row is only known from the beginning of the file.
        yield 0, None


def _row_groups(file: SourceFile) -> Iterator[tuple[int, int | None]]:
    try:
        with file.place.open(file.name) as reader:
            metadata = pq.read_metadata(reader)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"{file.path} is not a Parquet file: {error}") from None
    start = rows = 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        if rows >= PART_ROWS:
            yield start, group + 1
            start, rows = group + 1, 0
    if start < metadata.num_row_groups:
        yield start, metadata.num_row_groups


def identity(files: Sequence[SourceFile], shape: RowShape, job: str) -> str:
    """A digest of the files in their current state and of the options."""
    wishes = msgspec.structs.replace(shape, not_json=[])
    content = [[file.path, file.size, file.mark] for file in files], wishes, job
    return sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:24]

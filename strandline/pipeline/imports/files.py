"""Which files there are to import, and the parts that they are read in."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from hashlib import sha256

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.lake.location import Lake
from strandline.pipeline.imports.shape import Format, Shape

#: A part of JSON lines has about so many bytes, and one of Parquet about so many rows: some seconds of work.
PART_BYTES = 32 << 20
PART_ROWS = 250_000
#: By what comes last in their names; these cannot be read from the middle.
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}


class NothingToImport(Exception):
    """There are no such files."""


class UnreadableFile(Exception):
    """A file is not what it should be, or cannot be read. The message says which."""


class SourceFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a place. If it is changed, ``size`` or ``mark`` are others."""

    place: Lake
    name: str
    size: int
    mark: str

    @property
    def path(self) -> str:
        return self.place.place_of(self.name)

    @property
    def compression(self) -> str | None:
        return COMPRESSED.get(os.path.splitext(self.name)[1].lower())


class SourcePart(msgspec.Struct, frozen=True, array_like=True):
    """From one place in a file to another: bytes of JSON lines, row groups of Parquet. ``end`` is None for a file that
    is read as a whole. ``number`` is the place in the order of all parts."""

    number: int
    file: SourceFile
    start: int = 0
    end: int | None = None


def find_files(sources: Sequence[str]) -> list[SourceFile]:
    """Files, all files in directories, what a pattern matches, or what is in object stores; in the order given, and by
    name where several are meant. Names that begin with ``_`` or ``.`` are passed over. Raises NothingToImport."""
    found: dict[str, SourceFile] = {}
    for source in sources:
        files = list(_in_store(source) if "://" in source else _on_disk(source))
        if not files:
            raise NothingToImport(f"there are no files: {source}")
        found |= {file.path: file for file in files}
    return list(found.values())


def _on_disk(source: str) -> Iterator[SourceFile]:
    paths = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
    for path in paths:
        place = Lake.at(path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path)))
        if os.path.isdir(path):
            yield from _files(place)
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
        # In CSV a line may end in the middle of a value: only from the beginning can it be known where.
        yield 0, None


def _row_groups(file: SourceFile) -> Iterator[tuple[int, int | None]]:
    try:
        with file.place.open(file.name) as reader:
            metadata = pq.read_metadata(reader)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"{file.path} is no Parquet file: {error}") from None
    start = rows = 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        if rows >= PART_ROWS:
            yield start, group + 1
            start, rows = group + 1, 0
    if start < metadata.num_row_groups:
        yield start, metadata.num_row_groups


def identity(files: Sequence[SourceFile], shape: Shape, job: str) -> str:
    """The same for the same files, as they are now, and the same wishes."""
    wishes = msgspec.structs.replace(shape, not_json=[])
    content = [[file.path, file.size, file.mark] for file in files], wishes, job
    return sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:24]

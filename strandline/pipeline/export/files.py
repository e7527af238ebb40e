"""Records in exported files. Every format is lossless, so that an export can be imported again."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from strandline.lake.files import COMPRESSION, COMPRESSION_LEVEL, ROW_GROUP_ROWS
from strandline.lake.location import Lake

#: ``data`` is the payload if it is text, ``bytes`` if it is not; likewise ``meta`` and ``meta_bytes``.
EXPORTED = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.string()),
        pa.field("node", pa.string()),
        pa.field("meta", pa.string()),
        pa.field("meta_bytes", pa.binary()),
        pa.field("data", pa.string()),
        pa.field("bytes", pa.binary()),
    ]
)
#: The schema for formats that only have text and numbers; bytes are in base64.
AS_TEXT = pa.schema(
    [field if pa.types.is_integer(field.type) else pa.field(field.name, pa.string()) for field in EXPORTED]
)

_decode = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


def exported(batch: Any) -> Any:
    """Records of the history or of the lake, in the exported schema."""
    columns = {name: batch.column(name) for name in ("log", "epoch", "seq", "ts", "key", "node")}
    columns["ts"] = columns["ts"].cast(EXPORTED.field("ts").type)
    columns["meta"], columns["meta_bytes"] = _split(batch.column("meta"))
    if "bytes" in batch.schema.names:
        columns["data"], columns["bytes"] = batch.column("data"), batch.column("bytes")
    else:
        columns["data"], columns["bytes"] = _split(batch.column("data"))
    return pa.record_batch([columns[name] for name in EXPORTED.names], schema=EXPORTED)


def _split(values: Any) -> tuple[Any, Any]:
    """Bytes as text where they are valid text, and as bytes otherwise."""
    try:
        return values.cast(pa.string()), pa.nulls(len(values), pa.binary())
    except pa.ArrowInvalid:
        rows = values.to_pylist()
        texts = [_text(row) for row in rows]
        others = [row if text is None else None for row, text in zip(rows, texts, strict=True)]
        return pa.array(texts, pa.string()), pa.array(others, pa.binary())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def as_text(batch: Any) -> Any:
    """The batch with times and bytes as text."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "ts":
            column = _times(column)
        elif pa.types.is_binary(column.type):
            encoded = [None if value is None else b64encode(value).decode() for value in column.to_pylist()]
            column = pa.array(encoded, pa.string())
        columns.append(column)
    return pa.record_batch(columns, schema=AS_TEXT)


def as_lines(batch: Any) -> bytes:
    """One JSON object per line for each record. JSON values are written as they are (``data``, ``meta``). Text that is
    not JSON, or has several lines, is ``text`` and ``meta_text``; bytes are ``bytes`` and ``meta_bytes``, in base64.
    """
    times = _times(batch.column("ts")).to_pylist()
    lines = []
    names = ("log", "epoch", "seq", "key", "node", "meta", "meta_bytes", "data", "bytes")
    for time, *row in zip(times, *(batch.column(name).to_pylist() for name in names), strict=True):
        log, epoch, seq, key, node, meta, meta_bytes, data, other = row
        line: dict[str, Any] = {"log": log, "epoch": epoch, "seq": seq, "ts": time}
        if key is not None:
            line["key"] = key
        if node is not None:
            line["node"] = node
        _add(line, "meta", "meta_text", "meta_bytes", meta, meta_bytes)
        _add(line, "data", "text", "bytes", data, other)
        lines.append(_encode(line))
    return b"\n".join(lines) + b"\n" if lines else b""


def _times(column: Any) -> Any:
    """ISO 8601 with milliseconds."""
    return pc.strftime(column.cast(pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%SZ")


def _add(line: dict[str, Any], json: str, text: str, other: str, value: str | None, bytes_: bytes | None) -> None:
    if bytes_ is not None:
        line[other] = bytes_
    elif value is not None:
        raw = value.encode()
        if _is_one_line_of_json(raw):
            line[json] = msgspec.Raw(raw)
        else:
            line[text] = value


def _is_one_line_of_json(raw: bytes) -> bool:
    if b"\n" in raw or b"\r" in raw:
        return False
    try:
        return len(bytes(_decode(raw))) == len(raw)
    except (msgspec.MsgspecError, RecursionError):
        return False


# --- Files of exported records, by format ---------------------------------------------------------------------------

Format = Literal["parquet", "jsonl", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)


class BadTarget(ValueError):
    """The target and the format contradict each other. The message gives the reason."""


def format_of_file(target: str) -> Format | None:
    """The format if the target is a single file, which its extension says; None if it is a directory."""
    parent, _, name = target.rpartition("/")
    if parent.endswith(":/"):
        return None  # a whole bucket
    stem, extension = os.path.splitext(name)
    return next((format for format in FORMATS if stem and extension.lower() == f".{format}"), None)


def format_for(target: str, wanted: Format | None) -> Format:
    """The format to write: that of the file, or the wanted one, or Parquet. Raises BadTarget."""
    named = format_of_file(target)
    if named is not None and wanted not in (named, None):
        raise BadTarget(
            f"--format {wanted} contradicts the name of the file: {target}; for a directory of this name, end it with /"
        )
    return named or wanted or "parquet"


class ExportPart(msgspec.Struct, array_like=True):
    """A written file. ``logs`` has the number of records by log."""

    name: str
    rows: int
    size: int
    logs: dict[str, int]


def write_part(
    place: Lake, name: str, format: Format, batches: Iterable[Any], *, empty: bool = False
) -> ExportPart | None:
    """Write a file atomically; a retry replaces it. Without records, writes an empty file if ``empty``, and otherwise
    no file, and returns None."""
    directory = place.directory
    if directory is None:
        buffer = pa.BufferOutputStream()
        rows, logs = _write(buffer, format, batches)
        data = buffer.getvalue().to_pybytes()
        if rows or empty:
            place.write(name, data)
        return ExportPart(name, rows, len(data), logs) if rows or empty else None
    temporary = directory / f".{name}.{uuid.uuid4().hex}"
    try:
        with pa.OSFile(str(temporary), "wb") as file:
            rows, logs = _write(file, format, batches)
        if not rows and not empty:
            return None
        _sync(temporary)
        os.replace(temporary, directory / name)
        return ExportPart(name, rows, (directory / name).stat().st_size, logs)
    finally:
        temporary.unlink(missing_ok=True)


def _write(sink: Any, format: Format, batches: Iterable[Any]) -> tuple[int, dict[str, int]]:
    rows = 0
    logs: dict[str, int] = {}
    with _Writer(sink, format) as writer:
        for batch in batches:
            if batch.num_rows:
                writer.write(exported(batch))
                rows += batch.num_rows
                for each in batch.column("log").value_counts().to_pylist():
                    logs[each["values"]] = logs.get(each["values"], 0) + each["counts"]
    return rows, logs


class _Writer:
    def __init__(self, sink: Any, format: Format) -> None:
        self._sink = sink
        self._writer: Any = None
        if format == "parquet":
            self._writer = pq.ParquetWriter(
                sink, EXPORTED, compression=COMPRESSION, compression_level=COMPRESSION_LEVEL,
                use_dictionary=["log", "key", "node"],
            )  # fmt: skip
        elif format == "csv":
            self._writer = pyarrow.csv.CSVWriter(sink, AS_TEXT)

    def write(self, batch: Any) -> None:
        if isinstance(self._writer, pq.ParquetWriter):
            self._writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
        elif self._writer is not None:
            self._writer.write_batch(as_text(batch))
        else:
            self._sink.write(as_lines(batch))

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()


def _sync(path: os.PathLike[str]) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# --- Destinations: files are written aside, and become visible together ---------------------------------------------

#: The list of files of an export. It is written last: without it, an export is incomplete.
MANIFEST = "_export.json"


class TargetNotEmpty(Exception):
    """The target exists or is not empty, and overwriting was not requested; or it is of another kind."""


class Destination(Protocol):
    #: Where tasks write, and the suffix of their file names.
    lake: Lake
    tag: str
    #: The name of the only file; empty if there may be several files. ``aside`` is the name under which it is written.
    single: str
    aside: str

    def publish(self, manifest: bytes) -> None:
        """Publish all written files as the export, in place of the previous content."""


@contextmanager
def open_destination(target: str, overwrite: bool) -> Iterator[Destination]:
    """A file if the target has the extension of a format, otherwise a directory. Raises TargetNotEmpty. Unless the
    export is published, all written files are removed."""
    lake = Lake.at(target)
    place: _Object | _File | _Objects | _Directory
    if format_of_file(target) is not None:
        place = _Object(target, overwrite) if lake.directory is None else _File(lake.directory, overwrite)
    else:
        place = _Objects(lake, overwrite) if lake.directory is None else _Directory(lake.directory, overwrite)
    try:
        yield place
    finally:
        place.clean()


class _File:
    """Writes to a file beside the target, and renames it at the end."""

    tag = ""

    def __init__(self, target: Path, overwrite: bool) -> None:
        self._target = target
        self._overwrite = overwrite
        self._check()
        target.parent.mkdir(parents=True, exist_ok=True)
        self.lake = Lake.at(target.parent)
        self.single = target.name
        self.aside = f".{target.name}.{uuid.uuid4().hex[:12]}.export"

    def _check(self) -> None:
        if self._target.is_dir():
            raise TargetNotEmpty(f"{self._target} is a directory; expected a file. To write into it, end it with /")
        if self._target.exists() and not self._overwrite:
            raise _exists(str(self._target))

    def publish(self, manifest: bytes) -> None:
        aside = self._target.with_name(self.aside)
        self._check()
        if self._overwrite:
            os.replace(aside, self._target)
        else:
            _rename_to_new(aside, self._target)
        _sync(self._target.parent)

    def clean(self) -> None:
        self._target.with_name(self.aside).unlink(missing_ok=True)


def _rename_to_new(path: Path, target: Path) -> None:
    """Unlike a rename, a link never replaces a file that somebody has created meanwhile."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise _exists(str(target)) from None
    except OSError:
        os.rename(path, target)  # the file system has no links


def _exists(target: str) -> TargetNotEmpty:
    return TargetNotEmpty(f"{target} already exists; replace it with --overwrite")


class _Object:
    """Writes to a temporary file, and uploads it at the end."""

    tag = ""

    def __init__(self, target: str, overwrite: bool) -> None:
        parent, _, self.single = target.rpartition("/")
        self._target = Lake.at(parent)
        self._overwrite = overwrite
        self._check()
        self._directory = tempfile.TemporaryDirectory(prefix="strandline-export-")
        self.lake = Lake.at(self._directory.name)
        self.aside = self.single

    def _check(self) -> None:
        if not self._overwrite and self._target.state(self.single) is not None:
            raise _exists(self._target.place_of(self.single))

    def publish(self, manifest: bytes) -> None:
        self._check()
        self._target.upload(self.single, Path(self._directory.name, self.aside))

    def clean(self) -> None:
        self._directory.cleanup()


def _check_replaceable(place: str, names: Iterable[str], overwrite: bool) -> None:
    """Only an export is replaced, complete or not: never a directory of other files, such as a data directory. Raises
    TargetNotEmpty. Names with ``/`` are directories or files in them, which no export has."""
    names = sorted(names)
    if names and not overwrite:
        raise TargetNotEmpty(f"{place} is not empty; replace its files with --overwrite")
    other = next((name for name in names if "/" in name or not (name == MANIFEST or name.startswith("part-"))), None)
    if other is not None:
        raise TargetNotEmpty(
            f"{place} has other content than an export, such as {other}; --overwrite replaces only exports: specify "
            "another location"
        )


class _Directory:
    """Writes to a directory beside the target, and renames it at the end."""

    tag = single = aside = ""

    def __init__(self, target: Path, overwrite: bool) -> None:
        # A link to a directory stays, and the directory is replaced.
        self._target = target = Path(os.path.realpath(target))
        self._overwrite = overwrite
        self._check()
        run = uuid.uuid4().hex[:12]
        self._aside = target.with_name(f".{target.name}.{run}.export")
        self._old = target.with_name(f".{target.name}.{run}.replaced")
        self._aside.mkdir(parents=True)
        self.lake = Lake.at(self._aside)

    def _check(self) -> None:
        if self._target.exists() and not self._target.is_dir():
            raise TargetNotEmpty(f"{self._target} is a file; expected a directory")
        if self._target.is_dir():
            names = [f"{path.name}/" if path.is_dir() else path.name for path in self._target.iterdir()]
            _check_replaceable(str(self._target), names, self._overwrite)

    def publish(self, manifest: bytes) -> None:
        self.lake.write(MANIFEST, manifest)
        _sync(self._aside)
        self._check()
        if self._overwrite and self._target.exists():
            os.rename(self._target, self._old)
        try:
            # Replaces an empty directory, and fails if another program has written to it meanwhile.
            os.rename(self._aside, self._target)
        except OSError:
            if self._old.exists():
                os.rename(self._old, self._target)
            raise
        _sync(self._target.parent)
        shutil.rmtree(self._old, ignore_errors=True)

    def clean(self) -> None:
        shutil.rmtree(self._aside, ignore_errors=True)


class _Objects:
    """An object store cannot rename. File names are new, and the manifest, which is replaced in one step, lists the
    current files. Files that it no longer lists are removed afterwards."""

    single = aside = ""

    def __init__(self, lake: Lake, overwrite: bool) -> None:
        self.lake = lake
        self.tag = f"-{uuid.uuid4().hex[:12]}"
        self._before = list(lake.names(""))
        self._published = False
        _check_replaceable(lake.url, self._before, overwrite)

    def publish(self, manifest: bytes) -> None:
        self.lake.write(MANIFEST, manifest)
        self._published = True
        self.lake.remove(name for name in self._before if name != MANIFEST)

    def clean(self) -> None:
        if not self._published:
            self.lake.remove(name for name in self.lake.names("") if self.tag in name)

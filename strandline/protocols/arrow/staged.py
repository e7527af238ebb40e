"""Staged rows: sent now, appended later by reference.

Several clients that write one batch stage their rows at the same time. When all of them are done, one client appends
the rows in a single step, with the progress of the writer, and the rows do not pass through that client.

Staged rows are files in the data directory that belong to no log. They are checked like the body of an append when they
arrive, and need not survive a power cut: the id of staged rows has their checksum, and rows that are missing or damaged
are not found.
"""

from __future__ import annotations

import errno
import os
import re
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic, time
from typing import Any
from uuid import uuid4

import msgspec
import xxhash

from strandline.arrow import pa
from strandline.engine import Batch
from strandline.engine.errors import DiskFull
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.decoder import MAX_ROWS, Rules
from strandline.protocols.arrow.errors import decompressed_too_large, staged_not_found
from strandline.protocols.arrow.wire import StagedAnswer, UnstagedAnswer
from strandline.service.http import Call, Reply
from strandline.service.parameters import name_of
from strandline.service.problems import THROTTLED, Refusal, invalid

#: The content type of an append of staged rows.
SELECTION = "application/vnd.strandline.staged+json"
#: The directory of staged rows, in the data directory.
DIRECTORY = "staged"
#: Staged rows of a client that never came back are removed after this time. A batch may take hours.
MAX_AGE_S = 24 * 3600.0
#: How often old files are looked for.
SWEEP_S = 600.0
#: The most bytes of staged rows of the whole server: they are on the disk of the data directory.
MAX_STAGED_BYTES = 4 << 30
#: The most bytes of data that one append takes from staged rows: they are in memory as a whole.
MAX_APPEND_BYTES = 64 << 20
#: The most ids that one request removes.
MAX_REMOVED = 1000

_ID = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{16}")


@cache
def _schema() -> Any:
    return pa.schema([("data", pa.binary()), ("key", pa.string()), ("node", pa.string()), ("meta", pa.binary())])


class StagedRun(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Consecutive rows of one of the parts."""

    part: int
    first: int
    count: int


class StagedSelection(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an append of staged rows: the ids of staged rows, and the rows to append in their order."""

    parts: list[str]
    rows: list[StagedRun]


class StagedRows:
    """The files of a server. Threads share it."""

    def __init__(self, directory: Path, max_bytes: int = MAX_STAGED_BYTES) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._bytes = 0
        self._swept = float("-inf")

    def add(self, log: str, batch: Batch, rules: Rules) -> str:
        """Store rows for a log. Returns their id. Raises DiskFull."""
        body = _encoded(batch)
        with self._lock:
            self._sweep()
            if self._bytes + len(body) > self._max_bytes:
                raise Refusal(
                    THROTTLED,
                    f"{self._bytes} bytes of rows are staged, and the limit is {self._max_bytes}: append or remove "
                    "staged rows first, or write smaller batches",
                    {"limit": "staged_bytes", "max": self._max_bytes},
                )
            self._bytes += len(body)
        id = f"{uuid4().hex}-{name_hash(log)}-{_checksum(rules, body)}"
        temporary = self._directory / f"{id}.tmp"
        try:
            self._directory.mkdir(exist_ok=True)
            temporary.write_bytes(body)
            os.rename(temporary, self._directory / id)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            with self._lock:
                self._bytes -= len(body)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(DIRECTORY, len(body)) from error
            raise
        return id

    def select(self, log: str, selection: StagedSelection, rules: Rules) -> Batch | None:
        """The rows of a selection; None if there are none."""
        by_part: dict[int, list[tuple[int, StagedRun]]] = {}
        total = 0
        for run in selection.rows:
            if not (0 <= run.part < len(selection.parts) and run.first >= 0 and run.count >= 1):
                raise invalid(f"invalid rows {[run.part, run.first, run.count]}: expected [part, first row, number]")
            by_part.setdefault(run.part, []).append((total, run))
            total += run.count
        if total > MAX_ROWS:
            raise invalid(f"{total} rows are selected; the limit is {MAX_ROWS}")
        if not total:
            return None
        columns: dict[str, list[Any]] = {name: [None] * total for name in _schema().names}
        size = 0
        # One part at a time is in memory: a selection may take a few rows of each of many parts.
        for part, runs in by_part.items():
            id = selection.parts[part]
            found = self._read(log, id, rules)
            for at, run in runs:
                end = run.first + run.count
                if end > len(found["data"]):
                    raise invalid(f"row {end - 1} of staged rows {id!r} is selected; there are {len(found['data'])}")
                for name, values in columns.items():
                    values[at : at + run.count] = found[name][run.first : end]
                size += sum(map(len, columns["data"][at : at + run.count]))
                if size > MAX_APPEND_BYTES:
                    raise decompressed_too_large(size, MAX_APPEND_BYTES)
        return Batch(columns["data"], _optional(columns["key"]), _optional(columns["node"]), _optional(columns["meta"]))

    def remove(self, log: str, ids: list[str]) -> int:
        """Remove staged rows of a log. Returns the number of ids that were there."""
        removed = 0
        for id in ids:
            path = self._path(log, id)
            try:
                size = path.stat().st_size
                path.unlink()
            except FileNotFoundError:
                continue
            removed += 1
            with self._lock:
                self._bytes = max(self._bytes - size, 0)
        return removed

    def _read(self, log: str, id: str, rules: Rules) -> dict[str, list[Any]]:
        try:
            body = self._path(log, id).read_bytes()
        except FileNotFoundError:
            raise staged_not_found(id) from None
        if _checksum(rules, body) != id.split("-")[2]:
            raise staged_not_found(id)
        with pa.ipc.open_stream(body) as reader:
            columns: dict[str, list[Any]] = reader.read_next_batch().to_pydict()
            return columns

    def _path(self, log: str, id: str) -> Path:
        if not _ID.fullmatch(id) or id.split("-")[1] != name_hash(log):
            raise staged_not_found(id)
        return self._directory / id

    def _sweep(self) -> None:
        """Remove old files, and count the bytes of the others. The lock is held."""
        if monotonic() - self._swept < SWEEP_S:
            return
        self._swept = monotonic()
        self._bytes = 0
        if not self._directory.is_dir():
            return
        for entry in os.scandir(self._directory):
            try:
                status = entry.stat()
                if time() - status.st_mtime > MAX_AGE_S:
                    os.unlink(entry.path)
                else:
                    self._bytes += status.st_size
            except FileNotFoundError:
                continue


def name_hash(log: str) -> str:
    return xxhash.xxh3_64_hexdigest(log.encode())


def _checksum(rules: Rules, body: bytes) -> str:
    """Rows are valid only with the rules that they were checked with."""
    return xxhash.xxh3_64_hexdigest(msgspec.msgpack.encode(rules) + body)


def _encoded(batch: Batch) -> bytes:
    missing = [None] * len(batch)
    columns = (list(map(bytes, batch.data)), batch.keys or missing, batch.nodes or missing, batch.metas or missing)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _schema(), strict=True)]
    made = pa.record_batch(arrays, schema=_schema())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_batch(made)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _optional(values: list[Any]) -> list[Any] | None:
    return None if values.count(None) == len(values) else values


class Unstaging:
    """DELETE /arrow/staged/{name}"""

    def __init__(self, context: ArrowContext, rows: StagedRows) -> None:
        self._context = context
        self._rows = rows

    async def remove(self, call: Call) -> Reply:
        ids = [id for id in (call.query.get("ids") or "").split(",") if id]
        if not 1 <= len(ids) <= MAX_REMOVED:
            raise invalid(f"ids must be 1 to {MAX_REMOVED} ids of staged rows, separated by commas")
        removed = await self._context.work(lambda: self._rows.remove(name_of(call), ids))
        return Reply(msgspec.json.encode(UnstagedAnswer(removed=removed)))


def staged_answer(id: str, rows: int) -> Reply:
    return Reply(msgspec.json.encode(StagedAnswer(staged=id, rows=rows)), 201)

"""Reads the work of a task, and keeps histories open for later queries of the process.

By path a history is a view: the journal is replayed for it, and its files are held. So a view is used until the
directory changes. The planner of a query does not know when its tasks are done, or how often they run. So a process
keeps its last few views, and a task whose files are gone takes its own view.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from strandline.engine.errors import MissingFile, UnknownLog
from strandline.engine.journal.file import DIRECTORY as JOURNAL
from strandline.engine.state.checkpoints import MANIFEST
from strandline.history.pieces import SegmentPiece
from strandline.history.source import History, open_history
from strandline.pipeline.source.columns import fetched_columns, shaper
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.plan import Work

#: A view holds files that housekeeping would remove, and sealed records of up to one journal.
KEPT_VIEWS = 4

_lock = threading.Lock()
_kept: dict[str, list[tuple[Any, History]]] = {}


def opened(place: LogLocation) -> History:
    """A history with all records that are acknowledged now. Do not close it: others may use the same one."""
    if place.url:
        return fresh(place)
    with _lock:
        views = _kept.setdefault(repr(place), [])
        now = fingerprint(place.path)
        if views and views[-1][0] == now:
            return views[-1][1]
        views.append((now, fresh(place)))
        while len(views) > KEPT_VIEWS:
            views.pop(0)[1].close()
        return views[-1][1]


def fresh(place: LogLocation) -> History:
    """A new history, which the caller must close."""
    return open_history(
        path=place.path, url=place.url, key=place.key, cold_url=place.cold, cold_options=place.cold_options
    )


@contextmanager
def borrowed(place: LogLocation) -> Iterator[History]:
    """A history that is closed at the end of the context."""
    history = fresh(place)
    try:
        yield history
    finally:
        history.close()


def fingerprint(path: str) -> Any:
    """A value that changes when anything is written to the data directory. Take it before the view, so that a write in
    between shows as a change."""
    found = []
    for name in (MANIFEST, JOURNAL):
        with_name = os.path.join(path, name)
        entries = sorted(os.listdir(with_name)) if os.path.isdir(with_name) else [""]
        for entry in entries:
            try:
                status = os.stat(os.path.join(with_name, entry) if entry else with_name)
            except FileNotFoundError:
                continue
            found.append((name, entry, status.st_ino, status.st_size, status.st_mtime_ns))
    return found


# --- Reading the work of a task -------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

#: Smaller batches are merged, although that copies them: each batch costs Spark as much as a thousand records.
SMALL_BATCH = 2048


class DataLoss(Exception):
    """Records that the stream has not read are lost, or may be: retention removed them, the log was dropped and created
    again, or the log ends before the position of the stream."""


def read_work(encoded: bytes, schema: Any, payload: Any, batch_rows: int) -> Iterator[Any]:
    """The records as batches with the schema of the DataFrame. Columns that it does not have are not fetched."""
    work = msgspec.msgpack.decode(encoded, type=Work)
    columns = fetched_columns(schema)
    shapers: dict[int, Callable[[Any], Any]] = {}

    def shaped() -> Iterator[Any]:
        for piece in work.opened():
            if piece.epoch not in shapers:
                registry = work.registries.get(piece.epoch)
                # Only typed columns differ between logs.
                known = next(iter(shapers.values()), None) if payload != "columns" else None
                shapers[piece.epoch] = known or shaper(payload, schema, registry, piece.log)
            for batch in _read(work, piece, batch_rows, columns):
                if batch.num_rows:
                    yield shapers[piece.epoch](batch)

    return together(shaped(), batch_rows)


def together(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """Merge small batches up to ``rows`` rows."""
    gathered: list[Any] = []
    count = 0
    for batch in batches:
        if gathered and (batch.num_rows >= SMALL_BATCH or count + batch.num_rows > rows):
            yield _joined(gathered)
            gathered, count = [], 0
        if batch.num_rows >= SMALL_BATCH:
            yield batch
        else:
            gathered.append(batch)
            count += batch.num_rows
    if gathered:
        yield _joined(gathered)


def _joined(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _read(work: Work, piece: Any, batch_rows: int, columns: Sequence[str]) -> Iterator[Any]:
    read = _read_remote if work.remote else _read_file
    return read(work, piece, batch_rows, columns)


# --- from a directory ----------------------------------------------------------------------------------------------


def _read_file(work: Work, piece: SegmentPiece, batch_rows: int, columns: Sequence[str]) -> Iterator[Any]:
    last = piece.first - 1
    try:
        for batch in piece.read(batch_rows, columns):
            if batch.num_rows:
                last = batch.column("seq")[-1].as_py()
                yield batch
    except (FileNotFoundError, MissingFile):
        with borrowed(work.place) as history:
            yield from _read_elsewhere(work, history, piece, last, batch_rows, columns)


def _read_elsewhere(
    work: Work, history: History, piece: SegmentPiece, after: int, batch_rows: int, columns: Sequence[str]
) -> Iterator[Any]:
    try:
        found = history.log(piece.log)
    except UnknownLog:
        _gone(work, piece, is_replaced=False)
        return
    if found.epoch != piece.epoch:
        _gone(work, piece, is_replaced=True)
        return
    for part in history.pieces(found, after, piece.last, max(piece.rows, 1), piece.where):
        yield from part.read(batch_rows, columns)


def _gone(work: Work, piece: Any, *, is_replaced: bool) -> None:
    """The log was dropped by a caller: a stream continues without it, but a batch would be incomplete.
    ``is_replaced``: there is another log with that name."""
    if not work.lenient:
        raise UnknownLog(piece.log)
    if is_replaced:
        told_replaced(piece.log, piece.first, piece.last, fail=work.fail_on_data_loss)
        return
    log.warning("log %r was dropped during the read: records %d to %d are missing", piece.log, piece.first, piece.last)


# --- from a server -------------------------------------------------------------------------------------------------


def _read_remote(work: Work, piece: Any, batch_rows: int, columns: Sequence[str]) -> Iterator[Any]:
    from strandline.history.remote import LogReplaced

    first = None
    try:
        for batch in piece.read(batch_rows, columns):
            if first is None and batch.num_rows:
                first = batch.column("seq")[0].as_py()
                _check_nothing_lost(work, piece, first)
            yield batch
    except (UnknownLog, LogReplaced) as error:
        _gone(work, piece, is_replaced=isinstance(error, LogReplaced))
        return
    if first is None:
        _check_nothing_lost(work, piece, piece.last + 1)


def _check_nothing_lost(work: Work, piece: Any, first: int) -> None:
    """Report records before the first one that were lost after the query was planned."""
    if not work.lenient or first == piece.first:
        return
    with borrowed(work.place) as history:
        floor = history.log(piece.log).floor
    if floor > piece.first:
        told_loss(piece.log, piece.first, min(floor - 1, piece.last), fail=work.fail_on_data_loss)


def told_loss(name: str, first: int, last: int, *, fail: bool) -> None:
    message = f"retention removed records {first} to {last} of log {name!r} before they were read"
    _tell(message, "the stream continues without them", fail)


def told_replaced(name: str, first: int, last: int | None = None, *, fail: bool) -> None:
    """``last`` is None if the number of records of the dropped log is unknown."""
    what = f"from {first}" if last is None else f"{first} to {last}"
    message = f"log {name!r} was dropped and created again before its records {what} were read"
    _tell(message, "the stream reads the new log from its beginning", fail)


def told_backwards(name: str, head: int, seq: int, *, fail: bool) -> None:
    message = f"log {name!r} ends at {head}, but was read up to {seq}: it lost records, or is an older copy"
    _tell(message, f"the stream continues after {head}", fail)


def _tell(message: str, otherwise: str, fail: bool) -> None:
    if fail:
        raise DataLoss(f"{message}; with the option failOnDataLoss=false {otherwise}")
    log.warning("%s", message)

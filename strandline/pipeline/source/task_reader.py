"""The history that a process of Spark reads from, kept open for the queries that follow.

Through a directory, a history is a view: the journal is replayed for it and its files are held. So one view serves
until the directory has changed. Whoever plans a query does not know when its tasks are done, or whether they run once
or many times; so the last few views of a process are kept, and a task that finds its files gone takes a view of its
own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from strandline.engine.errors import MissingFile, UnknownLog
from strandline.engine.journal.file import DIRECTORY as JOURNAL
from strandline.engine.state.checkpoints import MANIFEST
from strandline.history.pieces import SegmentPiece
from strandline.history.source import History, open_history
from strandline.pipeline.source.columns import shaper
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.plan import Work

#: A view holds files that housekeeping would remove, and up to a journal's worth of sealed records.
KEPT_VIEWS = 4

_lock = threading.Lock()
_kept: dict[str, list[tuple[Any, History]]] = {}


def opened(place: LogLocation) -> History:
    """The records that were acknowledged when this was called. Not to be closed: others may have the same one."""
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
    """One that belongs to the caller."""
    return open_history(
        path=place.path, url=place.url, key=place.key, cold_url=place.cold, cold_options=place.cold_options
    )


@contextmanager
def borrowed(place: LogLocation) -> Iterator[History]:
    """One for a short while."""
    history = fresh(place)
    try:
        yield history
    finally:
        history.close()


def fingerprint(path: str) -> Any:
    """Something that changes when anything is written to the data directory. It is to be taken before the view: what
    is written in between then shows as a change, and never the other way round."""
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


# --- Reading what a task was given ----------------------------------------------------------------------------------

log = logging.getLogger(__name__)

#: Smaller batches are put together, at the cost of copying them: each one costs Spark as much as a thousand records.
SMALL_BATCH = 2048


class DataLoss(Exception):
    """Records are gone, or may be, that the stream has not read: a cap or time took them, the log was dropped and
    created again, or the log ends before what was read of it."""


def read_work(encoded: bytes, schema: Any, payload: Any, batch_rows: int) -> Iterator[Any]:
    """The records as batches of the data frame's schema."""
    work = msgspec.msgpack.decode(encoded, type=Work)
    shapers: dict[int, Callable[[Any], Any]] = {}

    def shaped() -> Iterator[Any]:
        for piece in work.opened():
            if piece.epoch not in shapers:
                registry = work.registries.get(piece.epoch)
                # Only typed columns are different from log to log.
                known = next(iter(shapers.values()), None) if payload != "columns" else None
                shapers[piece.epoch] = known or shaper(payload, schema, registry, piece.log)
            for batch in _read(work, piece, batch_rows):
                if batch.num_rows:
                    yield shapers[piece.epoch](batch)

    return together(shaped(), batch_rows)


def together(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """The same, with small batches put together up to so many rows."""
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


def _read(work: Work, piece: Any, batch_rows: int) -> Iterator[Any]:
    return _read_remote(work, piece, batch_rows) if work.remote else _read_file(work, piece, batch_rows)


# --- from a directory ----------------------------------------------------------------------------------------------


def _read_file(work: Work, piece: SegmentPiece, batch_rows: int) -> Iterator[Any]:
    last = piece.first - 1
    try:
        for batch in piece.read(batch_rows):
            if batch.num_rows:
                last = batch.column("seq")[-1].as_py()
                yield batch
    except (FileNotFoundError, MissingFile):
        with borrowed(work.place) as history:
            yield from _read_elsewhere(work, history, piece, last, batch_rows)


def _read_elsewhere(work: Work, history: History, piece: SegmentPiece, after: int, batch_rows: int) -> Iterator[Any]:
    try:
        found = history.log(piece.log)
    except UnknownLog:
        _gone(work, piece, is_replaced=False)
        return
    if found.epoch != piece.epoch:
        _gone(work, piece, is_replaced=True)
        return
    for part in history.pieces(found, after, piece.last, max(piece.rows, 1), piece.where):
        yield from part.read(batch_rows)


def _gone(work: Work, piece: Any, *, is_replaced: bool) -> None:
    """The log was dropped. That was on purpose: a stream goes on without it, but a batch would be wrong.
    ``is_replaced``: there is another log of that name."""
    if not work.lenient:
        raise UnknownLog(piece.log)
    if is_replaced:
        told_replaced(piece.log, piece.first, piece.last, fail=work.fail_on_data_loss)
        return
    log.warning("log %r was dropped while it was read: %d..%d are not there", piece.log, piece.first, piece.last)


# --- from a server -------------------------------------------------------------------------------------------------


def _read_remote(work: Work, piece: Any, batch_rows: int) -> Iterator[Any]:
    from strandline.history.remote import LogReplaced

    first = None
    try:
        for batch in piece.read(batch_rows):
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
    """Whether what is missing before the first record was lost after the query was planned."""
    if not work.lenient or first == piece.first:
        return
    with borrowed(work.place) as history:
        floor = history.log(piece.log).floor
    if floor > piece.first:
        told_loss(piece.log, piece.first, min(floor - 1, piece.last), fail=work.fail_on_data_loss)


def told_loss(name: str, first: int, last: int, *, fail: bool) -> None:
    message = f"records {first} to {last} of log {name!r} were lost to a cap or to time before they were read"
    _tell(message, "the stream goes on without them", fail)


def told_replaced(name: str, first: int, last: int | None = None, *, fail: bool) -> None:
    """``last`` is None if it is not known how many records the dropped log had."""
    what = f"from {first} on" if last is None else f"{first} to {last}"
    message = f"log {name!r} was dropped and created again before records {what} were read"
    _tell(message, "the stream reads the new log from its beginning", fail)


def told_backwards(name: str, head: int, seq: int, *, fail: bool) -> None:
    message = f"log {name!r} ends at {head}, but was read up to {seq}: it has lost records, or is an older copy"
    _tell(message, f"the stream reads what comes after {head}", fail)


def _tell(message: str, otherwise: str, fail: bool) -> None:
    if fail:
        raise DataLoss(f"{message}; with option failOnDataLoss=false {otherwise}")
    log.warning("%s", message)

"""The targets of appends, by URL or by path, with the progress of writers.

Both store the progress of a writer as a note of the log that changes in the same step as the append, and append only if
the stored progress is what the writer expects.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from strandline.engine import Batch, Engine, Log
from strandline.engine.errors import DirectoryInUse, UnknownLog
from strandline.engine.ownership import JSON, closed_to_others, media_type_of
from strandline.history.remote import BulkAppendResult, ProgressConflict, ServerTarget
from strandline.pipeline.source.options import LogLocation

Progress = dict[str, Any]

#: The prefix of the notes that store the progress of writers.
PREFIX = "progress/"
MAX_WRITER = 55


class CannotAppend(Exception):
    """The records cannot be appended to the target. The message gives the reason; nothing was appended."""


class AppendTarget(Protocol):
    def append(
        self,
        log: str,
        table: Any,
        writer: str | None = None,
        before: Progress | None = None,
        progress: Progress | None = None,
        *,
        create: bool = True,
        ts: int | None = None,
    ) -> BulkAppendResult:
        """Append all rows of a table, or none; see :class:`~strandline.history.remote.ServerTarget`. Raises
        ProgressConflict if the stored progress is not ``before``."""

    def progress(self, log: str, writer: str) -> Progress | None:
        """The progress of a writer. Raises UnknownLog."""

    def forget(self, log: str, writer: str) -> bool:
        """Delete the progress of a writer. Returns whether there was any."""


@contextmanager
def open_target(place: LogLocation, *, sync: bool = True) -> Iterator[AppendTarget]:
    """Open a target. With ``sync`` false, appends by path are durable only after this is closed: until then a power
    failure may lose the last ones together with their progress."""
    if place.url:
        yield ServerTarget(place.url, place.key)
        return
    try:
        engine = Engine.open(place.path)
    except DirectoryInUse as error:
        raise CannotAppend(
            f"{place.path} is in use, probably by a server; use --url with the URL of the server instead of --data"
        ) from error
    with engine:
        yield DirectoryTarget(engine, sync=sync)


class DirectoryTarget:
    """The logs of a directory that this process has opened."""

    def __init__(self, engine: Engine, *, sync: bool = True) -> None:
        self._engine = engine
        self._sync = sync

    def append(
        self,
        log: str,
        table: Any,
        writer: str | None = None,
        before: Progress | None = None,
        progress: Progress | None = None,
        *,
        create: bool = True,
        ts: int | None = None,
    ) -> BulkAppendResult:
        target = self._find(log, create)
        batch = _batch(table, log, is_json=media_type_of(target.config) == JSON)
        notes = None if writer is None else {PREFIX + writer: progress}
        with self._engine.lock:
            if writer is not None:
                noted = target.notes.get(PREFIX + writer)
                if noted != before:
                    raise ProgressConflict(f"the progress of writer {writer!r} in log {log!r} changed", noted)
            commit = target.append(batch, notes=notes, ts=ts)
        done = commit.wait()
        if self._sync:
            target.sync().wait()
        return BulkAppendResult(done.first, done.last, done.ts, len(batch))

    def progress(self, log: str, writer: str) -> Progress | None:
        found = self._engine.find(log)
        if found is None:
            raise UnknownLog(log)
        noted: Progress | None = found.notes.get(PREFIX + writer)
        return noted

    def forget(self, log: str, writer: str) -> bool:
        found = self._engine.find(log)
        if found is None or PREFIX + writer not in found.notes:
            return False
        found.note({PREFIX + writer: None}).wait()
        return True

    def _find(self, name: str, create: bool) -> Log:
        found = self._engine.find(name)
        why = closed_to_others(name, {} if found is None else found.notes)
        if why is not None:
            raise CannotAppend(f"cannot append to log {name!r}: {why}")
        if found is not None:
            return found
        if not create:
            raise UnknownLog(name)
        return self._engine.create(name).wait()


def _batch(table: Any, log: str, *, is_json: bool) -> Batch:
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    if is_json:
        _check_json(columns["data"], log, "data")
    metas = columns.get("meta")
    if metas is not None:
        _check_json([meta for meta in metas if meta is not None], log, "meta")
    return Batch(columns["data"], columns.get("key"), columns.get("node"), metas)


def _check_json(values: list[bytes], log: str, what: str) -> None:
    decode = msgspec.json.Decoder(msgspec.Raw).decode
    for value in values:
        try:
            value.decode()
            decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CannotAppend(
                f"log {log!r} requires JSON, but the {what} {value[:80]!r} is invalid: {error}"
            ) from None

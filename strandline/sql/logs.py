"""Logs as tables of DuckDB: what the lake has from its files, everything newer from the history, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from strandline.engine.errors import UnknownLog
from strandline.history.log_info import LogInfo
from strandline.history.source import History
from strandline.lake.layout import RECORDS
from strandline.lake.rows import lake_rows
from strandline.pipeline.erasure_rules import Rules
from strandline.pipeline.events import Events
from strandline.sql.errors import QueryFailed
from strandline.sql.lake import Kept, LakeView, left_out_table
from strandline.sql.names import quoted, words_of

#: Records of one piece of history.
PIECE_RECORDS = 100_000
JSON_TYPE = "application/json"

_SHAPE = pa.schema([RECORDS.field(name) for name in ("seq", "ts", "key", "node", "meta", "data", "bytes")])
_NAMES = ", ".join(_SHAPE.names)


class Logs:
    """The logs of a history, in a database: each as a view of its name, made when it is asked for. ``lake`` is None
    where there is none: then everything is read from the history."""

    def __init__(self, database: duckdb.DuckDBPyConnection, history: History, lake: LakeView | None) -> None:
        self._database = database
        self._history = history
        self._lake = lake if lake is not None and lake.exists else None
        self._made: dict[str, str] = {}
        if self._lake is not None:
            database.register("__lake", self._lake.dataset)

    def add(self, name: str) -> bool:
        """Whether there is such a log."""
        info = self._find(name)
        if info is None:
            return False
        self._made[name.lower()] = name
        number = len(self._made)
        kept = Kept([], {}, [(1, info.head)], [], Rules({})) if self._lake is None else self._kept(info)
        tail = f"__tail_{number}"
        batches = pa.RecordBatchReader.from_batches(_SHAPE, self._newer(info, kept))
        self._database.register("__batches", batches)
        # Kept in the database and not only passed through: a statement may read it more than once.
        self._database.execute(f"create temp table {tail} as select {_NAMES} from __batches")
        self._database.unregister("__batches")
        parts = [f"select {_NAMES} from {tail}", *self._from_lake(kept, number)]
        columns = ", ".join(_columns(info.media_type == JSON_TYPE))
        self._database.execute(
            f"create temp view {quoted(name)} as select {columns} from ({' union all '.join(parts)})"
        )
        return True

    def check_names(self, statement: str) -> None:
        """Raises QueryFailed if the statement names two logs that DuckDB takes for one: it knows no capitals."""
        for word in words_of(statement):
            made = self._made.get(word.lower(), word)
            if made != word and self._find(word) is not None:
                raise QueryFailed(f"DuckDB cannot tell the logs {made!r} and {word!r} apart", "statement")

    def _find(self, name: str) -> LogInfo | None:
        try:
            return self._history.log(name)
        except UnknownLog:
            return None

    def _kept(self, info: LogInfo) -> Kept:
        assert self._lake is not None
        return self._lake.kept(self._history, info, Events(self._history))

    def _from_lake(self, kept: Kept, number: int) -> Iterator[str]:
        without = ""
        if kept.left_out:
            name = f"__left_out_{number}"
            self._database.register(name, left_out_table(kept.left_out))
            without = f" and not exists (select 1 from {name} e where e.epoch = l.epoch and e.seq = l.seq)"
        for epoch, first, last in kept.covered:
            yield (
                f"select {_NAMES} from __lake l where l.epoch = {epoch} and l.seq >= {first} and l.seq <= {last}"
                f"{without}"
            )

    def _newer(self, info: LogInfo, kept: Kept) -> Iterator[Any]:
        """The records that are not taken from the lake."""
        for first, last in kept.missing:
            for piece in self._history.pieces(info, first - 1, last, PIECE_RECORDS):
                for batch in piece.read():
                    yield _shaped(batch)
        for epoch, first, last in kept.renewed:
            for piece in self._history.pieces(info, first - 1, last, PIECE_RECORDS):
                for batch in piece.read():
                    meant = kept.is_renewed(epoch, batch)
                    if meant.any():
                        yield _shaped(batch.filter(pa.array(meant)))


def _shaped(batch: Any) -> Any:
    """History's records as the lake has them."""
    return lake_rows(batch).select(_SHAPE.names)


def _columns(is_json: bool) -> Iterator[str]:
    """A log that is not JSON has its payloads as text, and as bytes where they are no text."""
    yield from ("seq", "ts", "key", "node", f"{_as_json('try(decode(meta))')} as meta")
    yield from (f"{_as_json('data')} as data",) if is_json else ("data", "bytes")


def _as_json(text: str) -> str:
    """What is no JSON, although it should be, is a string of it rather than an error or nothing."""
    return f"coalesce(try_cast({text} as json), to_json({text}))"

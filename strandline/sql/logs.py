"""Combines the records of a log in the lake with the newer ones in the log, applying erasures since.

The table is opened once and read at that version. Its progress is read before, so that it never claims more than the
table contains. Records that were erased, hidden, restored or amended since the lake last followed are found with the
rules of the pipeline and come from the log instead, if the log still has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.engine.errors import UnknownLog
from strandline.history.log_info import LogInfo
from strandline.history.source import History
from strandline.lake.erasures import AMENDED, PROGRESS, RESTORED, ErasureEvents, ErasureRules, EventsMissed, rules_of
from strandline.lake.layout import RECORDS, lake_rows, records
from strandline.lake.location import Lake
from strandline.lake.registries import RegistryLayer
from strandline.pipeline.frames import layers_of
from strandline.sql.statement import QueryFailed, quoted, words_of

_KEYED = ("epoch", "seq", "key")


class Covered(NamedTuple):
    """The lake contains the records of an epoch from ``first`` to ``last``, unless they were lost before."""

    epoch: int
    first: int
    last: int


class Kept(NamedTuple):
    """The part of a log that comes from the lake: ``covered`` without ``left_out`` (seqs by epoch). The rest comes from
    the log: newer records, ``missing`` (ranges of seqs), and the records in ``renewed`` that match the rules."""

    covered: list[Covered]
    left_out: dict[int, Any]
    missing: list[tuple[int, int]]
    renewed: list[Covered]
    rules: ErasureRules

    def is_renewed(self, epoch: int, batch: Any) -> Any:
        """Which rows of a batch of the history the lake has in an older version, or not at all."""
        seqs = batch.column("seq").to_numpy()
        return self.rules.renewed(np.full(len(seqs), epoch, np.int64), seqs, batch.column("key"))


class LakeView:
    """The table of records at one moment."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        table = records(lake)
        self._progress = table.progress()
        self.exists = bool(self._progress)
        self._opened = table.open() if self.exists else None
        #: The table as an Arrow dataset, which reads only the needed columns and files. None if nothing was committed.
        self.dataset: Any = None if self._opened is None else self._opened.to_pyarrow_dataset()

    def is_whole(self) -> bool:
        """Whether all files still exist. An erasure removes files even if an earlier version is being read."""
        if self._opened is None:
            return True
        paths = pa.table(self._opened.get_add_actions()).column("path").to_pylist()
        return all(self._lake.state(f"records/{path}") is not None for path in paths)

    def kept(self, history: History, info: LogInfo, events: ErasureEvents) -> Kept:
        """The part of a log that can be read from the lake."""
        layers = layers_of(info, {} if info.base is None else {each.epoch: each for each in history.logs()})
        covered, missing = self._ranges(info, layers)
        try:
            found = [event.erasure for event in events.after(self._progress.get(PROGRESS, 0))]
        except EventsMissed:
            # Erasures of records in the log are unknown, so read those from the log. Below its floor, use the lake.
            covered = [each._replace(last=min(each.last, info.floor - 1)) for each in covered]
            return Kept(covered, {}, [(info.floor, info.head)], [], ErasureRules({}))
        rules = self._rules(history, info, found, covered)
        left_out = self._left_out(covered, rules) if rules.of else {}
        return Kept(covered, left_out, missing, _renewed(covered, rules), rules)

    def _ranges(self, info: LogInfo, layers: list[RegistryLayer]) -> tuple[list[Covered], list[tuple[int, int]]]:
        covered, missing = [], []
        for layer in layers:
            last = info.head if layer.last is None else layer.last
            reached = min(self._progress.get(str(layer.epoch), 0), last) if self.exists else 0
            if reached >= layer.first:
                covered.append(Covered(layer.epoch, layer.first, reached))
            if reached < last:
                missing.append((max(layer.first, reached + 1), last))
        return covered, missing

    def _rules(self, history: History, info: LogInfo, found: list[Any], covered: list[Covered]) -> ErasureRules:
        of = rules_of(found, {each.epoch for each in covered})
        is_restored = any(rule.kind == RESTORED for rules in of.values() for rule in rules)
        return ErasureRules(of, dict.fromkeys(of, history.standing(info)) if is_restored else {})

    def _left_out(self, covered: list[Covered], rules: ErasureRules) -> dict[int, Any]:
        """The seqs of the lake's rows that must not be shown, by epoch."""
        found: dict[int, list[Any]] = {each.epoch: [] for each in covered if each.epoch in rules.of}
        condition = pc.field("epoch").isin(list(found))
        for batch in self.dataset.to_batches(columns=list(_KEYED), filter=condition):
            epochs, seqs = (batch.column(name).to_numpy() for name in ("epoch", "seq"))
            erased = rules.erased(epochs, seqs, batch.column("key").cast(pa.string()))
            for epoch, parts in found.items():
                parts.append(seqs[erased & (epochs == epoch)])
        return {epoch: np.concatenate(parts) for epoch, parts in found.items() if any(len(part) for part in parts)}


def _renewed(covered: list[Covered], rules: ErasureRules) -> list[Covered]:
    """The ranges of restored or amended records, which the lake may have in an older version."""
    found = []
    for each in covered:
        bounds = [rule.bounds for rule in rules.of.get(each.epoch, ()) if rule.kind in (RESTORED, AMENDED)]
        if bounds:
            first = max(min(low for low, _ in bounds), each.first)
            last = min(max(high for _, high in bounds), each.last)
            if first <= last:
                found.append(Covered(each.epoch, first, last))
    return found


def left_out_table(left_out: Mapping[int, Any]) -> Any:
    """The seqs to leave out, as a table of epochs and seqs."""
    epochs = [np.full(len(seqs), epoch, np.int64) for epoch, seqs in left_out.items()]
    seqs = [np.asarray(each, np.int64) for each in left_out.values()]
    return pa.table({"epoch": np.concatenate(epochs), "seq": np.concatenate(seqs)})


# --- Logs as tables of DuckDB: records in the lake from its files, everything newer from the history, nothing twice

#: Records per piece of history.
PIECE_RECORDS = 100_000
JSON_TYPE = "application/json"

_SHAPE = pa.schema([RECORDS.field(name) for name in ("seq", "ts", "key", "node", "meta", "data", "bytes")])
_NAMES = ", ".join(_SHAPE.names)


class Logs:
    """The logs of a history as views in a database, each created when a statement needs it. Without a ``lake``,
    everything is read from the history."""

    def __init__(self, database: duckdb.DuckDBPyConnection, history: History, lake: LakeView | None) -> None:
        self._database = database
        self._history = history
        self._lake = lake if lake is not None and lake.exists else None
        self._made: dict[str, str] = {}
        if self._lake is not None:
            database.register("__lake", self._lake.dataset)

    def add(self, name: str) -> bool:
        """Create the view of a log. Returns False if the log does not exist."""
        info = self._find(name)
        if info is None:
            return False
        self._made[name.lower()] = name
        number = len(self._made)
        kept = Kept([], {}, [(1, info.head)], [], ErasureRules({})) if self._lake is None else self._kept(info)
        tail = f"__tail_{number}"
        batches = pa.RecordBatchReader.from_batches(_SHAPE, self._newer(info, kept))
        self._database.register("__batches", batches)
        # Stored in the database, because a statement may read it more than once.
        self._database.execute(f"create temp table {tail} as select {_NAMES} from __batches")
        self._database.unregister("__batches")
        parts = [f"select {_NAMES} from {tail}", *self._from_lake(kept, number)]
        columns = ", ".join(_columns(info.media_type == JSON_TYPE))
        self._database.execute(
            f"create temp view {quoted(name)} as select {columns} from ({' union all '.join(parts)})"
        )
        return True

    def check_names(self, statement: str) -> None:
        """Raises QueryFailed if the statement names two logs that differ only in case, which DuckDB ignores."""
        for word in words_of(statement):
            made = self._made.get(word.lower(), word)
            if made != word and self._find(word) is not None:
                raise QueryFailed(
                    f"the logs {made!r} and {word!r} differ only in case, which DuckDB ignores; "
                    "name one of them per statement",
                    "statement",
                )

    def _find(self, name: str) -> LogInfo | None:
        try:
            return self._history.log(name)
        except UnknownLog:
            return None

    def _kept(self, info: LogInfo) -> Kept:
        assert self._lake is not None
        return self._lake.kept(self._history, info, ErasureEvents(self._history))

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
        """The records that do not come from the lake."""
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
    """Records of the history in the columns of the lake."""
    return lake_rows(batch).select(_SHAPE.names)


def _columns(is_json: bool) -> Iterator[str]:
    """The columns of a log. A log that is not JSON has its data as text, and as bytes where it is not valid text."""
    yield from ("seq", "ts", "key", "node", f"{_as_json('try(decode(meta))')} as meta")
    yield from (f"{_as_json('data')} as data",) if is_json else ("data", "bytes")


def _as_json(text: str) -> str:
    """Text as JSON. Invalid JSON becomes a JSON string instead of an error or NULL."""
    return f"coalesce(try_cast({text} as json), to_json({text}))"

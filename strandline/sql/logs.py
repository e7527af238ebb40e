"""Combines the records of a log in the lake with the newer ones in the log, applying erasures since.

The table is opened once and read at that version. Its progress is read before, so that it never claims more than the
table contains. Records that were erased, hidden, restored or amended since the lake last followed are found with the
rules of the pipeline and come from the log instead, if the log still has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.engine.errors import UnknownLog
from strandline.engine.ownership import ROWS
from strandline.engine.record import INTERNAL_PREFIX
from strandline.history.log_info import LogInfo
from strandline.history.source import History
from strandline.lake.declared import DeclaredFiles, rows_of
from strandline.lake.erasures import AMENDED, PROGRESS, RESTORED, ErasureEvents, ErasureRules, EventsMissed, rules_of
from strandline.lake.layout import RECORDS, lake_rows, records
from strandline.lake.location import Lake
from strandline.lake.registries import RegistryLayer
from strandline.pipeline.frames import layers_of
from strandline.sql.owner_views import elements_view, rows_view
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

    def declared(self, name: str) -> Any:
        """The rows of a declared table, as Arrow batches; None if there is no table of this name."""
        directory = self._lake.directory
        table = None if directory is None else DeclaredFiles.of(directory).find(name)
        return None if table is None else rows_of(table)

    def declared_names(self) -> list[str]:
        directory = self._lake.directory
        return [] if directory is None else DeclaredFiles.of(directory).names()

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

_SHAPE = pa.schema([RECORDS.field(name) for name in ("log", "seq", "ts", "key", "node", "meta", "data", "bytes")])
_RANGE = pa.schema([("log", pa.string()), ("epoch", pa.int64()), ("first", pa.int64()), ("last", pa.int64())])
_NAMES = ", ".join(_SHAPE.names)


class Logs:
    """Declared tables and the logs of a history as views in a database, each created when a statement needs it. Without
    a ``lake``, there are no declared tables, and everything is read from the history."""

    def __init__(self, database: duckdb.DuckDBPyConnection, history: History, lake: LakeView | None) -> None:
        self._database = database
        self._history = history
        self._lake = lake if lake is not None and lake.exists else None
        self._made: dict[str, str] = {}
        # No statement can name what the views are made of: the files of the lake may have erased records.
        self._secret = f"__{token_hex(16)}"
        if self._lake is not None:
            database.register(self._hidden("lake"), self._lake.dataset)

    def _hidden(self, what: str, number: int = 0) -> str:
        return f"{self._secret}_{what}_{number}"

    def add(self, name: str) -> bool:
        """Create the view of a declared table of the lake or, if there is none of this name, of a log, a table or a
        collection. Returns False if there is none of them."""
        if self._add_declared(name):
            return True
        # The events are read first, so that the logs have at least their effects.
        events = None if self._lake is None else ErasureEvents(self._history)
        info = self._find(name)
        owned = [] if info is not None else self._owned_by(name)
        if info is None and not owned:
            return False
        self._made[name.lower()] = name
        records = self._records(owned if info is None else [info], events)
        if info is not None:
            columns = ", ".join(_columns(info.media_type == JSON_TYPE))
            selected = f"select {columns} from ({records})"
        elif _has_rows(owned[0]):
            selected = rows_view(self._database, records)
        else:
            selected = elements_view(self._database, _current(records, owned))
        self._database.execute(f"create temp view {quoted(name)} as {selected}")
        return True

    def listing(self) -> duckdb.DuckDBPyRelation:
        """What a statement can name, with its type: declared tables, logs, tables and collections. Of several with the
        same name, the statement reads the first. The logs of tables and collections are not listed on their own."""
        kinds = {} if self._lake is None else dict.fromkeys(self._lake.declared_names(), "declared table")
        infos = [info for info in self._history.logs() if not info.name.startswith(INTERNAL_PREFIX)]
        for info in infos:
            if info.owner is None:
                kinds.setdefault(info.name, "log")
        for info in infos:
            if info.owner is not None and (_has_rows(info) or info.owner.kind == "collection"):
                kinds.setdefault(info.owner.name, info.owner.kind)
        rows = pa.table(
            {"name": pa.array(list(kinds), pa.string()), "type": pa.array(list(kinds.values()), pa.string())}
        )
        self._database.register("__listing", rows)
        return self._database.sql("select * from __listing order by name")

    def _add_declared(self, name: str) -> bool:
        rows = None if self._lake is None else self._lake.declared(name)
        if rows is None:
            return False
        self._made[name.lower()] = name
        source = self._hidden("declared")
        self._database.register(source, rows)
        self._database.execute(f"create temp table {quoted(name)} as select * from {source}")
        self._database.unregister(source)
        return True

    def _owned_by(self, name: str) -> list[LogInfo]:
        """The logs of a table's rows or, if there is no such table, of a collection's documents."""
        rows = [info for info in self._history.logs(f"{name}/") if _has_rows(info)]
        if rows:
            return rows
        return [info for info in self._history.logs() if _is_document(info, name)]

    def _records(self, infos: Sequence[LogInfo], events: ErasureEvents | None) -> str:
        """A statement that selects the records of logs, with the names of the logs."""
        number = len(self._made)
        kept = [(info, self._kept(info, events)) for info in infos]
        tail, source = self._hidden("tail", number), self._hidden("batches")
        batches = pa.RecordBatchReader.from_batches(_SHAPE, self._newer(kept))
        self._database.register(source, batches)
        # Stored in the database, because a statement may read it more than once.
        self._database.execute(f"create temp table {tail} as select {_NAMES} from {source}")
        self._database.unregister(source)
        parts = [f"select {_NAMES} from {tail}", *self._from_lake(kept, number)]
        return " union all ".join(parts)

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

    def _kept(self, info: LogInfo, events: ErasureEvents | None) -> Kept:
        if self._lake is None or events is None:
            return Kept([], {}, [(1, info.head)], [], ErasureRules({}))
        return self._lake.kept(self._history, info, events)

    def _from_lake(self, kept: Sequence[tuple[LogInfo, Kept]], number: int) -> Iterator[str]:
        covered = [(info.name, *each) for info, part in kept for each in part.covered]
        if not covered:
            return
        ranges, without = self._hidden("covered", number), ""
        self._database.register(
            ranges, pa.Table.from_pylist([dict(zip(_RANGE.names, row, strict=True)) for row in covered], _RANGE)
        )
        left_out = {epoch: seqs for _, part in kept for epoch, seqs in part.left_out.items()}
        if left_out:
            name = self._hidden("left_out", number)
            self._database.register(name, left_out_table(left_out))
            without = f" and not exists (select 1 from {name} e where e.epoch = l.epoch and e.seq = l.seq)"
        _, epochs, firsts, lasts = zip(*covered, strict=True)
        lake = self._hidden("lake")
        # The bounds select files of the lake before any is opened.
        bounds = f"l.epoch between {min(epochs)} and {max(epochs)} and l.seq between {min(firsts)} and {max(lasts)}"
        names = ", ".join(f"l.{name}" for name in _SHAPE.names if name != "log")
        yield (
            f"select c.log, {names} from {lake} l join {ranges} c on l.epoch = c.epoch "
            f"and l.seq between c.first and c.last where {bounds}{without}"
        )

    def _newer(self, kept: Sequence[tuple[LogInfo, Kept]]) -> Iterator[Any]:
        """The records that do not come from the lake."""
        for info, part in kept:
            for first, last in part.missing:
                for piece in self._history.pieces(info, first - 1, last, PIECE_RECORDS):
                    for batch in piece.read():
                        yield _shaped(info, batch)
            for epoch, first, last in part.renewed:
                for piece in self._history.pieces(info, first - 1, last, PIECE_RECORDS):
                    for batch in piece.read():
                        meant = part.is_renewed(epoch, batch)
                        if meant.any():
                            yield _shaped(info, batch.filter(pa.array(meant)))


def _has_rows(info: LogInfo) -> bool:
    return info.owner is not None and info.owner.part == ROWS


def _is_document(info: LogInfo, collection: str) -> bool:
    return info.owner is not None and (info.owner.kind, info.owner.name) == ("collection", collection)


def _current(records: str, documents: Sequence[LogInfo]) -> str:
    """The elements of append-only documents, and the last versions of regular ones."""
    if not any(info.owner is not None and info.owner.versions for info in documents):
        return records
    return f"select * from ({records}) qualify row_number() over (partition by log order by seq desc) = 1"


def _shaped(info: LogInfo, batch: Any) -> Any:
    """Records of the history in the columns of the lake."""
    rows = lake_rows(batch).select(_SHAPE.names[1:])
    return rows.add_column(0, _SHAPE.field("log"), pa.array([info.name] * len(rows), _SHAPE.field("log").type))


def _columns(is_json: bool) -> Iterator[str]:
    """The columns of a log. A log that is not JSON has its data as text, and as bytes where it is not valid text."""
    yield from ("seq", "ts", "key", "node", f"{_as_json('try(decode(meta))')} as meta")
    yield from (f"{_as_json('data')} as data",) if is_json else ("data", "bytes")


def _as_json(text: str) -> str:
    """Text as JSON. Invalid JSON becomes a JSON string instead of an error or NULL."""
    return f"coalesce(try_cast({text} as json), to_json({text}))"

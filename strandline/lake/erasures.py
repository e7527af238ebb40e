"""Erasure events for the stages of a round: read in one place, and applied by each table separately.

Every table has its own progress through the events, the transaction id ``erasures``. A crash between the commits of two
tables therefore leaves no event unapplied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.engine.errors import UnknownLog
from strandline.engine.operations.erasures import NAME, Erasure, read_erasure
from strandline.engine.state.ranges import inside
from strandline.history.source import AnyPiece, History
from strandline.lake import layout
from strandline.lake.files import DataFile, open_file
from strandline.lake.layout import lake_rows
from strandline.lake.location import Lake
from strandline.lake.record_files import ReadFailure, RowsWriter, readable
from strandline.lake.table import LakeTable

#: The transaction id in every table that contains data of records.
PROGRESS = "erasures"
#: The transaction id in ``records`` for the last event whose replaced files have been removed.
PURGED = "purged"
_PIECE_ROWS = 100_000


class ErasureEvent(NamedTuple):
    seq: int
    erasure: Erasure


class EventsMissed(Exception):
    """Events that were not applied yet are gone. The lake must be compared with the logs."""


class ErasureEvents:
    """The events up to ``head``. The head is read before any log, so the logs include at least the effects of these
    events."""

    def __init__(self, history: History) -> None:
        self._history = history
        try:
            self._log = history.log(NAME)
            self.head = self._log.head
        except UnknownLog:
            self.head = 0
        self._read: list[ErasureEvent] = []
        self._read_after = self.head

    def after(self, seq: int) -> list[ErasureEvent]:
        """Return the events after a table's progress, oldest first. Raises EventsMissed."""
        if seq >= self.head:
            return []
        if seq + 1 < self._log.floor:
            gone = self._log.floor - 1
            raise EventsMissed(f"the erasure events up to {gone} are gone, but only those up to {seq} were applied")
        if seq < self._read_after:
            self._read = self._load(seq, self._read_after) + self._read
            self._read_after = seq
        return [event for event in self._read if event.seq > seq]

    def _load(self, after: int, through: int) -> list[ErasureEvent]:
        found: list[ErasureEvent] = []
        for piece in self._history.pieces(self._log, after, through, _PIECE_ROWS):
            for batch in piece.read():
                seqs, data = batch.column("seq").to_pylist(), batch.column("data").to_pylist()
                found += [ErasureEvent(seq, read_erasure(event)) for seq, event in zip(seqs, data, strict=True)]
        return found


# --- matching rows of a table with erasure events, on whole columns -------------------------------------------------

#: What happened to a record: it was deleted, hidden, restored, or amended.
DELETED, HIDDEN, RESTORED, AMENDED = 1, 2, 3, 4
NO_LIMIT = (1 << 63) - 1
_KINDS = {"delete": DELETED, "hide": HIDDEN, "restore": RESTORED, "amend": AMENDED}


class ErasureRule(msgspec.Struct, array_like=True):
    """Matches records from ``first`` up to ``limit`` that fulfil all given conditions. Each of the ``keys`` has its own
    limit; ``seqs`` ascend."""

    kind: int
    limit: int = NO_LIMIT
    first: int = 0
    seqs: list[int] | None = None
    keys: dict[str, int] | None = None
    prefix: str | None = None

    def take(self, other: ErasureRule) -> bool:
        """Merge another rule into this one, if one rule can express both. Return whether it could. Clients that delete
        one by one cause many events."""
        if (self.kind, self.first, self.prefix) != (other.kind, other.first, other.prefix):
            return False
        if self.seqs is None and other.seqs is None:
            if self.keys is None and other.keys is None:
                self.limit = max(self.limit, other.limit)
                return True
            if self.keys is not None and other.keys is not None:
                for key, limit in other.keys.items():
                    self.keys[key] = max(limit, self.keys.get(key, 0))
                return True
        elif self.seqs is not None and other.seqs is not None and self.keys is None and other.keys is None:
            self.seqs += other.seqs
            return True
        return False

    def mask(self, seqs: Any, keys: Any) -> Any:
        """Return which records match. ``seqs`` is a numpy array, ``keys`` an Arrow array."""
        found = (seqs <= self.limit) & (seqs >= self.first)
        if self.seqs is not None:
            found &= np.isin(seqs, np.array(self.seqs, np.int64))
        if self.prefix is not None:
            found &= pc.starts_with(keys, self.prefix).fill_null(False).to_numpy(zero_copy_only=False)
        if self.keys is not None:
            encoded = keys.dictionary_encode()
            limits = [self.keys.get(key, -1) for key in encoded.dictionary.to_pylist()]
            codes = encoded.indices.fill_null(len(limits)).to_numpy(zero_copy_only=False)
            found &= seqs <= np.array([*limits, -1], np.int64)[codes]
        return found

    def may_mean(self, first: int, last: int) -> bool:
        """Return whether the rule can match a record with a seq from ``first`` to ``last``."""
        if self.limit < first or self.first > last:
            return False
        if self.seqs is None:
            return True
        at = bisect_left(self.seqs, first)
        return at < len(self.seqs) and self.seqs[at] <= last

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the range of seqs that the rule can match."""
        if self.seqs is not None:
            return (self.seqs[0], self.seqs[-1]) if self.seqs else (1, 0)
        return max(self.first, 1), max(self.keys.values()) if self.keys else self.limit


class ErasureRules(msgspec.Struct, frozen=True, array_like=True):
    """Rules by epoch, oldest first. ``standing``: the visible seqs of logs with restored records."""

    of: dict[int, list[ErasureRule]]
    standing: dict[int, list[tuple[int, int]]] = {}

    def kinds(self, epochs: Any, seqs: Any, keys: Any) -> Any:
        """Return what happened to each record; 0 for nothing."""
        found = np.zeros(len(seqs), np.int8)
        for epoch in np.intersect1d(epochs, np.array(list(self.of), np.int64)):
            rows = np.flatnonzero(epochs == epoch)
            start, end = int(rows[0]), int(rows[-1]) + 1
            of_log = epochs[start:end] == epoch
            for rule in self.of[int(epoch)]:
                meant = rule.mask(seqs[start:end], keys.slice(start, end - start)) & of_log
                found[start:end][meant & (found[start:end] != DELETED)] = rule.kind
        return found

    def erased(self, epochs: Any, seqs: Any, keys: Any) -> Any:
        """Return which records must be removed or replaced. A restored record that the log has lost to retention since
        stays: the lake has the only copy. A restored record that the log still has is replaced by the log's copy."""
        kinds = self.kinds(epochs, seqs, keys)
        return (kinds == DELETED) | (kinds == HIDDEN) | self._renewed(kinds, epochs, seqs)

    def renewed(self, epochs: Any, seqs: Any, keys: Any) -> Any:
        """Return which records to read again from the log."""
        return self._renewed(self.kinds(epochs, seqs, keys), epochs, seqs)

    def _renewed(self, kinds: Any, epochs: Any, seqs: Any) -> Any:
        renewed = kinds == AMENDED
        if (kinds == RESTORED).any():
            for epoch, ranges in self.standing.items():
                rows = np.flatnonzero((epochs == epoch) & (kinds == RESTORED))
                renewed[rows[inside(seqs[rows], ranges)]] = True
        return renewed

    def may_mean(self, epochs: tuple[int, int], seqs: tuple[int, int]) -> bool:
        """Return whether a file with these bounds can contain a matching record."""
        return any(
            epochs[0] <= epoch <= epochs[1] and any(rule.may_mean(*seqs) for rule in rules)
            for epoch, rules in self.of.items()
        )

    def between(self, first: int, last: int) -> ErasureRules:
        """Return the rules of epochs from ``first`` to ``last``."""
        return ErasureRules(
            {epoch: rules for epoch, rules in self.of.items() if first <= epoch <= last},
            {epoch: ranges for epoch, ranges in self.standing.items() if first <= epoch <= last},
        )


def rules_of(erasures: Iterable[Erasure], known: Container[int]) -> dict[int, list[ErasureRule]]:
    """Return the rules by epoch, for the known epochs."""
    found: dict[int, list[ErasureRule]] = {}
    for erasure in erasures:
        if erasure.epoch in known:
            rules = found.setdefault(erasure.epoch, [])
            rule = _rule(erasure)
            if not (rules and rules[-1].take(rule)):
                rules.append(rule)
    for rules in found.values():
        for rule in rules:
            if rule.seqs is not None:
                rule.seqs.sort()
    return found


def _rule(erasure: Erasure) -> ErasureRule:
    if erasure.kind == "drop":
        return ErasureRule(DELETED)
    limit = erasure.bound if erasure.before is None else min(erasure.bound, erasure.before - 1)
    rule = ErasureRule(_KINDS[erasure.kind], limit, prefix=erasure.prefix)
    if erasure.seqs is not None:
        rule.seqs = [seq for seq in erasure.seqs if seq <= limit]
        rule.limit = NO_LIMIT
    if erasure.key is not None:
        rule.keys = {erasure.key: limit}
        rule.limit = NO_LIMIT
    return rule


# --- tasks that apply erasures: rewrite files of ``records``, and read renewed records from the log -----------------

#: If more keys of a log are affected than this, all keys of the log are computed again.
MANY_KEYS = 100_000
_NARROW = ["epoch", "seq", "key"]


class Concerned(msgspec.Struct, array_like=True):
    """The affected keys by epoch; None: all keys of that log."""

    keys: dict[int, list[str] | None] = {}

    def add(self, epochs: Any, keys: Any) -> None:
        for epoch in np.unique(epochs).tolist():
            if epoch in self.keys and self.keys[epoch] is None:
                continue
            names = pa.array(keys).filter(pa.array(epochs == epoch)).unique().drop_null().to_pylist()
            self._add(epoch, names)

    def join(self, other: Concerned) -> None:
        for epoch, names in other.keys.items():
            self._add(epoch, names)

    def _add(self, epoch: int, names: list[str] | None) -> None:
        known = self.keys.get(epoch, [])
        if known is None or names is None:
            self.keys[epoch] = None
            return
        joined = list({*known, *names})
        self.keys[epoch] = None if len(joined) > MANY_KEYS else joined


class EraseItem(msgspec.Struct, frozen=True, array_like=True):
    """A file of a table whose rows are records. ``columns``: the serialized schema of a typed table."""

    lake: Lake
    path: str
    rules: ErasureRules
    table: str = "records"
    columns: bytes = b""


class RenewItem(msgspec.Struct, frozen=True, array_like=True):
    """Pieces of one log, from which the restored and amended records are read."""

    lake: Lake
    pieces: list[AnyPiece]
    rules: ErasureRules
    versions: list[tuple[int, int]]


class EraseDone(msgspec.Struct, frozen=True, array_like=True):
    """The result: ``erased`` rows are not in the new ``files``. If no row was erased, there are no new files and the
    old one stays."""

    path: str
    files: list[DataFile]
    erased: int
    concerned: Concerned
    table: str = "records"


class RenewDone(msgspec.Struct, frozen=True, array_like=True):
    files: list[DataFile]
    concerned: Concerned
    failure: ReadFailure | None = None


def erase(item: EraseItem) -> EraseDone:
    concerned = Concerned({})
    erased = 0
    with open_file(item.lake, f"{item.table}/{item.path}") as source:
        file = pq.ParquetFile(source)
        table = pa.ipc.read_schema(pa.BufferReader(item.columns)) if item.columns else layout.RECORDS
        # A file from before a table got a column does not have it. Types can be others after another engine's OPTIMIZE.
        known = set(file.schema_arrow.names)
        schema = pa.schema([field for field in table if field.name in known])
        masks = []
        for group in range(file.num_row_groups):
            gone, epochs, keys = _gone(file, group, item.rules)
            masks.append(gone)
            if gone.any():
                erased += int(gone.sum())
                concerned.add(epochs[gone], keys.filter(pa.array(gone)))
        if not erased:
            return EraseDone(item.path, [], 0, concerned, item.table)
        with RowsWriter(LakeTable(item.lake, item.table, schema)) as writer:
            for group, gone in enumerate(masks):
                if not gone.all():
                    rows = file.read_row_group(group, columns=schema.names, use_threads=False)
                    writer.write(rows.filter(pa.array(~gone)).cast(schema))
            return EraseDone(item.path, writer.close(), erased, concerned, item.table)


def _gone(file: Any, group: int, rules: ErasureRules) -> tuple[Any, Any, Any]:
    rows = file.read_row_group(group, columns=_NARROW, use_threads=False)
    epochs, keys = rows.column("epoch").to_numpy(), rows.column("key").combine_chunks()
    return rules.erased(epochs, rows.column("seq").to_numpy(), keys), epochs, keys


def renew(item: RenewItem) -> RenewDone:
    concerned = Concerned({})
    failures: dict[int, ReadFailure] = {}
    with RowsWriter(layout.records(item.lake)) as writer:
        for piece in item.pieces:
            for batch in readable(piece, failures):
                epochs, seqs = batch.column("epoch").to_numpy(), batch.column("seq").to_numpy()
                wanted = item.rules.renewed(epochs, seqs, batch.column("key"))
                if wanted.any():
                    rows = batch.filter(pa.array(wanted))
                    concerned.add(epochs[wanted], rows.column("key"))
                    writer.write(lake_rows(rows, item.versions))
        return RenewDone(writer.close(), concerned, next(iter(failures.values()), None))

"""A step: all changes of one write and its hooks, planned first and then journaled in one transaction.

Plans are made while the lock of the tables is held, so seqs are known before anything is written. The engine applies
changes of existing rows before it appends. A change of a row that the same step appends is applied to the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from strandline.engine import Amend, Append, Batch, Commit, Config, Delete, Engine, Hide, Log, Restore
from strandline.engine.errors import RecordTooLarge
from strandline.engine.ownership import TABLE
from strandline.tables.declaration import TableDeclaration
from strandline.tables.errors import MisusedHook, TableError
from strandline.tables.hook_runner import HookCall, HookRunner
from strandline.tables.names import RowId, changes_log, feed_log, rows_log
from strandline.tables.notes import notes_of
from strandline.tables.pending import Coming, Effects, Known, PendingEffect
from strandline.tables.rows import (
    EDITS,
    Change,
    FeedEntry,
    Row,
    data_of,
    edits_of,
    encode_change,
    encoded,
    feed_batch,
    feed_prefix,
    meta_of,
    removals_of,
    row_of,
)
from strandline.tables.versions import SchemaVersions

#: Returns the number of affected rows, given the results of the engine.
Outcome = Callable[[list[Any]], int]

#: Rows per read when all rows of a parent are visited.
PAGE_ROWS = 1024


class TableStep:
    """One step, from its first plan to its commit. ``now`` is the time of all its changes."""

    def __init__(
        self, engine: Engine, versions: Mapping[str, SchemaVersions], coming: Coming, runner: HookRunner
    ) -> None:
        self.engine = engine
        self._versions = versions
        self._runner = runner
        #: The hooks to call when the step is durable.
        self.calls: list[HookCall] = []
        self.now = engine.now()
        self._coming = coming
        self._effects = Effects()
        self._alterations: list[Amend | Delete | Hide | Restore] = []
        #: Planned appends by log: rows by seq, and changes.
        self._rows: dict[str, tuple[TableDeclaration, dict[int, Row]]] = {}
        self._told: dict[str, tuple[TableDeclaration, list[Change]]] = {}
        self._fed: dict[str, tuple[TableDeclaration, list[FeedEntry]]] = {}
        #: A hook has seen the times of planned rows, so they must be kept.
        self.shown = False
        #: The logs that this step created.
        self.made: list[str] = []

    # --- current rows --------------------------------------------------------------------------------------

    def known(self, table: TableDeclaration, id: RowId) -> Known | None:
        """The row after all pending and planned changes."""
        name = rows_log(table.name, id.parent)
        effects = [*self._coming.effects.on(name, id.seq), *self._effects.on(name, id.seq)]
        is_new = bool(effects) and effects[0].kind == "add"
        known = None if is_new else published(self._opened(table, name), id)
        for effect in effects:
            known = effect.on(known)
        return known

    def visible(self, table: TableDeclaration, id: RowId) -> Row | None:
        known = self.known(table, id)
        return None if known is None or known.hidden else known.row

    def keyed(self, table: TableDeclaration, parent: str, key: str) -> int | None:
        """The seq of the row with this idempotency key. Hidden rows count."""
        name = rows_log(table.name, parent)
        for effects in (self._effects, self._coming.effects):
            found = effects.key(name, key)
            if found is not None:
                return found if self.known(table, RowId(parent, found)) is not None else None
        log = self.log(name)
        seq = None if log is None else log.find_key(key)
        if seq is None:
            return None
        effect = chain(self._coming.effects.on(name, seq), self._effects.on(name, seq))
        return None if any(each.kind == "remove" for each in effect) else seq

    def rows(self, table: TableDeclaration, parent: str) -> Iterator[Row]:
        """The visible rows of a parent in order. Each row is looked up when it is yielded."""
        if self._coming.last is not None:
            # Visiting all rows takes longer than a flush, so wait for the pending changes first.
            self._coming.last.wait()
            self._coming.forget_done()
        log = self.log(rows_log(table.name, parent))
        after, caught_up = 0, log is None
        while log is not None and not caught_up:
            page = log.read(after, PAGE_ROWS)
            for seq in page.seqs:
                row = self.visible(table, RowId(parent, seq))
                if row is not None:
                    yield row
            after, caught_up = page.next_after, page.caught_up

    def log(self, name: str) -> Log | None:
        return find_log(self.engine, name)

    def _opened(self, table: TableDeclaration, name: str) -> Log | None:
        """The log of rows, which reads old rows in the current version of the schema."""
        return self._versions[table.name].open(self.log(name))

    # --- plans ---------------------------------------------------------------------------------------------

    def check_storable(self, payload: Mapping[str, Any], index: int = 0) -> None:
        """Raises TableError or RecordTooLarge if the payload, the one at ``index`` of a bulk, could not be stored. Used
        before and after hooks change payloads, to report the one who made the mistake."""
        size, limit = len(encoded(payload)), self.engine.options.max_record_bytes
        if size > limit:
            raise RecordTooLarge(index, size, limit)

    def add(
        self, table: TableDeclaration, parent: str, payload: dict[str, Any], user: str | None, key: str | None
    ) -> Row:
        name = rows_log(table.name, parent)
        log = self.log(name)
        _, planned = self._rows.setdefault(name, (table, {}))
        seq = len(planned) + (1 if log is None else log.next_seq)
        # Times never go backwards in a log.
        at = self.now if log is None else max(self.now, log.last_ts)
        row = Row(
            id=f"{parent}:{seq}",
            parent=parent,
            seq=seq,
            payload=payload,
            user=user,
            created_at=at,
            updated_at=at,
            idempotency_key=key,
        )
        planned[seq] = row
        self._feed(table, parent, "append", row)
        self._effects.add(name, PendingEffect("add", (seq,), row=row))
        return row

    def amend(self, table: TableDeclaration, prev: Row, patch: dict[str, Any], user: str | None) -> Row:
        name = rows_log(table.name, prev.parent)
        payload = {**prev.payload, **patch}
        if self._is_planned(name, prev.seq):
            row = self._rows[name][1][prev.seq] = replace(prev, payload=payload)
        else:
            # Every edit gets a new time, so that a stale ``expected_updated_at`` is detected.
            row = replace(prev, payload=payload, updated_at=max(self.now, prev.updated_at + 1))
            data = data_of(row, self._versions[table.name].noted)
            self._alterations.append(Amend(self._there(name), prev.seq, data))
            self._tell(table, prev.parent, "update", user, prev, previous=prev.payload)
            self._feed(table, prev.parent, "update", prev)
        self._effects.add(name, PendingEffect("amend", (prev.seq,), row=row))
        return row

    def remove(self, table: TableDeclaration, row: Row, soft: bool, user: str | None) -> None:
        name = rows_log(table.name, row.parent)
        if self._is_planned(name, row.seq):
            raise MisusedHook("a hook cannot remove the row that the same write appends: raise an exception instead")
        log = self._there(name)
        self._alterations.append((Hide if soft else Delete)(log, seqs=[row.seq]))
        if not soft or row.is_edited:
            self._take_changes(table, row.parent, row.seq, Hide if soft else Delete)
        self._tell(table, row.parent, "rm", user, row, soft)
        self._feed(table, row.parent, "rm", row, soft)
        self._effects.add(name, PendingEffect("hide" if soft else "remove", (row.seq,), user=user))

    def restore(self, table: TableDeclaration, row: Row, user: str | None) -> None:
        name = rows_log(table.name, row.parent)
        self._alterations.append(Restore(self._there(name), seqs=[row.seq]))
        if row.is_edited:
            self._take_changes(table, row.parent, row.seq, Restore)
        self._tell(table, row.parent, "restore", user, row)
        self._feed(table, row.parent, "restore", row)
        self._effects.add(name, PendingEffect("restore", (row.seq,)))

    def sweep(self, table: TableDeclaration, parent: str, soft: bool, user: str | None) -> Outcome:
        """Remove all rows of a parent. After a hard removal, no row can be restored."""
        name = rows_log(table.name, parent)
        log = self._to_sweep(name)
        if log is None:
            return _none
        self._alterations.append((Hide if soft else Delete)(log, before=log.next_seq))
        outcome = self._outcome()
        self._take_changes(table, parent, None, Hide if soft else Delete)
        self._tell(table, parent, "purge", user, None, soft, before=log.next_seq)
        self._feed(table, parent, "purge", None, soft)
        self._effects.add(name, PendingEffect("hide" if soft else "remove", before=log.next_seq, user=user))
        return outcome

    def expect_swept(self, table: TableDeclaration, row: Row, soft: bool, user: str | None) -> None:
        """Record that a later sweep in this step removes the row."""
        effect = PendingEffect("hide" if soft else "remove", (row.seq,), user=user)
        self._effects.add(rows_log(table.name, row.parent), effect)

    def restore_all(self, table: TableDeclaration, parent: str, user: str | None) -> Outcome:
        name = rows_log(table.name, parent)
        log = self._to_sweep(name)
        if log is None:
            return _none
        self._alterations.append(Restore(log, before=log.next_seq))
        outcome = self._outcome()
        self._take_changes(table, parent, None, Restore)
        self._tell(table, parent, "restoreAll", user, None)
        self._feed(table, parent, "restoreAll", None)
        self._effects.add(name, PendingEffect("restore", before=log.next_seq))
        return outcome

    def _is_planned(self, name: str, seq: int) -> bool:
        return name in self._rows and seq in self._rows[name][1]

    def _there(self, name: str) -> Log:
        log = self.log(name)
        assert log is not None, "the log of an existing row exists"
        return log

    def _to_sweep(self, name: str) -> Log | None:
        if self._rows.get(name, (None, {}))[1]:
            raise MisusedHook("a hook cannot remove or restore all rows of a parent that the same write appends to")
        log = self.log(name)
        return log if log is not None and log.next_seq > 1 else None

    def _outcome(self) -> Outcome:
        place = len(self._alterations) - 1
        return lambda results: int(results[place].count)

    def _tell(
        self,
        table: TableDeclaration,
        parent: str,
        op: Any,
        user: str | None,
        row: Row | None,
        soft: bool = False,
        **more: Any,
    ) -> None:
        _, told = self._told.setdefault(changes_log(table.name, parent), (table, []))
        if row is not None:
            more["author"] = row.user
        seq = None if row is None else row.seq
        told.append(Change(op=op, seq=seq, at=self.now, user=user, soft=soft, **more))

    def _feed(self, table: TableDeclaration, parent: str, op: Any, row: Row | None, soft: bool = False) -> None:
        """Add what happens to the feed of the table. A hard removal takes the earlier entries about its rows."""
        if not table.feed:
            return
        name = feed_log(table.name)
        _, fed = self._fed.setdefault(name, (table, []))
        entry = FeedEntry(op=op, parent=parent, soft=soft)
        if row is not None:
            entry = replace(entry, seq=row.seq, author=row.user)
        if op == "rm" and not soft:
            self._alterations.append(Delete(self._there(name), key=entry.key))
        elif op == "purge" and not soft:
            self._alterations.append(Delete(self._there(name), prefix=feed_prefix(parent)))
        fed.append(entry)

    def _take_changes(
        self, table: TableDeclaration, parent: str, seq: int | None, take: type[Delete] | type[Hide] | type[Restore]
    ) -> None:
        """Do with the changes of a row, or of all rows if ``seq`` is None, what happens to the rows: changes have the
        earlier payloads of rows, which must not be readable after a removal."""
        name = changes_log(table.name, parent)
        if name in self._told and take is not Restore:
            told = self._told[name][1]
            told[:] = [change for change in told if seq is not None and change.seq != seq]
        log = self.log(name)
        if log is None:
            return
        if seq is not None:
            self._alterations.append(take(log, key=edits_of(seq)))
            if take is Delete:
                self._alterations.append(Delete(log, key=removals_of(seq)))
        elif take is Delete:
            self._alterations.append(Delete(log, before=log.next_seq))
        else:
            self._alterations.append(take(log, before=log.next_seq, prefix=EDITS))

    # --- writing -------------------------------------------------------------------------------------------

    def commit(self) -> Commit[Any]:
        """Journal the plan in one transaction. The commit's value is the list of the results of the alterations, in
        order."""
        if not self.calls:
            return self._journal()
        self._runner.reserve(len(self.calls))
        try:
            commit = self._journal()
        except BaseException:
            self._runner.release(len(self.calls))
            raise
        self._runner.follow(commit, self.calls)
        return commit

    def _journal(self) -> Commit[Any]:
        batches = {
            name: (table, _rows_batch(rows.values(), self._versions[table.name].current))
            for name, (table, rows) in self._rows.items()
            if rows
        }
        batches |= {name: (table, _changes_batch(told)) for name, (table, told) in self._told.items() if told}
        batches |= {name: (table, feed_batch(fed)) for name, (table, fed) in self._fed.items()}
        if not batches and not self._alterations:
            return Commit.of([])
        new = [name for name in batches if self.log(name) is None]
        if len(new) == len(batches) == 1 and not self._alterations and not self.shown:
            return self._create(new[0], *batches[new[0]])
        # A power cut can lose an unflushed write and keep a later one. So the logs that a step needs are made durable
        # before the step is written.
        for name in new:
            batches[name][1].check(self.engine.options.max_record_bytes)
        for created in [
            self.engine.create(name, _config(batches[name][0]), notes=notes_of(batches[name][0], name)) for name in new
        ]:
            created.wait()
        self.made += new
        appends = [
            Append(self._configured(name, table), batch, ts=self.now) for name, (table, batch) in batches.items()
        ]
        commit: Commit[Any]
        if len(appends) == 1 and not self._alterations:
            # The common case: one append, without a transaction.
            commit = appends[0].log.append(appends[0].batch, ts=self.now)
        else:
            commit = self.engine.change_all([*self._alterations, *appends])
        self._coming.add(commit, self._effects.all)
        return commit

    def _create(self, name: str, table: TableDeclaration, batch: Batch) -> Commit[Any]:
        """Create the log with its first rows in one write, which avoids waiting for the log's creation."""
        commit = self.engine.create(name, _config(table), notes=notes_of(table, name), batch=batch)
        self.made.append(name)
        at = self._there(name).last_ts
        rows = (replace(row, created_at=at, updated_at=at) for row in self._rows[name][1].values())
        self._coming.add(commit, [(name, PendingEffect("add", (row.seq,), row=row)) for row in rows])
        return commit

    def _configured(self, name: str, table: TableDeclaration) -> Log:
        """The log, with the durability that the table is declared with."""
        log = self._there(name)
        if log.config.durability != table.durability:
            log.configure(replace(log.config, durability=table.durability))
        return log


def _config(table: TableDeclaration) -> Config:
    return Config(durability=table.durability)


def _none(results: list[Any]) -> int:
    return 0


def _rows_batch(rows: Iterable[Row], version: int) -> Batch:
    rows = list(rows)
    return Batch(
        [data_of(row) for row in rows],
        [row.idempotency_key for row in rows],
        None,
        [meta_of(row.user, version) for row in rows],
    )


def _changes_batch(told: Sequence[Change]) -> Batch:
    return Batch([encode_change(change) for change in told], [change.key for change in told])


def find_log(engine: Engine, name: str) -> Log | None:
    """Find a table's log. Raises TableError (CONFLICT) if a log of this name does not belong to a table."""
    log = engine.find(name)
    if log is not None and TABLE not in log.notes:
        raise TableError("CONFLICT", f"log {name!r} exists and does not belong to a table")
    return log


def published(log: Log | None, id: RowId) -> Known | None:
    """The row as readers see it, or the hidden row."""
    while log is not None:
        revision = log.revision
        row = read_row(log, id)
        if row is not None:
            return Known(row)
        record = log.read_hidden(id.seq)
        if record is not None:
            return Known(row_of(id.parent, record), hidden=True)
        if log.revision == revision:
            break
    return None


def read_row(log: Log, id: RowId) -> Row | None:
    """The row as readers see it."""
    page = log.read(id.seq - 1, 1)
    return row_of(id.parent, next(iter(page))) if page.seqs and page.seqs[0] == id.seq else None

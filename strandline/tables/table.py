"""A table: all operations on its rows; and :class:`Tables`, the declared tables bound to an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from strandline.engine import Commit, Engine, Log
from strandline.query.searcher import Searcher
from strandline.tables.access import no_row
from strandline.tables.columns import RowColumns, count_rows, group_rows
from strandline.tables.declaration import SlidingWindow, TableDeclaration
from strandline.tables.errors import BadDeclaration, MisusedHook, TableError, invalid
from strandline.tables.feed import COMPLETE, FeedSight, open_feed
from strandline.tables.hook_runner import HookRunner
from strandline.tables.hooks import NO_HOOKS, HookChain, Hooks
from strandline.tables.names import (
    RowId,
    changes_log,
    check_key,
    check_parent,
    feed_log,
    parse_id,
    rows_log,
)
from strandline.tables.notes import update_notes
from strandline.tables.operations import Item, TableOperation
from strandline.tables.pending import Coming
from strandline.tables.rows import (
    AppendBulkResult,
    AppendResult,
    Counts,
    Edit,
    FoundRows,
    PurgeResult,
    RestoreResult,
    RmBulkResult,
    RmResult,
    Row,
    RowPage,
    RowsAfter,
    TableFeedPage,
    Write,
    change_of,
    edits_of,
)
from strandline.tables.search import search_rows
from strandline.tables.step import TableStep, find_log, read_row
from strandline.tables.trash import list_trash
from strandline.tables.users import User, check_user, id_of
from strandline.tables.versions import SchemaVersions, open_versions
from strandline.tables.view import (
    LIST_AFTER_ROWS,
    LIST_ROWS,
    View,
    check_cursor,
    check_limit,
    check_seq,
    compile_where,
    view_of,
)

#: The maximum number of rows that one call can append or remove.
MAX_BULK = 100
#: The maximum number of edits that ``history`` returns: the latest ones.
MAX_EDITS = 1_000

# Inside the class, ``list`` is a method.
Appends = list[AppendResult]
Removals = list[RmResult]
Groups = dict[str, list[Row]]
Edits = list[Edit]


class Table:
    """The rows of one declaration. Safe to use from any thread.

    ``user`` is the acting user, as an id or as a :class:`~strandline.tables.users.User` with roles; None is the program
    itself, which has full access. Writes return a :class:`Write`,
    which is journaled; its ``wait`` returns the result once it is durable. All operations raise :class:`TableError`.
    """

    def __init__(self, tables: Tables, declaration: TableDeclaration) -> None:
        self.tables = tables
        self.declaration = declaration
        self.name = declaration.name
        self.hooks = HookChain(declaration.name, tables.hooks, declaration.hooks)
        limit = declaration.rate_limit
        self.window = None if limit is None else SlidingWindow(limit, declaration.name)

    def __repr__(self) -> str:
        return f"<Table {self.name!r}>"

    @property
    def versions(self) -> SchemaVersions:
        """The versions of the schema of its rows."""
        return self.tables.versions[self.name]

    # --- writing -------------------------------------------------------------------------------------------

    def append(
        self, parent: str, payload: object, *, user: str | User | None = None, idempotency_key: str | None = None
    ) -> Write[AppendResult]:
        """Append a row. If a row with this idempotency key exists, even a removed one, nothing is written and the
        result names that row."""
        commit, results = self._append(parent, [Item(payload, idempotency_key)], user)
        return Write(commit, lambda _: results[0])

    def append_bulk(
        self, parent: str, items: Sequence[object], *, user: str | User | None = None
    ) -> Write[AppendBulkResult]:
        """Append up to 100 rows with consecutive seqs, all or none. ``items`` are payloads, or :class:`Item` with a
        key."""
        _check_bulk(items, "items")
        rows = [item if isinstance(item, Item) else Item(item) for item in items]
        commit, results = self._append(parent, rows, user)
        bulk = AppendBulkResult(sum(result.created for result in results), results)
        return Write(commit, lambda _: bulk)

    def append_each(
        self, parent: str, appends: Sequence[tuple[Item, str | User | None]]
    ) -> Write[list[AppendResult | TableError]]:
        """Append rows of several users to a parent in one step. If a row cannot be appended, its result is the error,
        and the other rows are appended all the same."""
        check_parent(parent)
        results: list[AppendResult | TableError] = []
        with self.tables.step() as (step, coming):
            created = 0
            for item, user in appends:
                try:
                    caller = check_user(user)
                    operation = TableOperation(self, step, caller)
                    results += operation.append(parent, [Item(item.payload, check_key(item.idempotency_key))])
                except TableError as error:
                    results.append(error)
                    continue
                created += operation.created
                if operation.created and caller is not None and self.window is not None:
                    # Now, so that it counts for the next row of the user.
                    self.window.add(caller.id, operation.created, step.now)
            commit = self._commit(step, coming, created)
        return Write(commit, lambda _: results)

    def _append(self, parent: str, items: Sequence[Item], user: str | User | None) -> tuple[Commit[Any], Appends]:
        check_parent(parent)
        items = [Item(item.payload, check_key(item.idempotency_key)) for item in items]
        caller = check_user(user)
        with self.tables.step() as (step, coming):
            operation = TableOperation(self, step, caller)
            results = operation.append(parent, items)
            commit = self._commit(step, coming, operation.created)
            if operation.created and caller is not None and self.window is not None:
                self.window.add(caller.id, operation.created, step.now)
        return commit, results

    @staticmethod
    def _commit(step: TableStep, coming: Coming, created: int) -> Commit[Any]:
        """Commit a step that has appended ``created`` rows."""
        # A repeated append must be as durable as the first one, so it waits for all pending changes.
        return step.commit() if created else coming.last or Commit.of(None)

    def update(
        self,
        id: str,
        patch: Mapping[str, Any],
        *,
        user: str | User | None = None,
        expected_updated_at: int | None = None,
    ) -> Write[Row]:
        """Change the fields in the patch and return the whole row. Raises NOT_FOUND, FORBIDDEN, or CONFLICT if the
        row's ``updated_at`` is not the expected one."""
        row_id, caller = parse_id(id), check_user(user)
        if expected_updated_at is not None:
            check_seq(expected_updated_at, "expectedUpdatedAt")
        with self.tables.step() as (step, _):
            row = TableOperation(self, step, caller).update(row_id, patch, expected_updated_at)
            commit = step.commit()
        view = View(self, row_id.parent, None, id_of(caller), True)
        return Write(commit, lambda _: view.dress([row])[0])

    def rm(self, id: str, *, user: str | User | None = None, hard: bool = False) -> Write[RmResult]:
        """Remove a row. The removal is permanent if ``hard`` is set or the table has no soft delete."""
        commit, results = self._rm([id], user, hard)
        return Write(commit, lambda _: results[0])

    def rm_bulk(self, ids: Sequence[str], *, user: str | User | None = None, hard: bool = False) -> Write[RmBulkResult]:
        """Remove up to 100 rows. If one of them may not be removed, none is."""
        _check_bulk(ids, "ids")
        if not ids:
            raise invalid("ids must name at least one row", "ids")
        commit, results = self._rm(ids, user, hard)
        bulk = RmBulkResult(sum(result.deleted for result in results), results)
        return Write(commit, lambda _: bulk)

    def _rm(self, ids: Sequence[str], user: str | User | None, hard: bool) -> tuple[Commit[Any], Removals]:
        row_ids, caller = [parse_id(id) for id in ids], check_user(user)
        with self.tables.step() as (step, _):
            operation = TableOperation(self, step, caller)
            results = [operation.rm(row_id, hard) for row_id in row_ids]
            return step.commit(), results

    def purge_by_parent(self, parent: str, *, user: str | User | None = None, hard: bool = False) -> Write[PurgeResult]:
        """Remove all rows of a parent at once. A hard purge includes rows that were removed before, so that no row can
        be restored. If there are hooks on removals, they run for each row in order."""
        check_parent(parent)
        with self.tables.step() as (step, _):
            outcome, soft = TableOperation(self, step, check_user(user)).purge(parent, hard)
            commit = step.commit()
        return Write(commit, lambda results: PurgeResult(outcome(results), soft))

    def restore_by_parent(self, parent: str, *, user: str | User | None = None) -> Write[RestoreResult]:
        """Restore all hidden rows of a parent, including those that were removed one by one."""
        check_parent(parent)
        with self.tables.step() as (step, _):
            outcome = TableOperation(self, step, check_user(user)).restore_all(parent)
            commit = step.commit()
        return Write(commit, lambda results: RestoreResult(outcome(results)))

    def restore(self, id: str, *, user: str | User | None = None) -> Write[Row]:
        """Restore one row. Raises NOT_FOUND if no removed row has this id."""
        row_id, caller = parse_id(id), check_user(user)
        with self.tables.step() as (step, _):
            row = TableOperation(self, step, caller).restore(row_id)
            commit = step.commit()
        view = View(self, row_id.parent, None, id_of(caller), True)
        return Write(commit, lambda _: view.dress([row])[0])

    # --- reading -------------------------------------------------------------------------------------------

    def view(self, parent: str, *, user: str | User | None = None, public: bool = False) -> View:
        """The rows of a parent that a reader can see: all rows for the owner, the program and public reads, otherwise
        the reader's own rows. Raises NOT_FOUND if the parent does not exist, or is not public."""
        return view_of(self, check_parent(parent), check_user(user), public)

    def list(
        self,
        parent: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        where: Mapping[str, Any] | None = None,
        user: str | User | None = None,
        public: bool = False,
    ) -> RowPage:
        """The newest rows that match ``where``: 50 by default, at most 1,000."""
        before, limit = check_cursor(cursor), check_limit(limit, LIST_ROWS)
        condition = (
            None if where is None else compile_where(where, id_of(check_user(user)), self.declaration.schema.fields)
        )
        return self.view(parent, user=user, public=public).list(limit, before, condition)

    def list_after(
        self, parent: str, seq: int, *, limit: int | None = None, user: str | User | None = None, public: bool = False
    ) -> RowsAfter:
        """The rows after a sequence number in order: 500 by default, at most 1,000."""
        check_seq(seq, "seq")
        limit = check_limit(limit, LIST_AFTER_ROWS)
        return self.view(parent, user=user, public=public).list_after(seq, limit)

    def read(self, id: str, *, user: str | User | None = None, public: bool = False) -> Row | None:
        """Return a row, or None if it does not exist or the reader may not see it."""
        row_id = parse_id(id)
        return self.view(row_id.parent, user=user, public=public).row(row_id.seq)

    def trash(
        self, parent: str, *, limit: int | None = None, cursor: str | None = None, user: str | User | None = None
    ) -> RowPage:
        """The removed rows that can be restored, those with the highest seq first, with the time and the user of their
        removal: all for the owner of the parent and the program, otherwise the reader's own rows."""
        before, limit = check_cursor(cursor), check_limit(limit, LIST_ROWS)
        if not self.declaration.soft_delete:
            raise invalid(f"{self.name} has no trash: it is declared without soft_delete")
        return list_trash(self.view(parent, user=user), self.changes_log(parent), limit, before)

    def feed(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        user: str | User | None = None,
        public: bool = False,
        may_read: Callable[[str], bool] | None = None,
    ) -> TableFeedPage:
        """The newest rows of all parents that the reader can see, as in reads by parent: 50 by default, at most 1,000.
        With ``may_read``, only those of the parents for which it returns True."""
        before, limit = check_cursor(cursor), check_limit(limit, LIST_ROWS)
        return FeedSight(self, check_user(user), public, may_read).page(self.feed_log(), limit, before)

    def search(
        self, parent: str, query: str, *, limit: int | None = None, user: str | User | None = None, public: bool = False
    ) -> FoundRows:
        """The newest rows that have all words of the query in one searchable field. Quoted words must be adjacent. A
        star at the end of a word matches any ending."""
        return search_rows(self, self.view(parent, user=user, public=public), query, check_limit(limit, LIST_ROWS))

    def indexed(
        self, parent: str, by: str, *, limit: int | None = None, user: str | User | None = None, public: bool = False
    ) -> Groups:
        """Rows grouped by the value of a field, as text. Each group has its newest rows: 50 by default, at most 1,000.
        Raises VALIDATION_FAILED if the groups together have more than 10,000 rows."""
        return group_rows(self, self.view(parent, user=user, public=public), by, check_limit(limit, LIST_ROWS))

    def counts(self, parent: str, by: str, *, user: str | User | None = None, public: bool = False) -> Counts:
        """The number of rows per value of a field, with values as text."""
        return count_rows(self, self.view(parent, user=user, public=public), by)

    def history(self, id: str, *, user: str | User | None = None, public: bool = False) -> Edits:
        """The edits of a row, oldest first, at most the last 1,000. Raises NOT_FOUND."""
        row_id = parse_id(id)
        if self.view(row_id.parent, user=user, public=public).row(row_id.seq) is None:
            raise no_row(self.declaration, row_id)
        edits: Edits = []
        log, after, caught_up = self.changes_log(row_id.parent), 0, False
        while log is not None and not caught_up:
            page = log.read(after, key=edits_of(row_id.seq))
            changes = [change_of(data) for data in page.data]
            edits += [Edit(one.at, one.user, one.previous or {}) for one in changes if one.op == "update"]
            del edits[:-MAX_EDITS]
            after, caught_up = page.next_after, page.caught_up
        return edits

    def rows_log(self, parent: str) -> Log | None:
        """The log of a parent's rows, or None if nothing was appended yet."""
        return self.versions.open(find_log(self.tables.engine, rows_log(self.name, parent)))

    def feed_log(self) -> Log:
        """The log of the table's feed. Raises VALIDATION_FAILED if the table is declared without, and UNAVAILABLE if
        it could not be filled, because the engine was read-only."""
        if not self.declaration.feed:
            raise invalid(f"{self.name} is declared without feed")
        log = find_log(self.tables.engine, feed_log(self.name))
        if log is None or COMPLETE not in log.notes:
            raise TableError("UNAVAILABLE", f"the feed of {self.name} is incomplete; restart with a writable disk")
        return log

    def changes_log(self, parent: str) -> Log | None:
        """The log of the changes of a parent's rows, or None if no row was changed; see
        :class:`~strandline.tables.rows.Change`."""
        return find_log(self.tables.engine, changes_log(self.name, parent))


def _check_bulk(items: Sequence[object], name: str) -> None:
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        raise invalid(f"{name} must be a list", name)
    if len(items) > MAX_BULK:
        raise invalid(f"{name} has {len(items)} items, the maximum is {MAX_BULK}", name)


#: The memory for the search indexes, and for the columns.
SEARCH_BYTES = 64 << 20
COLUMN_BYTES = 64 << 20


class Tables:
    """All tables of one engine, by name. Safe to use from any thread. A table must belong to only one ``Tables`` object
    at a time, because that object tracks the pending changes.

    ``hooks`` run for every table, before the table's own hooks. ``searcher`` may be shared with other components.
    """

    def __init__(
        self,
        engine: Engine,
        declarations: Sequence[TableDeclaration],
        *,
        hooks: Hooks | None = None,
        searcher: Searcher | None = None,
    ) -> None:
        self.engine = engine
        self.hooks = hooks or NO_HOOKS
        self.searcher = searcher or Searcher(SEARCH_BYTES)
        #: For tables whose searched fields differ between the versions of their schema: index files have the rows as
        #: they are stored.
        self.upgraded_searcher = Searcher(SEARCH_BYTES)
        self.columns = RowColumns(COLUMN_BYTES)
        #: Runs the hooks that are coroutine functions.
        self.runner = HookRunner()
        #: Called with the name of each new log, on the writing thread and while the lock is held, so listeners must be
        #: fast. The records of the log may not be durable yet.
        self.listeners: list[Callable[[str], None]] = []
        #: The versions of the schema of each table.
        self.versions: Mapping[str, SchemaVersions] = {}
        self._coming = Coming()
        self._lock = threading.Lock()
        self._writer: int | None = None
        self._tables: dict[str, Table] = {}
        for declaration in declarations:
            if declaration.name in self._tables:
                raise BadDeclaration(f"table {declaration.name} is declared twice")
            self._tables[declaration.name] = Table(self, declaration)
        for declaration in declarations:
            if isinstance(declaration.parent, TableDeclaration) and declaration.parent not in declarations:
                raise BadDeclaration(
                    f"parent {declaration.parent.name} of {declaration.name} must be one of the tables"
                )
        self.versions = open_versions(engine, declarations)
        if engine.writable:
            update_notes(engine, declarations)
            for table in self:
                open_feed(table)

    def __getitem__(self, name: str) -> Table:
        """Raises TableError (NOT_FOUND)."""
        try:
            return self._tables[name]
        except KeyError:
            raise TableError("NOT_FOUND", f"table {name!r} does not exist") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[Table]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)

    def find_row(self, declaration: TableDeclaration, id: RowId) -> Row | None:
        """A row as readers see it."""
        log = self[declaration.name].rows_log(id.parent)
        return None if log is None else read_row(log, id)

    def close(self) -> None:
        """Wait for the hooks that are coroutine functions, at most 10 seconds. Call it before you close the engine.
        Afterwards, only tables without such hooks can be written to."""
        self.runner.close()

    @contextmanager
    def step(self) -> Iterator[tuple[TableStep, Coming]]:
        """Begin a step. No other thread can write until it ends."""
        if self._writer == threading.get_ident():
            raise MisusedHook("a hook must write through its context, for example ctx.append(table, parent, payload)")
        with self._lock:
            self._writer = threading.get_ident()
            step = TableStep(self.engine, self.versions, self._coming, self.runner)
            try:
                self._coming.forget_done()
                yield step, self._coming
            finally:
                self._writer = None
                for name in step.made:
                    for listener in self.listeners:
                        listener(name)

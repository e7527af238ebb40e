"""A table: every operation on its rows; and :class:`Tables`, the declared tables bound to an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from strandline.engine import Commit, Engine, Log
from strandline.query.searcher import Searcher
from strandline.tables.columns import RowColumns, count_rows, group_rows
from strandline.tables.declaration import SlidingWindow, TableDeclaration
from strandline.tables.errors import BadDeclaration, MisusedHook, TableError, invalid
from strandline.tables.hooks import NO_HOOKS, HookChain, Hooks
from strandline.tables.names import RowId, changes_log, check_key, check_parent, check_user, parse_id, rows_log
from strandline.tables.operations import Item, TableOperation
from strandline.tables.pending import Coming
from strandline.tables.rows import (
    AppendBulkResult,
    AppendResult,
    Counts,
    Edit,
    Found,
    PurgeResult,
    RestoreResult,
    RmBulkResult,
    RmResult,
    Row,
    RowPage,
    RowsAfter,
    Write,
    change_of,
)
from strandline.tables.search import search_config, search_rows
from strandline.tables.step import TableStep, find_log, read_row
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

#: The maximum number of rows that one call can append or delete.
MAX_BULK = 100
#: The maximum number of edits in the history of a row: the last ones.
MAX_EDITS = 1_000

# In the class, ``list`` is a method.
Appends = list[AppendResult]
Removals = list[RmResult]
Groups = dict[str, list[Row]]
Edits = list[Edit]


class Table:
    """The rows of one declaration. Any thread may use it.

    ``user`` is the acting user; None is the program itself, which may do everything. Writes return a :class:`Write`: it
    is journaled, and ``wait`` returns the result once it is durable. All methods raise :class:`TableError`.
    """

    def __init__(self, tables: Tables, declaration: TableDeclaration) -> None:
        self.tables = tables
        self.declaration = declaration
        self.name = declaration.name
        self.hooks = HookChain(tables.hooks, declaration.hooks)
        limit = declaration.rate_limit
        self.window = None if limit is None else SlidingWindow(limit, declaration.name)
        self.search_config = search_config(declaration)

    def __repr__(self) -> str:
        return f"<Table {self.name!r}>"

    # --- writing -------------------------------------------------------------------------------------------

    def append(
        self, parent: str, payload: object, *, user: str | None = None, idempotency_key: str | None = None
    ) -> Write[AppendResult]:
        """Append a row. If a row already has this idempotency key, even a deleted one, nothing is appended and the
        result names that row."""
        commit, results = self._append(parent, [Item(payload, idempotency_key)], user)
        return Write(commit, lambda _: results[0])

    def append_bulk(self, parent: str, items: Sequence[object], *, user: str | None = None) -> Write[AppendBulkResult]:
        """Append up to 100 rows, all or none, under consecutive seqs: payloads, or :class:`Item` with a key."""
        _check_bulk(items, "items")
        rows = [item if isinstance(item, Item) else Item(item) for item in items]
        commit, results = self._append(parent, rows, user)
        bulk = AppendBulkResult(sum(result.created for result in results), results)
        return Write(commit, lambda _: bulk)

    def _append(self, parent: str, items: Sequence[Item], user: str | None) -> tuple[Commit[Any], Appends]:
        check_parent(parent)
        items = [Item(item.payload, check_key(item.idempotency_key)) for item in items]
        user = check_user(user)
        with self.tables.step() as (step, coming):
            operation = TableOperation(self, step, user)
            results = operation.append(parent, items)
            # A repeated append must be as durable as the first one, so wait for all pending changes.
            commit = step.commit() if operation.created else coming.last or Commit.of(None)
            if operation.created and user is not None and self.window is not None:
                self.window.add(user, operation.created, step.now)
        return commit, results

    def update(
        self, id: str, patch: Mapping[str, Any], *, user: str | None = None, expected_updated_at: int | None = None
    ) -> Write[Row]:
        """Change the fields of the patch; returns the whole row. Raises NOT_FOUND, FORBIDDEN, and CONFLICT if the row's
        ``updated_at`` is not the expected one."""
        row_id, user = parse_id(id), check_user(user)
        if expected_updated_at is not None:
            check_seq(expected_updated_at, "expectedUpdatedAt")
        with self.tables.step() as (step, _):
            row = TableOperation(self, step, user).update(row_id, patch, expected_updated_at)
            commit = step.commit()
        view = View(self, row_id.parent, None, user, True)
        return Write(commit, lambda _: view.dress([row])[0])

    def rm(self, id: str, *, user: str | None = None, hard: bool = False) -> Write[RmResult]:
        """Delete a row: permanently if ``hard`` is set or the table has no soft delete."""
        commit, results = self._rm([id], user, hard)
        return Write(commit, lambda _: results[0])

    def rm_bulk(self, ids: Sequence[str], *, user: str | None = None, hard: bool = False) -> Write[RmBulkResult]:
        """Delete up to 100 rows; none if one of them may not be deleted."""
        _check_bulk(ids, "ids")
        if not ids:
            raise invalid("ids must name at least one row", "ids")
        commit, results = self._rm(ids, user, hard)
        bulk = RmBulkResult(sum(result.deleted for result in results), results)
        return Write(commit, lambda _: bulk)

    def _rm(self, ids: Sequence[str], user: str | None, hard: bool) -> tuple[Commit[Any], Removals]:
        row_ids, user = [parse_id(id) for id in ids], check_user(user)
        with self.tables.step() as (step, _):
            operation = TableOperation(self, step, user)
            results = [operation.rm(row_id, hard) for row_id in row_ids]
            return step.commit(), results

    def purge_by_parent(self, parent: str, *, user: str | None = None, hard: bool = False) -> Write[PurgeResult]:
        """Delete all rows of a parent in one step, whatever their number. A hard delete also removes rows that were
        deleted before, so that nothing can be restored. With hooks for deletes, rows are processed in order."""
        check_parent(parent)
        with self.tables.step() as (step, _):
            outcome, soft = TableOperation(self, step, check_user(user)).purge(parent, hard)
            commit = step.commit()
        return Write(commit, lambda results: PurgeResult(outcome(results), soft))

    def restore_by_parent(self, parent: str, *, user: str | None = None) -> Write[RestoreResult]:
        """Restore all soft-deleted rows of a parent, including rows that were deleted one by one."""
        check_parent(parent)
        with self.tables.step() as (step, _):
            outcome = TableOperation(self, step, check_user(user)).restore_all(parent)
            commit = step.commit()
        return Write(commit, lambda results: RestoreResult(outcome(results)))

    def restore(self, id: str, *, user: str | None = None) -> Write[Row]:
        """Restore one row; raises NOT_FOUND if it is not a deleted row."""
        row_id, user = parse_id(id), check_user(user)
        with self.tables.step() as (step, _):
            row = TableOperation(self, step, user).restore(row_id)
            commit = step.commit()
        view = View(self, row_id.parent, None, user, True)
        return Write(commit, lambda _: view.dress([row])[0])

    # --- reading -------------------------------------------------------------------------------------------

    def view(self, parent: str, *, user: str | None = None, public: bool = False) -> View:
        """The rows of a parent that a reader sees: all rows for the owner, the program and public reads, otherwise the
        reader's own rows. Raises NOT_FOUND if the parent does not exist or is not public."""
        return view_of(self, check_parent(parent), check_user(user), public)

    def list(
        self,
        parent: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        where: Mapping[str, Any] | None = None,
        user: str | None = None,
        public: bool = False,
    ) -> RowPage:
        """The newest rows, 50 by default and at most 1,000, that match the condition ``where``."""
        before, limit = check_cursor(cursor), check_limit(limit, LIST_ROWS)
        condition = None if where is None else compile_where(where, user, self.declaration.schema.fields)
        return self.view(parent, user=user, public=public).list(limit, before, condition)

    def list_after(
        self, parent: str, seq: int, *, limit: int | None = None, user: str | None = None, public: bool = False
    ) -> RowsAfter:
        """The rows after a seq in order, 500 by default and at most 1,000."""
        check_seq(seq, "seq")
        limit = check_limit(limit, LIST_AFTER_ROWS)
        return self.view(parent, user=user, public=public).list_after(seq, limit)

    def read(self, id: str, *, user: str | None = None, public: bool = False) -> Row | None:
        """A row; None if it does not exist or the reader may not see it."""
        row_id = parse_id(id)
        return self.view(row_id.parent, user=user, public=public).row(row_id.seq)

    def search(
        self, parent: str, query: str, *, limit: int | None = None, user: str | None = None, public: bool = False
    ) -> Found:
        """The newest rows with all words of the query in a searchable field. Words in quotes must be adjacent, and a
        star at the end of a word matches any continuation."""
        return search_rows(self, self.view(parent, user=user, public=public), query, check_limit(limit, LIST_ROWS))

    def indexed(
        self, parent: str, by: str, *, limit: int | None = None, user: str | None = None, public: bool = False
    ) -> Groups:
        """Rows grouped by the value of a field, as text: the newest 50 of each group by default, and at most 1,000.
        More than 10,000 rows together are refused."""
        return group_rows(self, self.view(parent, user=user, public=public), by, check_limit(limit, LIST_ROWS))

    def counts(self, parent: str, by: str, *, user: str | None = None, public: bool = False) -> Counts:
        """The number of rows for each value of a field, by the value as text."""
        return count_rows(self, self.view(parent, user=user, public=public), by)

    def history(self, id: str, *, user: str | None = None, public: bool = False) -> Edits:
        """The edits of a row, oldest first; at most the last 1,000. Raises NOT_FOUND."""
        row_id = parse_id(id)
        if self.view(row_id.parent, user=user, public=public).row(row_id.seq) is None:
            raise TableError("NOT_FOUND", f"row {id!r} does not exist in {self.name}")
        edits: Edits = []
        log, after, caught_up = self.changes_log(row_id.parent), 0, False
        while log is not None and not caught_up:
            page = log.read(after, key=str(row_id.seq))
            changes = [change_of(data) for data in page.data]
            edits += [Edit(one.at, one.user, one.previous or {}) for one in changes if one.op == "update"]
            del edits[:-MAX_EDITS]
            after, caught_up = page.next_after, page.caught_up
        return edits

    def rows_log(self, parent: str) -> Log | None:
        """The log of a parent's rows, if it exists."""
        return find_log(self.tables.engine, rows_log(self.name, parent))

    def changes_log(self, parent: str) -> Log | None:
        """The log of the changes of a parent's rows, if it exists; see :class:`~strandline.tables.rows.Change`."""
        return find_log(self.tables.engine, changes_log(self.name, parent))


def _check_bulk(items: Sequence[object], name: str) -> None:
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        raise invalid(f"{name} must be a list", name)
    if len(items) > MAX_BULK:
        raise invalid(f"{name} has {len(items)} items, the limit is {MAX_BULK}", name)


#: The memory limits of the search indexes and of the columns.
SEARCH_BYTES = 64 << 20
COLUMN_BYTES = 64 << 20


class Tables:
    """All tables of one engine, by name. Any thread may use it. A table may be bound only once at a time, since the
    pending changes are kept here.

    ``hooks`` run for every table, before its own hooks. ``searcher`` may be shared.
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
        self.columns = RowColumns(COLUMN_BYTES)
        #: Called with the name of every created log, on the writing thread and with the lock held, so they must be
        #: quick. The records of the log may still wait for the disk.
        self.listeners: list[Callable[[str], None]] = []
        self._coming = Coming()
        self._lock = threading.Lock()
        self._writer: int | None = None
        self._tables: dict[str, Table] = {}
        for declaration in declarations:
            if declaration.name in self._tables:
                raise BadDeclaration(f"two tables have the name {declaration.name}; give each table its own name")
            self._tables[declaration.name] = Table(self, declaration)
        for declaration in declarations:
            if isinstance(declaration.parent, TableDeclaration) and declaration.parent not in declarations:
                raise BadDeclaration(
                    f"the parent of {declaration.name}, {declaration.parent.name}, must be bound as well"
                )

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
        """A visible row."""
        log = find_log(self.engine, rows_log(declaration.name, id.parent))
        return None if log is None else read_row(log, id)

    @contextmanager
    def step(self) -> Iterator[tuple[TableStep, Coming]]:
        """Plan a step; other writes wait meanwhile."""
        if self._writer == threading.get_ident():
            raise MisusedHook("inside a hook, write through its context: ctx.append(table, parent, payload) and so on")
        with self._lock:
            self._writer = threading.get_ident()
            step = TableStep(self.engine, self._coming)
            try:
                self._coming.forget_done()
                yield step, self._coming
            finally:
                self._writer = None
                for name in step.made:
                    for listener in self.listeners:
                        listener(name)

"""The state that the handlers of the tables protocol share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from strandline.delivery.watch import Feeds
from strandline.engine import Log
from strandline.protocols.tables.users import Users
from strandline.service.http import Answer, Call, Later, Reply, later_of
from strandline.service.kernel import Kernel
from strandline.spans import READ
from strandline.tables.declaration import TableDeclaration
from strandline.tables.errors import TableError
from strandline.tables.names import RowId, parse_id, table_of
from strandline.tables.table import Table, Tables

T = TypeVar("T")


class TablesContext:
    """Created on the event loop's thread, after the engine is opened."""

    def __init__(self, kernel: Kernel, tables: Tables, users: Users) -> None:
        self.kernel = kernel
        self.tables = tables
        self.users = users
        self.hub = kernel.hub
        self.admission = kernel.admission
        self.workers = kernel.workers
        self.live = kernel.live
        self.feeds = Feeds(kernel.hub, kernel.pressure)
        kernel.catalog.reservations.append(self._reserved)
        self._writer = kernel.workers.in_order("tables writer")
        self._writes = 0

    def _reserved(self, name: str) -> str | None:
        """Why a log of this name cannot be created: only the table creates the logs of its rows."""
        table = table_of(name)
        if table is None or table not in self.tables:
            return None
        return f"the name belongs to the table {table!r}; use the endpoints of the table"

    def seen_by(self, call: Call) -> tuple[str, ...]:
        """The names of the tables that the API key of a request may access."""
        return tuple(table.name for table in self.tables if self.users.may_see(call, table.name))

    # --- other threads ---------------------------------------------------------------------------------------------

    @property
    def writes_elsewhere(self) -> bool:
        """Whether the writer thread has work. It holds the lock of the tables, or will."""
        return self._writes > 0

    def write_elsewhere(self, write: Callable[[], T], then: Callable[[T], Reply | Later]) -> Later:
        """Run ``write`` on the writer thread, in order; ``then`` runs on the event loop."""
        later = Later()

        def written(future: Future[T]) -> None:
            self.hub.post(lambda: self._written(future, then, later))

        future = self._writer.submit(write)
        self._writes += 1
        future.add_done_callback(written)
        return later

    def _written(self, future: Future[T], then: Callable[[T], Reply | Later], later: Later) -> None:
        self._writes -= 1
        try:
            answer = then(future.result())
        except BaseException as error:  # the client waits for an answer
            later.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            return
        pass_on(answer, later)

    def elsewhere(self, read: Callable[[], Answer]) -> Later:
        """Run a read or a lookup on a worker thread."""
        return later_of(self.workers.normal.run(read, part=READ))

    # --- data in memory --------------------------------------------------------------------------------------------

    def is_parent_resident(self, table: TableDeclaration, parent: str) -> bool:
        """Whether the owner of the parent can be looked up without waiting for the disk."""
        if not isinstance(table.parent, TableDeclaration):
            return table.parent_row is None
        above = self.above(table, parent)
        if above is None:
            return True
        log = self.tables[table.parent.name].rows_log(above.parent)
        return log is None or is_row_resident(log, above.seq)

    def changes_above(self, table: Table, parent: str) -> Log | None:
        """The log with the changes of the parent's row; None if the parent is not a row, or has no such log yet."""
        declaration = table.declaration
        above = self.above(declaration, parent)
        if above is None or not isinstance(declaration.parent, TableDeclaration):
            return None
        return self.tables[declaration.parent.name].changes_log(above.parent)

    @staticmethod
    def above(table: TableDeclaration, parent: str) -> RowId | None:
        """The row that is the parent; None if the parent is not a row of a table."""
        if not isinstance(table.parent, TableDeclaration):
            return None
        try:
            return parse_id(parent)
        except TableError:
            return None


def is_row_resident(log: Log, seq: int) -> bool:
    return log.read_resident(seq - 1, 1) is not None


def are_keys_resident(table: Table, parent: str, keys: list[str | None]) -> bool:
    """Whether these idempotency keys can be looked up without waiting for the disk."""
    log = None if not any(keys) else table.rows_log(parent)
    return log is None or all(not key or log.find_key_resident(key)[0] for key in keys)


def pass_on(answer: Reply | Later, to: Later) -> None:
    """Settle ``to`` with an answer, as soon as it is known."""
    if isinstance(answer, Reply):
        to.settle(answer)
        return

    def settle(done: Later) -> None:
        try:
            to.settle(done.result())
        except Exception as error:
            to.fail(error)

    answer.then(settle)

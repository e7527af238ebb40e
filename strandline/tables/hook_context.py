"""The contexts that hooks receive: of a write that is being planned, and of a write that is durable."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from strandline.engine.errors import RecordTooLarge
from strandline.tables.access import find_parent, no_row
from strandline.tables.errors import FailedHookWrite, TableError
from strandline.tables.names import check_key, check_parent, parse_id
from strandline.tables.rows import Row
from strandline.tables.step import TableStep
from strandline.tables.users import User

if TYPE_CHECKING:
    from strandline.tables.table import Tables

P = ParamSpec("P")
T = TypeVar("T")


def _of_hook(operation: Callable[P, T]) -> Callable[P, T]:
    """Mark the errors of an operation as the hook's own: the caller of the write did not send their fields."""

    @wraps(operation)
    def marked(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return operation(*arguments, **named)
        except TableError as error:
            raise FailedHookWrite(error.code, error.message, **error.more) from error
        except RecordTooLarge as error:
            raise FailedHookWrite("VALIDATION_FAILED", f"the payload is too large: {error}") from error

    return marked


class WriteContext:
    """A write of a user to a table. Hooks that are coroutine functions receive it when the write is durable."""

    def __init__(self, tables: Tables, table: str, user: User | None, now: int) -> None:
        self.tables = tables
        #: The table that is written to.
        self.table = table
        #: The id of the user who writes, or None for the program itself; and the roles of the user.
        self.user = None if user is None else user.id
        self.roles = () if user is None else user.roles
        #: The time of the write, in milliseconds.
        self.now = now


class HookContext(WriteContext):
    """The write that a hook is part of. Writes through the context are part of the same transaction.

    A hook may write to any table, regardless of the user and of rate limits. Its writes do not run hooks, so a hook
    cannot trigger itself. Payloads are still validated. ``tables`` shows only published rows; ``read`` also sees
    pending changes and the changes planned in this transaction.
    """

    def __init__(self, tables: Tables, step: TableStep, table: str, user: User | None) -> None:
        super().__init__(tables, table, user, step.now)
        self._step = step

    @_of_hook
    def read(self, table: str, id: str) -> Row | None:
        """Return the row, or None if it does not exist or is hidden."""
        return self._step.visible(self.tables[table].declaration, parse_id(id))

    @_of_hook
    def append(self, table: str, parent: str, payload: object, *, idempotency_key: str | None = None) -> Row:
        """Append a row as the same user. If a row has this idempotency key already, that row is returned."""
        declaration, key = self.tables[table].declaration, check_key(idempotency_key)
        find_parent(declaration, check_parent(parent), self._step.visible)
        seq = None if key is None else self._step.keyed(declaration, parent, key)
        if seq is not None:
            known = self._step.known(declaration, parse_id(f"{parent}:{seq}"))
            assert known is not None
            return known.row
        checked = declaration.schema.validate(payload)
        self._step.check_storable(checked)
        self._step.shown = True
        return self._step.add(declaration, parent, checked, self.user, key)

    @_of_hook
    def update(self, table: str, id: str, patch: object) -> Row:
        """Change fields of a row. Raises TableError (NOT_FOUND) if it does not exist."""
        declaration = self.tables[table].declaration
        row = self._step.visible(declaration, parse_id(id))
        if row is None:
            raise no_row(declaration, parse_id(id))
        checked = declaration.schema.patch(row.payload, patch)
        self._step.check_storable({**row.payload, **checked})
        return self._step.amend(declaration, row, checked, self.user)

    @_of_hook
    def rm(self, table: str, id: str, *, hard: bool = False) -> bool:
        """Remove a row. Returns whether it existed."""
        declaration = self.tables[table].declaration
        row = self._step.visible(declaration, parse_id(id))
        if row is not None:
            self._step.remove(declaration, row, declaration.soft_delete and not hard, self.user)
        return row is not None

    @_of_hook
    def purge_by_parent(self, table: str, parent: str, *, hard: bool = False) -> None:
        """Remove all rows of a parent."""
        declaration = self.tables[table].declaration
        self._step.sweep(declaration, check_parent(parent), declaration.soft_delete and not hard, self.user)

    @_of_hook
    def restore_by_parent(self, table: str, parent: str) -> None:
        """Restore all hidden rows of a parent."""
        self._step.restore_all(self.tables[table].declaration, check_parent(parent), self.user)

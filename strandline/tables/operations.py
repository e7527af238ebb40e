"""One write of a user: access, validation, hooks and the resulting plan; and the context that hooks receive.

Access depends on the author of a row and the owner of its parent. The program itself, a user of None, has full access.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.tables.declaration import TableDeclaration
from strandline.tables.errors import TableError, invalid
from strandline.tables.names import RowId, check_key, check_parent, parse_id
from strandline.tables.rows import AppendResult, RmResult, Row
from strandline.tables.step import Outcome, TableStep

if TYPE_CHECKING:
    from strandline.tables.step import TableStep
    from strandline.tables.table import Table, Tables

#: Returns the row with an id if it is visible.
FindRow = Callable[[TableDeclaration, RowId], Row | None]


class Parent(NamedTuple):
    """The owner and the row of a parent, as far as they are known."""

    owner: str | None
    row: Mapping[str, Any]

    def is_owned_by(self, user: str | None) -> bool:
        return user is None or user == self.owner


#: The parent if only its name is known.
_UNKNOWN = Parent(None, {})


def find_parent(table: TableDeclaration, parent: str, find_row: FindRow) -> Parent:
    """Return the parent. Raises TableError (NOT_FOUND) if it does not exist."""
    if isinstance(table.parent, TableDeclaration):
        row = find_row(table.parent, _parent_id(table, parent))
        if row is None:
            raise no_parent(table, parent)
        return Parent(row.user, row.payload)
    if table.parent_row is None:
        return _UNKNOWN
    found = table.parent_row(parent)
    if found is None:
        raise no_parent(table, parent)
    owner = found.get("userId")
    return Parent(owner if isinstance(owner, str) else None, found)


def is_public(table: TableDeclaration, parent: Parent) -> bool:
    """Whether the rows of this parent are public."""
    return table.public and (table.public_field is None or parent.row.get(table.public_field) is True)


def check_may_append(table: TableDeclaration, name: str, parent: Parent, user: str | None) -> None:
    """Every user may append, unless the parent is not public."""
    if table.public_field is not None and not is_public(table, parent) and not parent.is_owned_by(user):
        raise no_parent(table, name)


def check_may_change(table: TableDeclaration, row: Row, parent: Parent, user: str | None) -> None:
    """Only the author of the row and the owner of the parent may change it."""
    if not parent.is_owned_by(user) and row.user != user:
        raise TableError(
            "FORBIDDEN",
            f"only its author and the owner of its {table.parent_label} may change row {row.id} of {table.name}",
        )


def check_may_sweep(table: TableDeclaration, name: str, parent: Parent, user: str | None) -> None:
    """Only the owner may remove or restore all rows of a parent."""
    if not parent.is_owned_by(user):
        raise TableError(
            "FORBIDDEN",
            f"only the owner of the {table.parent_label} may remove or restore all rows of {name} in {table.name}",
        )


def no_parent(table: TableDeclaration, parent: str) -> TableError:
    return TableError("NOT_FOUND", f"{table.parent_label} {parent!r} does not exist")


def no_row(table: TableDeclaration, id: RowId) -> TableError:
    return TableError("NOT_FOUND", f"row {str(id)!r} of {table.name} does not exist")


def _parent_id(table: TableDeclaration, parent: str) -> RowId:
    try:
        return parse_id(parent)
    except TableError:
        # A parent that is not a valid row id cannot exist.
        raise no_parent(table, parent) from None


class HookContext:
    """The write that a hook is part of. Writes through the context are part of the same transaction.

    A hook may write to any table, regardless of the user and of rate limits. Its writes do not run hooks, so a hook
    cannot trigger itself. Payloads are still validated. ``tables`` shows only published rows; ``read`` also sees
    pending changes and the changes planned in this transaction.
    """

    def __init__(self, tables: Tables, step: TableStep, table: str, user: str | None) -> None:
        self.tables = tables
        #: The table that is written to, and the user who writes.
        self.table = table
        self.user = user
        self._step = step

    @property
    def now(self) -> int:
        """The time of the transaction, in milliseconds."""
        return self._step.now

    def read(self, table: str, id: str) -> Row | None:
        """Return the row, or None if it does not exist or is hidden."""
        return self._step.visible(self.tables[table].declaration, parse_id(id))

    def append(self, table: str, parent: str, payload: object, *, idempotency_key: str | None = None) -> Row:
        """Append a row as the same user. If a row has this idempotency key already, that row is returned."""
        declaration, key = self.tables[table].declaration, check_key(idempotency_key)
        find_parent(declaration, check_parent(parent), self._step.visible)
        seq = None if key is None else self._step.keyed(declaration, parent, key)
        if seq is not None:
            known = self._step.known(declaration, parse_id(f"{parent}:{seq}"))
            assert known is not None
            return known.row
        self._step.shown = True
        return self._step.add(declaration, parent, declaration.schema.validate(payload), self.user, key)

    def update(self, table: str, id: str, patch: object) -> Row:
        """Change fields of a row. Raises TableError (NOT_FOUND) if it does not exist."""
        declaration = self.tables[table].declaration
        row = self._step.visible(declaration, parse_id(id))
        if row is None:
            raise no_row(declaration, parse_id(id))
        return self._step.amend(declaration, row, declaration.schema.patch(row.payload, patch), self.user)

    def rm(self, table: str, id: str, *, hard: bool = False) -> bool:
        """Remove a row. Returns whether it existed."""
        declaration = self.tables[table].declaration
        row = self._step.visible(declaration, parse_id(id))
        if row is not None:
            self._step.remove(declaration, row, declaration.soft_delete and not hard, self.user)
        return row is not None

    def purge_by_parent(self, table: str, parent: str, *, hard: bool = False) -> None:
        """Remove all rows of a parent."""
        declaration = self.tables[table].declaration
        self._step.sweep(declaration, check_parent(parent), declaration.soft_delete and not hard, self.user)

    def restore_by_parent(self, table: str, parent: str) -> None:
        """Restore all hidden rows of a parent."""
        self._step.restore_all(self.tables[table].declaration, check_parent(parent), self.user)


class Item(NamedTuple):
    """A row to append."""

    payload: object
    idempotency_key: str | None = None


class TableOperation:
    """Plans one call. Nothing is written until the step is committed."""

    def __init__(self, table: Table, step: TableStep, user: str | None) -> None:
        self._table = table
        self._declaration = table.declaration
        self._hooks = table.hooks
        self._step = step
        self._user = user
        self._context = HookContext(table.tables, step, table.name, user)
        #: The number of rows that count towards the rate limit.
        self.created = 0

    # --- appending -----------------------------------------------------------------------------------------

    def append(self, parent: str, items: Sequence[Item]) -> list[AppendResult]:
        found = find_parent(self._declaration, parent, self._step.visible)
        check_may_append(self._declaration, parent, found, self._user)
        self._check_rate(parent, items)
        return [self._append(parent, item, index if len(items) > 1 else None) for index, item in enumerate(items)]

    def _check_rate(self, parent: str, items: Sequence[Item]) -> None:
        """Rows that exist already do not count, so a retry cannot exceed the limit."""
        window = self._table.window
        if window is None or self._user is None:
            return
        keys = [item.idempotency_key for item in items]
        fresh = {key for key in keys if key and self._step.keyed(self._declaration, parent, key) is None}
        count = keys.count(None) + len(fresh)
        if count:
            window.check(self._user, count, self._step.now)

    def _append(self, parent: str, item: Item, index: int | None) -> AppendResult:
        step, declaration, key = self._step, self._declaration, item.idempotency_key
        seq = None if key is None else step.keyed(declaration, parent, key)
        if seq is not None:
            return AppendResult(seq, False, f"{parent}:{seq}")
        try:
            payload = declaration.schema.validate(item.payload)
            if self._hooks.has("before_append"):
                payload = declaration.schema.validate(
                    self._hooks.replace("before_append", self._context, "payload", parent=parent, payload=payload)
                )
        except TableError as error:
            if index is not None:
                error.more.setdefault("index", index)
            raise
        step.shown = step.shown or self._hooks.has("after_append")
        row = step.add(declaration, parent, payload, self._user, key)
        self.created += 1
        self._hooks.tell("after_append", self._context, row=row)
        return AppendResult(row.seq, True, row.id)

    # --- changing ------------------------------------------------------------------------------------------

    def update(self, id: RowId, patch: object, expected_updated_at: int | None) -> Row:
        declaration, step = self._declaration, self._step
        prev = step.visible(declaration, id)
        if prev is None:
            raise no_row(declaration, id)
        check_may_change(declaration, prev, self._parent(id.parent), self._user)
        if expected_updated_at is not None and expected_updated_at != prev.updated_at:
            message = (
                f"updatedAt of row {id} of {declaration.name} is {prev.updated_at}, not {expected_updated_at}: "
                "read the row again"
            )
            raise TableError("CONFLICT", message, updatedAt=prev.updated_at)
        checked = declaration.schema.patch(prev.payload, patch)
        current: Row | None = prev
        if self._hooks.has("before_update"):
            replaced = self._hooks.replace(
                "before_update", self._context, "patch", id=str(id), patch=checked, prev=prev
            )
            checked = declaration.schema.patch(prev.payload, replaced)
            current = step.visible(declaration, id)
        if current is None:
            raise no_row(declaration, id)
        row = step.amend(declaration, current, checked, self._user)
        self._hooks.tell("after_update", self._context, id=str(id), patch=checked, prev=prev, row=row)
        return row

    def rm(self, id: RowId, hard: bool) -> RmResult:
        """Remove a row. A hidden row can only be removed by a hard removal."""
        soft = self._declaration.soft_delete and not hard
        known = self._step.known(self._declaration, id)
        if known is None or (known.hidden and soft):
            return RmResult(False, str(id), soft)
        check_may_change(self._declaration, known.row, self._parent(id.parent), self._user)
        self._remove(known.row, soft)
        return RmResult(True, str(id), soft)

    def _remove(self, row: Row, soft: bool) -> None:
        self._hooks.tell("before_rm", self._context, id=row.id, prev=row)
        self._step.remove(self._declaration, row, soft, self._user)
        self._hooks.tell("after_rm", self._context, id=row.id, prev=row)

    def purge(self, parent: str, hard: bool) -> tuple[Outcome, bool]:
        declaration, soft = self._declaration, self._declaration.soft_delete and not hard
        check_may_sweep(declaration, parent, self._parent(parent), self._user)
        if not self._hooks.on_rm:
            return self._step.sweep(declaration, parent, soft, self._user), soft
        for row in self._step.rows(declaration, parent):
            self._hooks.tell("before_rm", self._context, id=row.id, prev=row)
            self._step.expect_swept(declaration, row, soft)
            self._hooks.tell("after_rm", self._context, id=row.id, prev=row)
        return self._step.sweep(declaration, parent, soft, self._user), soft

    # --- restoring -----------------------------------------------------------------------------------------

    def restore(self, id: RowId) -> Row:
        self._check_soft()
        known = self._step.known(self._declaration, id)
        if known is None or not known.hidden:
            raise TableError("NOT_FOUND", f"removed row {str(id)!r} of {self._declaration.name} does not exist")
        check_may_change(self._declaration, known.row, self._parent(id.parent), self._user)
        self._step.restore(self._declaration, known.row, self._user)
        return known.row

    def restore_all(self, parent: str) -> Outcome:
        self._check_soft()
        check_may_sweep(self._declaration, parent, self._parent(parent), self._user)
        return self._step.restore_all(self._declaration, parent, self._user)

    def _check_soft(self) -> None:
        if not self._declaration.soft_delete:
            raise invalid(f"cannot restore: {self._declaration.name} is declared without soft_delete")

    def _parent(self, parent: str) -> Parent:
        """The parent. The program itself may also remove the rows of a parent that no longer exists."""
        if self._user is None:
            return Parent(None, {})
        return find_parent(self._declaration, parent, self._step.visible)

"""One write of a user: access, validation, hooks and the resulting plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, UnsetType

from strandline.tables.access import (
    Parent,
    check_may_append,
    check_may_change,
    check_may_restore,
    check_may_sweep,
    find_parent,
    no_row,
)
from strandline.tables.errors import TableError, invalid
from strandline.tables.hook_context import HookContext, WriteContext
from strandline.tables.hook_runner import HookCall
from strandline.tables.names import RowId, parse_id
from strandline.tables.pending import Known
from strandline.tables.rows import AppendResult, RmResult, Row
from strandline.tables.step import Outcome, TableStep
from strandline.tables.trash import Removals
from strandline.tables.users import User, id_of

if TYPE_CHECKING:
    from strandline.tables.table import Table


class Item(NamedTuple):
    """A row to append."""

    payload: object
    idempotency_key: str | None = None


class TableOperation:
    """Plans one call. Nothing is written until the step is committed."""

    def __init__(self, table: Table, step: TableStep, caller: User | None) -> None:
        self._table = table
        self._declaration = table.declaration
        self._hooks = table.hooks
        self._step = step
        self._caller = caller
        self._user = id_of(caller)
        self._context = HookContext(table.tables, step, table.name, caller)
        #: The number of rows that count towards the rate limit.
        self.created = 0

    # --- appending -----------------------------------------------------------------------------------------

    def append(self, parent: str, items: Sequence[Item]) -> list[AppendResult]:
        found = find_parent(self._declaration, parent, self._step.visible)
        check_may_append(self._declaration, parent, found, self._caller)
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
                step.check_storable(payload, index or 0)
                payload = self._hooks.replace("before_append", self._context, "payload", parent=parent, payload=payload)
                with self._hooks.result_of("before_append"):
                    payload = declaration.schema.validate(payload)
                    step.check_storable(payload)
        except TableError as error:
            if index is not None:
                error.more.setdefault("index", index)
            raise
        step.shown = step.shown or self._hooks.has("after_append")
        row = step.add(declaration, parent, payload, self._user, key)
        self.created += 1
        self._hooks.tell("after_append", self._context, row=row)
        self._run_later("after_append", row=row)
        return AppendResult(row.seq, True, row.id)

    # --- changing ------------------------------------------------------------------------------------------

    def update(self, id: RowId, patch: object, expected_updated_at: int | None) -> Row:
        declaration, step = self._declaration, self._step
        prev = step.visible(declaration, id)
        if prev is None:
            raise no_row(declaration, id)
        check_may_change(declaration, prev, self._parent(id.parent), self._caller)
        if expected_updated_at is not None and expected_updated_at != prev.updated_at:
            message = (
                f"updatedAt of row {id} of {declaration.name} is {prev.updated_at}, not {expected_updated_at}: "
                "read the row again"
            )
            raise TableError("CONFLICT", message, updatedAt=prev.updated_at)
        checked = declaration.schema.patch(prev.payload, patch)
        current: Row | None = prev
        if self._hooks.has("before_update"):
            step.check_storable({**prev.payload, **checked})
            replaced = self._hooks.replace(
                "before_update", self._context, "patch", id=str(id), patch=checked, prev=prev
            )
            with self._hooks.result_of("before_update"):
                checked = declaration.schema.patch(prev.payload, replaced)
                step.check_storable({**prev.payload, **checked})
            current = step.visible(declaration, id)
        if current is None:
            raise no_row(declaration, id)
        row = step.amend(declaration, current, checked, self._user)
        self._hooks.tell("after_update", self._context, id=str(id), patch=checked, prev=prev, row=row)
        self._run_later("after_update", id=str(id), patch=checked, prev=prev, row=row)
        return row

    def rm(self, id: RowId, hard: bool) -> RmResult:
        """Remove a row. A hidden row can only be removed by a hard removal."""
        soft = self._declaration.soft_delete and not hard
        known = self._step.known(self._declaration, id)
        if known is None or (known.hidden and soft):
            return RmResult(False, str(id), soft)
        check_may_change(self._declaration, known.row, self._parent(id.parent), self._caller)
        self._remove(known.row, soft)
        return RmResult(True, str(id), soft)

    def _remove(self, row: Row, soft: bool) -> None:
        self._hooks.tell("before_rm", self._context, id=row.id, prev=row)
        self._step.remove(self._declaration, row, soft, self._user)
        self._after_rm(row)

    def _after_rm(self, row: Row) -> None:
        self._hooks.tell("after_rm", self._context, id=row.id, prev=row)
        self._run_later("after_rm", id=row.id, prev=row)

    def purge(self, parent: str, hard: bool) -> tuple[Outcome, bool]:
        declaration, soft = self._declaration, self._declaration.soft_delete and not hard
        check_may_sweep(declaration, parent, self._parent(parent), self._caller)
        if not self._hooks.on_rm:
            return self._step.sweep(declaration, parent, soft, self._user), soft
        for row in self._step.rows(declaration, parent):
            self._hooks.tell("before_rm", self._context, id=row.id, prev=row)
            self._step.expect_swept(declaration, row, soft, self._user)
            self._after_rm(row)
        return self._step.sweep(declaration, parent, soft, self._user), soft

    # --- restoring -----------------------------------------------------------------------------------------

    def restore(self, id: RowId) -> Row:
        self._check_soft()
        known = self._step.known(self._declaration, id)
        if known is None or not known.hidden:
            raise TableError("NOT_FOUND", f"removed row {str(id)!r} of {self._declaration.name} does not exist")
        parent = self._parent(id.parent)
        check_may_restore(self._declaration, known.row, parent, self._caller, partial(self._remover, known))
        self._step.restore(self._declaration, known.row, self._user)
        return known.row

    def _remover(self, known: Known) -> str | UnsetType | None:
        """The user who removed the row."""
        if known.removed_by is not UNSET:
            return known.removed_by
        return Removals(self._table.changes_log(known.row.parent)).told(known.row).deleted_by

    def restore_all(self, parent: str) -> Outcome:
        self._check_soft()
        check_may_sweep(self._declaration, parent, self._parent(parent), self._caller)
        return self._step.restore_all(self._declaration, parent, self._user)

    def _check_soft(self) -> None:
        if not self._declaration.soft_delete:
            raise invalid(f"cannot restore: {self._declaration.name} is declared without soft_delete")

    def _run_later(self, name: str, **arguments: object) -> None:
        """Have the hooks that are coroutine functions called when the step is durable."""
        for hook in self._hooks.after_commit(name):
            row = arguments.get("row")
            if isinstance(row, Row):
                # Another hook may have changed the row in this step.
                arguments["row"] = self._step.visible(self._declaration, parse_id(row.id)) or row
            context = WriteContext(self._table.tables, self._table.name, self._caller, self._step.now)
            self._step.calls.append(HookCall(self._table.name, name, partial(hook, context, **arguments)))

    def _parent(self, parent: str) -> Parent:
        """The parent. The program itself may also remove the rows of a parent that no longer exists."""
        if self._user is None:
            return Parent(None, {}, frozenset())
        return find_parent(self._declaration, parent, self._step.visible)

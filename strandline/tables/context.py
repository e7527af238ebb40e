"""What hooks get to work with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.tables.access import find_parent, no_row
from strandline.tables.names import check_key, check_parent, parse_id
from strandline.tables.rows import Row

if TYPE_CHECKING:
    from strandline.tables.step import Step
    from strandline.tables.tables import Tables


class HookContext:
    """The write that a hook is part of. What it writes through here is written in the same step, or not at all.

    It may write to any table, whoever the user is, and no rate limit counts it; no further hooks are called, so none
    can set itself off. Payloads must be valid all the same. ``tables`` can be read as everybody sees them; ``read``
    sees what is on its way and what the step has planned as well.
    """

    def __init__(self, tables: Tables, step: Step, table: str, user: str | None) -> None:
        self.tables = tables
        #: The table that is written to, and who does it.
        self.table = table
        self.user = user
        self._step = step

    @property
    def now(self) -> int:
        """The time of the step, in milliseconds."""
        return self._step.now

    def read(self, table: str, id: str) -> Row | None:
        """The row, unless there is none or it is hidden."""
        return self._step.visible(self.tables[table].declaration, parse_id(id))

    def append(self, table: str, parent: str, payload: object, *, idempotency_key: str | None = None) -> Row:
        """Append a row by the same user; if its key is there, this gives the row that has it."""
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
        """Change fields of a row; raises TableError (NOT_FOUND) if there is none."""
        declaration = self.tables[table].declaration
        row = self._step.visible(declaration, parse_id(id))
        if row is None:
            raise no_row(declaration, parse_id(id))
        return self._step.amend(declaration, row, declaration.schema.patch(row.payload, patch), self.user)

    def rm(self, table: str, id: str, *, hard: bool = False) -> bool:
        """Remove a row; tells whether there was one."""
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
        """Bring all hidden rows of a parent back."""
        self._step.restore_all(self.tables[table].declaration, check_parent(parent), self.user)

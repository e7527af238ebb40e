"""Who may do what: the author of a row, the owner of its parent, and the program itself (a user of None)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from strandline.tables.declaration import TableDeclaration
from strandline.tables.errors import TableError
from strandline.tables.names import RowId, parse_id
from strandline.tables.rows import Row

#: From a declaration and an id to the row, if it can be seen.
FindRow = Callable[[TableDeclaration, RowId], Row | None]


class Parent(NamedTuple):
    """What is known of a parent: whose it is, and its row, both as far as there is one."""

    owner: str | None
    row: Mapping[str, Any]

    def is_owned_by(self, user: str | None) -> bool:
        return user is None or user == self.owner


#: Of a parent that is no more than a name.
_UNKNOWN = Parent(None, {})


def find_parent(table: TableDeclaration, parent: str, find_row: FindRow) -> Parent:
    """The parent; raises TableError (NOT_FOUND) if there is none."""
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
    """Whether everybody may read the rows of this parent."""
    return table.public and (table.public_field is None or parent.row.get(table.public_field) is True)


def check_may_append(table: TableDeclaration, name: str, parent: Parent, user: str | None) -> None:
    """Everybody may, except where the parent is not for everybody."""
    if table.public_field is not None and not is_public(table, parent) and not parent.is_owned_by(user):
        raise no_parent(table, name)


def check_may_change(table: TableDeclaration, row: Row, parent: Parent, user: str | None) -> None:
    """The author and the owner of the parent may."""
    if not parent.is_owned_by(user) and row.user != user:
        raise TableError(
            "FORBIDDEN", f"row {row.id} of {table.name} is for its author and the owner of its {table.parent_label}"
        )


def check_may_sweep(table: TableDeclaration, name: str, parent: Parent, user: str | None) -> None:
    """All rows of a parent are the owner's to remove and to restore."""
    if not parent.is_owned_by(user):
        raise TableError(
            "FORBIDDEN", f"the rows of {name} in {table.name} are for the owner of the {table.parent_label}"
        )


def no_parent(table: TableDeclaration, parent: str) -> TableError:
    return TableError("NOT_FOUND", f"there is no {table.parent_label} {parent!r}")


def no_row(table: TableDeclaration, id: RowId) -> TableError:
    return TableError("NOT_FOUND", f"there is no row {str(id)!r} in {table.name}")


def _parent_id(table: TableDeclaration, parent: str) -> RowId:
    try:
        return parse_id(parent)
    except TableError:
        # It cannot be the id of a row, so there is no such row.
        raise no_parent(table, parent) from None

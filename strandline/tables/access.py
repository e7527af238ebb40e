"""Access rules: who may append, change and remove rows.

They depend on the author of a row and the owner of its parent. A moderator of the table acts as the owner of every
parent. The program itself, a user of None, has full access.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import UnsetType

from strandline.tables.declaration import TableDeclaration
from strandline.tables.errors import TableError
from strandline.tables.names import RowId, parse_id
from strandline.tables.rows import Row
from strandline.tables.users import User, id_of

#: Returns the row with an id if it is visible.
FindRow = Callable[[TableDeclaration, RowId], Row | None]


class Parent(NamedTuple):
    """The owner and the row of a parent, as far as they are known, and the roles of the table's moderators."""

    owner: str | None
    row: Mapping[str, Any]
    moderators: frozenset[str]

    def is_owned_by(self, user: User | None) -> bool:
        """Whether the user has the rights of the owner."""
        return user is None or user.id == self.owner or not self.moderators.isdisjoint(user.roles)


def find_parent(table: TableDeclaration, parent: str, find_row: FindRow) -> Parent:
    """Return the parent. Raises TableError (NOT_FOUND) if it does not exist."""
    if isinstance(table.parent, TableDeclaration):
        row = find_row(table.parent, _parent_id(table, parent))
        if row is None:
            raise no_parent(table, parent)
        return Parent(row.user, row.payload, table.moderators)
    if table.parent_row is None:
        return Parent(None, {}, table.moderators)
    found = table.parent_row(parent)
    if found is None:
        raise no_parent(table, parent)
    owner = found.get("userId")
    return Parent(owner if isinstance(owner, str) else None, found, table.moderators)


def check_public(table: TableDeclaration) -> None:
    """Raises TableError (NOT_FOUND) if the table has no public reads."""
    if not table.public:
        raise TableError("NOT_FOUND", f"{table.name} has no public reads")


def is_public(table: TableDeclaration, parent: Parent) -> bool:
    """Whether the rows of this parent are public."""
    return table.public and (table.public_field is None or parent.row.get(table.public_field) is True)


def check_may_append(table: TableDeclaration, name: str, parent: Parent, user: User | None) -> None:
    """Every user may append, unless the parent is not public."""
    if table.public_field is not None and not is_public(table, parent) and not parent.is_owned_by(user):
        raise no_parent(table, name)


def check_may_change(table: TableDeclaration, row: Row, parent: Parent, user: User | None) -> None:
    """Only the author of the row and the owner of the parent may change it."""
    if not parent.is_owned_by(user) and row.user != id_of(user):
        raise TableError(
            "FORBIDDEN",
            f"only {_listed('its author', *_owners(table))} may change row {row.id} of {table.name}",
        )


def check_may_restore(
    table: TableDeclaration, row: Row, parent: Parent, user: User | None, remover: Callable[[], str | UnsetType | None]
) -> None:
    """As for other changes, but the author may not undo the removal by another user: moderation would have no effect.
    ``remover`` returns who removed the row."""
    check_may_change(table, row, parent, user)
    if not parent.is_owned_by(user) and remover() != id_of(user):
        raise TableError(
            "FORBIDDEN",
            f"row {row.id} of {table.name} was removed by another user: only {_listed(*_owners(table))} may restore it",
        )


def check_may_sweep(table: TableDeclaration, name: str, parent: Parent, user: User | None) -> None:
    """Only the owner may remove or restore all rows of a parent."""
    if not parent.is_owned_by(user):
        owners = _owners(table) or ["the program"]
        raise TableError(
            "FORBIDDEN",
            f"only {_listed(*owners)} may remove or restore all rows of {name} in {table.name}",
        )


def _owners(table: TableDeclaration) -> list[str]:
    """Who has the rights of the owner of a parent. A parent that is only a label has no owner."""
    has_owner = isinstance(table.parent, TableDeclaration) or table.parent_row is not None
    owners = [f"the owner of the {table.parent_label}"] if has_owner else []
    return [*owners, f"users with the role {' or '.join(sorted(table.moderators))}"] if table.moderators else owners


def _listed(*names: str) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


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

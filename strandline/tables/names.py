"""Names of tables, parents and rows, and of the logs that hold them."""

from __future__ import annotations

import re
from typing import NamedTuple

from strandline.tables.errors import BadDeclaration, invalid

#: Members of a row beside its payload, and reserved words in reads.
RESERVED = frozenset({
    "id", "parent", "seq", "userId", "createdAt", "updatedAt", "deletedAt", "idempotencyKey", "author", "own", "or",
})  # fmt: skip
#: The member with the time of a row's last edit. Fields cannot start with this character.
UPDATED_AT = "$updatedAt"
MAX_PARENT_BYTES = 256
MAX_KEY_BYTES = 1024

_TABLE = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}\Z")
_ID = re.compile(r"(.+):([1-9][0-9]{0,17})\Z", re.DOTALL)


class RowId(NamedTuple):
    """The id of a row of a table: parent and seq. Seqs are per parent."""

    parent: str
    seq: int

    def __str__(self) -> str:
        return f"{self.parent}:{self.seq}"


def check_table_name(name: str) -> None:
    if type(name) is not str or not _TABLE.match(name):
        raise BadDeclaration(
            f"invalid table name {name!r}: expected 1 to 64 letters, digits, dashes or underscores, first a letter"
        )


def check_parent(parent: object) -> str:
    """The parent, if it is valid."""
    if type(parent) is str and parent.isprintable() and "/" not in parent:
        if 1 <= _size(parent) <= MAX_PARENT_BYTES:
            return parent
    raise invalid(f"parent must be printable text of 1 to {MAX_PARENT_BYTES} bytes without a slash", "parent")


def parse_id(id: object) -> RowId:
    """The parts of a row's id, if it is valid."""
    match = _ID.match(id) if type(id) is str else None
    if match is None:
        raise invalid("id must be a parent, a colon and a seq", "id")
    return RowId(check_parent(match[1]), int(match[2]))


def is_field(name: str) -> bool:
    """Whether a payload may have a member of this name."""
    return name not in RESERVED and not name.startswith("$")


def rows_log(table: str, parent: str) -> str:
    """The log of a parent's rows."""
    return f"{table}/{parent}"


def changes_log(table: str, parent: str) -> str:
    """The log of the changes of a parent's rows."""
    return f"{table}~changes/{parent}"


def table_of(log: str) -> str | None:
    """The table that a log of this name would belong to; None if the name belongs to no table."""
    table, slash, _ = log.partition("/")
    return table.removesuffix("~changes") if slash else None


def check_key(key: object) -> str | None:
    """The idempotency key, if it is valid; None for an empty one."""
    if key is None or key == "":
        return None
    if type(key) is not str or len(key) > MAX_KEY_BYTES or not 1 <= _size(key) <= MAX_KEY_BYTES:
        raise invalid(f"an idempotency key must be text of at most {MAX_KEY_BYTES} bytes", "idempotencyKey")
    return key


def check_user(user: object) -> str | None:
    if user is not None and (type(user) is not str or not 1 <= _size(user) <= MAX_KEY_BYTES):
        raise invalid(f"a user's id must be text of 1 to {MAX_KEY_BYTES} bytes", "user")
    return user


def _size(text: str) -> int:
    """The size in bytes; 0 if it is not valid Unicode."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0

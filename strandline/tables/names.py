"""Names of tables, parents and rows, and of the logs that store them."""

from __future__ import annotations

import re
from typing import NamedTuple

from strandline.engine.ownership import ROWS, table_part
from strandline.engine.record import MAX_KEY_BYTES
from strandline.tables.errors import BadDeclaration, invalid

#: Members of a row beside its payload, and words with a meaning in conditions. None of them can be a field.
RESERVED = frozenset({
    "id", "parent", "seq", "userId", "createdAt", "updatedAt", "deletedAt", "deletedBy", "idempotencyKey", "author",
    "own", "or",
})  # fmt: skip
#: The member of a record's data that holds the time of the row's last edit. Names with a leading $ cannot be fields.
UPDATED_AT = "$updatedAt"
#: The member of an edited row that holds the version of its schema, see :mod:`strandline.tables.versions`.
VERSION = "$version"
#: All of them, in the order in which records have them, after the fields of the payload.
STAMPS = (VERSION, UPDATED_AT)
MAX_PARENT_BYTES = 256

_TABLE = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}\Z")
_ID = re.compile(r"(.+):([1-9][0-9]{0,17})\Z", re.DOTALL)


class RowId(NamedTuple):
    """The id of a row in a table. Sequence numbers are per parent."""

    parent: str
    seq: int

    def __str__(self) -> str:
        return f"{self.parent}:{self.seq}"


def check_table_name(name: str) -> None:
    if type(name) is not str or not _TABLE.match(name):
        raise BadDeclaration(
            f"a table name must have 1 to 64 letters, digits, dashes or underscores and begin with a letter: {name!r}"
        )


def check_parent(parent: object) -> str:
    """Return the parent if it is valid."""
    if type(parent) is str and parent.isprintable() and "/" not in parent:
        if 1 <= size_of(parent) <= MAX_PARENT_BYTES:
            return parent
    raise invalid(f"parent must be 1 to {MAX_PARENT_BYTES} bytes of printable text without a slash", "parent")


def parse_id(id: object) -> RowId:
    """Split a row id into parent and seq."""
    match = _ID.match(id) if type(id) is str else None
    if match is None:
        raise invalid("id must be of the form parent:seq", "id")
    return RowId(check_parent(match[1]), int(match[2]))


def is_field(name: str) -> bool:
    """Whether a payload may have a field of this name."""
    return name not in RESERVED and not name.startswith("$")


def rows_log(table: str, parent: str) -> str:
    """The log of a parent's rows."""
    return f"{table}/{parent}"


def changes_log(table: str, parent: str) -> str:
    """The log of the changes of a parent's rows."""
    return f"{table}~changes/{parent}"


def feed_log(table: str) -> str:
    """The log of the feed of a table, which refers to the rows of all parents."""
    return f"{table}~feed/all"


def table_of(log: str) -> str | None:
    """The table that a log of this name belongs to, or None if it is not the name of such a log."""
    return table_part(log)[0] if "/" in log else None


def is_rows_log(log: str) -> bool:
    """Whether a table's log of this name holds rows, and not changes or a feed."""
    return table_part(log)[1] == ROWS


def check_key(key: object) -> str | None:
    """Return the idempotency key if it is valid. An empty key counts as no key."""
    if key is None or key == "":
        return None
    if type(key) is not str or len(key) > MAX_KEY_BYTES or not 1 <= size_of(key) <= MAX_KEY_BYTES:
        raise invalid(f"idempotencyKey must be text of at most {MAX_KEY_BYTES} bytes", "idempotencyKey")
    return key


def size_of(text: str) -> int:
    """The size in bytes; 0 if the text is not valid Unicode."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0

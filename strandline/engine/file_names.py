"""The names of files in a data directory and in backups. Only the exact forms that Strandline writes are accepted.

A manifest or a backup may come from anywhere. A name in it becomes part of a path, so a name like ``../../x`` must be
rejected. Every name that is read from a file is checked by :func:`check_name`, and every directory listing by
:func:`is_name`. Damaged files are never deleted: :func:`put_aside` moves them to ``damaged/``.
"""

from __future__ import annotations

import re
from typing import Literal

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile

#: The kinds of names. The ``pool`` kinds are in backup pools.
Kind = Literal[
    "segment",
    "checkpoint",
    "journal",
    "index",
    "pool segment",
    "pool checkpoint",
    "pool journal",
    "replica object",
    "backup description",
]

_NUMBER = "[0-9]{8,19}"
_SUM = "[0-9a-f]{16}"
#: In the names of a replica's objects: the term of the server, and the number of the object in it.
_TERM = "-[0-9]{1,19}-[0-9]{1,19}"
#: The pattern of each kind, and an example for error messages.
_FORMS: dict[Kind, tuple[str, str]] = {
    "segment": (rf"({_NUMBER})\.arrow", "00000012.arrow"),
    "checkpoint": (rf"({_NUMBER})\.(?:full|changes)", "00000003.full"),
    "journal": (rf"({_NUMBER})\.journal", "00000034.journal"),
    "index": (rf"({_NUMBER})-{_NUMBER}-{_SUM}\.arrow", "00000001-00065536-45688295e9894d05.arrow"),
    "pool segment": (rf"({_NUMBER})-{_SUM}(?:{_TERM})?\.arrow", "00000012-45688295e9894d05.arrow"),
    "pool checkpoint": (rf"({_NUMBER})-{_SUM}(?:{_TERM})?\.(?:full|changes)", "00000003-91cf46bf0567c1e5.full"),
    "pool journal": (rf"({_NUMBER})-{_SUM}-{_SUM}\.journal", "00000034-76b2f55a471cc588-a12db550cba80fbd.journal"),
    "replica object": (
        rf"({_NUMBER})-{_SUM}{_TERM}\.(?:arrow|full|changes)",
        "00000012-45688295e9894d05-3-17.arrow",
    ),
    "backup description": (r"([0-9]{8})T[0-9]{6}\.[0-9]{3}Z\.json", "20261115T091335.027Z.json"),
}
#: The largest file number. Numbers have at least eight digits.
MAX_NUMBER = 1 << 53


def number_in(kind: Kind, name: str) -> int | None:
    """Return the number at the start of a name of this kind, or None for any other name."""
    found = re.fullmatch(_FORMS[kind][0], name)
    if found is None:
        return None
    number = int(found[1])
    # A number has only one name: leading zeros pad to eight digits and no further.
    return number if number < MAX_NUMBER and found[1] == f"{number:08d}" else None


def is_name(kind: Kind, name: str) -> bool:
    return number_in(kind, name) is not None


def check_name(kind: Kind, name: str, path: str) -> str:
    """Return the name if it is of this kind. Otherwise raise a DamagedFile for ``path``, the file that contains the
    name."""
    if not is_name(kind, name):
        raise DamagedFile(path, f"it names {name!r} as a {kind}; expected a name like {_FORMS[kind][1]}")
    return name


def check_number(what: str, number: int, path: str) -> int:
    """Return the number if it is a valid file number. Otherwise raise a DamagedFile for ``path``, the file that
    contains it."""
    if not 1 <= number < MAX_NUMBER:
        raise DamagedFile(path, f"it has the {what} {number}; expected a number from 1 to {MAX_NUMBER - 1}")
    return number


DAMAGED = "damaged"


def put_aside(disk: Disk, path: str) -> str:
    """Move a file to ``damaged/``, under a free name, and return its new path."""
    target = damaged_path(disk, path)
    disk.move(path, target)
    return target


def damaged_path(disk: Disk, path: str) -> str:
    """Return a free path in ``damaged/`` for this file."""
    disk.make_directory(DAMAGED)
    disk.sync_directory("")
    name = path.rpartition("/")[2]
    taken = set(disk.list(DAMAGED))
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return f"{DAMAGED}/{free}"

"""Files of companions that the table does not refer to: replaced ones, and what killed tasks have left.

They stay for a while, because somebody may still be reading them. Since when a file is of no use is not to be seen from
the file, so it is put down in the lake, by whoever looks first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from strandline.lake.place import Lake
from strandline.query.companions.listing import FOLDER

NOTED = f"{FOLDER}/unused.json"


class Noted(msgspec.Struct):
    """``since`` when each file is known to be unused, and when somebody ``looked`` for them; milliseconds."""

    looked: int = 0
    since: dict[str, int] = {}


def find_unused(lake: Lake, used: Iterable[str]) -> list[str]:
    """All files that are there and not used."""
    return sorted(lake.names(f"{FOLDER}/").keys() - set(used) - {NOTED})


def sweep(lake: Lake, used: Iterable[str], now: int, grace_s: int, remove: Callable[[list[str]], None]) -> list[str]:
    """Remove what has been known to be unused for so long, and put down what was found now. It is looked for once in
    such a time, so a file goes after one or two of them. ``remove`` removes files. Gives what was removed.

    A time in the future was noted by a round with a wrong clock. It counts as now."""
    stored = lake.read(NOTED)
    noted = Noted() if stored is None else _read(stored)
    if stored is not None and 0 <= now - noted.looked < grace_s * 1000:
        return []
    since = {path: min(noted.since.get(path, now), now) for path in find_unused(lake, used)}
    removed = [path for path, at in since.items() if now - at >= grace_s * 1000]
    remove(removed)
    left = {path: at for path, at in since.items() if path not in set(removed)}
    if left or stored is not None:
        lake.write(NOTED, msgspec.json.encode(Noted(now, left)))
    return removed


def _read(stored: bytes) -> Noted:
    try:
        return msgspec.json.decode(stored, type=Noted)
    except msgspec.DecodeError:
        # Everything unused counts as found now.
        return Noted()

"""Plans companions: what a log's configuration requires, what exists, what remains to do. Reads and writes nothing.

The companions of a log for one configuration form a *line*: consecutive ranges from the first seq. A line grows only at
its end. A changed configuration starts another line, and the old one stays until the new one has caught up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from strandline.history.log_info import LogInfo
from strandline.history.pieces import Piece
from strandline.query.index import Versions
from strandline.query.index_files.builder import plan_id_of, rollups_id, versions_between
from strandline.query.index_files.table import IndexEntry
from strandline.schema.log_search import log_search

#: The approximate maximum number of records of a companion. Larger companions would be fewer files, but a task builds a
#: companion in memory, and erasing one record rewrites all of it.
COMPANION_ROWS = 262_144
#: A log with a line is extended when it has this many new records, or ...
FEW_RECORDS = 4_096
#: ... when its newest companion is this old. A server indexes 4,096 records in a twentieth of a second, while each
#: companion costs a file, a task and rows in two tables. But readers of rollups in the lake should not wait for long.
FEW_WAIT_MS = 300_000

T = TypeVar("T")


class Wish(NamedTuple):
    """What the search configuration of a log requires: the fields to index, the rollups, and the schema versions."""

    info: LogInfo
    plan: str
    rollups: str
    versions: Versions


def wish_of(info: LogInfo) -> Wish | None:
    """None if the log has no searchable fields. Raises the errors of a damaged registry."""
    asked = None if info.registry is None else _asked(info.registry)
    return None if asked is None else Wish(info, *asked)


class _Asked(NamedTuple):
    plan: str
    rollups: str
    versions: Versions


#: The requirements of registries, by digest. Reading a registry takes a third of a millisecond, and rounds are
#: frequent.
_known: dict[bytes, _Asked | None] = {}
MAX_KNOWN = 200_000


def _asked(registry: bytes) -> _Asked | None:
    name = blake2b(registry, digest_size=16).digest()
    if name not in _known:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        found = log_search(registry)
        _known[name] = (
            None if found is None else _Asked(plan_id_of(found.config), rollups_id(found.config), found.versions)
        )
    return _known[name]


class CompanionLines(NamedTuple):
    """The existing companions for a wish.

    ``line`` was built for it. ``renewable`` continues at the end of the line with the right columns but other rollups.
    ``stale`` has all others.
    """

    line: list[IndexEntry]
    renewable: list[IndexEntry]
    stale: list[IndexEntry]

    @property
    def covered(self) -> int:
        return end_of(self.line)

    @property
    def old(self) -> list[IndexEntry]:
        """The companions to remove when the line has caught up with them."""
        return [*self.renewable, *self.stale]

    @property
    def is_replaced(self) -> bool:
        """Whether the line covers everything that the old companions cover."""
        return bool(self.old) and self.covered >= max(entry.info.last for entry in self.old)


def lines_of(wish: Wish, entries: Sequence[IndexEntry]) -> CompanionLines:
    """``entries`` are all companions of the log's epoch."""
    usable = [entry for entry in entries if _fits(entry, wish)]
    line = line_of(entry for entry in usable if entry.info.rollups == wish.rollups)
    renewable = line_of((entry for entry in usable if entry.info.rollups != wish.rollups), end_of(line))
    taken = {entry.path for entry in (*line, *renewable)}
    return CompanionLines(line, renewable, [entry for entry in entries if entry.path not in taken])


def _fits(entry: IndexEntry, wish: Wish) -> bool:
    info = entry.info
    return info.plan == wish.plan and info.versions == versions_between(wish.versions, info.first, info.last)


def line_of(entries: Iterable[IndexEntry], after: int = 0) -> list[IndexEntry]:
    """The consecutive companions after ``after``; of several with the same start, the longest."""
    found: list[IndexEntry] = []
    by_first = {
        entry.info.first: entry for entry in sorted(entries, key=lambda entry: (entry.info.last, entry.built_at))
    }
    while (entry := by_first.get(after + 1)) is not None:
        found.append(entry)
        after = entry.info.last
    return found


def end_of(line: Sequence[IndexEntry], after: int = 0) -> int:
    """The last seq that a line covers."""
    return line[-1].info.last if line else after


def counted(entries: Sequence[IndexEntry], wish: Wish | None) -> list[IndexEntry]:
    """The line of a log's companions that rollups are taken from: the one that has advanced furthest and, of several,
    the one that the configuration requires."""
    lines: dict[tuple[str, str], list[IndexEntry]] = {}
    for entry in entries:
        lines.setdefault((entry.info.plan, entry.info.rollups), []).append(entry)
    wished = None if wish is None else (wish.plan, wish.rollups)
    found = [(end_of(line), name == wished, name, line) for name, each in lines.items() if (line := line_of(each))]
    return max(found)[-1] if found else []


def is_short(wish: Wish, lines: CompanionLines) -> bool:
    """Whether a log of a table or a collection has no companion yet, and so few records that it needs none. There is a
    log for each parent or document; their companions would be many small files, and a server indexes few records in a
    moment."""
    return wish.info.owner is not None and not lines.line and wish.info.head < FEW_RECORDS


def is_due(wish: Wish, lines: CompanionLines, now: int, *, everything: bool) -> bool:
    """Whether to index the records after the line now."""
    line = lines.line
    new = wish.info.head - end_of(lines.renewable, lines.covered)
    if new <= 0:
        return False
    if is_short(wish, lines):
        return everything
    # A time in the future comes from a wrong clock; do not wait then.
    return everything or not line or new >= FEW_RECORDS or not 0 <= now - line[-1].built_at < FEW_WAIT_MS


# --- distributing the work -----------------------------------------------------------------------------------------


class CompanionRange(NamedTuple):
    """The range of a companion, and the pieces with its records."""

    first: int
    last: int
    pieces: list[Piece]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


def stretches_of(pieces: Sequence[Piece], after: int, through: int, rows: int) -> list[CompanionRange]:
    """All seqs after ``after`` up to ``through``, in ranges of about ``rows`` records; empty without pieces."""
    groups: list[list[Piece]] = []
    count = 0
    for piece in pieces:
        # A range may be a little larger, to avoid a small last one.
        if not groups or count + piece.rows > rows + rows // 4:
            groups.append([])
            count = 0
        groups[-1].append(piece)
        count += piece.rows
    found: list[CompanionRange] = []
    for at, group in enumerate(groups):
        last = through if at == len(groups) - 1 else group[-1].last
        found.append(CompanionRange(after + 1, last, group))
        after = last
    return found


def packed(things: Iterable[tuple[T, int]], size: int) -> Iterator[list[T]]:
    """Things with their weights, in order, in packs of about ``size``. Small things share a pack."""
    pack: list[T] = []
    weight = 0
    for thing, more in things:
        if pack and weight + more > size:
            yield pack
            pack, weight = [], 0
        pack.append(thing)
        weight += more
    if pack:
        yield pack


def merges_of(line: Sequence[IndexEntry], rows: int) -> list[list[IndexEntry]]:
    """The neighbours to merge.

    A companion is merged with the one before it while that has at most twice as many records (like chunks in memory)
    and both together have at most ``rows``. So a line stays short, and a record is written only a few times.
    """
    groups: list[list[IndexEntry]] = []
    counts: list[int] = []
    for entry in line:
        groups.append([entry])
        counts.append(entry.info.records)
        while len(groups) > 1 and counts[-2] <= 2 * counts[-1] and counts[-2] + counts[-1] <= rows:
            last, count = groups.pop(), counts.pop()
            groups[-1] += last
            counts[-1] += count
    return [group for group in groups if len(group) > 1]


def continued(line_end: int, made: Iterable[IndexEntry]) -> tuple[list[IndexEntry], list[IndexEntry]]:
    """The new companions that continue a line, and the rest, which follow a companion that could not be built."""
    made = list(made)
    following = line_of(made, line_end)
    taken = {entry.path for entry in following}
    return following, [entry for entry in made if entry.path not in taken]


def by_epoch(entries: Iterable[IndexEntry]) -> dict[int, list[IndexEntry]]:
    found: dict[int, list[IndexEntry]] = {}
    for entry in entries:
        found.setdefault(entry.info.epoch, []).append(entry)
    return found


def progress_name(epoch: int, plan: str) -> str:
    """The name under which the table stores the progress of a line."""
    return f"{epoch}/{plan}"

"""Planning companions: what a log asks for, what there is of it, what is left to do. Nothing in here reads or writes.

The companions of a log that were made for one configuration form a *line*: consecutive ranges from the first seq on.
A line only grows at its end. Another configuration begins another line, and the old one stays until that has come as
far.
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
from strandline.schema.registry import Registry

#: About so many records go into one companion. More would be fewer files to look into, but one task makes a companion
#: in its memory, and an erased record costs writing all of it anew.
COMPANION_ROWS = 262_144
#: A log that has a line waits until it has so many new records, or ...
FEW_RECORDS = 4_096
#: ... until its newest companion is so old. A server indexes so few in a twentieth of a second, while each companion is
#: a file, a task and rows of two tables. Whoever reads rollups in the lake does not want to wait for ever, though.
FEW_WAIT_MS = 300_000

T = TypeVar("T")


class Wish(NamedTuple):
    """What the search configuration of a log asks for: what is to be indexed and added up, under which versions."""

    info: LogInfo
    plan: str
    rollups: str
    versions: Versions


def wish_of(info: LogInfo) -> Wish | None:
    """None if nothing can be searched for in the log. Whatever a registry that is damaged raises comes through."""
    # Most logs have no search configuration.
    if info.registry is None or b'"search"' not in info.registry:
        return None
    asked = _asked(info.registry)
    return None if asked is None else Wish(info, *asked)


class _Asked(NamedTuple):
    plan: str
    rollups: str
    versions: Versions


#: What registries ask for, by a digest of each. Reading one takes a third of a millisecond, and rounds come often.
_known: dict[bytes, _Asked | None] = {}
MAX_KNOWN = 200_000


def _asked(registry: bytes) -> _Asked | None:
    name = blake2b(registry, digest_size=16).digest()
    if name not in _known:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        found = Registry.load(registry)
        search = found.search if found.search is not None and found.search.fields else None
        _known[name] = None if search is None else _Asked(plan_id_of(search), rollups_id(search), found.versions)
    return _known[name]


class CompanionLines(NamedTuple):
    """What there is of a wish.

    ``line`` is what was made for it. ``renewable`` goes on where the line ends and has the right columns, but other
    rollups. ``stale`` is everything else.
    """

    line: list[IndexEntry]
    renewable: list[IndexEntry]
    stale: list[IndexEntry]

    @property
    def covered(self) -> int:
        return end_of(self.line)

    @property
    def old(self) -> list[IndexEntry]:
        """What goes once the line has come as far."""
        return [*self.renewable, *self.stale]

    @property
    def is_replaced(self) -> bool:
        """Whether nothing is answered better by what is old."""
        return bool(self.old) and self.covered >= max(entry.info.last for entry in self.old)


def lines_of(wish: Wish, entries: Sequence[IndexEntry]) -> CompanionLines:
    """``entries`` are all that there are of the log's epoch."""
    usable = [entry for entry in entries if _fits(entry, wish)]
    line = line_of(entry for entry in usable if entry.info.rollups == wish.rollups)
    renewable = line_of((entry for entry in usable if entry.info.rollups != wish.rollups), end_of(line))
    taken = {entry.path for entry in (*line, *renewable)}
    return CompanionLines(line, renewable, [entry for entry in entries if entry.path not in taken])


def _fits(entry: IndexEntry, wish: Wish) -> bool:
    info = entry.info
    return info.plan == wish.plan and info.versions == versions_between(wish.versions, info.first, info.last)


def line_of(entries: Iterable[IndexEntry], after: int = 0) -> list[IndexEntry]:
    """Those that follow each other from behind ``after``; of several that begin together the longest."""
    found: list[IndexEntry] = []
    by_first = {
        entry.info.first: entry for entry in sorted(entries, key=lambda entry: (entry.info.last, entry.built_at))
    }
    while (entry := by_first.get(after + 1)) is not None:
        found.append(entry)
        after = entry.info.last
    return found


def end_of(line: Sequence[IndexEntry], after: int = 0) -> int:
    """The last seq that a line answers for."""
    return line[-1].info.last if line else after


def counted(entries: Sequence[IndexEntry], wish: Wish | None) -> list[IndexEntry]:
    """Of all companions of a log's epoch the line that rollups are taken from: the one that has come furthest and, of
    several, the one that is wished for."""
    lines: dict[tuple[str, str], list[IndexEntry]] = {}
    for entry in entries:
        lines.setdefault((entry.info.plan, entry.info.rollups), []).append(entry)
    wished = None if wish is None else (wish.plan, wish.rollups)
    found = [(end_of(line), name == wished, name, line) for name, each in lines.items() if (line := line_of(each))]
    return max(found)[-1] if found else []


def is_due(wish: Wish, lines: CompanionLines, now: int, *, everything: bool) -> bool:
    """Whether what the line does not have yet is to be indexed now."""
    line = lines.line
    new = wish.info.head - end_of(lines.renewable, lines.covered)
    if new <= 0:
        return False
    # A time in the future is that of a wrong clock: then there is no waiting.
    return everything or not line or new >= FEW_RECORDS or not 0 <= now - line[-1].built_at < FEW_WAIT_MS


# --- sharing out the work ------------------------------------------------------------------------------------------


class CompanionRange(NamedTuple):
    """The range of a companion, and the pieces that its records are in."""

    first: int
    last: int
    pieces: list[Piece]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


def stretches_of(pieces: Sequence[Piece], after: int, through: int, rows: int) -> list[CompanionRange]:
    """All seqs from behind ``after`` up to ``through``, in ranges with about so many records. None without pieces."""
    groups: list[list[Piece]] = []
    count = 0
    for piece in pieces:
        # A little more than asked for is better than a small rest.
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
    """Things with what they weigh, in order, in packs that weigh about ``size``: the small ones share a pack."""
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
    """Which neighbours are to become one.

    One is joined with the one before it while that has at most twice as many records, as chunks are in memory, and both
    together have at most ``rows``: so a line has few, and no record is written often.
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
    """Of what was made, what goes on where a line ends, and the rest: something before that could not be made."""
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
    """Under which name the table keeps how far a line has come."""
    return f"{epoch}/{plan}"

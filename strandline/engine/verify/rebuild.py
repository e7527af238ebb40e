"""Rebuild a lost manifest and lost states of logs from checkpoints, segment footers and the journal.

Some information cannot be recovered: a log gets the default configuration, and deleted or hidden records in segments
become visible again. All of this is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile
from strandline.engine.file_names import is_name
from strandline.engine.journal.bodies import Configure, Forward, unpack
from strandline.engine.journal.file import journal_indexes, journal_path, read_journal
from strandline.engine.journal.frame import Frame, FrameType
from strandline.engine.record import Config
from strandline.engine.segments.cold_tier import ColdStore
from strandline.engine.segments.footer import RunInfo, SegmentInfo, describe
from strandline.engine.segments.store import HOT_DIRECTORY, OWNER, object_name, segment_id, segment_path
from strandline.engine.state.checkpoints import (
    CHECKPOINTS,
    Manifest,
    SegmentEntry,
    checked,
    checkpoint_path,
    load_books,
    scan_checkpoint,
)
from strandline.engine.state.logbook import Gap, Logbook
from strandline.engine.state.parts import Run
from strandline.engine.state.ranges import SeqRanges

#: The footers of the readable segments, in the order of the manifest.
Footers = Mapping[int, list[RunInfo]]


def checkpoint_frames(disk: Disk, names: Iterable[str]) -> Iterator[Frame]:
    """Yield the readable frames of checkpoint files."""
    for name in names:
        try:
            yield from (item for item in scan_checkpoint(disk, name) if isinstance(item, Frame))
        except DamagedFile:
            continue


# --- the manifest --------------------------------------------------------------------------------------------


class Rebuilt(NamedTuple):
    manifest: Manifest
    #: Whether the manifest is current, so that only the journal has later changes.
    is_current: bool


def rebuild_manifest(disk: Disk, cold: ColdStore | None) -> Rebuilt:
    """Return the copy of the manifest in the newest checkpoint, or one rebuilt from the existing files."""
    names = sorted(filter(partial(is_name, "checkpoint"), disk.list(CHECKPOINTS)))
    base = None
    for name in reversed(names):
        for frame in checkpoint_frames(disk, [name]):
            if base is None and frame.type is FrameType.MANIFEST:
                base = checked(unpack(frame.body, Manifest), checkpoint_path(name))
        # The journal file at the boundary was created before the checkpoint and is removed when the next one is
        # written. If it is missing, it was lost, or there was a newer checkpoint. In the second case newer segments
        # count as well.
        if base is not None and name == names[-1] and disk.exists(journal_path(base.boundary)):
            return Rebuilt(_with_tiers(disk, cold, base), True)
    return Rebuilt(_piece_together(disk, cold, base, names), False)


def _with_tiers(disk: Disk, cold: ColdStore | None, manifest: Manifest) -> Manifest:
    """Update the tiers of segments. Moving a segment to the cold tier writes no checkpoint, so look where each
    one is."""
    for at, entry in enumerate(manifest.segments):
        if (
            not disk.exists(segment_path(entry.id))
            and cold is not None
            and cold.size(object_name(entry.id)) is not None
        ):
            manifest.segments[at] = SegmentEntry(entry.id, entry.size, entry.edges, entry.rows, "cold")
    return manifest


def _piece_together(disk: Disk, cold: ColdStore | None, base: Manifest | None, names: list[str]) -> Manifest:
    fulls = [at for at, name in enumerate(names) if name.endswith(".full")]
    manifest = Manifest() if base is None else base
    if base is None and cold is not None and (size := cold.size(OWNER)) is not None:
        manifest.id = cold.read(OWNER, 0, size).decode("utf-8", "replace")
    manifest.checkpoints = names[fulls[-1] :] if fulls else names
    manifest.segments = list(_find_segments(disk, cold))
    books = load_books(checkpoint_frames(disk, manifest.checkpoints))
    manifest.boundary = max(manifest.boundary, _find_boundary(disk, books))
    manifest.next_checkpoint = max([int(name.partition(".")[0]) + 1 for name in names], default=1)
    return manifest


def _find_segments(disk: Disk, cold: ColdStore | None) -> Iterator[SegmentEntry]:
    infos: dict[int, tuple[SegmentInfo, bool]] = {}
    for name in [] if cold is None else cold.list():
        if cold is not None and segment_id(name) is not None and (size := cold.size(name)) is not None:
            _describe(infos, name, cold.read(name, 0, size), is_cold=True)
    for name in disk.list(HOT_DIRECTORY):
        if segment_id(name) is not None:
            _describe(infos, name, disk.read(f"{HOT_DIRECTORY}/{name}"), is_cold=False)
    chosen = _without_superseded({id: info for id, (info, _) in infos.items()})
    for id in _in_order(chosen):
        info, is_cold = infos[id]
        yield SegmentEntry(id, info.size, info.edges, info.rows, "cold" if is_cold else "hot")


def _describe(infos: dict[int, tuple[SegmentInfo, bool]], name: str, raw: bytes, is_cold: bool) -> None:
    try:
        info = describe(name, raw)
    except DamagedFile:
        return
    if info.id == segment_id(name):
        infos[info.id] = info, is_cold


def _without_superseded(infos: dict[int, SegmentInfo]) -> dict[int, SegmentInfo]:
    """Remove the sources of merges. A merged segment has a higher number than its sources, which may still exist, and
    contains all their records."""
    chosen: dict[int, SegmentInfo] = {}
    covered: dict[int, list[tuple[int, int]]] = {}
    for id in sorted(infos, reverse=True):
        runs = infos[id].runs
        if any(run.first <= last and first <= run.last for run in runs for first, last in covered.get(run.epoch, ())):
            continue
        chosen[id] = infos[id]
        for run in runs:
            covered.setdefault(run.epoch, []).append((run.first, run.last))
    return chosen


def _in_order(infos: dict[int, SegmentInfo]) -> Iterable[int]:
    """Order the segments so that for every log an earlier segment has lower seqs."""
    places: dict[int, list[tuple[int, int]]] = {}
    for id, info in infos.items():
        for run in info.runs:
            places.setdefault(run.epoch, []).append((run.first, id))
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(sorted(infos), ()))
    for runs in places.values():
        ids = [id for _, id in sorted(runs)]
        for before, after in pairwise(ids):
            sorter.add(after, before)
    return sorter.static_order()


def _find_boundary(disk: Disk, books: Mapping[int, Logbook]) -> int:
    """Return the first journal file with a record that no log has yet. Earlier files may be kept for backups only."""
    indexes = journal_indexes(disk)
    for index in indexes:
        for frame in _journal_frames(disk, [index]):
            for epoch, first in _records_in(frame):
                book = books.get(epoch)
                if book is None or first > book.assigned:
                    return index
    return indexes[-1] if indexes else 1


def _records_in(frame: Frame) -> Iterator[tuple[int, int]]:
    """Yield the logs that a frame adds records to, and their first seqs."""
    if frame.type is FrameType.APPEND:
        yield frame.epoch, frame.first
    elif frame.type is FrameType.FORWARD:
        for target in unpack(frame.body, Forward).targets:
            if target.epoch:
                yield target.epoch, target.first


def _journal_frames(disk: Disk, indexes: Iterable[int]) -> Iterator[Frame]:
    for index in indexes:
        try:
            yield from (item for item in read_journal(disk, index).frames() if isinstance(item, Frame))
        except DamagedFile:
            continue


# --- states of logs ------------------------------------------------------------------------------------------


def rebuild_books(
    books: dict[int, Logbook], dropped: set[int], footers: Footers, unreadable: set[int]
) -> Iterator[str]:
    """Add what the footers contain and the books lack. Yield what was done, as sentences.

    ``unreadable`` are the segments that count but have unreadable footers.
    """
    runs: dict[int, list[Run]] = {}
    names: dict[int, str] = {}
    for segment, infos in footers.items():
        for info in infos:
            runs.setdefault(info.epoch, []).append(run_of(segment, info))
            names[info.epoch] = info.name
    newest = {book.name: book.epoch for book in sorted(books.values(), key=lambda book: book.epoch)}
    for epoch in sorted(runs, reverse=True):
        book = books.get(epoch)
        if book is not None:
            yield from _catch_up(book, runs[epoch], footers, unreadable)
        elif epoch not in dropped and newest.get(names[epoch], 0) < epoch:
            newest[names[epoch]] = epoch
            books[epoch] = _make_book(names[epoch], epoch, runs[epoch])
            yield (
                f"Log {names[epoch]!r}: its state is lost; it now has the default configuration, and records that were "
                "deleted or hidden in its segments are visible again."
            )
    for book in [book for book in books.values() if newest.get(book.name, book.epoch) > book.epoch]:
        del books[book.epoch]
        yield f"Log {book.name!r}: epoch {book.epoch} was dropped in favor of epoch {newest[book.name]}."


def _catch_up(book: Logbook, runs: list[Run], footers: Footers, unreadable: set[int]) -> Iterator[str]:
    """Update a state that is older than the segments: add the runs that exist now."""
    known = {run.segment: run for run in book.runs}
    if known.keys() <= footers.keys() | unreadable and runs[-1].last <= book.assigned:
        return
    # Runs in unreadable segments still belong to the log: the repair of the segments reports them as lost.
    there = [run for run in book.runs if run.segment in unreadable]
    there += [known.get(run.segment, run) for run in runs if run.last >= book.earliest]
    book.runs = tuple(sorted(there, key=lambda run: run.first))
    if unreadable:
        holes = SeqRanges(
            (one.last + 1, other.first - 1) for one, other in pairwise(book.runs) if other.first > one.last + 1
        )
        for gap in book.gaps:
            holes.remove(gap.first, gap.last)
        book.gaps = tuple(sorted([*book.gaps, *(Gap(first, last, "lost") for first, last in holes)]))
    book.assigned = book.head = max(book.assigned, runs[-1].last)
    book.last_ts = max(book.last_ts, runs[-1].ts_last)
    yield (
        f"Log {book.name!r}: its newest state is lost; an older one was used, so later deletions, hidden records "
        "and configuration changes are unknown."
    )


def _make_book(name: str, epoch: int, runs: list[Run]) -> Logbook:
    book = Logbook(name, epoch, Config())
    book.runs = tuple(runs)
    book.assigned = book.head = book.reserved = runs[-1].last
    book.last_ts = runs[-1].ts_last
    # It is unknown whether these seqs were lost or removed on purpose. Report them as lost: a superfluous tombstone is
    # harmless.
    edges = [0, *(run.last for run in runs)]
    starts = [run.first for run in runs]
    book.gaps = tuple(
        Gap(last + 1, first - 1, "lost") for last, first in zip(edges, starts, strict=False) if first > last + 1
    )
    return book


def adopt_frames(disk: Disk, manifest: Manifest, books: dict[int, Logbook], dropped: set[int]) -> Iterator[str]:
    """Give new names to logs of which only records in the journal are left."""
    configured: set[int] = set()
    for frame in _journal_frames(disk, [index for index in journal_indexes(disk) if index >= manifest.boundary]):
        manifest.next_epoch = max(manifest.next_epoch, frame.epoch + 1)
        if frame.type is FrameType.CONFIGURE:
            configured.add(frame.epoch)
            if frame.epoch in books and books[frame.epoch].name.startswith(NAMELESS):
                books[frame.epoch].name = unpack(frame.body, Configure).name
            continue
        for epoch, _ in _records_in(frame):
            manifest.next_epoch = max(manifest.next_epoch, epoch + 1)
            if epoch not in configured | dropped and epoch not in books:
                books[epoch] = Logbook(f"{NAMELESS}{epoch}", epoch, Config())
                yield f"Log {NAMELESS}{epoch}: records of a log whose name and state are lost."


def told_in_journal(disk: Disk, manifest: Manifest) -> set[int]:
    """Return the epochs of the logs whose number of assigned seqs is in the journal."""
    told: set[int] = set()
    for frame in _journal_frames(disk, [index for index in journal_indexes(disk) if index >= manifest.boundary]):
        # The header of every other frame has the highest seq of the log.
        if frame.type is not FrameType.AMEND:
            told.add(frame.epoch)
        if frame.type is FrameType.FORWARD:
            told.update(target.epoch for target in unpack(frame.body, Forward).targets)
    return told


#: The prefix of the new name of a log whose name is lost.
NAMELESS = "recovered-"


def run_of(segment: int, info: RunInfo) -> Run:
    """Return a run as the footer describes it. Its live records are not counted yet."""
    return Run(
        segment, info.first, info.last, info.row, info.rows, 0, 0,
        info.ts_first, info.ts_last, info.key_first, info.key_last,
    )  # fmt: skip

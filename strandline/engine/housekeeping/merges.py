"""Which segments are worth merging, and which cannot be."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from strandline.engine.errors import DamagedFile
from strandline.engine.segments.footer import RunInfo, SegmentInfo
from strandline.engine.segments.store import SegmentStore, segment_path
from strandline.engine.state.checkpoints import SegmentEntry
from strandline.engine.state.logbook import Logbook

#: So many neighbouring segments of like size are merged into one.
MERGE_SEGMENTS = 4
#: Merging takes about 300 bytes of memory per row in the worker.
MAX_MERGE_ROWS = 4_000_000
#: A segment of which less than this part is live is written anew without the rest.
MIN_LIVE = 0.5

log = logging.getLogger(__name__)


class Merge:
    """Neighbouring segments that become one; a single one is written anew without its deleted rows."""

    def __init__(self, sources: list[SegmentEntry]) -> None:
        self.sources = sources
        self.ids = {entry.id for entry in sources}
        self.info: SegmentInfo | None = None
        self._runs: dict[int, RunInfo] = {}

    def done(self, info: SegmentInfo | None) -> None:
        self.info = info
        self._runs = {} if info is None else {run.epoch: run for run in info.runs}

    def run_of(self, epoch: int) -> RunInfo | None:
        return self._runs.get(epoch)


class Merging:
    """Chooses merges. Neighbours only, so that a log's runs never interleave; nothing in the cold tier."""

    def __init__(self, store: SegmentStore, books: Mapping[int, Logbook], segment_bytes: int) -> None:
        self._store = store
        self._books = books
        self._segment_bytes = segment_bytes
        #: Segments in which something was deleted since they were last looked at.
        self.worn: set[int] = set()
        #: Segments that were found damaged; a restart looks at them again.
        self._unreadable: set[int] = set()

    def wanted(self, segments: list[SegmentEntry]) -> list[Merge]:
        merges = [Merge([entry]) for entry in segments if self._is_worn_out(entry)]
        alone = {merge.sources[0].id for merge in merges}
        group: list[SegmentEntry] = []
        for entry in segments:
            if entry.tier == "cold" or entry.id in alone or entry.id in self._unreadable:
                group = []
                continue
            if group and _level(entry) != _level(group[0]):
                group = []
            group.append(entry)
            if len(group) == MERGE_SEGMENTS:
                small = sum(member.size for member in group) <= self._segment_bytes
                few = sum(member.rows for member in group) <= MAX_MERGE_ROWS
                if small and few and all(map(self.is_readable, group)):
                    merges.append(Merge(group))
                group = []
        return merges

    def books_in(self, merges: list[Merge]) -> Iterator[Logbook]:
        for merge in merges:
            for entry in merge.sources:
                for info in self._store.segment(entry.id).runs:
                    book = self._books.get(info.epoch)
                    if book is not None:
                        yield book

    def failed(self, merge: Merge, error: DamagedFile) -> None:
        """Damaged segments stay as they are: what is wrong with one must not hold up everything else."""
        self._unreadable.update(entry.id for entry in merge.sources if segment_path(entry.id) == error.path)
        self._unreadable.update(merge.ids if not merge.ids & self._unreadable else ())
        log.error("segments %s are not merged: %s", sorted(merge.ids), error)

    def is_readable(self, entry: SegmentEntry) -> bool:
        if entry.id not in self._unreadable:
            try:
                self._store.segment(entry.id)
            except DamagedFile as error:
                self._unreadable.add(entry.id)
                log.error("%s", error)
        return entry.id not in self._unreadable

    def _is_worn_out(self, entry: SegmentEntry) -> bool:
        """Whether so much of a segment was deleted that it is worth writing anew."""
        if entry.id not in self.worn or entry.tier == "cold":
            return False
        if not self.is_readable(entry):
            return False
        live = 0
        for info in self._store.segment(entry.id).runs:
            book = self._books.get(info.epoch)
            for run in book.runs if book is not None else ():
                if run.segment == entry.id:
                    live += run.live if run.overlay is None or not run.overlay.hidden else run.rows
        if live < entry.rows * MIN_LIVE:
            return True
        self.worn.discard(entry.id)
        return False


def _level(entry: SegmentEntry) -> int:
    """Segments up to 1 MiB are on level 0, up to 4 MiB on level 1, and so on."""
    return ((entry.size >> 20).bit_length() + 1) // 2

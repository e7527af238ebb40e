"""A log with a lake beside it: companions are built, merged and listed as a pipeline does it, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.engine import Batch, Engine, Log, ManualClock
from strandline.engine.operations.erasures import NAME as ERASURES_LOG
from strandline.engine.reads.status import live_ranges_of
from strandline.engine.state.checkpoints import read_manifest
from strandline.lake.files import write_file
from strandline.lake.location import Lake
from strandline.lake.table import LakeTable
from strandline.query.config import SearchConfig
from strandline.query.index_files.builder import Made, Origin, build, merge
from strandline.query.index_files.catalog import IndexCatalog
from strandline.query.index_files.file import IndexFile, open_index_file
from strandline.query.index_files.table import ERASURES, FOLDER, TABLE, IndexEntry, listed_in, listed_table
from strandline.query.index_files.table_schemas import LISTED
from strandline.query.searcher import Searcher
from strandline.service.workers import Workers
from support.searched_log import CONFIG, NOW, ROOM, Bed, encode


class CompanionBed(Bed):
    """As a Bed, with two searchers: ``searcher`` answers from companions as far as there are any, ``bare`` never."""

    def __init__(self, engine: Engine, root: Path, config: SearchConfig = CONFIG, log: Log | None = None) -> None:
        super().__init__(engine, config, log=log)
        self.root = root
        self.lake = Lake.at(root / "lake")
        self.table = LakeTable(self.lake, TABLE, LISTED)
        self.shelf = IndexCatalog(self.lake, root / "cache", Workers().lake, look_seconds=0)
        self.covered = self.searcher = Searcher(ROOM, [self.shelf])
        self.bare = Searcher(ROOM)
        self._files = 0

    @property
    def directory(self) -> str:
        manifest = read_manifest(self.engine.disk)
        assert manifest is not None
        return manifest.id

    def append_raw(self, *payloads: bytes) -> None:
        self.log.append(Batch(list(payloads))).wait()

    # --- what a pipeline does ----------------------------------------------------------------------------------------

    def erasures(self) -> int:
        events = self.engine.find(ERASURES_LOG)
        if events is None:
            return 0
        events.sync().wait()
        return events.head

    def made(self, first: int, last: int) -> Made:
        """The companion of these seqs, as the log is now."""
        origin = Origin(
            directory=self.directory,
            log=self.log.name,
            epoch=self.log.epoch,
            first=first,
            last=last,
            versions=tuple(self.versions),
            erasures=self.erasures(),
        )
        return build(origin, self.config, self._batches(first, last))

    def _batches(self, first: int, last: int) -> Iterator[Any]:
        after = first - 1
        while after < last:
            page = self.log.read(after, min(1000, last - after))
            rows = [row for row, seq in enumerate(page.seqs) if seq <= last]
            yield pa.record_batch(
                {
                    "seq": pa.array([page.seqs[row] for row in rows], pa.int64()),
                    "data": pa.array([page.data[row] for row in rows], pa.binary()),
                }
            )
            after = page.next_after
            if page.caught_up:
                return

    def put(self, made: Made) -> IndexEntry:
        """A file in the lake that is not listed yet."""
        self._files += 1
        path = f"{FOLDER}/{self._files:04d}.arrow"
        self.lake.write(path, bytes(made.content))
        return IndexEntry.of(made, path, NOW)

    def list(self, *entries: IndexEntry, instead_of: Iterable[str] = (), erasures: int | None = None) -> None:
        """Change the table in one step. ``instead_of``: the paths of those that go."""
        gone = set(instead_of)
        kept = [entry for entry in self.listed() if entry.path not in gone]
        file = write_file(self.lake, TABLE, LISTED, [listed_table([*kept, *entries])])
        progress = {} if erasures is None else {ERASURES: erasures}
        snapshot = self.table.snapshot()
        snapshot.commit(add=[] if file is None else [file], remove=snapshot.files(), progress=progress)

    def listed(self) -> list[IndexEntry]:
        return listed_in(self.table.open().to_pyarrow_table()) if self.table.exists else []

    def cover(self, *ranges: tuple[int, int]) -> None:
        """Companions for these seqs, from the first to the last of each."""
        self.list(*[self.put(self.made(first, last)) for first, last in ranges])

    def companion(self, entry: IndexEntry) -> IndexFile:
        assert self.lake.directory is not None
        return open_index_file(str(self.lake.directory / entry.path))

    def merge(self, entries: Sequence[IndexEntry], **settings: Any) -> IndexEntry:
        """One in the place of several."""
        entry = self.put(merge([self.companion(entry) for entry in entries], self.config, **settings))
        self.list(entry, instead_of=[entry.path for entry in entries])
        return entry

    def standing(self) -> list[tuple[int, int]]:
        return live_ranges_of(self.log).ranges

    # --- asking both -------------------------------------------------------------------------------------------------

    @contextmanager
    def without_companions(self) -> Iterator[None]:
        self.searcher = self.bare
        try:
            yield
        finally:
            self.searcher = self.covered


@contextmanager
def companion_bed(path: Path, config: SearchConfig = CONFIG) -> Iterator[CompanionBed]:
    with Engine.open(path / "data", clock=ManualClock(NOW), background=False) as engine:
        yield CompanionBed(engine, path, config)


__all__ = ["CompanionBed", "companion_bed", "encode"]

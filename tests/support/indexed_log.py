"""A log whose index files are built in the background, driven by hand, beside a searcher that indexes in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.engine import Config, Engine, ManualClock
from strandline.query import providers
from strandline.query.index_files import plan
from strandline.query.index_files.directory import IndexDirectory
from strandline.query.index_files.indexer import Indexer
from strandline.query.index_files.table import IndexEntry
from strandline.query.searcher import Searcher
from support.searched_log import NOW, ROOM, Bed


class IndexedBed(Bed):
    """``searcher`` answers from index files and the tail, ``bare`` from memory only."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, log=engine.find("log") or engine.create("log", Config(durability="memory")).wait())
        self.directory = IndexDirectory(engine.disk)
        self.indexed = self.searcher = Searcher(ROOM, [self.directory])
        self.bare = Searcher(ROOM)
        self.indexer = Indexer(engine, self.indexed, self.directory, lambda log: (self.config, self.versions))
        self.indexer.prepare()

    def entries(self) -> list[IndexEntry]:
        return list(self.directory.entries_of(self.log.epoch).entries)

    def ranges(self) -> list[tuple[int, int]]:
        return [(entry.info.first, entry.info.last) for entry in self.entries()]

    def fill(self, count: int) -> None:
        seqs = range(self.log.head + 1, self.log.head + count + 1)
        self.append(*[{"status": seq, "at": NOW + seq, "took": 1.5, "note": f"record {seq % 7}"} for seq in seqs])

    def index(self) -> None:
        """Seal everything, and index what was sealed."""
        self.engine.seal()
        self.indexer.work()

    @contextmanager
    def without_files(self) -> Iterator[None]:
        self.searcher = self.bare
        try:
            yield
        finally:
            self.searcher = self.indexed


@contextmanager
def indexed_bed(path: Path) -> Iterator[IndexedBed]:
    with Engine.open(path, clock=ManualClock(NOW), background=False) as engine:
        bed = IndexedBed(engine)
        try:
            yield bed
        finally:
            bed.indexer.stop()


def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index files for ten records and more, built for at most 20, and merged up to 100."""
    monkeypatch.setattr(providers, "MIN_FILE_ROWS", 10)
    monkeypatch.setattr(plan, "MAX_BUILD_ROWS", 20)
    monkeypatch.setattr(plan, "MAX_FILE_ROWS", 100)

"""A log with index files of the server and of the lake: where one cannot be used, the other answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from support.companion_lake import CompanionBed
from support.indexed_log import small_files
from support.searched_log import NOW, ROOM

from strandline.engine import Engine, ManualClock, Options
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.query.index_files.directory import IndexDirectory
from strandline.query.index_files.file import IndexFile
from strandline.query.index_files.indexer import Indexer
from strandline.query.index_files.table import IndexEntry
from strandline.query.searcher import Searcher


class BothBed(CompanionBed):
    """The lake has one file for all records, and the server may have own ones."""

    def __init__(self, engine: Engine, root: Path) -> None:
        super().__init__(engine, root)
        self.own = IndexDirectory(engine.disk)
        self.searcher = Searcher(ROOM, [self.own, self.shelf])
        self.indexer = Indexer(engine, self.searcher, self.own, lambda log: (self.config, self.versions))
        self.append(*[{"status": number, "note": f"number {number}"} for number in range(40)])
        self.cover((1, 40))
        engine.seal()
        self.indexer.work()

    @property
    def own_ranges(self) -> list[tuple[int, int]]:
        return [(entry.info.first, entry.info.last) for entry in self.own.entries_of(self.log.epoch).entries]

    def found(self) -> tuple[int, int, int]:
        """The hits of a search, the index files that it examined, and the records that may be missing."""
        result = self.search("has:status", size=100)
        return len(result.hits), result.coverage.index_files, result.coverage.missing

    def lose_lake_file(self) -> None:
        [entry] = self.listed()
        assert self.lake.directory is not None
        (self.lake.directory / entry.path).unlink()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)


@contextmanager
def both(path: Path, *, cold: bool = False) -> Iterator[BothBed]:
    settings: dict[str, Any] = {"cold": ObjectStoreCold(str(path / "cold"))} if cold else {}
    options = Options(hot_segments=0) if cold else Options()
    with Engine.open(path / "data", options, clock=ManualClock(NOW), background=False, **settings) as engine:
        bed = BothBed(engine, path)
        try:
            yield bed
        finally:
            bed.indexer.stop()


def test_the_larger_file_answers(tmp_path: Path) -> None:
    with both(tmp_path) as bed:
        assert bed.own_ranges == [(1, 20), (21, 40)]
        assert bed.found() == (40, 1, 0)


@pytest.mark.parametrize("cold", [False, True])
def test_a_search_waits_for_an_object_store_only_if_it_must(
    tmp_path: Path, cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def fetched(entry: IndexEntry, deadline: float) -> IndexFile | None:
        if deadline <= perf_counter():
            return None
        waits.append(deadline)
        return opened(entry, deadline)

    with both(tmp_path, cold=cold) as bed:
        opened = bed.shelf.open
        monkeypatch.setattr(bed.shelf, "open", fetched)
        assert bed.found() == ((40, 1, 0) if cold else (40, 2, 0))
        assert len(waits) == (1 if cold else 0)


@pytest.mark.parametrize("how", ["missing", "not there in time"])
def test_own_files_answer_in_the_place_of_one_of_the_lake(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with both(tmp_path) as bed:
        if how == "missing":
            bed.lose_lake_file()
        else:
            # As for a file in an object store that does not answer.
            monkeypatch.setattr(bed.shelf, "open", lambda entry, deadline: None)
        assert bed.found() == (40, 2, 0)
        assert bed.found() == (40, 2, 0)


def test_the_server_indexes_the_cold_tier_if_the_file_of_the_lake_is_damaged(tmp_path: Path) -> None:
    with both(tmp_path, cold=True) as bed:
        assert bed.own_ranges == []
        assert bed.found() == (40, 1, 0)
        bed.lose_lake_file()
        bed.shelf.report(bed.listed()[0].path, FileNotFoundError("lost"))
        assert bed.found() == (0, 0, 40)
        bed.indexer.work()
        assert bed.own_ranges == [(1, 20), (21, 40)]
        assert bed.found() == (40, 2, 0)
        # The pipeline builds its file again.
        bed.list(bed.put(bed.made(1, 40)), instead_of=[entry.path for entry in bed.listed()])
        assert bed.found() == (40, 1, 0)

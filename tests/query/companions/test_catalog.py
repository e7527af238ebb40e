"""Which companions there are: what the table says, as soon as it says it, and no file that cannot be used."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.companion_lake import CompanionBed
from support.object_store import object_store
from support.searched_log import ROOM

from strandline.lake.location import Lake
from strandline.lake.table import LakeTable
from strandline.query.index_files import catalog as shelving
from strandline.query.index_files.catalog import IndexCatalog, StoreRequests
from strandline.query.index_files.table import TABLE
from strandline.query.index_files.table_schemas import LISTED
from strandline.query.searcher import Searcher
from strandline.service.workers import Workers


def append(covered: CompanionBed, count: int) -> None:
    covered.append(*[{"status": number, "note": f"number {number}"} for number in range(count)])


def used(covered: CompanionBed) -> tuple[int, int]:
    """How many companions a search looked at, and how many records it had to read."""
    coverage = covered.search("has:status").coverage
    assert coverage.complete
    return coverage.index_files, coverage.caught_up


def test_what_is_listed_is_used_at_once_and_what_is_not_any_more_is_not(covered: CompanionBed) -> None:
    append(covered, 30)
    assert used(covered) == (0, 30)
    covered.cover((1, 10))
    assert used(covered) == (1, 0)
    covered.cover((11, 20))
    assert used(covered) == (2, 0)
    covered.merge(covered.listed())
    assert used(covered) == (1, 0)
    assert covered.covered.indexes.nbytes < covered.bare.indexes.nbytes or not covered.bare.indexes.nbytes
    covered.list(instead_of=[entry.path for entry in covered.listed()])
    assert used(covered) == (0, 20)


def test_it_is_looked_at_most_once_in_a_while(covered: CompanionBed) -> None:
    now = [100.0]
    shelf = IndexCatalog(covered.lake, covered.root / "cache", Workers().lake, look_seconds=1.0, clock=lambda: now[0])
    covered.searcher = Searcher(ROOM, [shelf])
    append(covered, 10)
    assert used(covered) == (0, 10)
    covered.cover((1, 10))
    assert used(covered) == (0, 0)
    now[0] += 1.5
    assert used(covered) == (1, 0)


def test_memory_that_companions_made_unnecessary_is_given_back(covered: CompanionBed) -> None:
    append(covered, 500)
    covered.search("has:status")
    before = covered.searcher.indexes.nbytes
    covered.cover((1, 495))
    covered.search("has:status")
    assert 0 < covered.searcher.indexes.nbytes < before / 10


@pytest.mark.parametrize("how", ["missing", "empty", "damaged head", "damaged column", "another one"])
def test_a_file_that_cannot_be_used_is_told_and_the_records_are_indexed_in_memory(
    covered: CompanionBed, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(covered, 30)
    covered.cover((1, 10), (11, 20))
    broken, other = sorted(covered.listed(), key=lambda entry: entry.info.first)
    assert covered.lake.directory is not None
    path = covered.lake.directory / broken.path
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "damaged head":
        path.write_bytes(content.replace(b"STRDCOMP", b"STRDCOMQ"))
    elif how == "damaged column":
        places = covered.companion(broken).head.arrays["column:status:values"].buffers
        damaged = bytearray(content)
        damaged[places[0][0]] ^= 1
        path.write_bytes(damaged)
    else:
        path.write_bytes((covered.lake.directory / other.path).read_bytes())
    with caplog.at_level(logging.WARNING):
        assert covered.seqs("status:5") == [6]
        assert len(covered.seqs("has:status", size=100)) == 30
    told = [record.getMessage() for record in caplog.records if broken.path in record.getMessage()]
    assert len(told) == 1
    assert covered.search("has:status", size=100).coverage.index_files == 1


def test_a_table_that_was_moved_away_and_created_again_is_read_from_the_beginning(covered: CompanionBed) -> None:
    append(covered, 30)
    for first in (1, 11):
        covered.cover((first, first + 9))
    assert used(covered) == (2, 10)
    assert covered.lake.directory is not None
    (covered.lake.directory / TABLE).rename(covered.root / "moved away")
    assert used(covered) == (0, 20)
    for first in (1, 11, 21):
        covered.cover((first, first + 9))
    assert used(covered) == (3, 0)


def test_a_lake_with_index_files_is_searched_without_a_library_for_it(covered: CompanionBed) -> None:
    append(covered, 30)
    covered.cover((1, 10), (11, 20))
    epoch = covered.listed()[0].info.epoch
    script = f"""
import sys
from pathlib import Path
from strandline.lake.location import Lake
from strandline.query.index_files.catalog import IndexCatalog
from strandline.service.workers import Workers
shelf = IndexCatalog(Lake.at({covered.lake.url!r}), Path({str(covered.root / "cache")!r}), Workers().lake)
print(len(shelf.entries_of({epoch}).entries), sorted(sys.modules.keys() & {{"deltalake", "duckdb"}}))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout == "2 []\n"


def test_without_a_lake_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from strandline.lake.location import Lake
from strandline.query.index_files.catalog import IndexCatalog
from strandline.query.searcher import Searcher
from strandline.service.workers import Workers
shelf = IndexCatalog(Lake.at({str(tmp_path / "lake")!r}), Path({str(tmp_path / "cache")!r}), Workers().lake)
assert shelf.entries_of(1).entries == ()
assert "deltalake" not in sys.modules, "it takes long to load"
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.fixture
def store() -> Iterator[dict[str, str | bool]]:
    with object_store("lake") as options:
        yield options


def test_companions_in_an_object_store_are_fetched_once_and_kept_within_bounds(
    covered: CompanionBed, store: dict[str, str | bool]
) -> None:
    covered.lake = Lake.at("s3://lake/here", **store)
    covered.table = LakeTable(covered.lake, TABLE, LISTED)
    append(covered, 40)
    covered.cover((1, 20), (21, 40))
    cache = covered.root / "cache"
    covered.searcher = Searcher(ROOM, [IndexCatalog(covered.lake, cache, Workers().lake, look_seconds=0)])
    assert used(covered) == (2, 0)
    assert len(list(cache.iterdir())) == 2
    # Another server of the same directory finds what this one has fetched.
    paths = [entry.path for entry in covered.listed()]
    covered.lake.remove(paths[:1])
    covered.searcher = Searcher(ROOM, [IndexCatalog(covered.lake, cache, Workers().lake, look_seconds=0)])
    assert used(covered) == (2, 0)
    small = IndexCatalog(covered.lake, covered.root / "small", Workers().lake, look_seconds=0, cache_bytes=1)
    covered.searcher = Searcher(ROOM, [small])
    assert used(covered) == (1, 20)
    assert len(list((covered.root / "small").iterdir())) == 1


def test_an_object_store_that_does_not_answer_holds_nobody_up(
    covered: CompanionBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelving, "PATIENCE_SECONDS", 0.01)
    silent = socket.create_server(("127.0.0.1", 0))
    options = {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "region": "us-east-1", "allow_http": True}
    lake = Lake.at("s3://lake/here", access_key_id="test", secret_access_key="test", **options)
    covered.searcher = Searcher(ROOM, [IndexCatalog(lake, covered.root / "cache", Workers().lake, look_seconds=0)])
    append(covered, 10)
    assert used(covered) == (0, 10)
    assert used(covered) == (0, 0)
    silent.close()


def test_an_errand_that_takes_long_is_waited_for_by_the_next_who_asks() -> None:
    errands, begun, go_on = StoreRequests(Workers().lake), [], threading.Event()

    def work() -> str:
        begun.append(1)
        go_on.wait(60)
        return "done"

    assert errands.run("a", work, 0) is None
    assert errands.run("a", work, 0) is None
    go_on.set()
    assert errands.run("a", work, 60) == "done"
    assert len(begun) <= 2
    with pytest.raises(ZeroDivisionError):
        errands.run("b", lambda: 1 // 0, 60)

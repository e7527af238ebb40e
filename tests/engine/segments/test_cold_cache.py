from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Barrier, Event, Lock

import pytest

from strandline.engine.segments.cold_tier import (
    PIECE_BYTES,
    PIECES_PER_REQUEST,
    ColdCache,
    Fetcher,
    ObjectStoreCold,
    empty_directory,
)

NAME = "00000001.arrow"
#: The last piece is not a whole one.
CONTENT = Random(1).randbytes(24 * PIECE_BYTES + 4321)


class CountingCold(ObjectStoreCold):
    """Writes down which pieces each request was for."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.requests: list[range] = []
        self._lock = Lock()

    def read(self, name: str, start: int, end: int) -> bytes:
        with self._lock:
            assert start % PIECE_BYTES == 0
            assert end % PIECE_BYTES == 0 or end == len(CONTENT)
            self.requests.append(range(start // PIECE_BYTES, -(-end // PIECE_BYTES)))
        return super().read(name, start, end)


@pytest.fixture
def cold(tmp_path: Path) -> CountingCold:
    cold = CountingCold(str(tmp_path / "cold"))
    cold.put(NAME, CONTENT)
    return cold


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def opened(cache: ColdCache, name: str = NAME) -> Fetcher:
    with cache.opening(name, len(CONTENT)) as fetcher:
        return fetcher


def test_neighbouring_pieces_come_in_one_request(cold: CountingCold, directory: Path) -> None:
    fetch = opened(ColdCache(cold, str(directory), 1 << 30))
    fetch(5 * PIECE_BYTES + 1, 7 * PIECE_BYTES + 1)
    assert cold.requests == [range(5, 8)]
    assert (
        Path(fetch.path).read_bytes()[5 * PIECE_BYTES : 8 * PIECE_BYTES] == (CONTENT[5 * PIECE_BYTES : 8 * PIECE_BYTES])
    )


def test_only_what_is_missing_is_fetched(cold: CountingCold, directory: Path) -> None:
    cache = ColdCache(cold, str(directory), 1 << 30)
    fetch = opened(cache)
    fetch(2 * PIECE_BYTES, 3 * PIECE_BYTES)
    fetch(0, 5 * PIECE_BYTES)
    fetch(0, 5 * PIECE_BYTES)
    opened(cache)(0, 5 * PIECE_BYTES)
    assert cold.requests == [range(2, 3), range(2), range(3, 5)]
    assert cache.used == 5 * PIECE_BYTES


def test_a_long_run_comes_in_several_requests(cold: CountingCold, directory: Path) -> None:
    fetch = opened(ColdCache(cold, str(directory), 1 << 30))
    fetch(0, len(CONTENT))
    assert cold.requests == [range(PIECES_PER_REQUEST), range(PIECES_PER_REQUEST, 25)]
    assert Path(fetch.path).read_bytes() == CONTENT


def test_nothing_is_fetched_behind_the_end(cold: CountingCold, directory: Path) -> None:
    cache = ColdCache(cold, str(directory), 1 << 30)
    fetch = opened(cache)
    fetch(24 * PIECE_BYTES, 99 * PIECE_BYTES)
    fetch(len(CONTENT), len(CONTENT))
    assert cold.requests == [range(24, 25)]
    assert cache.used == 4321


def test_a_copy_over_the_limit_goes_and_those_who_have_it_go_on(cold: CountingCold, directory: Path) -> None:
    cache = ColdCache(cold, str(directory), 2 * PIECE_BYTES)
    fetch = opened(cache)
    with open(fetch.path, "rb") as file:
        fetch(0, 2 * PIECE_BYTES)
        assert not fetch.retired
        fetch(2 * PIECE_BYTES, 3 * PIECE_BYTES)
        assert fetch.retired
        assert cache.used == 0
        assert list(directory.iterdir()) == []
        fetch(3 * PIECE_BYTES, 4 * PIECE_BYTES)
        assert file.read(4 * PIECE_BYTES) == CONTENT[: 4 * PIECE_BYTES]
    assert cache.used == 0


def test_a_copy_keeps_its_path_while_it_is_being_opened(cold: CountingCold, directory: Path) -> None:
    cache = ColdCache(cold, str(directory), 0)
    with cache.opening(NAME, len(CONTENT)) as fetch:
        fetch(0, PIECE_BYTES)
        assert Path(fetch.path).exists()
    assert not Path(fetch.path).exists()
    with cache.opening(NAME, len(CONTENT)) as fetch:
        fetch(0, PIECE_BYTES)
        cache.discard(NAME)
        assert Path(fetch.path).exists()
    assert not Path(fetch.path).exists()


def test_a_copy_that_was_discarded_is_fetched_anew(cold: CountingCold, directory: Path) -> None:
    cache = ColdCache(cold, str(directory), 1 << 30)
    opened(cache)(0, 1)
    cache.discard(NAME)
    cache.discard(NAME)
    assert cache.used == 0
    opened(cache)(0, 1)
    assert cold.requests == [range(1), range(1)]


def test_the_copy_that_was_read_longest_ago_goes_first(cold: CountingCold, directory: Path) -> None:
    cache = ColdCache(cold, str(directory), 2 * PIECE_BYTES)
    for name in ("a", "b", "c"):
        cold.put(name, CONTENT)
    fetchers = {name: opened(cache, name) for name in ("a", "b", "c")}
    fetchers["a"](0, 1)
    fetchers["b"](0, 1)
    fetchers["a"](0, 1)
    fetchers["c"](0, 1)
    assert {name: fetcher.retired for name, fetcher in fetchers.items()} == {
        "a": False,
        "b": True,
        "c": False,
    }


def test_a_piece_that_many_want_is_read_once(cold: CountingCold, directory: Path) -> None:
    fetch = opened(ColdCache(cold, str(directory), 1 << 30))
    barrier = Barrier(8)

    def read(number: int) -> None:
        barrier.wait()
        fetch(number * PIECE_BYTES, (number + 4) * PIECE_BYTES)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    fetched = [piece for request in cold.requests for piece in request]
    assert sorted(fetched) == list(range(11))
    assert Path(fetch.path).read_bytes()[: 11 * PIECE_BYTES] == CONTENT[: 11 * PIECE_BYTES]


def test_who_waits_for_a_read_that_fails_reads_for_himself(cold: CountingCold, directory: Path) -> None:
    reading, fail = Event(), Event()

    class FailingOnce(CountingCold):
        def read(self, name: str, start: int, end: int) -> bytes:
            if not reading.is_set():
                reading.set()
                fail.wait()
                raise ConnectionResetError("the store hung up")
            return super().read(name, start, end)

    cache = ColdCache(FailingOnce(cold.describe()), str(directory), 1 << 30)
    fetch = opened(cache)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fetch, 0, PIECE_BYTES)
        reading.wait()
        second = pool.submit(fetch, 0, 2 * PIECE_BYTES)
        fail.set()
        with pytest.raises(ConnectionResetError):
            first.result()
        second.result()
    assert cache.used == 2 * PIECE_BYTES


def test_emptying_leaves_the_directory(tmp_path: Path) -> None:
    empty_directory(str(tmp_path / "not there"))
    (tmp_path / "1-00000001.arrow").write_bytes(b"old")
    empty_directory(str(tmp_path))
    assert list(tmp_path.iterdir()) == []

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Barrier
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BadConfig, BadRequest, DamagedFile, MissingFile
from strandline.engine.segments import writer
from strandline.engine.segments.cold_tier import PIECE_BYTES, ColdStore, ObjectStoreCold
from strandline.engine.segments.footer import SegmentInfo
from strandline.engine.segments.store import SegmentStore, UnknownSegment, object_name, segment_path
from strandline.engine.segments.writer import SegmentColumns, SegmentRun, Strings, write_segment
from strandline.engine.state.block import Block

MIB = 1 << 20
#: Payloads do not compress, and a block holds a MiB: sixteen payloads of 64 KiB each.
PAYLOAD_BYTES = 64 << 10
ROWS_PER_BLOCK = 16


@pytest.fixture(autouse=True)
def _large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So large that a segment of a few of them is larger than the pieces that are fetched of it."""
    monkeypatch.setattr(writer, "BLOCK_BYTES", ROWS_PER_BLOCK * PAYLOAD_BYTES)


class Payloads:
    def __init__(self, values: list[bytes | None]) -> None:
        self._values = values
        self.lengths = np.array([-1 if value is None else len(value) for value in values], np.int64)

    def join(self, start: int, end: int) -> bytes:
        return b"".join([value for value in self._values[start:end] if value is not None])


def payloads(id: int, blocks: int) -> list[bytes]:
    random = Random(id)
    return [random.randbytes(PAYLOAD_BYTES) for _ in range(blocks * ROWS_PER_BLOCK)]


def write(disk: LocalDisk, id: int, blocks: int = 4) -> SegmentInfo:
    data = payloads(id, blocks)
    rows = len(data)
    nothing = Strings(np.full(rows, -1, np.int32), pa.array([], pa.utf8()))
    columns = SegmentColumns(
        np.arange(1, rows + 1),
        np.full(rows, 1_700_000_000_000),
        nothing,
        nothing,
        Payloads([None] * rows),
        Payloads(list(data)),
    )
    return write_segment(disk, segment_path(id), id, columns, [SegmentRun(1, "log", 0, rows)])


def content(block: Block) -> list[bytes]:
    return [block.payload(row) for row in range(len(block))]


def expected(id: int, index: int) -> list[bytes]:
    return payloads(id, index + 1)[index * ROWS_PER_BLOCK :]


class WatchedCold:
    """A cold store that writes down what is asked of it, and lets a test step in between."""

    def __init__(self, inner: ColdStore) -> None:
        self._inner = inner
        self.reads: list[tuple[str, int, int]] = []
        self.puts: list[str] = []
        self.deletes: list[str] = []
        self.before_read: Callable[[], None] = lambda: None
        self.after_put: Callable[[str], None] = lambda name: None

    @property
    def fetched(self) -> int:
        return sum(end - start for _, start, end in self.reads)

    def put(self, name: str, data: bytes | Path) -> None:
        self.puts.append(name)
        self._inner.put(name, data)
        self.after_put(name)

    def read(self, name: str, start: int, end: int) -> bytes:
        self.before_read()
        self.reads.append((name, start, end))
        return self._inner.read(name, start, end)

    def size(self, name: str) -> int | None:
        return self._inner.size(name)

    def list(self) -> list[str]:
        return self._inner.list()

    def delete(self, name: str) -> None:
        self.deletes.append(name)
        self._inner.delete(name)

    def describe(self) -> str:
        return self._inner.describe()

    def damage(self, name: str, offset: int = -1) -> None:
        """Flip a byte, by default in the middle, where the blocks are."""
        size = self.size(name)
        assert size is not None
        raw = bytearray(self._inner.read(name, 0, size))
        raw[size // 2 if offset < 0 else offset] ^= 1
        self._inner.put(name, bytes(raw))


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    disk = LocalDisk(tmp_path / "data")
    disk.make_directory("segments")
    return disk


@pytest.fixture(params=["directory", "s3"])
def cold(request: pytest.FixtureRequest, tmp_path: Path) -> WatchedCold:
    if request.param == "directory":
        return WatchedCold(ObjectStoreCold(str(tmp_path / "cold")))
    return WatchedCold(ObjectStoreCold(f"s3://cold/{uuid4().hex}", **request.getfixturevalue("s3")))


def put_cold(disk: LocalDisk, cold: WatchedCold, *infos: SegmentInfo) -> None:
    """Move segments to the cold tier as an earlier process would have done."""
    for info in infos:
        cold.put(object_name(info.id), disk.read(segment_path(info.id)))
        disk.remove(segment_path(info.id))


def cache_files(disk: LocalDisk) -> list[Path]:
    return sorted(Path(disk.local_path("cache")).iterdir())


def cache_disk_usage(disk: LocalDisk) -> int:
    return sum(path.stat().st_blocks * 512 for path in cache_files(disk))


def open_files(disk: LocalDisk) -> list[str]:
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return [target for target in targets if target.startswith(str(disk.root))]


def test_segments_are_named_by_eight_digits() -> None:
    assert segment_path(12) == "segments/00000012.arrow"
    assert object_name(12) == "00000012.arrow"


# Hot segments and the cache of blocks


def test_a_block_is_loaded_once_and_then_cached(disk: LocalDisk) -> None:
    store = SegmentStore(disk, None)
    store.add(write(disk, 1), "hot")
    assert store.cached(1, 2) is None
    block = store.load(1, 2)
    assert content(block) == expected(1, 2)
    assert store.cached(1, 2) is block
    assert store.load(1, 2) is block


def test_the_cache_of_blocks_keeps_its_bound_and_what_was_read_last(disk: LocalDisk) -> None:
    store = SegmentStore(disk, None, cache_bytes=3 * MIB + MIB // 2)
    store.add(write(disk, 1, blocks=6), "hot")
    for index in range(3):
        store.load(1, index)
    store.load(1, 0)
    for index in (3, 4):
        store.load(1, index)
        assert store.cached_bytes <= 3 * MIB + MIB // 2
    assert [index for index in range(6) if store.cached(1, index)] == [0, 3, 4]


def test_a_block_over_the_bound_is_given_and_not_kept(disk: LocalDisk) -> None:
    store = SegmentStore(disk, None, cache_bytes=MIB // 2)
    store.add(write(disk, 1), "hot")
    assert content(store.load(1, 0)) == expected(1, 0)
    assert store.cached(1, 0) is None
    assert store.cached_bytes == 0


def test_only_so_many_segments_stay_open_and_a_closed_one_in_use_still_reads(disk: LocalDisk) -> None:
    store = SegmentStore(disk, None, open_segments=2)
    for id in (1, 2, 3):
        store.add(write(disk, id, blocks=1), "hot")
    first = store.segment(1)
    assert store.segment(1) is first
    store.segment(2)
    store.segment(3)
    assert store.segment(1) is not first
    assert content(first.load(0)) == expected(1, 0)


def test_open_segments_give_their_file_descriptors_back(disk: LocalDisk, cold: WatchedCold) -> None:
    store = SegmentStore(disk, cold, cache_bytes=0, open_segments=2)
    infos = [write(disk, id, blocks=1) for id in range(1, 9)]
    put_cold(disk, cold, *infos[4:])
    for info in infos:
        store.add(info, "hot" if info.id <= 4 else "cold")
    for id in (1, 2, 3, 4, 5, 6, 7, 8, 1, 5):
        store.load(id, 0)
    assert len(open_files(disk)) == 3, "one of the hot segment, two of the cold one"


def test_a_hot_file_that_is_gone_is_missing(disk: LocalDisk) -> None:
    store = SegmentStore(disk, None)
    store.add(write(disk, 1), "hot")
    disk.remove(segment_path(1))
    with pytest.raises(MissingFile) as caught:
        store.load(1, 0)
    assert caught.value.path == "segments/00000001.arrow"


def test_a_segment_that_was_never_added_is_unknown(disk: LocalDisk) -> None:
    store = SegmentStore(disk, None)
    for attempt in (lambda: store.load(7, 0), lambda: store.segment(7), lambda: store.tier(7)):
        with pytest.raises(UnknownSegment):
            attempt()
    assert store.cached(7, 0) is None


def test_a_cold_segment_needs_a_cold_tier(disk: LocalDisk) -> None:
    store = SegmentStore(disk, None)
    assert not store.has_cold_tier
    info = write(disk, 1)
    with pytest.raises(BadConfig, match="segment 1"):
        store.add(info, "cold")
    store.add(info, "hot")
    with pytest.raises(BadRequest, match="no cold tier"):
        store.relocate(1)


# Cold segments and the cache of pieces


def test_a_cold_segment_reads_like_a_hot_one(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold)
    store.add(info, "cold")
    assert [content(store.load(1, index)) for index in range(4)] == [expected(1, index) for index in range(4)]


def test_reading_a_cold_block_fetches_the_pieces_it_lies_in_and_each_only_once(
    disk: LocalDisk, cold: WatchedCold
) -> None:
    info = write(disk, 1, blocks=12)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold, cache_bytes=0)
    store.add(info, "cold")
    store.segment(1)
    assert cold.fetched <= 3 * PIECE_BYTES
    del cold.reads[:]
    store.load(1, 5)
    assert 0 < cold.fetched <= 3 * PIECE_BYTES
    assert all(start % PIECE_BYTES == 0 for _, start, _ in cold.reads)
    assert len(cold.reads) == 1
    del cold.reads[:]
    store.load(1, 5)
    assert cold.reads == []
    for index in range(12):
        store.load(1, index)
    assert store.cold_cached_bytes == info.size
    assert cache_files(disk)[0].read_bytes() == cold.read(object_name(1), 0, info.size)


def test_what_is_fetched_survives_the_closing_of_the_segment(disk: LocalDisk, cold: WatchedCold) -> None:
    infos = [write(disk, id, blocks=2) for id in (1, 2)]
    put_cold(disk, cold, *infos)
    store = SegmentStore(disk, cold, cache_bytes=0, open_segments=1)
    for info in infos:
        store.add(info, "cold")
        store.load(info.id, 0)
        store.load(info.id, 1)
    del cold.reads[:]
    store.load(1, 0)
    assert cold.reads == []


def test_the_cold_cache_keeps_its_bound_on_the_disk(disk: LocalDisk, cold: WatchedCold) -> None:
    infos = [write(disk, id) for id in range(1, 6)]
    put_cold(disk, cold, *infos)
    limit = 9 * MIB
    store = SegmentStore(disk, cold, cache_bytes=0, cold_cache_bytes=limit)
    for info in infos:
        store.add(info, "cold")
    for id in (1, 2, 3, 4, 5, 1, 3, 2):
        for index in range(4):
            assert content(store.load(id, index)) == expected(id, index)
            assert store.cold_cached_bytes <= limit
            assert cache_disk_usage(disk) <= limit + 16384


def test_the_cold_segment_that_was_read_longest_ago_goes_first(disk: LocalDisk, cold: WatchedCold) -> None:
    infos = [write(disk, id, blocks=2) for id in (1, 2, 3)]
    put_cold(disk, cold, *infos)
    store = SegmentStore(disk, cold, cache_bytes=0, cold_cache_bytes=2 * infos[0].size + MIB)
    for info in infos:
        store.add(info, "cold")
    for id in (1, 2, 1, 3):
        store.load(id, 0)
        store.load(id, 1)
    del cold.reads[:]
    for id in (1, 3):
        store.load(id, 0)
    assert cold.reads == []
    store.load(2, 0)
    assert cold.reads != []


def test_a_cold_segment_larger_than_the_cache_can_be_read_whole(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1, blocks=6)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold, cache_bytes=0, cold_cache_bytes=2 * MIB)
    store.add(info, "cold")
    for index in range(6):
        assert content(store.load(1, index)) == expected(1, index)
        assert store.cold_cached_bytes <= 2 * MIB


def test_a_cold_segment_in_use_goes_on_after_it_was_pushed_out(disk: LocalDisk, cold: WatchedCold) -> None:
    infos = [write(disk, id) for id in (1, 2)]
    put_cold(disk, cold, *infos)
    store = SegmentStore(disk, cold, cache_bytes=0, cold_cache_bytes=5 * MIB)
    for info in infos:
        store.add(info, "cold")
    segment = store.segment(1)
    segment.load(0)
    for index in range(4):
        store.load(2, index)
    assert [path.name.partition("-")[2] for path in cache_files(disk)] == [object_name(2)]
    assert [content(segment.load(index)) for index in range(4)] == [expected(1, index) for index in range(4)]
    assert store.segment(1) is not segment


def test_pieces_wanted_by_many_at_once_are_read_once(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold, cache_bytes=0)
    store.add(info, "cold")
    barrier = Barrier(8)

    def read(index: int) -> list[bytes]:
        barrier.wait()
        return content(store.load(1, index % 4))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == [expected(1, index % 4) for index in range(8)]
    assert cold.fetched == store.cold_cached_bytes == info.size


def test_a_block_wanted_by_many_at_once_is_decoded_once(disk: LocalDisk) -> None:
    store = SegmentStore(disk, None)
    store.add(write(disk, 1), "hot")
    barrier = Barrier(8)

    def read(_: int) -> Block:
        barrier.wait()
        return store.load(1, 1)

    with ThreadPoolExecutor(8) as pool:
        assert len({id(block) for block in pool.map(read, range(8))}) == 1


def test_a_read_that_failed_is_tried_again_by_the_next_one(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold)
    store.add(info, "cold")

    def fail() -> None:
        raise ConnectionResetError("the store hung up")

    for step in (lambda: store.segment(1), lambda: store.load(1, 2)):
        cold.before_read = fail
        with pytest.raises(ConnectionResetError):
            step()
        cold.before_read = lambda: None
        step()
    assert content(store.load(1, 2)) == expected(1, 2)


def test_the_cold_cache_starts_empty(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold)
    store.add(info, "cold")
    store.load(1, 0)
    assert cache_files(disk) != []
    SegmentStore(disk, cold)
    assert cache_files(disk) == []
    store.load(1, 1)
    SegmentStore(disk, None)
    assert cache_files(disk) == []


# What is missing or damaged


def test_an_object_that_is_gone_is_missing(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold)
    store.add(info, "cold")
    cold.delete(object_name(1))
    with pytest.raises(MissingFile) as caught:
        store.load(1, 0)
    assert caught.value.path == f"{cold.describe()}/00000001.arrow"


@pytest.mark.parametrize("offset", [-1, 20])
def test_a_damaged_object_is_noticed_and_read_anew_once_it_is_repaired(
    disk: LocalDisk, cold: WatchedCold, offset: int
) -> None:
    info = write(disk, 1, blocks=1)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold)
    store.add(info, "cold")
    cold.damage(object_name(1), offset)
    with pytest.raises(DamagedFile, match=r"00000001\.arrow"):
        store.load(1, 0)
    cold.damage(object_name(1), offset)
    assert content(store.load(1, 0)) == expected(1, 0)


def test_a_shortened_object_is_damaged(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1, blocks=1)
    put_cold(disk, cold, info)
    cold.put(object_name(1), cold.read(object_name(1), 0, info.size - 10))
    store = SegmentStore(disk, cold)
    store.add(info, "cold")
    with pytest.raises(DamagedFile, match="ends at byte"):
        store.load(1, 0)


def test_a_damaged_copy_in_the_cache_is_noticed_and_fetched_anew_by_the_next_read(
    disk: LocalDisk, cold: WatchedCold
) -> None:
    info = write(disk, 1, blocks=1)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold, cache_bytes=0)
    store.add(info, "cold")
    store.load(1, 0)
    (copy,) = cache_files(disk)
    with open(copy, "r+b") as file:
        file.seek(info.size // 2)
        file.write(bytes(64))
    with pytest.raises(DamagedFile):
        store.load(1, 0)
    assert content(store.load(1, 0)) == expected(1, 0)


# Moving and removing


def test_a_segment_is_copied_first_and_leaves_the_data_directory_only_when_told(
    disk: LocalDisk, cold: WatchedCold
) -> None:
    store = SegmentStore(disk, cold, cache_bytes=0)
    info = write(disk, 1)
    store.add(info, "hot")
    in_use = store.segment(1)
    store.relocate(1)
    assert store.tier(1) == "hot"
    assert cold.read(object_name(1), 0, info.size) == disk.read(segment_path(1))
    store.mark_cold(1)
    assert store.tier(1) == "cold"
    assert not disk.exists(segment_path(1))
    assert content(in_use.load(1)) == expected(1, 1)
    assert store.segment(1) is not in_use
    assert content(store.load(1, 1)) == expected(1, 1)


def test_a_good_copy_from_before_a_crash_is_not_sent_again(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    for _ in range(2):
        store = SegmentStore(disk, cold)
        store.add(info, "hot")
        store.relocate(1)
    assert cold.puts == [object_name(1)]


def test_a_bad_copy_from_before_a_crash_is_replaced(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    store = SegmentStore(disk, cold)
    store.add(info, "hot")
    store.relocate(1)
    cold.damage(object_name(1))
    store.relocate(1)
    assert cold.read(object_name(1), 0, info.size) == disk.read(segment_path(1))


def test_a_copy_that_reads_back_differently_is_noticed_and_the_segment_stays_hot(
    disk: LocalDisk, cold: WatchedCold
) -> None:
    cold.after_put = cold.damage
    store = SegmentStore(disk, cold)
    store.add(write(disk, 1), "hot")
    with pytest.raises(DamagedFile, match="differs from the original"):
        store.relocate(1)
    assert store.tier(1) == "hot"
    with pytest.raises(BadRequest, match="not been relocated"):
        store.mark_cold(1)
    assert disk.exists(segment_path(1))


def test_a_hot_file_that_is_missing_or_too_short_is_not_relocated(disk: LocalDisk, cold: WatchedCold) -> None:
    store = SegmentStore(disk, cold)
    store.add(write(disk, 1), "hot")
    disk.write_file(segment_path(1), b"short")
    with pytest.raises(DamagedFile, match="5 bytes"):
        store.relocate(1)
    disk.remove(segment_path(1))
    with pytest.raises(MissingFile):
        store.relocate(1)
    assert cold.puts == []


def test_relocating_a_cold_segment_does_nothing(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    put_cold(disk, cold, info)
    store = SegmentStore(disk, cold)
    store.add(info, "cold")
    store.relocate(1)
    assert cold.puts == [object_name(1)], "only that of the earlier process"


def test_a_segment_that_is_forgotten_while_it_is_copied_leaves_no_copy(disk: LocalDisk, cold: WatchedCold) -> None:
    store = SegmentStore(disk, cold)
    store.add(write(disk, 1), "hot")
    cold.after_put = lambda name: store.forget(1)
    with pytest.raises(UnknownSegment):
        store.relocate(1)
    assert cold.list() == []


def test_where_both_copies_are_present_the_hot_one_is_read(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    cold.put(object_name(1), disk.read(segment_path(1)))
    for tier in ("hot", "cold"):
        store = SegmentStore(disk, cold)
        store.add(info, tier)
        assert content(store.load(1, 0)) == expected(1, 0)
    assert cold.reads == []


def test_a_cold_segment_with_a_useless_hot_file_is_read_from_the_cold_tier(disk: LocalDisk, cold: WatchedCold) -> None:
    info = write(disk, 1)
    put_cold(disk, cold, info)
    disk.write_file(segment_path(1), b"what a crash left of it")
    store = SegmentStore(disk, cold)
    store.add(info, "cold")
    assert content(store.load(1, 0)) == expected(1, 0)


def test_a_forgotten_segment_is_unknown_and_those_who_use_it_can_go_on(disk: LocalDisk, cold: WatchedCold) -> None:
    infos = [write(disk, id) for id in (1, 2)]
    put_cold(disk, cold, infos[1])
    store = SegmentStore(disk, cold)
    store.add(infos[0], "hot")
    store.add(infos[1], "cold")
    in_use = [store.segment(1), store.segment(2)]
    for id in (1, 2):
        for index in range(2):
            store.load(id, index)
        store.forget(id)
        store.forget(id)
        assert store.cached(id, 0) is None
        with pytest.raises(UnknownSegment):
            store.load(id, 0)
    assert store.ids() == []
    assert store.cached_bytes == store.cold_cached_bytes == 0
    assert cache_files(disk) == []
    store.drop(1)
    for id, segment in zip((1, 2), in_use, strict=True):
        assert content(segment.load(3)) == expected(id, 3)


def test_dropping_removes_a_forgotten_segment_wherever_it_is(disk: LocalDisk, cold: WatchedCold) -> None:
    infos = [write(disk, id, blocks=1) for id in (1, 2, 3)]
    store = SegmentStore(disk, cold)
    for info in infos:
        store.add(info, "hot")
    store.relocate(2)
    store.relocate(3)
    store.mark_cold(3)
    with pytest.raises(BadRequest, match="forgotten"):
        store.drop(1)
    for id in (1, 2, 3):
        store.forget(id)
        store.drop(id)
        store.drop(id)
    assert disk.list("segments") == []
    assert cold.list() == []


def test_dropping_a_segment_that_was_never_copied_does_not_bother_the_cold_tier(
    disk: LocalDisk, cold: WatchedCold
) -> None:
    store = SegmentStore(disk, cold)
    store.add(write(disk, 1, blocks=1), "hot")
    store.forget(1)
    store.drop(1)
    assert cold.deletes == []
    assert disk.list("segments") == []


def test_a_closed_store_holds_nothing_open(disk: LocalDisk, cold: WatchedCold) -> None:
    infos = [write(disk, id, blocks=1) for id in (1, 2)]
    put_cold(disk, cold, infos[1])
    store = SegmentStore(disk, cold)
    store.add(infos[0], "hot")
    store.add(infos[1], "cold")
    for id in (1, 2):
        store.load(id, 0)
    store.close()
    assert open_files(disk) == []
    assert store.cached_bytes == 0
    assert disk.list("segments") == [object_name(1)]
    assert cold.list() == [object_name(2)]


# Orphans


def test_what_belongs_to_no_segment_is_an_orphan_and_can_be_removed(disk: LocalDisk, cold: WatchedCold) -> None:
    infos = {id: write(disk, id, blocks=1) for id in (1, 2, 3, 4, 5)}
    for id in (2, 3, 4):
        cold.put(object_name(id), disk.read(segment_path(id)))
    disk.write_file("segments/00000006.arrow.tmp", b"half a segm")
    store = SegmentStore(disk, cold)
    store.add(infos[1], "hot")
    store.add(infos[2], "hot")
    store.add(infos[4], "cold")
    left_over = [
        "segments/00000003.arrow",
        "segments/00000004.arrow",
        "segments/00000005.arrow",
        "segments/00000006.arrow.tmp",
        f"{cold.describe()}/00000003.arrow",
    ]
    assert store.orphans() == left_over
    assert store.remove_orphans() == left_over
    assert store.orphans() == []
    assert disk.list("segments") == ["00000001.arrow", "00000002.arrow"]
    assert cold.list() == ["00000002.arrow", "00000004.arrow"]
    assert [content(store.load(id, 0)) for id in (1, 2, 4)] == [expected(id, 0) for id in (1, 2, 4)]


def test_what_the_cold_tier_holds_of_somebody_else_is_left_alone(disk: LocalDisk, cold: WatchedCold) -> None:
    cold.put("readme.txt", b"hello")
    cold.put("00000007.arrow", b"of a directory that was lost")
    store = SegmentStore(disk, cold)
    assert store.remove_orphans() == []
    store.add(write(disk, 1, blocks=1), "hot")
    assert store.remove_orphans() == []
    assert cold.list() == ["00000007.arrow", "readme.txt"]


# All of it at once


def test_readers_never_see_anything_wrong_while_segments_move_and_go(tmp_path: Path, disk: LocalDisk) -> None:
    cold = ObjectStoreCold(str(tmp_path / "cold"))
    store = SegmentStore(disk, cold, cache_bytes=2 * MIB, open_segments=2, cold_cache_bytes=3 * MIB)
    right = {(id, index): expected(id, index) for id in range(1, 7) for index in range(2)}
    for id in range(1, 7):
        store.add(write(disk, id, blocks=2), "hot")

    def read(seed: int) -> None:
        random = Random(seed)
        for _ in range(150):
            key = random.choice(list(right))
            try:
                assert content(store.load(*key)) == right[key]
            except UnknownSegment:
                assert key[0] in (5, 6)

    def move() -> None:
        for id in (1, 2, 3, 5):
            store.relocate(id)
            store.mark_cold(id)
        for id in (5, 6):
            store.forget(id)
            store.drop(id)

    with ThreadPoolExecutor(7) as pool:
        moving = pool.submit(move)
        list(pool.map(read, range(6)))
        moving.result()
    assert store.cold_cached_bytes <= 3 * MIB
    assert store.cached_bytes <= 2 * MIB
    assert [store.tier(id) for id in store.ids()] == ["cold", "cold", "cold", "hot"]
    assert len(cache_files(disk)) <= 3

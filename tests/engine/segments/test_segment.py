from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.journal_files import Append, open_segment, read_logs, read_rows, records_of, write_journal

from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DamagedFile, MissingFile, UnsupportedFormat
from strandline.engine.record import Batch, Record
from strandline.engine.segments.footer import SegmentInfo, decode_footer, read_footer
from strandline.engine.segments.jobs import Keep, SealJob, run
from strandline.engine.segments.segment import TAIL_GUESS_BYTES, Segment, footprint
from strandline.engine.segments.writer import BLOCK_BYTES, BLOCK_ROWS

NAMES = ["alpha", "beta", "beta", "größe", "\U0001f30a"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
few_keys = st.sampled_from(["", "a", "ab", "abc", "b", "é", "\uffff", "\U0001f600", "a\U0001f600"])


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    count = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy) -> list | None:
        return draw(st.none() | st.lists(st.none() | values, min_size=count, max_size=count))

    data = draw(st.lists(st.binary(max_size=40), min_size=count, max_size=count))
    return Batch(data, column(few_keys | texts), column(texts), column(st.binary(max_size=8)))


@st.composite
def appends(draw: st.DrawFn, epochs: int = len(NAMES)) -> list[Append]:
    """A journal: every log goes on where it stopped, at times with a gap, and time never goes backwards."""
    next_seq = dict.fromkeys(range(1, epochs + 1), 1)
    ts = 1_700_000_000_000
    result = []
    for _ in range(draw(st.integers(1, 12))):
        epoch = draw(st.integers(1, epochs))
        batch = draw(batches())
        ts += draw(st.integers(0, 3))
        first = next_seq[epoch] + draw(st.sampled_from([0, 0, 0, 5]))
        result.append(Append(epoch, first, ts, batch))
        next_seq[epoch] = first + len(batch)
    return result


def keep_all(epochs: int = len(NAMES)) -> list[Keep]:
    return [Keep(epoch, NAMES[epoch - 1], 0) for epoch in range(1, epochs + 1)]


def seal(disk: LocalDisk, appends: list[Append], path: str = "one.arrow") -> SegmentInfo:
    write_journal(disk, "journal", appends)
    info = run(disk, SealJob(7, path, ["journal"], keep_all()))
    assert info is not None
    return info


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path)


@pytest.fixture(scope="module")
def shared_disk(memory: Path) -> LocalDisk:
    """For hypothesis, which must not get a new directory per example."""
    directory = memory / "segments"
    directory.mkdir()
    return LocalDisk(directory)


def big_log(rows: int = 3 * BLOCK_ROWS, keys: int = 50, seed: int = 1, gap: int = 0) -> list[Append]:
    """A log of several blocks, in frames of a thousand records, with a gap behind every frame if asked for."""
    source = random.Random(seed)
    result: list[Append] = []
    seq = 1
    for start in range(0, rows, 1000):
        count = min(1000, rows - start)
        batch = Batch(
            [b"%d" % source.randrange(10**9) for _ in range(count)],
            [source.choice([None, f"key-{source.randrange(keys)}"]) for _ in range(count)],
            None,
            [source.choice([None, b"m" * source.randrange(4)]) for _ in range(count)],
        )
        result.append(Append(1, seq, 1000 + start, batch))
        seq += count + gap
    return result


@given(appends())
@settings(max_examples=80, deadline=None)
def test_what_was_sealed_is_read_back(shared_disk: LocalDisk, journal: list[Append]) -> None:
    segment = open_segment(shared_disk, "one.arrow", seal(shared_disk, journal))
    assert read_logs(segment) == records_of(journal)
    assert segment.verify() == []


@given(appends())
@settings(max_examples=60, deadline=None)
def test_runs_describe_their_rows(shared_disk: LocalDisk, journal: list[Append]) -> None:
    info = seal(shared_disk, journal)
    segment = open_segment(shared_disk, "one.arrow", info)
    logs = records_of(journal)
    assert segment.runs == info.runs
    assert [(run.name, run.epoch) for run in info.runs] == sorted((NAMES[e - 1], e) for e in logs)
    for run_info in info.runs:
        records = logs[run_info.epoch]
        keys = [record.key for record in records if record.key is not None]
        assert (run_info.first, run_info.last) == (records[0].seq, records[-1].seq)
        assert (run_info.ts_first, run_info.ts_last) == (records[0].ts, records[-1].ts)
        assert run_info.rows == len(records)
        assert run_info.size == sum(map(size_of, records))
        assert run_info.key_first == min(keys, default=None)
        assert run_info.key_last == max(keys, default=None)


def size_of(record: Record) -> int:
    return len(record.data) + len(record.meta or b"")


@given(appends(), few_keys | texts)
@settings(max_examples=80, deadline=None)
def test_keys_and_prefixes_are_found_as_by_looking_at_every_record(
    shared_disk: LocalDisk, journal: list[Append], wanted: str
) -> None:
    segment = open_segment(shared_disk, "one.arrow", seal(shared_disk, journal))
    logs = records_of(journal)
    for info in segment.runs:
        records = logs[info.epoch]
        assert segment.seqs_with_key(info.row, info.rows, wanted) == [
            record.seq for record in records if record.key == wanted
        ]
        assert segment.seqs_with_prefix(info.row, info.rows, wanted) == [
            record.seq for record in records if record.key is not None and record.key.startswith(wanted)
        ]


@given(appends(), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_rows_and_sizes_are_found(shared_disk: LocalDisk, journal: list[Append], seq: int) -> None:
    segment = open_segment(shared_disk, "one.arrow", seal(shared_disk, journal))
    for info in segment.runs:
        records = records_of(journal)[info.epoch]
        row = segment.row_of(info.row, info.rows, info.first, seq)
        assert row - info.row == sum(record.seq < seq for record in records)
    everything = [record for info in segment.runs for record in records_of(journal)[info.epoch]]
    assert sum(block.size for block in segment.blocks) == sum(map(size_of, everything))


@pytest.mark.parametrize("gap", [0, 3])
def test_a_log_of_several_blocks_is_found_by_key_seq_and_size(disk: LocalDisk, gap: int) -> None:
    journal = big_log(gap=gap)
    segment = open_segment(disk, "one.arrow", seal(disk, journal))
    records = records_of(journal)[1]
    (info,) = segment.runs
    assert len(segment.blocks) >= 3
    assert segment.verify() == []
    assert read_rows(segment, 0, segment.rows) == records
    for key in ("key-0", "key-49", "key-7", "key-", "", "zzz"):
        assert segment.seqs_with_key(0, info.rows, key) == [r.seq for r in records if r.key == key]
    for prefix in ("key-4", "key-", "", "l"):
        assert segment.seqs_with_prefix(0, info.rows, prefix) == [
            r.seq for r in records if r.key is not None and r.key.startswith(prefix)
        ]
    for row in (0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS + 5, len(records) - 1):
        assert segment.row_of(0, info.rows, info.first, records[row].seq) == row
    for block in segment.blocks:
        assert block.size == sum(map(size_of, records[block.row : block.row + block.rows]))


def test_blocks_are_cut_by_rows_and_by_bytes(disk: LocalDisk) -> None:
    small = [Append(1, 1, 5, Batch([b""] * (BLOCK_ROWS + 1)))]
    assert [block.rows for block in open_segment(disk, "a", seal(disk, small, "a")).blocks] == [BLOCK_ROWS, 1]
    half = BLOCK_BYTES // 2
    large = [Append(1, 1, 5, Batch([b"x" * half, b"y" * half, b"z", b"w" * (3 * BLOCK_BYTES), b"v"]))]
    segment = open_segment(disk, "b", seal(disk, large, "b"))
    assert [block.rows for block in segment.blocks] == [2, 1, 1, 1]
    assert read_rows(segment, 0, 5) == records_of(large)[1]


def test_optional_columns_convert_only_the_slice_that_is_asked_for(disk: LocalDisk) -> None:
    batch = Batch([b"1", b"2", b"3"], ["k", None, "l"], ["n", "n", None], [None, b"", b"m"])
    block = open_segment(disk, "one.arrow", seal(disk, [Append(1, 1, 5, batch)])).load(0)
    for column, values in ((block.keys, batch.keys), (block.nodes, batch.nodes), (block.metas, batch.metas)):
        assert column is not None
        assert values is not None
        assert len(column) == 3
        assert column[1:] == list(values)[1:]
        assert column[::-1] == list(values)[::-1]
        assert column[3:1] == []
        assert (column[0], column[-1]) == (values[0], values[-1])
        assert list(column) == list(values)
        with pytest.raises(IndexError):
            column[3]
    plain = open_segment(disk, "p", seal(disk, [Append(1, 1, 5, Batch([b"1"]))], "p")).load(0)
    assert plain.keys is plain.nodes is plain.metas is None


def test_the_footprint_of_a_block_counts_what_it_holds(disk: LocalDisk) -> None:
    segment = open_segment(disk, "one.arrow", seal(disk, big_log()))
    block = segment.load(0)
    assert footprint(block) > segment.blocks[0].size + 20 * len(block)
    assert footprint(block) < 2 * (segment.blocks[0].size + 30 * len(block))


def test_other_arrow_readers_read_the_file_as_it_is(disk: LocalDisk) -> None:
    journal = [*big_log(2000), Append(2, 1, 9, Batch([b"x", b""], None, ["n", None]))]
    seal(disk, journal)
    logs = records_of(journal)
    path = disk.local_path("one.arrow")
    whole = pa.ipc.open_file(pa.memory_map(path)).read_all()
    dataset = pa.dataset.dataset(path, format="ipc").to_table()
    assert whole.equals(dataset)
    assert whole.schema.names == ["log", "seq", "ts", "key", "node", "meta", "data", "by_key"]
    assert whole.column("log").to_pylist() == ["alpha"] * 2000 + ["beta"] * 2
    everything = logs[1] + logs[2]
    assert whole.column("seq").to_pylist() == [record.seq for record in everything]
    assert whole.column("ts").cast("int64").to_pylist() == [record.ts for record in everything]
    assert whole.column("data").to_pylist() == [record.data for record in everything]
    assert whole.column("meta").to_pylist() == [record.meta for record in everything]
    assert whole.column("key").combine_chunks().dictionary_decode().to_pylist() == [r.key for r in everything]
    beta = pa.dataset.dataset(path, format="ipc").to_table(filter=pa.dataset.field("log") == "beta")
    assert beta.column("data").to_pylist() == [b"x", b""]


def test_the_metadata_of_the_file_is_text(disk: LocalDisk) -> None:
    # Readers in other languages insist on it.
    seal(disk, big_log(100))
    (value,) = pa.ipc.open_file(disk.local_path("one.arrow")).metadata.values()
    assert value.isascii()


def test_the_footer_of_a_lone_file_can_be_read(disk: LocalDisk) -> None:
    info = seal(disk, big_log())
    footer = read_footer("one.arrow", disk.read("one.arrow"))
    assert (footer.id, footer.rows, footer.runs) == (info.id, info.rows, info.runs)
    assert footer.blocks == open_segment(disk, "one.arrow", info).blocks


def test_a_missing_file_is_told_from_a_damaged_one(disk: LocalDisk) -> None:
    info = seal(disk, big_log(10))
    disk.remove("one.arrow")
    with pytest.raises(MissingFile) as caught:
        open_segment(disk, "one.arrow", info)
    assert caught.value.path == "one.arrow"


def test_another_segment_under_the_same_name_is_noticed(disk: LocalDisk) -> None:
    info = seal(disk, big_log(10))
    with pytest.raises(DamagedFile, match="it is segment 7; expected segment 8"):
        Segment.open(disk.local_path("one.arrow"), "one.arrow", 8, info.size, info.edges)


def test_a_footer_of_another_version_is_refused(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.engine.segments.footer.VERSION", 2)
    info = seal(disk, big_log(10))
    monkeypatch.undo()
    with pytest.raises(UnsupportedFormat) as caught:
        open_segment(disk, "one.arrow", info)
    assert (caught.value.path, caught.value.found, caught.value.supported) == ("one.arrow", 2, 1)


def small_file(disk: LocalDisk) -> tuple[SegmentInfo, bytes, dict[int, list[Record]]]:
    batch = Batch([b"one", b"two" * 20, b""], ["k", None, "ä"], None, [b"m", None, b""])
    journal = [Append(1, 1, 5, batch), Append(2, 4, 6, Batch([b"x" * 50])), Append(1, 4, 7, batch)]
    return seal(disk, journal), disk.read("one.arrow"), records_of(journal)


def read_or_complain(disk: LocalDisk, info: SegmentInfo) -> object:
    """All rows, or the error: anything else that is raised fails the test."""
    try:
        segment = open_segment(disk, "bad.arrow", info)
        assert all(segment.seqs_with_prefix(run.row, run.rows, "") is not None for run in segment.runs)
        return read_logs(segment)
    except (DamagedFile, UnsupportedFormat) as error:
        return error


def test_a_flipped_bit_anywhere_never_gives_wrong_rows(disk: LocalDisk) -> None:
    info, raw, logs = small_file(disk)
    path = Path(disk.local_path("bad.arrow"))
    for offset in range(len(raw)):
        damaged = bytearray(raw)
        damaged[offset] ^= 1 << offset % 8
        path.write_bytes(damaged)
        result = read_or_complain(disk, info)
        assert isinstance(result, DamagedFile) or result == logs, f"byte {offset}"


def test_a_file_cut_off_anywhere_is_damaged(disk: LocalDisk) -> None:
    info, raw, _ = small_file(disk)
    path = Path(disk.local_path("bad.arrow"))
    for size in range(len(raw)):
        path.write_bytes(raw[:size])
        assert isinstance(read_or_complain(disk, info), DamagedFile)
        # A wrong size in the manifest must not help the file either.
        shorter = SegmentInfo(info.id, size, info.edges, info.rows, info.runs)
        assert isinstance(read_or_complain(disk, shorter), DamagedFile)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_random_damage_never_gives_wrong_rows(shared_disk: LocalDisk, data: st.DataObject) -> None:
    info, raw, logs = small_file(shared_disk)
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw) - 1))
        junk = data.draw(st.binary(min_size=1, max_size=64))[: len(raw) - start]
        damaged[start : start + len(junk)] = junk
    Path(shared_disk.local_path("bad.arrow")).write_bytes(damaged)
    result = read_or_complain(shared_disk, info)
    assert isinstance(result, DamagedFile) or result == logs


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_the_footer_of_anything_is_a_footer_or_an_error(raw: bytes) -> None:
    for read in (read_footer, decode_footer):
        with pytest.raises((DamagedFile, UnsupportedFormat)):
            read("junk", raw)
        with pytest.raises((DamagedFile, UnsupportedFormat)):
            read("junk", b"strandline-footer:0000000000000000:" + raw + b"\0")


def test_damage_is_described_by_verify(disk: LocalDisk) -> None:
    info = seal(disk, big_log())
    raw = bytearray(disk.read("one.arrow"))
    block = read_footer("one.arrow", bytes(raw)).blocks[1]
    raw[block.offset + 100] ^= 1
    Path(disk.local_path("one.arrow")).write_bytes(raw)
    segment = open_segment(disk, "one.arrow", info)
    assert segment.verify() == ["Block 1: the checksum of block 1 does not match."]
    assert len(segment.load(0)) == segment.blocks[0].rows
    with pytest.raises(DamagedFile):
        segment.load(1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda run: {"first": run.first - 1}, "its seqs|it goes from seq"),
        (lambda run: {"ts_last": run.ts_last + 1}, "it goes from time"),
        (lambda run: {"size": run.size + 1}, "bytes instead of"),
        (lambda run: {"key_last": "zzz"}, "its keys go from"),
        (lambda run: {"name": "other"}, "belong to another log"),
        (lambda run: {"rows": run.rows - 1}, "The runs have"),
    ],
)
def test_verify_holds_the_runs_against_the_rows(
    disk: LocalDisk, change: Callable[..., dict[str, object]], problem: str
) -> None:
    import re

    import msgspec

    segment = open_segment(disk, "one.arrow", seal(disk, big_log(100)))
    segment.runs[0] = msgspec.structs.replace(segment.runs[0], **change(segment.runs[0]))
    assert any(re.search(problem, sentence) for sentence in segment.verify())


class Fetched:
    """A sparse copy of a file that fills itself as it is told, and knows what it was told."""

    def __init__(self, raw: bytes, path: Path) -> None:
        self.raw = raw
        self.path = path
        self.ranges: list[tuple[int, int]] = []
        path.write_bytes(bytes(len(raw)))

    def __call__(self, start: int, end: int) -> None:
        assert 0 <= start < end <= len(self.raw)
        self.ranges.append((start, end))
        with self.path.open("r+b") as file:
            file.seek(start)
            file.write(self.raw[start:end])


def test_a_sparse_copy_is_fetched_before_it_is_read(disk: LocalDisk, tmp_path: Path) -> None:
    journal = [Append(1, 1 + i, 5, Batch([random.Random(i).randbytes(BLOCK_BYTES)], ["k"])) for i in range(4)]
    info = seal(disk, journal)
    fetch = Fetched(disk.read("one.arrow"), tmp_path / "sparse")
    segment = Segment.open(str(fetch.path), "cold/one.arrow", info.id, info.size, info.edges, fetch)
    fetched = sum(end - start for start, end in fetch.ranges)
    assert fetched < TAIL_GUESS_BYTES + 4096
    assert segment.load(2).payload(0) == journal[2].batch.data[0]
    assert sum(end - start for start, end in fetch.ranges) < 2 * BLOCK_BYTES
    assert read_logs(segment) == records_of(journal)


def test_a_footer_larger_than_the_first_guess_is_fetched_whole(disk: LocalDisk, tmp_path: Path) -> None:
    count = 2000
    keep = [Keep(epoch, f"a log with a rather long name {epoch:040}", 0) for epoch in range(1, count + 1)]
    journal = [Append(epoch, 1, 5, Batch([b"x"])) for epoch in range(1, count + 1)]
    write_journal(disk, "journal", journal)
    info = run(disk, SealJob(7, "one.arrow", ["journal"], keep))
    assert info is not None
    fetch = Fetched(disk.read("one.arrow"), tmp_path / "sparse")
    segment = Segment.open(str(fetch.path), "cold/one.arrow", info.id, info.size, info.edges, fetch)
    assert info.size > TAIL_GUESS_BYTES * 2
    assert segment.runs == info.runs
    assert read_logs(segment) == records_of(journal)

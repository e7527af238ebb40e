from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from engine.segments.test_segment import NAMES, appends, big_log, keep_all
from hypothesis import given, settings
from hypothesis import strategies as st
from support.journal_files import (
    SEED,
    Append,
    journal_bytes,
    open_segment,
    read_logs,
    records_of,
    surviving,
    write_journal,
)

from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DamagedFile, MissingFile, UnsupportedFormat
from strandline.engine.journal import bodies, frame
from strandline.engine.record import Batch, Producer, Record
from strandline.engine.segments import jobs
from strandline.engine.segments.footer import SegmentInfo
from strandline.engine.segments.jobs import Keep, MergeJob, SealJob, run


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path)


@pytest.fixture(scope="module")
def shared_disk(memory: Path) -> LocalDisk:
    """For hypothesis, which must not get a new directory per example."""
    directory = memory / "sealing"
    directory.mkdir()
    return LocalDisk(directory)


@st.composite
def keeps(draw: st.DrawFn) -> list[Keep]:
    """Some of the logs, with seqs below a floor, dead ranges (overlapping ones too) and amended records."""
    seqs = st.integers(1, 40)
    result = []
    for epoch in draw(st.permutations(range(1, len(NAMES) + 1)))[: draw(st.integers(1, len(NAMES)))]:
        starts = draw(st.lists(seqs, max_size=4))
        result.append(
            Keep(
                epoch,
                NAMES[epoch - 1],
                draw(st.sampled_from([0, 0, 0, 3, 10])),
                [(start, start + draw(st.integers(0, 5))) for start in starts],
                list(draw(st.dictionaries(seqs, st.binary(max_size=20), max_size=4)).items()),
            )
        )
    return result


def check(disk: LocalDisk, path: str, info: SegmentInfo | None, expected: dict[int, list[Record]]) -> None:
    if info is None:
        assert expected == {}
        assert not disk.exists(path)
        return
    segment = open_segment(disk, path, info)
    assert read_logs(segment) == expected
    assert segment.verify() == []
    assert info.size == disk.size(path)
    assert info.rows == sum(map(len, expected.values()))
    disk.remove(path)


def source(path: str, info: SegmentInfo) -> tuple[str, int, int, int]:
    return path, info.id, info.size, info.edges


@given(appends(), keeps())
@settings(max_examples=80, deadline=None)
def test_sealing_leaves_what_survives(shared_disk: LocalDisk, journal: list[Append], keep: list[Keep]) -> None:
    write_journal(shared_disk, "journal", journal)
    info = run(shared_disk, SealJob(1, "sealed", ["journal"], keep))
    check(shared_disk, "sealed", info, surviving(records_of(journal), keep))


@given(appends(), keeps(), st.integers(1, 12), st.sampled_from([0, 30, 1 << 20]))
@settings(max_examples=80, deadline=None)
def test_merging_leaves_what_survives(
    shared_disk: LocalDisk, journal: list[Append], keep: list[Keep], cut: int, memory: int
) -> None:
    # However little of the sources may stay in memory, the result is the same.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "MEMORY_BYTES", memory)
        sources = []
        for id, part in enumerate((journal[:cut], journal[cut : 2 * cut], journal[2 * cut :])):
            write_journal(shared_disk, "journal", part)
            info = run(shared_disk, SealJob(id, f"source-{id}", ["journal"], keep_all()))
            if info is not None:
                sources.append(source(f"source-{id}", info))
        merged = run(shared_disk, MergeJob(9, "merged", sources, keep))
    check(shared_disk, "merged", merged, surviving(records_of(journal), keep))


@given(appends(), st.integers(1, 12))
@settings(max_examples=50, deadline=None)
def test_several_journals_make_one_segment(shared_disk: LocalDisk, journal: list[Append], cut: int) -> None:
    write_journal(shared_disk, "first", journal[:cut])
    write_journal(shared_disk, "second", journal[cut:])
    info = run(shared_disk, SealJob(1, "sealed", ["first", "second"], keep_all()))
    check(shared_disk, "sealed", info, records_of(journal))


def test_merging_logs_of_several_blocks(disk: LocalDisk) -> None:
    journal = big_log()
    keep = [Keep(1, "alpha", 500, [(seq, seq) for seq in range(1, 50_000, 3)], [(20_001, b"new"), (3, b"gone")])]
    sources = []
    for id, part in enumerate((journal[:20], journal[20:30], journal[30:])):
        write_journal(disk, "journal", part)
        info = run(disk, SealJob(id, f"source-{id}", ["journal"], keep_all()))
        assert info is not None
        sources.append(source(f"source-{id}", info))
    expected = surviving(records_of(journal), keep)
    assert expected[1][0].seq == 500
    check(disk, "merged", run(disk, MergeJob(9, "merged", sources, keep)), expected)


def test_idempotency_keys_and_producers_do_not_get_between_the_records(disk: LocalDisk) -> None:
    extras = bodies.Extras("once", Producer("p", 1, 2))
    journal = [
        Append(1, 1, 5, Batch([b"a", b"b"], ["k", None], None, [None, b"m"]), extras),
        Append(1, 3, 5, Batch([b"c"]), bodies.Extras("twice")),
    ]
    write_journal(disk, "journal", journal)
    info = run(disk, SealJob(1, "sealed", ["journal"], keep_all()))
    check(disk, "sealed", info, records_of(journal))


def test_of_two_records_with_one_seq_the_first_written_stays(disk: LocalDisk) -> None:
    journal = [
        Append(1, 5, 7, Batch([b"5", b"6", b"7"])),
        Append(1, 1, 7, Batch([b"1", b"2", b"3", b"4", b"late 5"])),
        Append(1, 7, 7, Batch([b"late 7", b"8"])),
    ]
    write_journal(disk, "journal", journal)
    info = run(disk, SealJob(1, "sealed", ["journal"], keep_all()))
    assert info is not None
    records = read_logs(open_segment(disk, "sealed", info))[1]
    assert [record.data for record in records] == [b"%d" % seq for seq in range(1, 9)]


def test_damaged_frames_are_passed_over(disk: LocalDisk) -> None:
    journal = [Append(1, 1 + i, 7, Batch([b"payload %d" % i])) for i in range(3)]
    raw = bytearray(journal_bytes(journal))
    raw[raw.index(b"payload 1")] ^= 1
    disk.write_file("journal", bytes(raw))
    info = run(disk, SealJob(1, "sealed", ["journal"], keep_all()))
    check(disk, "sealed", info, {1: [records_of(journal)[1][0], records_of(journal)[1][2]]})


def test_a_journal_that_is_no_journal_is_refused(disk: LocalDisk) -> None:
    job = SealJob(1, "sealed", ["journal"], keep_all())
    with pytest.raises(MissingFile):
        run(disk, job)
    disk.write_file("journal", b"")
    with pytest.raises(DamagedFile):
        run(disk, job)
    disk.write_file("journal", frame.file_header(frame.FileKind.CHECKPOINT, 1, SEED))
    with pytest.raises(DamagedFile):
        run(disk, job)
    header = bytearray(frame.file_header(frame.FileKind.JOURNAL, 1, SEED))
    header[8] += 1
    disk.write_file("journal", bytes(header))
    with pytest.raises(UnsupportedFormat):
        run(disk, job)
    assert disk.list("") == ["journal"]


def test_an_empty_journal_makes_no_file(disk: LocalDisk) -> None:
    write_journal(disk, "journal", [])
    assert run(disk, SealJob(1, "sealed", ["journal"], keep_all())) is None
    assert run(disk, SealJob(1, "sealed", [], [])) is None
    assert run(disk, MergeJob(1, "sealed", [], [])) is None
    assert disk.list("") == ["journal"]


def test_a_damaged_source_stops_a_merge(disk: LocalDisk) -> None:
    write_journal(disk, "journal", big_log(100))
    info = run(disk, SealJob(1, "sealed", ["journal"], keep_all()))
    assert info is not None
    raw = bytearray(disk.read("sealed"))
    raw[len(raw) // 3] ^= 1
    disk.write_file("sealed", bytes(raw))
    with pytest.raises(DamagedFile) as caught:
        run(disk, MergeJob(2, "merged", [source("sealed", info)], keep_all()))
    assert caught.value.path == "sealed"
    assert not disk.exists("merged")


def test_nothing_of_a_dead_record_lives_on_in_the_file(disk: LocalDisk) -> None:
    batch = Batch([b"stay", b"go"], ["stays", "goes"], ["here", "there"])
    write_journal(disk, "journal", [Append(1, 1, 5, batch), Append(2, 1, 5, batch)])
    everything = run(disk, SealJob(1, "all", ["journal"], keep_all()))
    assert everything is not None
    keep = [Keep(1, "alpha", 0, [(2, 2)])]
    run(disk, SealJob(2, "sealed", ["journal"], keep))
    run(disk, MergeJob(3, "merged", [source("all", everything)], keep))
    for path in ("sealed", "merged"):
        table = pa.ipc.open_file(disk.local_path(path)).read_all()
        assert table.column("data").to_pylist() == [b"stay"]
        dictionaries = {name: table.column(name).chunk(0).dictionary.to_pylist() for name in ("log", "key", "node")}
        assert dictionaries == {"log": ["alpha"], "key": ["stays"], "node": ["here"]}


def test_a_hundred_thousand_logs_are_sealed_into_one_file(disk: LocalDisk) -> None:
    count = 100_000
    journal = [Append(epoch, 1, 5, Batch([b"%d" % epoch])) for epoch in range(1, count + 1)]
    write_journal(disk, "journal", journal)
    keep = [Keep(epoch, f"log {epoch:06}", 1) for epoch in range(1, count + 1)]
    info = run(disk, SealJob(1, "sealed", ["journal"], keep))
    assert info is not None
    segment = open_segment(disk, "sealed", info)
    assert len(segment.runs) == count
    last = segment.runs[-1]
    assert (last.name, last.row) == ("log 100000", count - 1)
    index = segment.block_of(last.row)
    assert segment.load(index).payload(last.row - segment.blocks[index].row) == b"100000"

"""Any bytes at all through the readers of journals and segments: documented exceptions, and nothing made up."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.engine import Batch, Config, Engine, ManualClock, Record
from strandline.engine.errors import DamagedFile, UnsupportedFormat
from strandline.engine.journal import frame
from strandline.engine.journal.frame import (
    FILE_HEADER,
    MARK_BYTES,
    FileKind,
    Frame,
    FrameDamage,
    FrameType,
    decode_append,
    encode_append,
    file_header,
    read_file_header,
    scan,
)
from strandline.engine.record import Page
from strandline.engine.segments.segment import Segment
from strandline.engine.state.block import Block
from strandline.engine.state.checkpoints import parse_manifest

EXAMPLES = 2000 if os.environ.get("STRANDLINE_LONG") == "1" else 150
SEED = 0x0123456789ABCDEF

fuzz = settings(max_examples=EXAMPLES, deadline=None)


@st.composite
def mutations(draw: st.DrawFn) -> list[tuple[str, float, bytes]]:
    """What is done to a file: where (as a part of its length), how, and with which bytes."""
    how = st.sampled_from(["overwrite", "insert", "remove", "copy", "cut"])
    place = st.floats(0, 1, allow_nan=False)
    filling = st.one_of(st.binary(min_size=1, max_size=40), st.just(MARK_BYTES), st.just(bytes(64)))
    return draw(st.lists(st.tuples(how, place, filling), min_size=1, max_size=4))


def mutate(raw: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for how, place, filling in changes:
        at = int(place * len(raw))
        if how == "overwrite":
            raw = raw[:at] + filling + raw[at + len(filling) :]
        elif how == "insert":
            raw = raw[:at] + filling + raw[at:]
        elif how == "remove":
            raw = raw[:at] + raw[at + len(filling) :]
        elif how == "copy":
            raw = raw[:at] + raw[at // 2 : at // 2 + 200] + raw[at:]
        else:
            raw = raw[:at]
    return raw


def rows(block: Block) -> list[Record]:
    page = Page(1, block.last, block.first)
    block.copy_to(page, 0, len(block))
    return list(page)


@cache
def journal() -> tuple[bytes, dict[int, list[Record]]]:
    """A journal's bytes and, by first seq, the records of each append in it."""
    raw = file_header(FileKind.JOURNAL, 1, SEED)
    written: dict[int, list[Record]] = {}
    first = 1
    for number in range(12):
        data = [b"%d/%d " % (number, at) * (number * 3 % 7) for at in range(number % 4 + 1)]
        keys = [None if at % 2 else f"key {at}" for at in range(len(data))] if number % 3 else None
        metas = [b"meta"] * len(data) if number % 2 else None
        block = Block.of_batch(first, 1000 + number, Batch(data, keys, keys, metas))
        raw += b"".join(encode_append(7, block, 1000 + number, 99, None).seal(SEED, len(raw)))
        written[first] = rows(block)
        first += len(data)
    return raw, written


def frames_in_pieces(raw: bytes, piece: int) -> list[Frame | FrameDamage]:
    with patch.object(frame, "PIECE_BYTES", piece):
        return list(scan(raw, SEED, FILE_HEADER.size))


@fuzz
@given(mutations(), st.integers(4, 400))
def test_a_file_reads_the_same_in_pieces_of_any_size(changes: list[tuple[str, float, bytes]], piece: int) -> None:
    raw = mutate(journal()[0], changes)
    assert frames_in_pieces(raw, piece) == frames_in_pieces(raw, 1 << 30)


def check_scan(raw: bytes) -> None:
    """Frames and damage cover the file without a gap, and every record was written."""
    at = FILE_HEADER.size
    for item in scan(raw, SEED, FILE_HEADER.size):
        assert item.offset == at
        assert item.length > 0
        at += item.length
        if isinstance(item, FrameDamage):
            continue
        assert item.type is FrameType.APPEND
        block, extras = decode_append(item)
        assert extras is None
        assert rows(block) == journal()[1][item.first]
    assert at == max(len(raw), FILE_HEADER.size)


@fuzz
@given(st.binary(max_size=3000))
def test_no_frame_is_found_in_random_bytes(noise: bytes) -> None:
    raw = bytes(FILE_HEADER.size) + noise
    assert not [item for item in scan(raw, SEED, FILE_HEADER.size) if isinstance(item, Frame)]


@fuzz
@given(mutations())
def test_a_mutated_journal_gives_no_record_that_was_not_written(changes: list[tuple[str, float, bytes]]) -> None:
    check_scan(mutate(journal()[0], changes))


@fuzz
@given(st.binary(max_size=100), mutations())
def test_a_file_header_is_read_or_refused(noise: bytes, changes: list[tuple[str, float, bytes]]) -> None:
    good = file_header(FileKind.JOURNAL, 1, SEED)
    for raw in (noise, mutate(good, changes)):
        try:
            assert read_file_header("file", raw, FileKind.JOURNAL) == (1, SEED)
        except (DamagedFile, UnsupportedFormat):
            assert raw[: len(good)] != good


@cache
def data_directory() -> tuple[bytes, bytes, int, int, int]:
    """The manifest of a real directory, and its segment: bytes, id, size and edges."""
    root = Path(mkdtemp(prefix="strandline-fuzz-"))
    with Engine.open(root, clock=ManualClock(), background=False) as engine:
        for name in ("one", "two"):
            log = engine.create(name, Config(durability="fsync")).wait()
            for number in range(20):
                log.append(Batch.of(b"%d " % number * number, f"key {number % 5}", "node", b"meta")).wait()
        engine.seal()
        [entry] = engine.maintenance.manifest.segments
    segment = next((root / "segments").iterdir()).read_bytes()
    return (root / "MANIFEST").read_bytes(), segment, entry.id, entry.size, entry.edges


def check_segment(raw: bytes, path: Path) -> None:
    _, good, id, size, edges = data_directory()
    path.unlink(missing_ok=True)
    path.write_bytes(raw)
    try:
        segment = Segment.open(str(path), "segment", id, size, edges)
    except (DamagedFile, UnsupportedFormat):
        assert raw != good
        return
    for index in range(len(segment.blocks)):
        try:
            found = rows(segment.load(index))
        except DamagedFile:
            assert raw != good
            continue
        assert [record.data for record in found] == [b"%d " % number * number for number in range(20)] * 2
        assert {record.meta for record in found} == {b"meta"}
    assert bool(segment.verify()) == (raw != good)


@fuzz
@given(mutations())
def test_a_mutated_segment_is_refused_or_gives_what_was_written(changes: list[tuple[str, float, bytes]]) -> None:
    check_segment(mutate(data_directory()[1], changes), SEGMENT_FILE)


@fuzz
@given(st.data())
def test_a_segment_of_the_right_size_with_other_bytes_is_refused(data: st.DataObject) -> None:
    raw = bytearray(data_directory()[1])
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= data.draw(st.integers(1, 255))
    check_segment(bytes(raw), SEGMENT_FILE)


@fuzz
@given(st.binary(max_size=2000))
def test_random_bytes_are_no_segment(noise: bytes) -> None:
    size = data_directory()[3]
    check_segment(noise, SEGMENT_FILE)
    check_segment((noise * (size // max(len(noise), 1) + 1))[:size] or bytes(size), SEGMENT_FILE)


@fuzz
@given(st.binary(max_size=300), mutations())
def test_a_manifest_is_read_or_refused(noise: bytes, changes: list[tuple[str, float, bytes]]) -> None:
    good = data_directory()[0]
    for raw in (noise, mutate(good, changes)):
        try:
            assert parse_manifest(raw) == parse_manifest(good)
        except (DamagedFile, UnsupportedFormat):
            assert raw != good


SEGMENT_FILE = Path(mkdtemp(prefix="strandline-fuzz-")) / "00000001.arrow"

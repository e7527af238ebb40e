"""Payloads of consecutive records, as they are stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import fill, make, opened

from strandline.engine import Batch, Log
from strandline.engine.reads import payloads
from strandline.engine.reads.payloads import read_payloads
from strandline.engine.segments import writer

ALL = 1 << 40


def joined(log: Log, after: int, through: int, max_bytes: int, separator: bytes) -> list[bytes]:
    """All payloads, from as many reads as it takes; each read is joined on its own."""
    found = []
    while after < through:
        read = read_payloads(log, after, through, max_bytes)
        assert read is not None
        assert after < read.through <= through
        if read.records:
            found.append(b"".join(read.chunks(separator)))
        after = read.through
    return found


def one_by_one(log: Log, after: int, through: int) -> list[bytes]:
    return [record.data for record in log.read(after, 100_000) if record.seq <= through]


#: The records of an append, or a removal.
_sizes = st.lists(st.integers(0, 40), min_size=1, max_size=100)
_steps = st.lists(
    st.one_of(_sizes, st.just("seal"), st.tuples(st.sampled_from(["delete", "hide"]), st.integers(1, 200))), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(_steps, st.integers(1, 2000), st.integers(0, 50), st.sampled_from([b"", b","]))
def test_they_are_the_payloads_of_a_page(
    tmp_path_factory: pytest.TempPathFactory, steps: list[object], max_bytes: int, after: int, separator: bytes
) -> None:
    with opened(tmp_path_factory.mktemp("log")) as engine:
        log = make(engine)
        for step in steps:
            if isinstance(step, list):
                log.append(Batch([bytes([97 + size % 26]) * size for size in step])).wait()
            elif step == "seal":
                engine.seal()
            elif isinstance(step, tuple) and log.head:
                kind, seq = step
                (log.delete if kind == "delete" else log.hide)(seqs=[1 + seq % log.head, 2 + seq % log.head]).wait()
        head = log.head
        fill(log, "later")
        after = min(after, head)
        expected = one_by_one(log, after, head)
        assert separator.join(joined(log, after, head, ALL, separator)) == separator.join(expected)
        pieces = joined(log, after, head, max_bytes, separator)
        assert separator.join(pieces) == separator.join(expected)
        # Only a single record may be larger.
        assert all(len(piece) - piece.count(separator or b"\0") <= max(max_bytes, 40) for piece in pieces)


@pytest.mark.parametrize("sealed", [False, True])
def test_many_rows_are_joined_like_few(tmp_path: Path, sealed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = [b"%d" % number * (number % 7) for number in range(500)]
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch(data)).wait()
        if sealed:
            engine.seal()
        for after in (0, 1, 137, 499):
            assert joined(log, after, 500, ALL, b",") == [b",".join(data[after:])]
        monkeypatch.setattr(payloads, "MAX_ARROW_OFFSET", 100)
        assert joined(log, 3, 500, ALL, b",") == [b",".join(data[3:])]


def test_bytes_without_a_separator_are_not_copied(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([b"abc", b"def"])).wait()
        whole, part = (read_payloads(log, after, 2, ALL) for after in (0, 1))
        assert whole is not None
        assert part is not None
        (block, _, _) = whole.pieces[0]
        assert whole.chunks(b"")[0] is block.data
        (chunk,) = part.chunks(b"")
        assert isinstance(chunk, memoryview)
        assert (chunk.obj, bytes(chunk)) == (block.data, b"def")


def test_a_text_is_found_only_in_the_rows_that_are_read(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([b"one", b"two", b"three"])).wait()
        read = read_payloads(log, 1, 2, ALL)
        assert read is not None
        assert read.may_contain(b"two")
        assert not read.may_contain(b"one")
        assert not read.may_contain(b"three")


@pytest.mark.parametrize("sealed", [False, True])
def test_lost_and_amended_records_are_not_for_it(tmp_path: Path, sealed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BLOCK_ROWS", 2)
    with opened(tmp_path) as engine:
        amended, capped = make(engine, "amended"), make(engine, "capped", cap_records=3)
        for log in (amended, capped):
            fill(log, *"abcdef")
        if sealed:
            engine.seal()
        amended.amend(4, b"x").wait()
        assert read_payloads(capped, 0, 6, ALL) is None
        read = read_payloads(capped, 3, 6, ALL)
        assert read is not None
        assert (read.through, read.records) == (6, 3)
        assert read_payloads(amended, 2, 6, ALL) is None
        assert one_by_one(amended, 2, 6) == [b"c", b"x", b"e", b"f"]

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.engine.errors import DamagedFile, UnsupportedFormat
from strandline.engine.journal.bodies import Extras
from strandline.engine.journal.frame import (
    FILE_HEADER,
    MARK_BYTES,
    FileKind,
    Frame,
    FrameDamage,
    FrameType,
    decode_append,
    encode,
    encode_append,
    file_header,
    read_file_header,
    scan,
)
from strandline.engine.record import Batch, Producer
from strandline.engine.state.block import Block

texts = st.none() | st.text(max_size=8)
records = st.lists(st.tuples(st.binary(max_size=40), texts, texts, st.none() | st.binary(max_size=9)), min_size=1)
producers = st.builds(Producer, st.text(), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
SEED = 77


def batch_of(rows: list[tuple[bytes, str | None, str | None, bytes | None]]) -> Batch:
    data, keys, nodes, metas = (list(column) for column in zip(*rows, strict=True))
    return Batch(data, keys, nodes, metas)


def written(*payloads: bytes) -> bytes:
    raw = b""
    for number, payload in enumerate(payloads, 1):
        block = Block.of_batch(number, 5, Batch.of(payload))
        raw += b"".join(encode_append(1, block, 5, 0, None).seal(SEED, len(raw)))
    return raw


@given(records, st.none() | st.text(min_size=1, max_size=9), st.none() | producers)
def test_an_append_comes_back_as_it_was(rows, key, producer) -> None:
    extras = Extras(key, producer)
    block = Block.of_batch(41, 1234, batch_of(rows))
    raw = b"".join(encode_append(9, block, 1234, 300, extras).seal(SEED, 0))
    (frame,) = scan(raw, SEED, 0)
    assert isinstance(frame, Frame)
    assert (frame.type, frame.epoch, frame.first, frame.ts, frame.reserved) == (FrameType.APPEND, 9, 41, 1234, 300)
    back, found = decode_append(frame)
    assert (back.first, back.last, back.ts, back.data) == (block.first, block.last, 1234, block.data)
    assert list(back.offsets) == list(block.offsets)
    assert (back.keys, back.nodes, back.metas) == (block.keys, block.nodes, block.metas)
    assert found == extras


def test_frames_follow_each_other() -> None:
    frames = list(scan(written(b"one", b"", b"three"), SEED, 0))
    assert [decode_append(frame)[0].data for frame in frames if isinstance(frame, Frame)] == [b"one", b"", b"three"]


def test_a_torn_last_frame_is_damage_at_the_end() -> None:
    raw = written(b"one", b"two")
    end = len(written(b"one"))
    for cut in range(end + 1, len(raw)):
        first, damage = scan(raw[:cut], SEED, 0)
        assert isinstance(first, Frame)
        assert isinstance(damage, FrameDamage)
        assert (damage.offset, damage.length) == (end, cut - end)


def test_what_follows_a_damaged_frame_is_found() -> None:
    raw = bytearray(written(b"one", b"two", b"three"))
    at = raw.index(b"two")
    raw[at] ^= 1
    one, damage, three = scan(bytes(raw), SEED, 0)
    assert isinstance(one, Frame)
    assert isinstance(damage, FrameDamage)
    assert isinstance(three, Frame)
    assert three.first == 3
    assert damage.offset == one.length


def test_a_frame_at_another_offset_or_of_another_file_is_none() -> None:
    raw = written(b"one")
    assert all(isinstance(item, FrameDamage) for item in scan(b"\0" * 8 + raw, SEED, 8))
    assert all(isinstance(item, FrameDamage) for item in scan(raw, SEED + 1, 0))


def test_a_frame_inside_a_payload_is_only_payload() -> None:
    inner = written(b"forged")
    raw = written(b"before" + inner, b"after")
    assert [frame.first for frame in scan(raw, SEED, 0) if isinstance(frame, Frame)] == [1, 2]
    broken = bytearray(raw)
    broken[60] ^= 0xFF
    found = [item for item in scan(bytes(broken), SEED, 0) if isinstance(item, Frame)]
    assert [frame.first for frame in found] == [2]


def test_marks_alone_make_no_frames() -> None:
    assert [type(item) for item in scan(MARK_BYTES * 100, SEED, 0)] == [FrameDamage]


def test_a_frame_of_an_unknown_type_is_damage() -> None:
    raw = bytearray(b"".join(encode(FrameType.CLOSE, 0, 0, 0).seal(SEED, 0)))
    raw[16] = 200
    (item,) = scan(bytes(raw), SEED, 0)
    assert isinstance(item, FrameDamage)


def test_a_file_header_tells_what_is_wrong_with_it() -> None:
    good = file_header(FileKind.JOURNAL, 3, 9)
    assert read_file_header("f", good, FileKind.JOURNAL) == (3, 9)
    with pytest.raises(DamagedFile, match="header has"):
        read_file_header("f", good[:-1], FileKind.JOURNAL)
    with pytest.raises(DamagedFile, match="magic"):
        read_file_header("f", b"X" + good[1:], FileKind.JOURNAL)
    with pytest.raises(DamagedFile, match="kind 1"):
        read_file_header("f", good, FileKind.CHECKPOINT)
    future = good[:8] + (2).to_bytes(4, "little") + good[12:]
    with pytest.raises(UnsupportedFormat) as caught:
        read_file_header("f", future, FileKind.JOURNAL)
    assert (caught.value.found, caught.value.supported) == (2, 1)
    assert FILE_HEADER.size == 48

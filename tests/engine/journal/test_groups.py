"""Frames that were written together count together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.engine.journal.frame import (
    Frame,
    FrameDamage,
    FrameType,
    IncompleteWrite,
    encode,
    group,
    scan,
    whole_writes,
)

SEED = 99


def written(sizes: list[int]) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Groups of so many frames each; the bytes, and of every frame its group, start and end."""
    parts: list[bytes] = []
    places, offset, epoch = [], 0, 0
    for number, size in enumerate(sizes):
        frames = group([encode(FrameType.RESERVE, epoch + at, 0, 7, b"x" * at) for at in range(size)])
        epoch += size
        for frame in frames:
            parts += frame.seal(SEED, offset)
            places.append((number, offset, offset + frame.length))
            offset += frame.length
    return b"".join(parts), places


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_a_write_counts_whole_or_not_at_all(sizes: list[int], data: st.DataObject) -> None:
    raw, places = written(sizes)
    hurt = data.draw(st.sets(st.sampled_from(range(len(places)))))
    damaged = bytearray(raw)
    for at in hurt:
        damaged[places[at][2] - 1] ^= 1
    cut = data.draw(st.integers(0, len(raw)))
    seen = list(whole_writes(scan(bytes(damaged[:cut]), SEED, 0)))
    broken = {places[at][0] for at in hurt} | {number for number, _, end in places if end > cut}
    expected = [epoch for epoch, (number, _, _) in enumerate(places) if number not in broken]
    assert [item.epoch for item in seen if isinstance(item, Frame)] == expected
    readable = [
        epoch for epoch, (number, _, end) in enumerate(places) if number in broken and epoch not in hurt and end <= cut
    ]
    assert [item.frame.epoch for item in seen if isinstance(item, IncompleteWrite)] == readable


def test_a_single_frame_is_a_write_of_its_own() -> None:
    raw, _ = written([1, 1])
    items = list(whole_writes(scan(raw, SEED, 0)))
    assert [(type(item), item.place) for item in items if not isinstance(item, FrameDamage | IncompleteWrite)] == [
        (Frame, 0)
    ] * 2

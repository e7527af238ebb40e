from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.lake.key_files import cover, even, hashes, places

bits = st.text("01", min_size=1, max_size=6)


@settings(deadline=None)
@given(st.sets(bits, max_size=12), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_every_hash_is_in_one_bucket_of_a_cover_and_that_is_the_one_its_bits_say(
    known: set[str], found: list[int]
) -> None:
    buckets = cover(known)
    assert buckets == sorted(buckets)
    for hash, place in zip(found, places(buckets, np.array(found, np.uint64)), strict=True):
        holding = [bucket for bucket in buckets if f"{hash:064b}".startswith(bucket)]
        assert holding == [buckets[place]]
    # Whatever is known is one of them, or a part of one that is known.
    for name in known:
        assert any(name.startswith(bucket) and bucket in known for bucket in buckets)


def test_hashes_never_change() -> None:
    """Files of earlier versions are found by them."""
    assert hashes([1, 2], ["a", "a"]).tolist() == [15201566949650179872, 12281825131740780327]
    assert even(2) == ["00", "01", "10", "11"]

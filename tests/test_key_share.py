"""Shares of keys: which share a record is in, and the names of their consumers."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.key_share import ShareConsumer, share_consumer, share_name, share_of


def test_the_share_of_a_key_never_changes() -> None:
    """Members of other languages compute it too, and groups keep their positions by it."""
    assert [share_of(key, 7, 16) for key in ("ann", "bob", "Zoë", "")] == [3, 0, 10, 0]
    assert [share_of(None, seq, 16) for seq in (1, 15, 16, 17)] == [1, 15, 0, 1]


def test_keys_are_divided_evenly() -> None:
    counts = Counter(share_of(f"customer-{number}", 0, 16) for number in range(16_000))
    assert len(counts) == 16
    assert max(counts.values()) < 1.2 * min(counts.values())


@pytest.mark.parametrize(
    ("share", "name"),
    [
        (ShareConsumer("billing", 3, 16), "billing:03-of-16"),
        (ShareConsumer("a:b-of-2", 0, 1), "a:b-of-2:0-of-1"),
        (ShareConsumer("g", 255, 256), "g:255-of-256"),
    ],
)
def test_the_name_of_a_consumer_says_which_share_it_has(share: ShareConsumer, name: str) -> None:
    assert share_name(*share) == name
    assert share_consumer(name) == share


@pytest.mark.parametrize(
    "name", ["billing", "billing:3-of-16", "billing:16-of-16", "g:0-of-0", "g:000-of-257", ":0-of-1"]
)
def test_other_names_are_those_of_ordinary_consumers(name: str) -> None:
    assert share_consumer(name) is None

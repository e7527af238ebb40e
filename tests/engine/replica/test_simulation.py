"""Servers that share a replica, in many simulated worlds. Set STRANDLINE_LONG for thousands of them; a seed that fails
is in the message, and ``python -m support.replica_simulation SEED 1`` in the folder ``tests`` tells its story."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.replica_simulation import simulate

WORLDS = 10_000 if os.environ.get("STRANDLINE_LONG") else 240
PARTS = 12


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_or_used_twice(tmp_path: Path, part: int) -> None:
    acknowledged = sum(simulate(seed, tmp_path).history.acknowledged for seed in range(part, WORLDS, PARTS))
    # Most worlds have something to lose.
    assert acknowledged > WORLDS // PARTS


def test_a_seed_tells_the_same_story_again(tmp_path: Path) -> None:
    stories: list[list[str]] = [[], []]
    for story in stories:
        simulate(7, tmp_path, story.append)
    assert stories[0] == stories[1]
    assert len(stories[0]) > 10

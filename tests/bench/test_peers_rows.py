from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from bench.measure import Sample, Work
from bench.peers_rows import What, always, compared
from bench.peers_sides import Durability

WHAT = What("some work", "records/s", "appends")


class Contestant(NamedTuple):
    name: str
    rate: float
    classes: Mapping[Durability, str] = {"disk": "as it comes"}


def working(turns: list[str], failing: str = "") -> Callable[[Contestant], Work]:
    def work(side: Contestant) -> Work:
        def turn() -> Sample:
            turns.append(side.name)
            if side.name == failing and len(turns) > 3:
                raise RuntimeError("out of breath")
            return Sample(side.rate, 1.0)

        return turn

    return work


SIDES = [Contestant("ours", 300), Contestant("fast", 600), Contestant("slow", 100)]


def test_everybody_warms_up_and_then_takes_turns() -> None:
    turns: list[str] = []
    rows = list(compared(WHAT, SIDES, always("disk"), working(turns), 2))
    assert turns == ["ours", "fast", "slow", "fast", "slow", "ours", "slow", "ours", "fast"]
    assert [row.rounds for row in rows] == [2, 2]


def test_every_peer_makes_a_row_with_its_ratio() -> None:
    rows = list(compared(WHAT, SIDES, always("disk"), working([]), 2))
    assert [(row.peer_is, row.times_peer and row.times_peer.median) for row in rows] == [
        ("fast, as it comes", 0.5),
        ("slow, as it comes", 3.0),
    ]


def test_who_fails_is_left_out_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(compared(WHAT, SIDES, always("disk"), working([], failing="fast"), 2))
    assert [row.peer_is for row in rows] == ["slow, as it comes"]
    assert "some work: without fast: out of breath" in capsys.readouterr().err


def test_without_ours_there_is_no_row() -> None:
    assert list(compared(WHAT, SIDES, always("disk"), working([], failing="ours"), 2)) == []

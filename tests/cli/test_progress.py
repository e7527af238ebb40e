from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from strandline.cli.spark import Bars, Lines
from strandline.lake.status import Lag, PipelineProblem, RoundSummary, StageStatus, StageSummary

STAGE = StageSummary(stage="records", records=120_000, bytes=24_000_000, seconds=0.5, rate=240_000.0)
NOTHING = StageSummary(stage="records", records=0, bytes=0, seconds=0.1, rate=0.0)
LAG = Lag(logs=3, heads=500_000, behind=7)


def play(watch: Lines | Bars) -> None:
    """A round with a problem, then one in which there was nothing to do, then one that fails."""
    stage = StageStatus(stage="records", since=0, total=120_000)
    watch.began(stage)
    stage.records, stage.bytes, stage.rate = 60_000, 12_000_000, 240_000.0
    watch.advanced(stage)
    watch.problem(PipelineProblem(time=0, stage="records", log="orders", seq=17, message="not [red]JSON"))
    watch.ended(STAGE)
    watch.round_ended(RoundSummary(begin=0, end=1500, stages=[STAGE]), LAG)
    watch.ended(NOTHING)
    watch.round_ended(RoundSummary(begin=0, end=100, stages=[NOTHING]), LAG)
    watch.round_ended(RoundSummary(begin=0, end=100, error="the disk is full"), LAG)
    watch.close()


TOLD = [
    "problem in stage records, log orders at seq 17: not [red]JSON",
    "records: 120,000 records, 24.0 MB in 0.5 s (240,000/s)",
    "round done after 1.5 s; lag: 7 of 500,000 records in 3 logs",
    "round failed: the disk is full after 0.1 s; lag: 7 of 500,000 records in 3 logs",
]


def test_lines_tell_what_is_over_and_nothing_of_rounds_without_work(capsys: pytest.CaptureFixture[str]) -> None:
    play(Lines())
    assert capsys.readouterr().err.splitlines() == TOLD


def test_bars_leave_the_same_lines_behind() -> None:
    screen = io.StringIO()
    play(Bars(Console(file=screen, force_terminal=True, width=120, color_system=None, legacy_windows=False)))
    shown = screen.getvalue()
    for line in TOLD:
        assert line in shown
    assert "/120000" in shown


def test_a_listener_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    play(Lines())

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.lake.location import Lake
from strandline.lake.status import (
    NAME,
    BadStatus,
    Lag,
    LogLag,
    PipelineStatus,
    RoundSummary,
    StageStatus,
    read_status,
    write_status,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    lag = Lag(logs=1, heads=7, covered={"records": 5}, behind=2, rows=[LogLag(log="a", epoch=1, head=7, covered={})])
    status = PipelineStatus(state="running", pid=7, stages=[StageStatus(stage="records", since=1, total=9)], lag=lag)
    write_status(Lake.at(tmp_path / "lake"), status)
    assert read_status(Lake.at(tmp_path / "lake")) == status
    assert read_status(Lake.at(f"file://{tmp_path}/lake")) == status


def test_only_the_status_itself_is_left_behind(tmp_path: Path) -> None:
    write_status(Lake.at(tmp_path), PipelineStatus(pid=1))
    write_status(Lake.at(tmp_path), PipelineStatus(pid=2))
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_lake_without_a_status_has_none(tmp_path: Path) -> None:
    assert read_status(Lake.at(tmp_path)) is None
    assert read_status(Lake.at(tmp_path / "nowhere")) is None


@pytest.mark.parametrize("text", ["", "{", '{"state":"dancing"}', '{"rounds":7}'])
def test_a_status_that_makes_no_sense_is_told_with_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(BadStatus, match=str(tmp_path / NAME)):
        read_status(Lake.at(tmp_path))


def test_a_status_of_a_later_version_can_be_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"state":"idle","moon":"full"}')
    assert read_status(Lake.at(tmp_path)) == PipelineStatus(state="idle")


def test_the_last_good_round_is_the_newest_without_an_error() -> None:
    good, bad = RoundSummary(begin=1, end=2), RoundSummary(begin=3, end=4, error="no")
    assert PipelineStatus(rounds=[good, bad]).last_good_round == good
    assert PipelineStatus(rounds=[good, RoundSummary(begin=3, end=4, stopped=True)]).last_good_round == good
    assert PipelineStatus(rounds=[bad]).last_good_round is None


def test_a_log_is_as_far_behind_as_its_last_table() -> None:
    assert LogLag(log="a", epoch=1, head=10, covered={"records": 10, "companions": 4}).behind == 6
    assert LogLag(log="a", epoch=1, head=10, covered={}).behind == 10
    assert LogLag(log="a", epoch=1, head=10, covered={"records": 12}).behind == 0

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.lake.location import Lake
from strandline.pipeline.companions.stage import NOTED, find_unused, sweep

MINUTE = 60_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.at(tmp_path)
    for name in ("used", "replaced"):
        lake.write(f"pieces/1/{name}", b"x")
    return lake


def test_a_file_goes_when_it_has_been_unused_for_a_while(lake: Lake) -> None:
    assert sweep(lake, ["pieces/1/used"], MINUTE, 60, lake.remove) == []
    lake.write("pieces/1/orphan", b"x")
    assert sweep(lake, ["pieces/1/used"], MINUTE + 1, 60, lake.remove) == [], "it is not looked again so soon"
    assert sweep(lake, ["pieces/1/used"], 2 * MINUTE, 60, lake.remove) == ["pieces/1/replaced"]
    assert sweep(lake, ["pieces/1/used"], 3 * MINUTE, 60, lake.remove) == ["pieces/1/orphan"]
    assert find_unused(lake, ["pieces/1/used"]) == []
    assert set(lake.names("pieces/")) == {"pieces/1/used", NOTED}


def test_a_file_that_is_used_again_stays(lake: Lake) -> None:
    sweep(lake, ["pieces/1/used"], MINUTE, 60, lake.remove)
    assert sweep(lake, ["pieces/1/used", "pieces/1/replaced"], 2 * MINUTE, 60, lake.remove) == []
    assert sweep(lake, ["pieces/1/used"], 3 * MINUTE, 60, lake.remove) == [], "it counts from now"


def test_a_note_that_cannot_be_read_costs_time_only(lake: Lake) -> None:
    sweep(lake, ["pieces/1/used"], MINUTE, 60, lake.remove)
    lake.write(NOTED, b"{")
    assert sweep(lake, ["pieces/1/used"], 2 * MINUTE, 60, lake.remove) == []
    assert sweep(lake, ["pieces/1/used"], 3 * MINUTE, 60, lake.remove) == ["pieces/1/replaced"]


def test_a_note_of_a_wrong_clock_does_not_stop_it(lake: Lake) -> None:
    sweep(lake, ["pieces/1/used"], 1000 * MINUTE, 60, lake.remove)
    assert sweep(lake, ["pieces/1/used"], MINUTE, 60, lake.remove) == [], "it counts from now"
    assert sweep(lake, ["pieces/1/used"], 2 * MINUTE, 60, lake.remove) == ["pieces/1/replaced"]

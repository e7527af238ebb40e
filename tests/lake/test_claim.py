from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.lake import fence as claiming
from strandline.lake.fence import SILENT_MS, LakeInUse, claim, is_claimed
from strandline.lake.location import Lake
from strandline.lake.status import PipelineStatus

HOLDER = """
import sys
from strandline.lake.fence import claim
from strandline.lake.location import Lake
with claim(Lake.at(sys.argv[1]), lambda: 0):
    print("claimed", flush=True)
    sys.stdin.read()
"""


def now() -> int:
    return 1_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


@pytest.fixture
def holder(lake: Lake) -> Iterator[subprocess.Popen[str]]:
    """Another process that has claimed the lake."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, lake.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "claimed\n"
    yield process
    process.kill()
    process.communicate()


def test_a_lake_is_claimed_for_as_long_as_the_block(lake: Lake) -> None:
    assert not is_claimed(lake)
    with claim(lake, now):
        assert is_claimed(lake)
    assert not is_claimed(lake)
    with claim(lake, now):
        pass


def test_a_second_one_is_told_who_is_there(lake: Lake, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(LakeInUse, match=f"{lake.url}: process {holder.pid}$"), claim(lake, now):
        pass
    assert is_claimed(lake)


def test_a_killed_process_leaves_no_claim_behind(lake: Lake, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert not is_claimed(lake)
    with claim(lake, now):
        assert is_claimed(lake)


class TestInAnObjectStore:
    @pytest.fixture
    def lake(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
        monkeypatch.setattr(claiming.tempfile, "gettempdir", lambda: str(tmp_path))
        self.status: PipelineStatus | None = None
        monkeypatch.setattr(claiming, "read_status", lambda lake: self.status)
        return Lake.at("s3://bucket/lake")

    def test_on_the_same_machine_it_is_a_lock(self, lake: Lake) -> None:
        with claim(lake, now):
            assert is_claimed(lake)
            with pytest.raises(LakeInUse, match="s3://bucket/lake"), claim(lake, now):
                pass

    def test_a_pipeline_of_another_machine_is_there_while_it_renews_its_status(self, lake: Lake) -> None:
        self.status = PipelineStatus(state="idle", host="elsewhere", pid=7, updated=now() - SILENT_MS + 1)
        with pytest.raises(LakeInUse, match="process 7 on elsewhere"), claim(lake, now):
            pass

    def test_one_that_has_fallen_silent_or_ended_is_not(self, lake: Lake) -> None:
        for status in (
            PipelineStatus(state="running", host="elsewhere", updated=now() - SILENT_MS),
            PipelineStatus(state="ended", host="elsewhere", updated=now()),
            # Written under a wrong clock.
            PipelineStatus(state="running", host="elsewhere", updated=now() + SILENT_MS),
        ):
            self.status = status
            with claim(lake, now):
                pass

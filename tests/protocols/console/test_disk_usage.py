"""How full the disk is, and when it will be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from protocols.console.test_sample_history import DAY_MS, HOUR_MS, sample
from support.console_in_process import ConsoleStand

from strandline.protocols.console import disk_usage
from strandline.protocols.console.disk_usage import disk_answer, growth_per_day, measure_disk
from strandline.protocols.console.wire import SampleAnswer

BLOCK = 1 << 20


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, blocks in {"journal": 4, "segments": 2, "indexes/7": 1, "lake/records": 3, "damaged": 1}.items():
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(os.urandom(blocks * BLOCK))
    (tmp_path / "MANIFEST").write_bytes(os.urandom(BLOCK))
    (tmp_path / "segments" / "link").symlink_to(tmp_path / "journal" / "file")
    return tmp_path


def in_blocks(size: int | None) -> int | None:
    """Rounded: a file system needs a little space for its own."""
    return None if size is None else round(size / BLOCK)


def test_files_are_counted_by_kind(data: Path) -> None:
    shown = disk_answer(measure_disk(data, data / "lake"), [])
    sizes = (shown.journal_bytes, shown.segment_bytes, shown.checkpoint_bytes, shown.index_bytes, shown.lake_bytes)
    assert [in_blocks(each) for each in sizes] == [4, 2, 0, 1, 3]
    assert (in_blocks(shown.other_bytes), in_blocks(shown.used_bytes), shown.complete) == (2, 12, True)
    assert 0 < shown.free_bytes <= shown.total_bytes
    # The data directory may have another path.
    (data.parent / f"{data.name}-linked").symlink_to(data)
    assert measure_disk(data.parent / f"{data.name}-linked", data / "lake").used == shown.used_bytes


def test_a_lake_elsewhere_is_counted_and_one_in_an_object_store_is_not(data: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    apart.mkdir()
    (apart / "file").write_bytes(os.urandom(BLOCK))
    assert in_blocks(measure_disk(data / "journal", apart).lake) == 1
    assert measure_disk(data / "journal", None).lake is None
    assert measure_disk(data / "journal", data / "absent").lake == 0


def test_too_many_files_are_not_counted(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_usage, "MAX_FILES", 1)
    assert not measure_disk(data, None).complete


def grown(*sizes: int, every: int = HOUR_MS) -> list[SampleAnswer]:
    return [sample(at * every, disk_bytes=size) for at, size in enumerate(sizes)]


def test_the_growth_is_that_of_the_history() -> None:
    assert growth_per_day(grown(0, 10, 20, 30)) == 240.0
    assert growth_per_day(grown(30, 20, 10)) == -240.0
    assert growth_per_day([*grown(5, 5, 5), sample(DAY_MS)]) == 0.0
    # Merges make a directory smaller for a while.
    assert 0 < (growth_per_day(grown(0, 20, 10, 30)) or 0) < 480
    assert growth_per_day(grown(0, 1, 2, every=60_000)) is None
    assert growth_per_day([]) is None


def test_the_disk_is_full_when_the_free_space_has_been_used(data: Path) -> None:
    usage = measure_disk(data, None)._replace(free=480)
    assert disk_answer(usage, grown(0, 10, 20)).full_in_ms == 2 * DAY_MS
    assert disk_answer(usage, grown(20, 10, 0)).full_in_ms is None
    assert disk_answer(usage, []).full_in_ms is None


def test_the_overview_shows_the_disk(stand: ConsoleStand) -> None:
    assert stand.get("/overview")["disk"] is None
    stand.log("orders", *range(100))
    stand.sample()
    shown = stand.get("/overview")
    assert shown["disk"]["journal_bytes"] > 0
    last = shown["samples"][-1]
    assert (last["disk_bytes"], last["disk_free_bytes"]) == (shown["disk"]["used_bytes"], shown["disk"]["free_bytes"])
    assert shown["disk"]["growth_bytes_per_day"] is None
    for _ in range(90):
        stand.log("orders", "x" * 10_000)
        stand.sample(60_000)
    assert stand.get("/overview")["disk"]["growth_bytes_per_day"] > 0


def test_a_directory_that_cannot_be_read_has_no_size(stand: ConsoleStand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr("strandline.protocols.console.overview.measure_disk", fail)
    stand.sample()
    assert stand.get("/overview")["disk"] is None

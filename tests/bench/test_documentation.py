from __future__ import annotations

from pathlib import Path

import pytest
from support.benchmark_rows import BARS, LINES

from bench.__main__ import DOCUMENTATION, GROUPS
from bench.documentation import BEGIN, END, PAGES, write
from bench.machine import Machine
from bench.measure import Row
from bench.report import Report

MACHINE = Machine("some", 2, 4.0, "Linux", "3.11", "ext4", 0.1)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{BEGIN}\nold ratios\n{END}\nafter\n")
    page.with_suffix("").mkdir()
    (tmp_path / "benchmarks/peers.md").write_text(
        f"{BEGIN}\n\n### peers\n\nold figures\n\n### other\n\nkept\n\n{END}\n"
    )
    return page


def written(page: Path, rows: list[Row]) -> str:
    write(page, Report("2026-01-01", MACHINE, 1.0, rows))
    return page.read_text()


def test_the_page_has_a_ratio_per_peer_and_the_pictures(page: Path) -> None:
    text = written(page, BARS + LINES)
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old ratios" not in text
    assert "| work | Strandline | Redis Streams | NATS <JetStream> |" in text
    assert "| batches, disk | 600 records/s | 3.0× | 0.5× |" in text
    assert "| one append, disk | 60 µs | 0.33× |  |" in text
    for name in ("bench-peers-appends.svg", "bench-peers-growth-topics.svg"):
        assert f"](images/{name})" in text
        assert (page.parent / "images" / name).exists()


def test_of_a_growing_history_the_page_shows_the_longest(page: Path) -> None:
    text = written(page, LINES)
    assert "one append to 100000" in text
    assert "one append to 10000 " not in text


def test_every_figure_is_on_the_page_of_its_group(page: Path) -> None:
    written(page, BARS + LINES)
    text = (page.parent / "benchmarks/peers.md").read_text()
    assert "old figures" not in text
    assert "### other\n\nkept" in text
    assert text.count("| one append to 1000 |") == 2


def test_every_group_has_a_page() -> None:
    assert PAGES.keys() == GROUPS.keys()
    for name in PAGES.values():
        assert BEGIN in (DOCUMENTATION.with_suffix("") / f"{name}.md").read_text()

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.machine import Machine
from bench.measure import Figure, Row, Unit
from bench.plots import plots
from bench.plots_bars import advantage
from bench.plots_svg import Scale
from bench.report import BEGIN, END, Report, write_documentation


def row(name: str, peer: str, ours: float, theirs: float, unit: Unit, chart: str, at: int | None = None) -> Row:
    figures = [Figure(value, value * 0.9, value * 1.1) for value in (ours, theirs, ours / theirs)]
    return Row(
        group="peers", name=name, unit=unit, result=figures[0], rounds=3, peer_is=f"{peer}, as it comes",
        peer=figures[1], times_peer=figures[2], chart=chart, at=at,
    )  # fmt: skip


BARS = [
    row("batches, disk", "Redis Streams", 600, 200, "records/s", "appends"),
    row("batches, disk", "NATS <JetStream>", 600, 1200, "records/s", "appends"),
    row("one append, disk", "Redis Streams", 60, 20, "µs", "appends"),
]
LINES = [
    row(f"one append to {size}", peer, 50, cost, "µs", "growth-topics", size)
    for size in (1000, 10_000, 100_000)
    for peer, cost in (("Redis Streams", 20), ("PostgreSQL", 21))
]


def texts(content: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(content).iter("{http://www.w3.org/2000/svg}text")]


def test_bars_show_every_ratio_so_that_more_is_better_for_us() -> None:
    (plot,) = plots("peers", BARS)
    assert plot.name == "bench-peers-appends.svg"
    shown = texts(plot.content)
    assert [word for word in shown if word in ("3.0×", "0.5×", "0.33×")] == ["3.0×", "0.5×", "0.33×"]
    assert shown.count("batches, disk") == 1
    assert "NATS <JetStream>" in shown


def test_bars_of_a_peer_that_is_better_have_another_colour() -> None:
    (plot,) = plots("peers", BARS)
    bars = [element.get("class") for element in ElementTree.fromstring(plot.content) if element.get("rx")]
    assert bars == ["fill-ahead", "fill-behind", "fill-behind"]


def test_a_cost_is_turned_round_with_its_spread() -> None:
    figure = advantage(BARS[2])
    assert figure.median == pytest.approx(1 / 3)
    assert figure.low < figure.median < figure.high


def test_lines_name_every_side_where_its_line_ends() -> None:
    (plot,) = plots("peers", LINES)
    shown = ElementTree.fromstring(plot.content).iter("{http://www.w3.org/2000/svg}text")
    ends = {element.text: float(element.get("y") or 0) for element in shown if "strong" in element.get("class", "")}
    assert set(ends) == {"Strandline", "Redis Streams", "PostgreSQL"}
    assert abs(ends["Redis Streams"] - ends["PostgreSQL"]) >= 15


def test_pictures_suit_light_and_dark_pages() -> None:
    for plot in plots("peers", BARS + LINES):
        assert "prefers-color-scheme: dark" in plot.content


def test_an_axis_goes_by_ratios() -> None:
    scale = Scale(0.2, 5, 0, 100)
    assert [scale(value) for value in (0.1, 1, 10)] == pytest.approx([0, 50, 100])


def test_the_page_shows_pictures_beside_the_table(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{BEGIN}\n\n### append\n\nkept\n\n{END}\nafter\n")
    machine = Machine("some", 2, 4.0, "Linux", "3.11", "ext4", 0.1)
    write_documentation(page, Report("2026-01-01", machine, 1.0, BARS + LINES))
    text = page.read_text()
    assert "### append\n\nkept" in text
    for name in ("bench-peers-appends.svg", "bench-peers-growth-topics.svg"):
        assert f"](images/{name})" in text
        assert (tmp_path / "images" / name).exists()


def test_rows_without_a_picture_are_only_in_the_table() -> None:
    assert plots("peers", [row("some", "Redis Streams", 1, 2, "s", "")]) == []

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from support.benchmark_rows import BARS, LINES, row

from bench.plots import plots
from bench.plots_bars import advantage
from bench.plots_svg import Scale


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


def test_rows_without_a_picture_are_only_in_the_table() -> None:
    assert plots("peers", [row("some", "Redis Streams", 1, 2, "s", "")]) == []

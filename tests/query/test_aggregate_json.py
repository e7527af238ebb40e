"""Sums as JSON: what is concluded from them, and how numbers, dates and strings are written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.query.aggregate_json import (
    PERCENTILES,
    heads,
    joined,
    json_strings,
    measure_parts,
    number_shown,
    numbers_shown,
)
from strandline.query.config import Measure
from strandline.query.sums import Histograms, MeasureSums
from strandline.query.values import plain

WITH_HISTOGRAM = Measure("m", "summary", field="f", histogram=True)


def sums_of(*histograms: dict[str, float]) -> MeasureSums:
    names = sorted({name for histogram in histograms for name in histogram}, reverse=True)
    entries = [
        (group, names.index(name), weight) for group, each in enumerate(histograms) for name, weight in each.items()
    ]
    columns = list(zip(*entries, strict=True)) or [(), (), ()]
    numbers = np.zeros(len(histograms), np.int64)
    held = Histograms(
        np.array(columns[0], np.int64), np.array(columns[1], np.int64), np.array(columns[2], float), names
    )
    return MeasureSums(numbers, numbers, numbers, numbers, histograms=held)


def shown(sums: MeasureSums, measure: Measure = WITH_HISTOGRAM) -> list[dict[str, Any]]:
    return [json.loads(text) for text in joined(measure_parts(sums, measure)).to_pylist()]


def test_nothing_has_no_average_and_no_percentiles() -> None:
    (found,) = shown(sums_of({}))
    assert found == {
        "count": 0, "sum": 0, "min": 0, "max": 0, "avg": None, "p50": None, "p95": None, "p99": None, "histogram": {},
    }  # fmt: skip


def test_percentiles_are_the_first_bucket_that_reaches_the_share() -> None:
    found, other = shown(sums_of({"1024": 1, "1": 50, "2": 44, "64": 5}, {"8": 1, "no number": 7}))
    assert (found["p50"], found["p95"], found["p99"]) == (1, 64, 64)
    assert list(found["histogram"]) == ["1", "2", "64", "1024"]
    assert (other["p50"], other["histogram"]) == (8, {"8": 1})


buckets = st.dictionaries(
    st.integers(0, 6).map(lambda power: str(2**power)),
    st.one_of(st.integers(1, 9), st.sampled_from([0.1, 0.25, 1e17])),
    max_size=5,
)


@given(st.lists(buckets, min_size=1, max_size=5))
def test_every_group_has_its_own_percentiles(histograms: list[dict[str, float]]) -> None:
    for found, histogram in zip(shown(sums_of(*histograms)), histograms, strict=True):
        assert found["histogram"] == histogram
        ordered = sorted(histogram, key=float)
        total = sum(histogram[name] for name in ordered)
        for percentile, share in PERCENTILES.items():
            reached, expected = 0.0, None
            for name in ordered:
                reached += histogram[name]
                if reached >= share * total:
                    expected = float(name)
                    break
            assert found[percentile] == expected


def test_large_integers_are_divided_as_exactly_as_floats_can_tell() -> None:
    numbers = np.array([2**60 + 2, 5], np.int64)
    sums = MeasureSums(np.array([3, 2]), numbers.copy(), numbers.copy(), numbers.copy())
    sums.add_wide(1, 1, 2**90, 2**90, 2**90)
    found = shown(sums, Measure("m", "summary", field="f"))
    assert [each["avg"] for each in found] == [(2**60 + 2) / 3, (2**90 + 5) / 3]
    assert (found[1]["sum"], found[1]["min"], found[1]["max"]) == (2**90 + 5, 5, 2**90)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_floats_are_shown_as_what_they_are(numbers: list[float]) -> None:
    texts = numbers_shown(np.array(numbers, np.float64)).to_pylist()
    assert [float(json.loads(text)) for text in texts] == numbers


@given(st.lists(st.integers(-(10**21), 10**21)))
def test_whole_numbers_are_shown_in_full(numbers: list[int]) -> None:
    floats = np.array(numbers, np.float64)
    expected = [str(int(number)) if abs(number) < 10**21 else repr(number) for number in floats.tolist()]
    assert numbers_shown(floats).to_pylist() == expected


@given(st.lists(st.integers(-62_167_219_200_001, 253_402_300_799_999), min_size=1))
def test_dates_are_shown_as_numpy_shows_them(dates: list[int]) -> None:
    starts = np.array(dates, np.int64)
    texts = [str(np.datetime_as_string(np.datetime64(date, "ms"), timezone="UTC")) for date in dates]
    found = heads(starts, starts[::-1]).to_pylist()
    assert found == [
        f']}},{{"start":"{start}","end":"{end}","groups":[' for start, end in zip(texts, texts[::-1], strict=True)
    ]


@given(st.lists(st.one_of(st.none(), st.text())))
def test_strings_are_quoted_as_json(texts: list[str | None]) -> None:
    assert json_strings(pa.array(texts, pa.string())).to_pylist() == [
        msgspec.json.encode(text).decode() for text in texts
    ]


@pytest.mark.parametrize("number", [2.0, -0.0, 1e20, 1e18, 2.5, 123456789012345680.0])
def test_whole_numbers_have_no_fraction(number: float) -> None:
    assert number_shown(number) == str(plain(number))

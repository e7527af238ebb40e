from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_documents import documents

from strandline.schema.errors import SchemaError
from strandline.schema.profiles import METRICS

REGISTRY = METRICS.registry("series")
GIVEN: dict[str, Any] = {"metric": "http.latency", "unit": "ms", "windowStart": 1000, "windowEnd": 11_000}
NAMES = [
    "metric", "unit", "windowStart", "windowEnd", "intervalMs", "count", "sum", "min", "max", "avg", "p50", "p95",
    "buckets", "summary", "histogram", "attributes", "tags", "stream", "kind",
]  # fmt: skip


def normalised(**record: Any) -> dict[str, Any]:
    [document] = METRICS.normalise([record], 0)
    return dict(document)


def test_an_interval_gets_every_field() -> None:
    assert normalised(**GIVEN, count=4, sum=10, min=1, max=4, attributes={"b": 1, "a": True, "c": None}) == {
        "apiVersion": "durable.streams/metrics/v1", "kind": "interval", "metric": "http.latency", "unit": "ms",
        "metricKind": "summary", "temporality": "delta", "windowStart": 1000, "windowEnd": 11_000, "intervalMs": 10_000,
        "stream": None, "instance": None, "attributes": {"a": "true", "b": "1"}, "tags": {"a": "true", "b": "1"},
        "dimensionPairs": ["a=true", "b=1"], "dimensionKey": "a=true\0b=1",
        "seriesKey": "summary|delta|http.latency|ms|||a=true\0b=1",
        "count": 4, "sum": 10, "min": 1, "max": 4, "avg": 2.5, "p50": 0, "p95": 0, "p99": 0, "buckets": {},
        "summary": {"count": 4, "sum": 10, "min": 1, "max": 4, "histogram": {}},
    }  # fmt: skip


def test_numbers_may_be_in_the_summary() -> None:
    record = normalised(
        **GIVEN, summary={"count": 2, "sum": "3.5", "min": 1, "max": 2.5, "histogram": {"1": 1, "2": 1}}
    )
    assert (record["count"], record["sum"], record["min"], record["max"]) == (2, 3.5, 1, 2.5)
    assert record["buckets"] == {"1": 1, "2": 1}


def test_the_series_names_everything_that_tells_it_from_others() -> None:
    record = normalised(**GIVEN, count=0, sum=0, stream="s", instance="i", metricKind="gauge", temporality="cumulative")
    assert record["seriesKey"] == "gauge|cumulative|http.latency|ms|s|i|"
    assert record["dimensionKey"] is None
    assert METRICS.keys_of([record]) == [record["seriesKey"]]


def test_tags_stand_in_for_attributes() -> None:
    assert normalised(**GIVEN, count=0, sum=0, tags={"x": 1.0})["attributes"] == {"x": "1"}
    assert normalised(**GIVEN, count=0, sum=0, tags={"x": 1}, attributes={})["tags"] == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"), (-0.0, "0"), (0.1, "0.1"), (1e16, "10000000000000000"), (1e21, "1e+21"), (1.5e-7, "1.5e-7"),
        (0.00001, "0.00001"), (2**70, str(2**70)), (False, "false"), ("", ""),
    ],
)  # fmt: skip
def test_attributes_are_texts(value: Any, text: str) -> None:
    assert normalised(**GIVEN, count=0, sum=0, attributes={"x": value})["attributes"] == {"x": text}


def test_without_a_measurement_there_is_no_least_and_no_greatest() -> None:
    empty = normalised(**GIVEN, count=0, sum=0, min=5, max=6)
    assert (empty["min"], empty["max"], empty["avg"]) == (None, None, 0)
    some = normalised(**GIVEN, count=1, sum=7)
    assert (some["min"], some["max"], some["avg"]) == (0, 0, 7)


def test_percentiles_come_from_the_buckets_unless_they_are_given() -> None:
    buckets = {"64": 5, "1": 90, "8": 4, "1024": 1, "2": 0, "4": -3, "16": "x"}
    record = normalised(**GIVEN, count=100, sum=1, buckets=buckets)
    assert record["buckets"] == {"64": 5, "1": 90, "8": 4, "1024": 1}
    assert (record["p50"], record["p95"], record["p99"]) == (1, 64, 64)
    assert normalised(**GIVEN, count=100, sum=1, buckets=buckets, p95=12.5)["p95"] == 12.5


def test_windows_may_be_written_as_text_and_lose_fractions() -> None:
    record = normalised(**GIVEN | {"windowStart": "1000.9", "windowEnd": 2000.5}, count=0, sum=0)
    assert (record["windowStart"], record["windowEnd"], record["intervalMs"]) == (1000, 2000, 1000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "point"}, "metrics record.kind must be interval"),
        ({"metric": " "}, "metrics record.metric must be a non-empty string"),
        ({"unit": 1}, "metrics record.unit must be a non-empty string"),
        ({"windowStart": True}, "metrics record.windowStart and windowEnd must be integers"),
        ({"windowEnd": None}, "metrics record.windowStart and windowEnd must be integers"),
        ({"windowEnd": 0}, "metrics record.windowEnd must be >= windowStart"),
        ({"intervalMs": -1}, "metrics record.intervalMs must be an integer >= 0"),
        ({"count": None}, "metrics interval requires count"),
        ({"count": -1}, "metrics interval requires count"),
        ({"sum": "x"}, "metrics interval requires sum"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(change: dict[str, Any], message: str) -> None:
    bad = {**GIVEN, "count": 1, "sum": 1} | change
    with pytest.raises(SchemaError) as caught:
        METRICS.normalise([bad], 0)
    assert str(caught.value) == message
    with pytest.raises(SchemaError) as caught:
        METRICS.normalise([{**GIVEN, "count": 1, "sum": 1}, bad], 0)
    assert str(caught.value) == f"element 1: {message}"


def test_a_record_is_an_object() -> None:
    with pytest.raises(SchemaError, match=r"^metrics records must be JSON objects$"):
        METRICS.normalise([[]], 0)


def test_what_can_be_searched_and_rolled_up() -> None:
    assert REGISTRY is not None
    document = msgspec.to_builtins(REGISTRY.document())
    assert document["routingKey"] == {"jsonPointer": "/seriesKey", "required": True}
    assert document["search"]["profile"] == "metrics"
    assert list(document["search"]["rollups"]) == ["metrics"]
    with pytest.raises(SchemaError, match="Stream-Key not allowed"):
        REGISTRY.keys_of([{"seriesKey": "x"}], "header")


@given(
    documents(NAMES), st.dictionaries(st.sampled_from(NAMES), st.integers() | st.floats(allow_nan=False), max_size=9)
)
def test_whatever_comes_is_refused_or_conforms_and_stays(record: Any, numbers: dict[str, Any]) -> None:
    assert REGISTRY is not None
    if isinstance(record, dict):
        record = {"count": 1, "sum": 2} | numbers | GIVEN | {"windowStart": -5} | record
    try:
        once = METRICS.normalise([record], 0)
    except SchemaError:
        return
    REGISTRY.check(once)
    assert METRICS.normalise(once, 1) == once

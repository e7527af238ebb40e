"""What is refused, and why; and what is made of what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.searched_log import CONFIG, decode_offset

from strandline.query.config_parser import parse_search_config
from strandline.query.errors import BadQuery
from strandline.query.requests import (
    SearchRequest,
    parse_aggregate_body,
    parse_search_body,
    parse_search_query,
)

BARE = parse_search_config(
    {"fields": {"plain": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/plain"}], "exact": True}}}
)


def search(**body: Any) -> SearchRequest:
    return parse_search_body(json.dumps({"q": "status:1", **body}).encode(), CONFIG, decode_offset)


def sorted_by(request: SearchRequest) -> list[str]:
    return [f"{key.name}:{'desc' if key.descending else 'asc'}" for key in request.sort]


def test_a_search_has_defaults() -> None:
    request = search()
    assert (request.size, request.timeout_ms, request.after) == (50, 3000, None)
    assert sorted_by(request) == ["offset:desc"]
    assert sorted_by(search(q="red")) == ["_score:desc", "at:desc", "offset:desc"]
    assert sorted_by(search(q="note:red status:1")) == ["_score:desc", "at:desc", "offset:desc"]
    assert sorted_by(search(q="NOT note:red")) == ["offset:desc"]


def test_sort_keys_may_be_aliases_and_end_with_the_offset() -> None:
    assert sorted_by(search(sort=["svc", "_score:asc"])) == ["service:desc", "_score:asc", "offset:desc"]
    assert sorted_by(search(sort=["offset:asc", "status"])) == ["offset:asc", "status:desc"]
    assert sorted_by(search(sort=[])) == ["offset:desc"]


def test_numbers_are_clamped_and_cut() -> None:
    assert search(timeout_ms=99999).timeout_ms == 3000
    assert search(timeout_ms=12.9).timeout_ms == 12
    assert search(timeout_ms=0).timeout_ms == 0
    assert search(size=500).size == 500


def test_unknown_keys_are_ignored() -> None:
    assert search(whatever=1) == search()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"q": None}, "q must be a string"),
        ({"q": 5}, "q must be a string"),
        ({"q": " "}, "q must not be empty"),
        ({"q": "\ud800"}, "search request must be valid JSON"),
        ({"q": "nothing:1"}, "unknown search field nothing"),
        ({"size": 0}, "size must be an integer between 1 and 500"),
        ({"size": 501}, "size must be an integer between 1 and 500"),
        ({"size": 1.5}, "size must be an integer between 1 and 500"),
        ({"size": "5"}, "size must be an integer between 1 and 500"),
        ({"size": True}, "size must be an integer between 1 and 500"),
        ({"timeout_ms": -1}, "timeout_ms must be a non-negative number"),
        ({"timeout_ms": "5"}, "timeout_ms must be a non-negative number"),
        ({"sort": "status"}, "sort must be an array of strings"),
        ({"sort": [1]}, "sort must be an array of strings"),
        ({"sort": ["nothing"]}, "unknown sort field nothing"),
        ({"sort": ["statsu:asc"]}, "unknown sort field statsu; did you mean 'status'?"),
        ({"sort": ["note"]}, "search field note is not sortable"),
        ({"sort": ["status:up"]}, "invalid sort direction for status"),
        ({"sort": ["status"] * 17}, "sort must have at most 16 keys"),
        ({"track_total_hits": False}, "track_total_hits is no longer supported"),
        ({"search_after": "x"}, "search_after must be an array"),
        ({"search_after": {}}, "search_after must be an array"),
        ({"search_after": []}, "search_after must have 1 elements, one for each sort key"),
        ({"search_after": ["nope"]}, "search_after must have an offset in the place of offset"),
        ({"search_after": [5]}, "search_after must have an offset in the place of offset"),
        ({"search_after": ["a", "1"], "sort": ["status"]}, "search_after must have a number in the place of status"),
        (
            {"search_after": [1.5, "1"], "sort": ["status"]},
            "search_after must have a whole number in the place of status",
        ),
        ({"search_after": [True, "1"], "sort": ["took"]}, "search_after must have a number in the place of took"),
        ({"search_after": [1, "1"], "sort": ["service"]}, "search_after must have a string in the place of service"),
        ({"search_after": [1, "1"], "sort": ["ok"]}, "search_after must have a boolean in the place of ok"),
        ({"search_after": [None, "1"], "sort": ["_score"]}, "search_after must have a number in the place of _score"),
    ],
)
def test_a_bad_search_is_refused_with_the_reason(body: dict[str, Any], message: str) -> None:
    with pytest.raises(BadQuery) as refused:
        search(**body)
    assert str(refused.value) == message


def test_search_after_takes_what_a_hit_has() -> None:
    request = search(sort=["at", "service", "ok", "took", "status"], search_after=[None, "x", True, 2, 2**70, "17"])
    assert request.after == (None, "x", True, 2.0, 2**70, 17)


def test_a_body_must_be_an_object() -> None:
    for body, message in ((b"{", "search request must be valid JSON"), (b"[]", "search request must be an object")):
        with pytest.raises(BadQuery, match=message):
            parse_search_body(body, CONFIG, decode_offset)


def test_without_a_configuration_nothing_can_be_asked() -> None:
    with pytest.raises(BadQuery, match="search is not configured for this stream"):
        parse_search_body(b'{"q":"a:1"}', None, decode_offset)
    with pytest.raises(BadQuery, match="search is not configured for this stream"):
        parse_aggregate_body(b"{}", None)


def test_a_url_can_ask_the_same() -> None:
    parameters = {
        "q": ["status:1"], "size": ["7"], "sort": ["status:asc,took", "offset"], "timeout_ms": ["5"],
        "search_after": ['[1,2.5,"3"]'],
    }  # fmt: skip
    body = {"size": 7, "sort": ["status:asc", "took", "offset"], "timeout_ms": 5, "search_after": [1, 2.5, "3"]}
    assert parse_search_query(parameters, CONFIG, decode_offset) == search(**body)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "missing q"),
        ({"q": [""]}, "q must not be empty"),
        ({"q": ["status:1"], "size": ["x"]}, "size must be an integer between 1 and 500"),
        ({"q": ["status:1"], "size": ["nan"]}, "size must be an integer between 1 and 500"),
        ({"q": ["status:1"], "timeout_ms": ["x"]}, "timeout_ms must be a non-negative number"),
        ({"q": ["status:1"], "search_after": ["x"]}, "search_after must be an array"),
        ({"q": ["status:1"], "track_total_hits": ["true"]}, "track_total_hits is no longer supported"),
    ],
)
def test_a_bad_url_is_refused_with_the_reason(parameters: dict[str, list[str]], message: str) -> None:
    with pytest.raises(BadQuery) as refused:
        parse_search_query(parameters, CONFIG, decode_offset)
    assert str(refused.value) == message


AGGREGATE: dict[str, Any] = {"rollup": "requests", "from": 0, "to": 1000, "interval": "1m"}


def test_an_aggregation_takes_times_in_three_forms() -> None:
    for value in ("2026-01-01T00:00:00Z", "1767225600000000000", 1767225600000, 1767225600000.7):
        request = parse_aggregate_body(json.dumps({**AGGREGATE, "to": value}).encode(), CONFIG)
        assert request.end == 1767225600000


def test_groups_and_measures_are_sorted_and_each_is_there_once() -> None:
    body = {**AGGREGATE, "group_by": ["svc", "ok", "service"], "measures": ["requests", "errors", "requests"]}
    request = parse_aggregate_body(json.dumps(body).encode(), CONFIG)
    assert request.group_by == ("ok", "service")
    assert request.measures == ("errors", "requests")
    assert parse_aggregate_body(json.dumps(AGGREGATE).encode(), CONFIG).measures == (
        "codes", "errors", "latency", "requests",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rollup": 5}, "rollup must be a string"),
        ({"rollup": "x"}, "unknown rollup x"),
        ({"rollup": "reqests"}, "unknown rollup reqests; did you mean 'requests'?"),
        ({"from": "yesterday"}, "from must be a valid timestamp"),
        ({"from": -1}, "from must be a valid timestamp"),
        ({"to": 1e300}, "to must be a valid timestamp"),
        ({"from": None}, "from must be a timestamp string or unix milliseconds"),
        ({"to": True}, "to must be a timestamp string or unix milliseconds"),
        ({"to": 0}, "to must be greater than from"),
        ({"interval": 60}, "interval must be a string"),
        ({"interval": "60s"}, "interval 60s is not configured for rollup requests"),
        ({"q": 5}, "q must be a string"),
        ({"q": "nothing:1"}, "unknown search field nothing"),
        ({"group_by": "service"}, "group_by must be an array of strings"),
        ({"group_by": ["tag"]}, "group_by field tag is not configured on rollup requests"),
        ({"measures": []}, "measures must be a non-empty array of strings"),
        ({"measures": "requests"}, "measures must be a non-empty array of strings"),
        ({"measures": ["x"]}, "unknown measure x on rollup requests"),
    ],
)
def test_a_bad_aggregation_is_refused_with_the_reason(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadQuery) as refused:
        parse_aggregate_body(json.dumps({**AGGREGATE, **change}).encode(), CONFIG)
    assert str(refused.value) == message


def test_an_aggregation_must_be_an_object() -> None:
    for body, message in ((b"", "aggregate request must be valid JSON"), (b"5", "aggregate request must be an object")):
        with pytest.raises(BadQuery, match=message):
            parse_aggregate_body(body, CONFIG)


def test_a_field_that_is_not_sortable_is_no_sort_key() -> None:
    with pytest.raises(BadQuery, match="search field plain is not sortable"):
        parse_search_body(b'{"q":"plain:1","sort":["plain"]}', BARE, decode_offset)

"""_search over HTTP: every field of request and response."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.streams_client import StreamsClient

JSON_TYPE = {"content-type": "application/json"}


def field(kind: str, pointer: str, **flags: Any) -> dict[str, Any]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": pointer}], **flags}


SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "aliases": {"svc": "service"},
    "defaultFields": [{"field": "note", "boost": 2}],
    "fields": {
        "at": field("date", "/at", column=True, exact=True),
        "service": field("keyword", "/service", normalizer="lowercase_v1", exact=True, prefix=True, sortable=True),
        "status": field("integer", "/status", exact=True, column=True, sortable=True),
        "note": field("text", "/note", analyzer="unicode_word_v1", positions=True),
        "title": field("text", "/title", analyzer="unicode_word_v1"),
        "tags": field("keyword", "/tags", exact=True),
    },
}
ENTRIES = [
    {"at": "2026-03-25T10:18:23.123Z", "service": "Billing", "status": 503, "note": "card refused", "tags": ["a", "b"]},
    {"at": "2026-03-25T10:18:24Z", "service": "billing", "status": 200, "note": "card accepted, twice"},
    {"at": "2026-03-25T10:18:22Z", "service": "web", "status": 200, "note": None, "title": "home"},
    {"other": 1},
]  # fmt: skip


@pytest.fixture
def stream(streams: StreamsClient, name: str) -> str:
    streams.create(name)
    configure(streams, name, {"schema": {"type": "object"}, "search": SEARCH})
    streams.append(name, ENTRIES)
    return name


def configure(streams: StreamsClient, name: str, body: object) -> None:
    response = streams.request("POST", f"{name}/_schema", body, headers=JSON_TYPE)
    assert response.status_code == 200, response.text


def search(streams: StreamsClient, name: str, q: str, **body: Any) -> dict[str, Any]:
    """By POST and by GET, which answer alike but for times and what was indexed meanwhile."""
    posted = streams.request("POST", f"{name}/_search", {"q": q, **body}, headers=JSON_TYPE)
    assert posted.status_code == 200, posted.text
    parameters = {key: json.dumps(value) if key == "search_after" else value for key, value in body.items()}
    if "sort" in parameters:
        parameters["sort"] = ",".join(parameters["sort"])
    got = streams.request("GET", f"{name}/_search", params={"q": q, **parameters})
    assert got.status_code == 200, got.text
    answer: dict[str, Any] = posted.json()
    for key in ("hits", "total", "next_search_after", "snapshot_end_offset"):
        assert got.json()[key] == answer[key]
    return answer


def found(streams: StreamsClient, name: str, q: str, **body: Any) -> list[Any]:
    return [hit["source"] for hit in search(streams, name, q, **body)["hits"]]


def test_an_entry_is_found_by_what_it_has(streams: StreamsClient, stream: str) -> None:
    one, two, three, four = ENTRIES
    assert found(streams, stream, "service:BILLING") == [two, one]
    assert found(streams, stream, "svc:bill* status:503") == [one]
    assert found(streams, stream, "status:>=200 status:<300") == [three, two]
    assert found(streams, stream, "tags:b OR title:home") == [three, one]
    assert found(streams, stream, 'note:"card refused"') == [one]
    assert found(streams, stream, "NOT has:service") == [four]
    assert found(streams, stream, "has:note", sort=["offset:asc"]) == [one, two]
    assert found(streams, stream, "card") == [one, two]
    assert found(streams, stream, 'at:>"2026-03-25T10:18:23Z"') == [two, one]


def test_the_response_has_every_field(streams: StreamsClient, stream: str) -> None:
    end = streams.request("HEAD", stream).headers["stream-next-offset"]
    response = streams.request("POST", f"{stream}/_search", {"q": "refused", "size": 1}, headers=JSON_TYPE)
    answer = response.json()
    assert list(answer) == [
        "stream", "snapshot_end_offset", "took_ms", "timed_out", "timeout_ms", "coverage", "total", "hits",
        "next_search_after",
    ]  # fmt: skip
    assert (answer["stream"], answer["snapshot_end_offset"], answer["timeout_ms"]) == (stream, end, 3000)
    assert answer["timed_out"] is False
    assert answer["total"] == {"value": 1, "relation": "gte"}
    (hit,) = answer["hits"]
    assert hit["score"] > 0
    assert hit["sort"] == [hit["score"], 1774433903123, hit["offset"]]
    assert hit["source"] == ENTRIES[0]
    assert hit["fields"] == ENTRIES[0]
    assert answer["next_search_after"] == hit["sort"]
    coverage = answer["coverage"]
    assert set(coverage) == {
        "mode", "complete", "stream_head_offset", "visible_through_offset", "visible_through_primary_timestamp_max",
        "oldest_omitted_append_at", "possible_missing_events_upper_bound", "possible_missing_uploaded_segments",
        "possible_missing_sealed_rows", "possible_missing_wal_rows", "indexed_segments", "indexed_segment_time_ms",
        "fts_section_get_ms", "fts_decode_ms", "fts_clause_estimate_ms", "scanned_segments", "scanned_segment_time_ms",
        "scanned_tail_docs", "scanned_tail_time_ms", "exact_candidate_time_ms", "candidate_doc_ids", "decoded_records",
        "json_parse_time_ms", "segment_payload_bytes_fetched", "sort_time_ms", "peak_hits_held", "index_families_used",
    }  # fmt: skip
    assert (coverage["mode"], coverage["complete"]) == ("complete", True)
    assert coverage["stream_head_offset"] == coverage["visible_through_offset"] == end
    assert coverage["visible_through_primary_timestamp_max"] == "2026-03-25T10:18:24.000Z"
    assert coverage["oldest_omitted_append_at"] is None
    assert coverage["possible_missing_events_upper_bound"] == 0
    assert coverage["scanned_tail_docs"] == 4
    assert coverage["candidate_doc_ids"] == coverage["decoded_records"] == 1
    assert coverage["index_families_used"] == ["col", "fts"]


def test_headers_say_what_coverage_says(streams: StreamsClient, stream: str) -> None:
    response = streams.request("GET", f"{stream}/_search", params={"q": "refused"})
    headers, coverage = response.headers, response.json()["coverage"]
    assert headers["search-timed-out"] == "false"
    assert headers["search-timeout-ms"] == "3000"
    assert headers["search-took-ms"] == str(response.json()["took_ms"])
    assert headers["search-total-relation"] == "eq"
    assert headers["search-coverage-complete"] == "true"
    assert headers["search-index-families-used"] == "col,fts"
    assert headers["cache-control"] == "no-store"
    for counter in (
        "indexed_segments", "indexed_segment_time_ms", "fts_section_get_ms", "fts_decode_ms", "fts_clause_estimate_ms",
        "scanned_segments", "scanned_segment_time_ms", "scanned_tail_docs", "scanned_tail_time_ms",
        "exact_candidate_time_ms", "candidate_doc_ids", "decoded_records", "json_parse_time_ms",
        "segment_payload_bytes_fetched", "sort_time_ms", "peak_hits_held",
    ):  # fmt: skip
        assert headers[f"search-{counter.replace('_', '-')}"] == str(coverage[counter])


def test_a_search_without_time_has_a_valid_partial_answer(streams: StreamsClient, stream: str) -> None:
    response = streams.request("POST", f"{stream}/_search", {"q": "status:200", "timeout_ms": 0}, headers=JSON_TYPE)
    answer = response.json()
    assert response.status_code == 408
    assert (answer["timed_out"], answer["timeout_ms"], len(answer["hits"])) == (True, 0, 2)
    assert answer["total"] == {"value": 2, "relation": "gte"}
    assert answer["coverage"]["complete"] is False
    assert response.headers["search-timed-out"] == "true"
    assert len(found(streams, stream, "status:200")) == 2


def test_pages_go_on_where_the_last_one_ended(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    configure(streams, name, {"schema": {}, "search": SEARCH})
    streams.append(name, [{"status": number % 3, "service": f"s{number % 2}"} for number in range(20)])
    everything = search(streams, name, "has:status", sort=["status:asc", "service"], size=500)
    assert everything["total"] == {"value": 20, "relation": "eq"}
    assert everything["next_search_after"] is None
    offsets: list[str] = []
    after: dict[str, Any] = {}
    while True:
        page = search(streams, name, "has:status", sort=["status:asc", "service"], size=5, **after)
        offsets += [hit["offset"] for hit in page["hits"]]
        if page["next_search_after"] is None:
            break
        after = {"search_after": page["next_search_after"]}
    assert offsets == [hit["offset"] for hit in everything["hits"]]


def test_entries_without_a_value_come_last_in_both_directions(streams: StreamsClient, stream: str) -> None:
    for direction in ("asc", "desc"):
        entries = found(streams, stream, "NOT tags:nothing", sort=[f"status:{direction}"])
        assert entries[-1] == {"other": 1}


def test_what_is_appended_is_found_at_once(streams: StreamsClient, stream: str) -> None:
    for number in range(5):
        streams.append(stream, [{"status": 1000 + number}])
        assert found(streams, stream, f"status:{1000 + number}") == [{"status": 1000 + number}]


def test_entries_that_are_not_objects_are_passed_over(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    configure(streams, name, {"schema": {}, "search": SEARCH})
    streams.append(name, [1, "text", None, {"status": 7}, [2]])
    assert found(streams, name, "NOT status:8") == [{"status": 7}]


def test_a_field_that_a_lens_renames_is_found_in_old_entries_too(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    shop = {
        "type": "object",
        "additionalProperties": False,
        "required": ["shop"],
        "properties": {"shop": {"type": "string"}},
    }
    store = {
        "type": "object",
        "additionalProperties": False,
        "required": ["store"],
        "properties": {"store": {"type": "string"}},
    }
    both = [{"version": 1, "jsonPointer": "/shop"}, {"version": 2, "jsonPointer": "/store"}]
    fields = {"shop": {"kind": "keyword", "bindings": both, "exact": True}}
    configure(streams, name, {"schema": shop, "search": {"fields": fields}})
    streams.append(name, [{"shop": "a"}])
    lens = {
        "apiVersion": "durable.lens/v1", "schema": name, "from": 1, "to": 2,
        "ops": [{"op": "rename", "from": "/shop", "to": "/store"}],
    }  # fmt: skip
    configure(streams, name, {"schema": store, "lens": lens})
    streams.append(name, [{"store": "a"}, {"store": "b"}])
    hits = search(streams, name, "shop:a")["hits"]
    assert [hit["source"] for hit in hits] == [{"store": "a"}, {"store": "a"}]
    assert [hit["fields"] for hit in hits] == [{"shop": "a"}, {"shop": "a"}]


def test_a_changed_configuration_counts_at_once(streams: StreamsClient, stream: str) -> None:
    assert len(found(streams, stream, "status:200")) == 2
    changed = {**SEARCH, "fields": {**SEARCH["fields"], "status": field("integer", "/other", exact=True)}}
    configure(streams, stream, {"search": changed})
    assert found(streams, stream, "status:200") == []
    assert found(streams, stream, "status:1") == [{"other": 1}]


def test_a_stream_that_is_made_anew_has_nothing_of_the_old(streams: StreamsClient, stream: str) -> None:
    assert len(found(streams, stream, "status:200")) == 2
    streams.request("DELETE", stream)
    streams.create(stream)
    configure(streams, stream, {"schema": {}, "search": SEARCH})
    assert found(streams, stream, "status:200") == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"q": ""}, "q must not be empty"),
        ({}, "q must be a string"),
        ({"q": "nothing:1"}, "unknown search field nothing"),
        ({"q": "status:many"}, "invalid value for search field status: expected an integer, not 'many'"),
        ({"q": 'title:"two words"'}, "search field title does not support phrase queries"),
        ({"q": "contains:x"}, "contains: is not supported on _search yet"),
        ({"q": "status:1", "size": 0}, "size must be an integer between 1 and 500"),
        ({"q": "status:1", "sort": ["title"]}, "search field title is not sortable"),
        ({"q": "status:1", "search_after": ["zzz"]}, "search_after must have an offset in the place of offset"),
        ({"q": "status:1", "track_total_hits": True}, "track_total_hits is no longer supported"),
        (b"{", "search request must be valid JSON"),
        (b"\xff", "search request must be valid JSON"),
        (b"[]", "search request must be an object"),
    ],
)
def test_bad_requests_say_what_is_wrong(streams: StreamsClient, stream: str, body: object, message: str) -> None:
    refused = streams.refused(400, "POST", f"{stream}/_search", body, code="bad_request", headers=JSON_TYPE)
    assert refused == message


def test_a_stream_without_search_or_without_existence_is_refused(streams: StreamsClient, name: str) -> None:
    streams.refused(404, "GET", f"{name}/_search", params={"q": "a"})
    streams.create(name)
    message = "search is not configured for this stream"
    assert streams.refused(400, "GET", f"{name}/_search", params={"q": "a"}) == message
    assert streams.refused(400, "POST", f"{name}/_search", {"q": "a"}, headers=JSON_TYPE) == message
    assert streams.refused(400, "GET", f"{name}/_search") == "missing q"


def test_integers_of_any_size_stay_exact(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    configure(streams, name, {"schema": {}, "search": SEARCH})
    streams.append(name, b'[{"status":9007199254740993},{"status":123456789012345678901234567890}]')
    response = streams.request("GET", f"{name}/_search", params={"q": "status:9007199254740993"})
    assert '"source":{"status":9007199254740993}' in response.text
    hits = search(streams, name, "status:>9007199254740993", sort=["status"])["hits"]
    assert hits[0]["sort"][0] == 123456789012345678901234567890


@pytest.mark.both_lanes
@pytest.mark.parametrize("value", ["FALSE", "False", "false", '" false "'])
def test_booleans_may_be_written_in_any_case(streams: StreamsClient, name: str, value: str) -> None:
    streams.create(name)
    measures = {"count": {"kind": "count"}}
    search_config = {
        "primaryTimestampField": "at",
        "fields": {"at": SEARCH["fields"]["at"], "ok": field("bool", "/ok", exact=True, column=True)},
        "rollups": {"all": {"dimensions": ["ok"], "intervals": ["1h"], "measures": measures}},
    }
    configure(streams, name, {"schema": {"type": "object"}, "search": search_config})
    at = "2026-03-25T10:18:23Z"
    streams.append(name, [{"at": at, "ok": False}, {"at": at, "ok": True}])
    assert [hit["ok"] for hit in found(streams, name, f"ok:{value}")] == [False]
    assert [record["ok"] for record in streams.read(name, filter=f"ok:{value}").json()] == [False]
    body = {"rollup": "all", "from": "2026-03-25T10:00:00Z", "to": "2026-03-25T11:00:00Z", "interval": "1h"}
    answer = streams.request("POST", f"{name}/_aggregate", body | {"q": f"ok:{value}"}, headers=JSON_TYPE)
    assert answer.status_code == 200, answer.text
    [bucket] = answer.json()["buckets"]
    assert [group["measures"]["count"] for group in bucket["groups"]] == [{"count": 1}]
    assert "invalid value" in streams.refused(400, "GET", f"{name}/_search", params={"q": "ok:no"})


@pytest.mark.both_lanes
def test_texts_are_found_by_the_beginning_of_a_word(streams: StreamsClient, stream: str) -> None:
    """The field ``note`` has no prefix capability; keywords need it."""
    assert {hit["status"] for hit in found(streams, stream, "note:acc*")} == {200}
    assert {hit["status"] for hit in found(streams, stream, "note:car*")} == {200, 503}
    assert [hit["status"] for hit in found(streams, stream, 'note:"card ref*"')] == [503]
    assert [hit["title"] for hit in found(streams, stream, "title:ho*")] == ["home"]
    assert {hit["status"] for hit in found(streams, stream, "acc*")} == {200}
    message = streams.refused(400, "GET", f"{stream}/_search", params={"q": "tags:a*"})
    assert message == "search field tags does not support prefix queries"

"""What other servers of the protocol are known to get wrong, and this one must not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.raw_http import RawConnection, request
from support.streams_client import JSON, TEXT, StreamsClient

from strandline.protocols.streams.offsets import encode

PRODUCER = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0", "content-type": JSON}


def raw(streams: StreamsClient, method: str, path: str) -> bytes:
    with RawConnection(streams.url) as connection:
        connection.send(request(method, path, None, "content-length: 0"))
        return connection.answer()[0].split(b" ")[1]


@pytest.mark.parametrize("body", [b"[", b'{"a":}', b'"\xff"'])
def test_a_put_that_is_refused_leaves_no_stream(streams: StreamsClient, name: str, body: bytes) -> None:
    streams.refused(400, "PUT", name, body, headers={"content-type": JSON})
    assert streams.request("HEAD", name).status_code == 404
    assert streams.create(name, TEXT).status_code == 201


def test_a_failed_sequence_does_not_swallow_the_retry_of_a_producer(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, ["before"], stream_seq="5")
    streams.refused(409, "POST", name, '["data"]', headers={**PRODUCER, "stream-seq": "5"}, code="conflict")
    corrected = streams.request("POST", name, '["data"]', headers={**PRODUCER, "stream-seq": "6"})
    assert corrected.status_code == 200
    assert streams.values(name) == ["before", "data"]


def test_a_failed_close_does_not_swallow_it_either(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, ["before"], stream_seq="5")
    closing = {**PRODUCER, "stream-closed": "true"}
    streams.refused(409, "POST", name, headers={**closing, "stream-seq": "5"}, code="conflict")
    assert "stream-closed" not in streams.request("HEAD", name).headers
    response = streams.request("POST", name, headers={**closing, "stream-seq": "6"})
    assert (response.status_code, response.headers["stream-closed"]) == (204, "true")


def test_malformed_names_are_the_clients_error(streams: StreamsClient) -> None:
    for path in ("%", "%zz", "%ff", "a%2", "%c3%28"):
        for method in ("GET", "PUT", "POST", "DELETE"):
            assert raw(streams, method, f"/v1/stream/{path}") == b"400", (method, path)


@pytest.mark.parametrize("limit", ["abc", "", "-1", "1.5", "1e3", "NaN", "99999999999999999999"])
def test_a_limit_that_is_no_number_is_the_clients_error(streams: StreamsClient, name: str, limit: str) -> None:
    if not limit.lstrip("-").isdigit():  # the list clamps numbers
        streams.refused(400, "GET", "/v1/streams", params={"limit": limit}, code="bad_request")
    streams.create(name)
    update = {"routingKey": {"jsonPointer": "/a", "required": False}}
    assert streams.request("POST", f"{name}/_schema", update).status_code == 200
    streams.refused(400, "GET", f"{name}/_routing_keys", params={"limit": limit}, code="bad_request")


def test_records_that_are_no_objects_harm_nobody(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    field = {"kind": "integer", "column": True, "bindings": [{"version": 1, "jsonPointer": "/n"}]}
    update = {
        "schema": {},
        "search": {"fields": {"n": field}},
        "routingKey": {"jsonPointer": "/key", "required": False},
    }
    response = streams.request("POST", f"{name}/_schema", update)
    assert response.status_code == 200, response.text
    odd: list[Any] = [1, "text", None, True, [1], [[]], 1.5, {"n": "no number"}, {"n": [1, 2]}, {"n": 7, "key": "k"}]
    streams.append(name, odd)
    assert streams.values(name) == odd
    assert streams.values(name, filter="n:7") == [{"n": 7, "key": "k"}]
    assert streams.values(name, key="k") == [{"n": 7, "key": "k"}]
    search = streams.request("POST", f"{name}/_search", {"q": "n:7"})
    assert (search.status_code, len(search.json()["hits"])) == (200, 1)


def test_numbers_keep_every_digit(streams: StreamsClient, name: str) -> None:
    text = "[9007199254740993,123456789012345678901234567890,0.1000000000000000055511151231257827,1E+2,-0]"
    streams.create(name, JSON, text.encode())
    assert streams.read(name).text == text


def test_a_stream_made_anew_is_not_taken_for_the_old_one(streams: StreamsClient, name: str) -> None:
    etags = []
    for value in ("old", "new"):
        streams.create(name, JSON, [value])
        response = streams.read(name)
        etags.append(response.headers["etag"])
        again = streams.request("GET", name, headers={"if-none-match": etags[0]})
        assert again.status_code == (304 if value == "old" else 200)
        streams.request("DELETE", name)
    assert etags[0] != etags[1]


def test_a_closed_stream_is_not_taken_for_an_open_one(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    etag = streams.read(name).headers["etag"]
    streams.request("POST", name, headers={"stream-closed": "true"})
    assert streams.request("GET", name, headers={"if-none-match": etag}).status_code == 200


def test_what_reaches_the_end_is_not_kept_for_a_year(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1])
    assert "immutable" not in streams.read(name).headers["cache-control"]


def test_wrong_methods_and_preflights_are_answered_as_such(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    assert streams.request("PATCH", name).status_code == 405
    assert streams.request("OPTIONS", name).status_code == 204


def test_errors_always_have_a_body(streams: StreamsClient, name: str) -> None:
    """Closed, stale and gap: others answer them without a word."""
    streams.create(name, TEXT)
    for epoch, seq in ((5, 0), (4, 0), (5, 9)):
        headers = {"producer-id": "p", "producer-epoch": str(epoch), "producer-seq": str(seq), "content-type": TEXT}
        response = streams.request("POST", name, "x", headers=headers)
        if response.status_code != 200:
            assert set(response.json()["error"]) == {"code", "message"}
    streams.request("POST", name, headers={"stream-closed": "true"})
    response = streams.request("POST", name, "x", headers={"content-type": TEXT})
    assert set(response.json()["error"]) == {"code", "message"}


def test_filters_find_old_records_by_fields_that_were_renamed(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    text = {"type": "string"}

    def schema(field: str) -> dict[str, Any]:
        return {"type": "object", "properties": {field: text}, "required": [field], "additionalProperties": False}

    def search(*pointers: str) -> dict[str, Any]:
        bindings = [{"version": version, "jsonPointer": pointer} for version, pointer in enumerate(pointers, 1)]
        return {"fields": {"who": {"kind": "keyword", "exact": True, "bindings": bindings}}}

    first = streams.request("POST", f"{name}/_schema", {"schema": schema("a"), "search": search("/a")})
    assert first.status_code == 200, first.text
    streams.append(name, [{"a": "ann"}, {"a": "bob"}])
    lens = {"apiVersion": "durable.lens/v1", "schema": name, "from": 1, "to": 2}
    ops = [{"op": "rename", "from": "/a", "to": "/b"}]
    second = {"schema": schema("b"), "lens": {**lens, "ops": ops}, "search": search("/a", "/b")}
    response = streams.request("POST", f"{name}/_schema", second)
    assert response.status_code == 200, response.text
    streams.append(name, [{"b": "ann"}])
    assert streams.values(name, filter="who:ann") == [{"b": "ann"}, {"b": "ann"}]


def test_an_offset_of_another_server_is_read_as_far_as_it_can_be(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2])
    # The same place, as a server writes it that counts epochs.
    assert streams.values(name, offset="0000008000000000000G000000") == [2]
    assert json.loads(streams.read(name, offset=encode(1)).text) == [2]

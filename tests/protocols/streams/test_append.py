"""POST /v1/stream/{name}: records, what is refused, and in which order it is looked at what can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.raw_http import RawConnection
from support.streams_client import JSON, START, TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand

from strandline.protocols.streams.offsets import encode

PRODUCER = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}


def test_an_append_answers_204_and_where_the_next_one_goes(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    response = streams.append(name, "one", TEXT)
    assert response.status_code == 204
    assert response.headers["stream-next-offset"] == "0000000000000000000G000000"
    assert "content-length" not in response.headers
    assert "content-type" not in response.headers
    assert streams.append(name, "two", TEXT).headers["stream-next-offset"] == "00000000000000000010000000"
    assert streams.read(name).content == b"onetwo"


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ('{"a": [1, 2]}', [{"a": [1, 2]}]),
        ("[[1, 2], [3]]", [[1, 2], [3]]),
        ("[[[1]]]", [[[1]]]),
        ("[[]]", [[]]),
        ("17", [17]),
        ('"text"', ["text"]),
        ("null", [None]),
        ("false", [False]),
        (" \r\n\t [ 1 , 2 ] \n", [1, 2]),
        ('"é\\u00e9\\ud83d\\ude00"', ["éé😀"]),
        ("123456789012345678901234567890", [123456789012345678901234567890]),
        ("9007199254740993", [9007199254740993]),
        ('{"a":1,"a":2}', [{"a": 2}]),
    ],
)
def test_json_is_one_record_or_as_many_as_an_array_has(
    streams: StreamsClient, name: str, body: str, values: list[Any]
) -> None:
    streams.create(name)
    streams.append(name, body.encode())
    assert streams.values(name) == values


@pytest.mark.parametrize(
    "body",
    [b"{", b"[1,]", b"[1", b"nul", b"01", b"NaN", b"1 2", b"{}{}", b"'a'", b" ", b"\x00", b'"\n"', b'"\\ud800"',
     b'"\xff"', b'["fine", "\xc3"]', b'{"\xed\xa0\x80":1}', b"\xef\xbb\xbf{}", b'{"a":1}\x00', b"[" * 100_000],
)  # fmt: skip
def test_what_is_not_json_is_refused_whole(streams: StreamsClient, name: str, body: bytes) -> None:
    streams.create(name)
    streams.refused(400, "POST", name, body, headers={"content-type": JSON}, code="bad_request")
    assert streams.read(name).headers["stream-next-offset"] == START


def test_an_empty_array_is_nothing_to_append(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    assert "empty array" in streams.refused(400, "POST", name, "[ ]", headers={"content-type": JSON})


def test_deeply_nested_json_is_kept_or_refused_but_harms_nobody(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.refused(400, "POST", name, b"[" * 5000 + b"]" * 5000, headers={"content-type": JSON})
    streams.append(name, b'{"a":' * 100 + b"1" + b"}" * 100)
    assert len(streams.values(name)) == 1


def test_bytes_are_bytes(streams: StreamsClient, name: str) -> None:
    everything = bytes(range(256)) * 3
    streams.create(name, "application/octet-stream")
    streams.append(name, everything, "application/octet-stream")
    streams.append(name, b"\r\n\r\n", "application/octet-stream")
    assert streams.read(name).content == everything + b"\r\n\r\n"


@pytest.mark.parametrize(
    "content_type", ["APPLICATION/Json", "application/json; charset=utf-8", "application/json;x=y"]
)
def test_parameters_and_case_of_a_content_type_do_not_matter(
    streams: StreamsClient, name: str, content_type: str
) -> None:
    streams.create(name)
    streams.append(name, [1], content_type)
    assert streams.values(name) == [1]


def test_a_body_may_come_in_chunks_and_compressed(streams: StreamsClient, name: str) -> None:
    import gzip

    streams.create(name, TEXT)
    url = f"/v1/stream/{name}"
    chunks = iter([b"on", b"e"])
    assert streams.http.post(url, content=chunks, headers={"content-type": TEXT}).status_code == 204
    headers = {"content-type": TEXT, "content-encoding": "gzip"}
    assert streams.http.post(url, content=gzip.compress(b"two"), headers=headers).status_code == 204
    assert streams.read(name).text == "onetwo"
    streams.refused(400, "POST", name, b"not gzip", headers=headers, code="bad_request")
    streams.refused(415, "POST", name, b"x", headers={**headers, "content-encoding": "br"})
    assert streams.read(name).text == "onetwo"


# --- the order of checks ---------------------------------------------------------------------------------------------

#: What is wrong with a request, the most important first, with status and a word of the message. Every request has all
#: that comes behind as well.
WRONG: list[tuple[int, str, dict[str, str | None], bytes | None]] = [
    (400, "Stream-Timestamp", {"stream-timestamp": "never"}, None),
    (413, "larger", {"stream-timestamp": None}, b"[" + b" " * (10 << 20)),
    (400, "empty", {}, b""),
    (400, "Content-Type", {"content-type": None}, b"[1"),
    (409, "closed", {"content-type": TEXT}, None),
]


def test_the_order_of_checks_on_a_closed_stream(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1], stream_closed="true")
    headers: dict[str, str | None] = {**PRODUCER, "producer-seq": "7", "stream-seq": "0", "content-type": None}
    body = b""
    streams.refused(404, "POST", name + "-absent", b"", headers={"stream-timestamp": "never"}, code="not_found")
    for status, word, change, new_body in WRONG:
        headers |= change
        body = body if new_body is None else new_body
        sent = {key: value for key, value in headers.items() if value is not None}
        assert word in streams.refused(status, "POST", name, body, headers=sent), (status, word)
    response = streams.request("POST", name, b"[1", headers={"content-type": TEXT})
    assert response.headers["stream-closed"] == "true"
    assert response.headers["stream-next-offset"] == "0000000000000000000G000000"
    assert response.json()["error"]["code"] == "conflict"


def test_the_order_of_checks_on_an_open_stream(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON)
    streams.append(name, [1], stream_seq="5")
    late = {**PRODUCER, "producer-seq": "7", "stream-seq": "1"}
    message = streams.refused(409, "POST", name, b"[1", headers={**late, "content-type": TEXT}, code="conflict")
    assert "application/json" in message
    assert "JSON" in streams.refused(400, "POST", name, b"[1", headers={**late, "content-type": JSON})
    response = streams.request("POST", name, b"[1]", headers={**late, "content-type": JSON})
    assert response.status_code == 409
    assert response.headers["producer-expected-seq"] == "0"
    assert "stream-expected-seq" not in response.headers
    response = streams.request("POST", name, b"[1]", headers={**late, "producer-seq": "0", "content-type": JSON})
    assert (response.status_code, response.headers["stream-expected-seq"]) == (409, "5")
    assert streams.values(name) == [1]


def test_a_blank_content_type_is_none(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    with RawConnection(streams.url) as connection:
        lines = [f"POST /v1/stream/{name} HTTP/1.1", "host: localhost", "content-type: ", "content-length: 1", "", "x"]
        connection.send("\r\n".join(lines).encode())
        head, body = connection.answer()
    assert head.startswith(b"HTTP/1.1 400")
    assert b"Content-Type" in body


def test_content_types_that_differ_are_a_conflict(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    for other in (JSON, "text/html", "text", "application/octet-stream"):
        streams.refused(409, "POST", name, b"1", headers={"content-type": other}, code="conflict")


# --- when -----------------------------------------------------------------------------------------------------------


def test_records_can_be_given_a_time(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, ["a"], stream_timestamp="2020-01-01T00:00:00Z")
    streams.append(name, ["b", "c"], stream_timestamp="1577923200000000000")
    streams.append(name, ["d"])
    assert streams.values(name, since="2019-01-01T00:00:00Z") == ["a", "b", "c", "d"]
    assert streams.values(name, since="2020-01-01T00:00:00.001Z") == ["b", "c", "d"]
    assert streams.values(name, since="2020-01-02T00:00:00Z") == ["b", "c", "d"]
    assert streams.values(name, since="1577923200000999999") == ["b", "c", "d"]
    assert streams.values(name, since="1577923200001000000") == ["d"]


def test_times_never_go_backwards(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, ["a"], stream_timestamp="2021-01-01T00:00:00Z")
    streams.append(name, ["b"], stream_timestamp="2020-01-01T00:00:00Z")
    assert streams.values(name, since="2020-12-31T23:59:59Z") == ["a", "b"]
    assert streams.values(name, since="2021-01-01T00:00:01Z") == []


@pytest.mark.parametrize("time", ["", "now", "-5", "2020-01-01", "12345678901234567890123456789012"])
def test_a_bad_time_is_refused(streams: StreamsClient, name: str, time: str) -> None:
    streams.create(name)
    streams.refused(400, "POST", name, "[1]", headers={"content-type": JSON, "stream-timestamp": time})
    assert streams.values(name) == []


# --- Stream-Seq -----------------------------------------------------------------------------------------------------


def test_sequences_must_grow_as_text_does(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    for seq in ("10", "2", "2a", "B", "a", "a a"):
        streams.append(name, "x", TEXT, stream_seq=seq)
    for stale in ("10", "a", "a a", "Z", "3"):
        response = streams.request("POST", name, "y", headers={"content-type": TEXT, "stream-seq": stale})
        assert response.status_code == 409
        assert response.json() == {"error": {"code": "conflict", "message": "sequence mismatch"}}
        assert response.headers["stream-expected-seq"] == "a a"
        assert response.headers["stream-received-seq"] == stale
    streams.append(name, "z", TEXT)
    assert streams.read(name).text == "xxxxxxz"


def test_a_sequence_counts_only_if_the_append_is_taken(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.refused(400, "POST", name, "[1", headers={"content-type": JSON, "stream-seq": "5"})
    streams.refused(409, "POST", name, "1", headers={"content-type": TEXT, "stream-seq": "6"})
    streams.append(name, [1], stream_seq="1")


def test_a_close_has_a_sequence_too(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    streams.append(name, "x", TEXT, stream_seq="5")
    streams.refused(409, "POST", name, headers={"stream-closed": "true", "stream-seq": "5"})
    assert "stream-closed" not in streams.request("HEAD", name).headers
    response = streams.request("POST", name, headers={"stream-closed": "true", "stream-seq": "6"})
    assert response.status_code == 204


def test_a_blank_sequence_is_refused(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    streams.refused(400, "POST", name, "x", headers={"content-type": TEXT, "stream-seq": ""})


# --- keys and what a stream asks for --------------------------------------------------------------------------------


def test_all_records_of_an_append_have_its_key(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, [1, 2], stream_key="a")
    streams.append(name, [3])
    streams.append(name, 4, stream_key="b")
    assert streams.values(name, key="a") == [1, 2]
    assert streams.values(name, key="b") == [4]


def test_a_key_that_is_too_long_is_refused(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, [1], stream_key="k" * 1024)
    streams.refused(400, "POST", name, "[2]", headers={"content-type": JSON, "stream-key": "k" * 1025})
    streams.refused(
        400, "POST", name, "[2]", headers={b"content-type": JSON.encode(), b"stream-key": "é".encode() * 513}
    )
    assert streams.values(name) == [1]


def test_a_stream_of_text_with_a_schema_takes_nothing(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    assert streams.request("POST", f"{name}/_schema", {"schema": {"type": "object"}}).status_code == 200
    message = streams.refused(400, "POST", name, '{"a":1}', headers={"content-type": TEXT}, code="bad_request")
    assert message == "stream requires JSON"
    streams.refused(409, "POST", name, '{"a":1}', headers={"content-type": JSON}, code="conflict")
    fork = {"stream-forked-from": f"/v1/stream/{name}"}
    assert streams.refused(400, "PUT", f"{name}-fork", "text", headers=fork) == "stream requires JSON"
    assert streams.request("HEAD", f"{name}-fork").status_code == 404
    assert streams.read(name).content == b""
    # It can still be closed, and a key by pointer asks for nothing.
    assert streams.request("POST", name, headers={"stream-closed": "true"}).status_code == 204


def test_a_stream_of_text_goes_by_the_header_whatever_pointer_it_has(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    update = {"routingKey": {"jsonPointer": "/a", "required": True}}
    assert streams.request("POST", f"{name}/_schema", update).status_code == 200
    streams.append(name, "one", TEXT, stream_key="k")
    assert streams.read(name, key="k").text == "one"


def test_a_writer_that_is_alone_does_not_wait_for_a_thread(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s")
        server.context.meters.append_wait.take()
        server.context.admission.flushes_in_place = lambda: True
        append = server.ask("POST", "s", b"1")
        assert (append.status, append.headers["stream-next-offset"]) == (204, encode(1))
        assert server.ask("POST", "s", stream_closed="true").status == 204
        assert server.engine.flushing.pending == 0
        assert server.context.meters.append_wait.take().number == 2

    by_hand(tmp_path, test)

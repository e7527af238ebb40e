"""Producers that number their appends: whatever is sent twice is there once."""

from __future__ import annotations

import httpx
import pytest
from support.streams_client import TEXT, StreamsClient


def produce(streams: StreamsClient, name: str, epoch: int, seq: int, body: str = "x", **headers: str) -> httpx.Response:
    sent = {"content-type": TEXT, "producer-id": "p", "producer-epoch": str(epoch), "producer-seq": str(seq)}
    sent |= {key.replace("_", "-"): value for key, value in headers.items()}
    return streams.request("POST", name, body, headers=sent)


def told(response: httpx.Response) -> tuple[int, str | None, str | None]:
    headers = response.headers
    return response.status_code, headers.get("producer-epoch"), headers.get("producer-seq")


def test_every_situation_of_a_producer(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    unknown = produce(streams, name, 0, 3)
    assert unknown.status_code == 409
    assert unknown.json()["error"]["code"] == "conflict"
    assert (unknown.headers["producer-expected-seq"], unknown.headers["producer-received-seq"]) == ("0", "3")
    assert told(produce(streams, name, 2, 0, "a")) == (200, "2", "0")
    assert told(produce(streams, name, 2, 1, "b")) == (200, "2", "1")
    assert told(produce(streams, name, 2, 2, "c")) == (200, "2", "2")
    # What was sent before: the answer says how far the producer has got, whatever is in the body.
    assert told(produce(streams, name, 2, 1, "other")) == (204, "2", "2")
    assert told(produce(streams, name, 2, 2, "c")) == (204, "2", "2")
    gap = produce(streams, name, 2, 5)
    assert gap.status_code == 409
    assert (gap.headers["producer-expected-seq"], gap.headers["producer-received-seq"]) == ("3", "5")
    stale = produce(streams, name, 1, 3)
    assert (stale.status_code, stale.headers["producer-epoch"]) == (403, "2")
    assert stale.json()["error"]["code"] == "stale_epoch"
    assert produce(streams, name, 3, 1).status_code == 400
    assert told(produce(streams, name, 3, 0, "d")) == (200, "3", "0")
    assert produce(streams, name, 2, 3).status_code == 403
    assert streams.read(name).text == "abcd"


def test_the_offset_of_a_duplicate_is_that_of_the_end(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    produce(streams, name, 0, 0, "a")
    last = streams.append(name, "b", TEXT).headers["stream-next-offset"]
    assert produce(streams, name, 0, 0, "a").headers["stream-next-offset"] == last


def test_producers_do_not_know_of_each_other(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    for producer in ("p", "q", "P"):
        assert produce(streams, name, 0, 0, producer, producer_id=producer).status_code == 200
    assert streams.read(name).text == "pqP"


@pytest.mark.parametrize(
    "headers",
    [
        {"producer-id": "p"},
        {"producer-id": "p", "producer-epoch": "0"},
        {"producer-epoch": "0", "producer-seq": "0"},
        {"producer-id": "", "producer-epoch": "0", "producer-seq": "0"},
        {"producer-id": "p", "producer-epoch": "-1", "producer-seq": "0"},
        {"producer-id": "p", "producer-epoch": "0", "producer-seq": "1.0"},
        {"producer-id": "p", "producer-epoch": "0x1", "producer-seq": "0"},
        {"producer-id": "p", "producer-epoch": "0", "producer-seq": ""},
        {"producer-id": "p", "producer-epoch": "9007199254740992", "producer-seq": "0"},
        {"producer-id": "p", "producer-epoch": "0", "producer-seq": "99999999999999999999"},
        {"producer-id": "p" * 5000, "producer-epoch": "0", "producer-seq": "0"},
    ],
)
def test_what_is_no_producer_is_refused(streams: StreamsClient, name: str, headers: dict[str, str]) -> None:
    streams.create(name, TEXT)
    streams.refused(400, "POST", name, "x", headers={"content-type": TEXT, **headers}, code="bad_request")
    assert streams.read(name).text == ""


def test_the_largest_numbers_are_fine(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    assert told(produce(streams, name, 9007199254740991, 0)) == (200, "9007199254740991", "0")


def test_a_refused_append_leaves_no_producer_behind(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    headers = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}
    streams.refused(400, "POST", name, "[", headers={**headers, "content-type": "application/json"})
    streams.refused(409, "POST", name, "x", headers={**headers, "content-type": TEXT})
    response = streams.request("POST", name, "[1]", headers={**headers, "content-type": "application/json"})
    assert response.status_code == 200
    assert streams.values(name) == [1]


def test_a_repetition_is_recognised_before_its_sequence_is_looked_at(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    assert produce(streams, name, 0, 0, "a", stream_seq="1").status_code == 200
    assert told(produce(streams, name, 0, 0, "a", stream_seq="1")) == (204, "0", "0")
    conflict = produce(streams, name, 0, 1, "b", stream_seq="1")
    assert (conflict.status_code, conflict.headers["stream-expected-seq"]) == (409, "1")
    # The append that was refused is not taken for one that was made.
    assert produce(streams, name, 0, 1, "b", stream_seq="2").status_code == 200
    assert streams.read(name).text == "ab"


def test_a_producer_closes_with_or_without_a_last_append(streams: StreamsClient, name: str) -> None:
    for number, body in enumerate(("", "last")):
        stream = f"{name}-{number}"
        streams.create(stream, TEXT)
        produce(streams, stream, 0, 0, "first")
        closing = produce(streams, stream, 0, 1, body, stream_closed="true")
        assert told(closing) == (200 if body else 204, "0", "1")
        assert closing.headers["stream-closed"] == "true"
        again = produce(streams, stream, 0, 1, "whatever", stream_closed="true")
        assert told(again) == (204, "0", "1")
        assert again.headers["stream-closed"] == "true"
        assert again.headers["stream-next-offset"] == closing.headers["stream-next-offset"]
        late = produce(streams, stream, 0, 2, "more")
        assert (late.status_code, late.headers["stream-closed"]) == (409, "true")
        other = produce(streams, stream, 0, 0, "first", producer_id="q", stream_closed="true")
        assert (other.status_code, other.headers["stream-closed"]) == (409, "true")
        assert streams.read(stream).text == "first" + body


def test_a_repeated_close_without_a_body_is_a_duplicate(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    produce(streams, name, 0, 0, "a")
    # A close with a number that was used by an append closes nothing.
    response = produce(streams, name, 0, 0, "", stream_closed="true")
    assert told(response) == (204, "0", "0")
    assert "stream-closed" not in response.headers
    streams.append(name, "b", TEXT)
    assert streams.read(name).text == "ab"

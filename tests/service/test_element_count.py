"""A body with more elements than anybody should make objects of is refused, over every protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.server_process import ServerProcess

from strandline.service import element_count
from strandline.service.element_count import has_more_elements

pytestmark = pytest.mark.both_lanes

JSON = {"content-type": "application/json"}
#: More than all limits below, and larger than what is not looked at.
MANY = 60_000


@pytest.fixture(scope="module")
def small(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Shared by the tests of this file: use names of your own."""
    process = ServerProcess(
        tmp_path_factory.mktemp(f"small-{lane}") / "data",
        fast_lane=lane == "fast",
        settings={"max_body_values": 20_000, "max_batch_records": 1000, "max_append_records": 1000},
    )
    try:
        yield process.start()
    finally:
        process.end()


def many(element: bytes, count: int = MANY) -> bytes:
    return b",".join([element] * count)


def test_every_protocol_refuses_too_many_elements(small: ServerProcess) -> None:
    with httpx.Client(base_url=small.url, trust_env=False, headers=JSON, timeout=30) as client:
        client.put("/v1/stream/s").raise_for_status()
        client.put("/v0/topics/t").raise_for_status()
        requests = {
            "/v1/stream/s": (b"[" + many(b"1") + b"]", 413, "payload_too_large"),
            "/v0/topics/t": (b'{"records":[' + many(b'{"data":1}') + b"]}", 400, "batch_too_large"),
            "/v0/write": (
                b'{"writes":[{"topic":"t","records":[' + many(b'{"data":1}') + b"]}]}",
                400,
                "batch_too_large",
            ),
            "/v0/topics/t/ack": (b'{"node":"n","seqs":[' + many(b"1") + b"]}", 413, "payload_too_large"),
            "/v0/topics/t/delete": (b'{"match":[' + many(b"1") + b"]}", 413, "payload_too_large"),
            "/v0/watch": (b'{"topics":{"t":{}},"nodes":[' + many(b'"n"') + b"]}", 413, "payload_too_large"),
            "/v1/stream/s/_search": (b'{"search_after":[' + many(b"1") + b"]}", 413, "payload_too_large"),
            "/v1/stream/s/_otlp/v1/traces": (b'{"resourceSpans":[' + many(b"{}") + b"]}", 413, "payload_too_large"),
        }
        for path, (body, status, code) in requests.items():
            answer = client.post(path, content=body)
            assert (path, answer.status_code, answer.json()["error"]["code"]) == (path, status, code)
        created = client.put("/v1/stream/other", content=b"[" + many(b"1") + b"]")
        assert created.status_code == 413
        assert client.head("/v1/stream/other").status_code == 404
        assert client.get("/v1/stream/s?offset=-1").json() == []
        assert client.get("/v0/topics/t").json()["count"] == 0


@pytest.mark.parametrize("count", [1001, 2500, MANY])
def test_an_append_to_a_stream_has_a_limit_of_records(small: ServerProcess, count: int) -> None:
    with httpx.Client(base_url=small.url, trust_env=False, headers=JSON, timeout=30) as client:
        stream = f"/v1/stream/counted-{count}"
        client.put(stream).raise_for_status()
        refused = client.post(stream, content=b"[" + many(b"1", count) + b"]")
        assert refused.status_code == 413
        assert "1000 records" in refused.json()["error"]["message"]
        assert client.post(stream, content=b"[" + many(b"1", 1000) + b"]").status_code == 204
        # What a record holds is its own business.
        wide = b'{"a":[' + many(b"1") + b"]}"
        assert client.post(stream, content=wide).status_code == 204
        assert client.post(stream, content=b"[" + wide + b"," + wide + b"]").status_code == 204


def test_records_of_a_topic_may_hold_any_number_of_values(small: ServerProcess) -> None:
    with httpx.Client(base_url=small.url, trust_env=False, headers=JSON, timeout=30) as client:
        body = b'{"records":[{"data":[' + many(b"1") + b"]}]}"
        assert client.post("/v0/topics/wide", content=body).status_code == 201


def test_a_message_on_a_socket_has_the_same_limit(small: ServerProcess) -> None:
    with small.client().websocket() as ws:
        ws.send('{"op":"publish","topic":"t","records":[' + many(b'{"data":1}').decode() + "]}")
        assert ws.next()["code"] == "batch_too_large"


def _elements(value: object, depth: int) -> int:
    if not depth or not isinstance(value, list | dict):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return max(0, len(inner) - 1) + sum(_elements(one, depth - 1) for one in inner)


_TEXTS = st.text('a,"\\[]{}ä', max_size=6)
_VALUES = st.recursive(
    st.none() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=30,
)


@given(_VALUES, st.integers(1, 4), st.integers(1, 9))
def test_counting_agrees_with_decoding(value: object, depth: int, piece: int) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(element_count, "PIECE_BYTES", piece)
        count = element_count._count(body, 1 << 30, depth)
    assert count == 1 + _elements(value, depth)


def test_what_cannot_have_that_many_elements_is_not_counted() -> None:
    assert not has_more_elements(b"[1,2,3]", 4)
    assert has_more_elements(b"[1,2,3,4,5]", 4)
    assert not has_more_elements(b'["1,2,3,4,5,6,7"]', 4)

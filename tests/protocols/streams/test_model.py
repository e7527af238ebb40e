"""Random operations on a stream over HTTP, held against a model of a dozen lines."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.streams_client import TEXT, StreamsClient

from strandline.protocols.streams.offsets import encode


class Model:
    """What a stream is. Every operation gives the status that a server must answer with."""

    def __init__(self) -> None:
        self.data: list[tuple[str, str | None]] = []
        self.closed = False
        self.seq: str | None = None
        self.producers: dict[str, tuple[int, int]] = {}
        self.closed_by: tuple[str, int, int] | None = None

    def append(
        self, text: str, key: str | None, seq: str | None, producer: tuple[str, int, int] | None, close: bool
    ) -> int:
        if not text and not close:
            return 400
        if self.closed:
            if producer is not None and producer == self.closed_by:
                return 204
            return 204 if not text and producer is None else 409
        if producer is not None:
            epoch, last = self.producers.get(producer[0], (producer[1], -1))
            if producer[1] < epoch:
                return 403
            if producer[1] > epoch:
                if producer[2]:
                    return 400
            elif producer[2] <= last:
                return 204
            elif producer[2] > last + 1:
                return 409
        if seq is not None:
            if self.seq is not None and seq <= self.seq:
                return 409
            self.seq = seq
        if producer is not None:
            self.producers[producer[0]] = producer[1:]
        if text:
            self.data.append((text, key))
        if close:
            self.closed, self.closed_by = True, producer
        return 200 if producer is not None and text else 204

    def read(self, after: int, key: str | None) -> str:
        return "".join(text for text, its in self.data[after:] if key in (None, its))


KEYS = st.sampled_from([None, "a", "b"])
APPENDS = st.tuples(
    st.sampled_from(["", "x", "yy", "zzz"]),
    KEYS,
    st.none() | st.sampled_from("1259"),
    st.none() | st.tuples(st.sampled_from("pq"), st.integers(0, 1), st.integers(0, 3)),
    st.sampled_from([False] * 9 + [True]),
)
READS = st.tuples(st.integers(0, 12), KEYS)


def append(streams: StreamsClient, name: str, text: str, key: str | None, *rest: object) -> httpx.Response:
    seq, producer, close = rest
    headers = {"content-type": TEXT}
    if key is not None:
        headers["stream-key"] = key
    if seq is not None:
        headers["stream-seq"] = str(seq)
    if isinstance(producer, tuple):
        headers |= dict(zip(("producer-id", "producer-epoch", "producer-seq"), map(str, producer), strict=True))
    if close:
        headers["stream-closed"] = "true"
    return streams.request("POST", name, text, headers=headers)


def check(streams: StreamsClient, name: str, model: Model, after: int, key: str | None) -> None:
    query = {"offset": encode(after)} | ({} if key is None else {"key": key})
    response = streams.read(name, **query)
    assert response.text == model.read(after, key)
    end = len(model.data)
    assert response.headers["stream-next-offset"] == encode(max(after, end))
    assert response.headers["stream-end-offset"] == encode(end)
    ended = model.closed
    assert ("stream-closed" in response.headers) == ended
    assert ("stream-up-to-date" in response.headers) == (ended or after <= end)


@pytest.fixture
def numbers() -> list[int]:
    return [0]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(APPENDS | READS, max_size=25))
def test_a_stream_does_what_its_model_does(
    streams: StreamsClient, name: str, numbers: list[int], operations: list[tuple[object, ...]]
) -> None:
    numbers[0] += 1
    stream, model = f"{name}-{numbers[0]}", Model()
    streams.create(stream, TEXT)
    for operation in operations:
        if len(operation) == 2:
            after, key = operation
            check(streams, stream, model, after, key)  # type: ignore[arg-type]
            continue
        response = append(streams, stream, *operation)  # type: ignore[arg-type]
        assert response.status_code == model.append(*operation), operation  # type: ignore[arg-type]
        if response.is_success:
            assert response.headers["stream-next-offset"] == encode(len(model.data))
            assert ("stream-closed" in response.headers) == model.closed
    check(streams, stream, model, 0, None)

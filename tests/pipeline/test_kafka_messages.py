"""Records as Kafka messages, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.pipeline.kafka_messages import (
    EPOCH,
    LOG,
    META,
    NODE,
    SEQ,
    TIME,
    content_of,
    headers_of,
    key_bytes,
    key_of,
)


@pytest.mark.parametrize("key", [None, b"", b"ann", "é".encode(), b"\xff\x00", b"base64:", b"base64:AAEC"])
def test_the_key_of_a_message_survives(key: bytes | None) -> None:
    assert key_bytes(key_of(key)) == key


@pytest.mark.parametrize(
    ("key", "text"), [(b"ann", "ann"), (b"\xff\x00", "base64:/wA="), (b"base64:AAEC", "base64:YmFzZTY0OkFBRUM=")]
)
def test_keys_are_text(key: bytes, text: str) -> None:
    assert key_of(key) == text


def test_a_key_that_only_looks_like_base64_is_text() -> None:
    assert key_bytes("base64:no!") == b"base64:no!"


def test_headers_are_metadata() -> None:
    headers = [("trace", b"a1"), ("twice", b"1"), ("bytes", b"\xff"), ("none", None), ("twice", b"2")]
    meta = content_of(headers).meta
    assert meta is not None
    assert json.loads(meta) == {"trace": "a1", "twice": ["1", "2"], "bytes": {"base64": "/w=="}, "none": None}
    assert content_of([]) == (None, None, None)


@pytest.mark.parametrize(
    "meta",
    [
        {"trace": "a1"},
        {"twice": ["1", None], "bytes": {"base64": "/w=="}},
        {"number": 1},
        {"flag": True},
        {"one": ["x"]},
        {"none": []},
        {"base64": {"base64": "AAEC"}},
        {"text": {"base64": "YQ=="}},
        {"wrong": {"base64": "!"}},
        {"more": {"base64": "/w==", "other": 1}},
        {"deep": {"a": {"b": None}}},
        {"mixed": ["x", 1]},
        {},
        [],
        "text",
        1,
        None,
        {META: "x"},
        {SEQ: "7"},
        {"": ""},
    ],
)
def test_metadata_survives(meta: Any) -> None:
    encoded = json.dumps(meta, separators=(",", ":")).encode()
    headers = headers_of("orders", 3, 7, 1000, "till", encoded)
    expected = [(LOG, b"orders"), (EPOCH, b"3"), (SEQ, b"7"), (TIME, b"1000"), (NODE, b"till")]
    assert headers[:5] == expected
    content = content_of(headers)
    assert content.meta is not None
    assert json.loads(content.meta) == meta
    assert type(json.loads(content.meta)) is type(meta)
    assert (content.node, content.time) == ("till", "1000")


def test_metadata_of_text_is_readable_as_headers() -> None:
    assert headers_of("a", 1, 1, 2, None, b'{"trace": "a1", "n": null}')[4:] == [("trace", b"a1"), ("n", None)]
    assert headers_of("a", 1, 1, 2, None, b'{"trace": 1}')[4:] == [(META, b'{"trace": 1}')]
    assert headers_of("a", 1, 1, 2, None, None)[4:] == []


def test_a_header_that_another_program_added_to_an_export_is_kept() -> None:
    headers = [*headers_of("a", 1, 1, 2, None, b'{"n":1}'), ("trace", b"x")]
    meta = content_of(headers).meta
    assert meta is not None
    assert json.loads(meta) == {"trace": "x", META: '{"n":1}'}

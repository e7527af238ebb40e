from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrow_client import encode, table

from strandline.protocols.arrow import decoder
from strandline.protocols.arrow.decoder import Rules, decode
from strandline.service.problems import Refusal

RULES = Rules(
    is_json=True,
    max_bytes=1 << 20,
    max_record_bytes=1 << 20,
    max_meta_bytes=1000,
    max_meta_keys=10,
    max_key_bytes=100,
    max_node_bytes=100,
)
ANYTHING = msgspec.structs.replace(RULES, is_json=False)

#: What is nearly JSON, and makes JSON together.
SCRAPS = st.lists(st.sampled_from([b"[", b"]", b'"', b",", b"1", b" ", b"{", b"}", b":", b"\\", b"\xff"]), max_size=6)


def is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
        data.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


@given(st.lists(SCRAPS.map(b"".join), min_size=1, max_size=5))
@settings(max_examples=400, deadline=None)
def test_rows_are_taken_exactly_if_each_is_json_by_itself(rows: list[bytes]) -> None:
    body = encode(table(*rows))
    if all(map(is_json, rows)):
        batch = decode(body, RULES)
        assert batch is not None
        assert list(batch.data) == [row.strip() for row in rows]
    else:
        with pytest.raises(Refusal) as refused:
            decode(body, RULES)
        assert refused.value.detail == {"row": next(at for at, row in enumerate(rows) if not is_json(row))}


TEXTS = st.text(max_size=8)


@given(
    st.lists(st.tuples(st.binary(max_size=8), st.none() | TEXTS, st.none() | TEXTS, st.none() | TEXTS), max_size=6),
    st.sampled_from([None, "zstd", "lz4"]),
    st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]),
)
@settings(max_examples=150, deadline=None)
def test_what_is_sent_is_what_is_kept(rows: list[Any], compression: str | None, kind: Any) -> None:
    data, keys, nodes, metas = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    sent = pa.table(
        {
            "data": pa.array(data, pa.binary()),
            "key": pa.array(keys, pa.string()).cast(kind) if kind.id != _DICTIONARY else _encoded(keys),
            "node": pa.array(nodes, pa.string()),
            "meta": pa.array([None if meta is None else json.dumps(meta) for meta in metas], pa.string()),
        }
    )
    batch = decode(encode(sent, compression), ANYTHING)
    if not rows:
        assert batch is None
        return
    assert batch is not None
    batch.check()
    assert list(batch.data) == data
    assert (batch.keys or [None] * len(rows)) == keys
    assert (batch.nodes or [None] * len(rows)) == nodes
    read = [None if meta is None else json.loads(meta) for meta in batch.metas or [None] * len(rows)]
    assert read == metas


_DICTIONARY = pa.dictionary(pa.int8(), pa.string()).id


def _encoded(values: list[str | None]) -> Any:
    return pa.array(values, pa.string()).dictionary_encode()


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_body_is_refused_or_makes_a_sound_batch(data: st.DataObject) -> None:
    compression = data.draw(st.sampled_from([None, "zstd"]))
    body = bytearray(encode(table(*range(20), key=["a"] * 20, meta=[b"{}"] * 20), compression))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        batch = decode(bytes(body), RULES)
    except Refusal:
        return
    if batch is not None:
        batch.check()
        assert all(is_json(bytes(row)) for row in batch.data)


def test_there_may_be_so_many_rows_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MAX_ROWS", 3)
    assert decode(encode(table(1, 2, 3)), RULES) is not None
    with pytest.raises(Refusal, match="more than 3 rows"):
        decode(encode(table(1, 2, 3, 4)), RULES)


def test_values_that_are_shared_count_as_often_as_they_are_meant() -> None:
    one = pa.array(["x" * 1000], pa.string_view())
    views = pa.py_buffer(one.buffers()[1].to_pybytes()[:16] * 100)
    shared = pa.Array.from_buffers(pa.string_view(), 100, [None, views, *one.buffers()[2:]])
    assert shared.to_pylist() == ["x" * 1000] * 100
    for column in (shared, pa.DictionaryArray.from_arrays(pa.array([0] * 100), pa.array(["x" * 1000]))):
        body = encode(pa.table({"data": column}))
        assert decode(body, ANYTHING) is not None
        with pytest.raises(Refusal, match="100000 bytes"):
            decode(body, msgspec.structs.replace(ANYTHING, max_bytes=99_000))

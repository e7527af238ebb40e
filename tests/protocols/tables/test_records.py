"""Rows joined from bytes are the rows that the tables themselves would show."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.engine import Record
from strandline.protocols.tables.records import RowRenderer, authors_of
from strandline.tables.rows import Row, data_of, meta_of, row_of, split_stamps

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TEXTS = TEXT | st.sampled_from(['","$updatedAt":5}', '$updatedAt":1}', '"}', "\\", "ü\u2028"])
FIELDS = TEXT.filter(lambda name: not name.startswith("$"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS | st.sampled_from(["$updatedAt", "$version"]), inner, max_size=3)
    ),
    max_leaves=8,
)
OF_ROWS = {"id", "parent", "seq", "userId", "createdAt", "updatedAt", "idempotencyKey", "author", "own"}


def record(
    payload: dict[str, Any], user: str | None, key: str | None, updated: int, version: int | None = None
) -> Record:
    row = Row(
        id="x", parent="x", seq=7, payload=payload, user=user, created_at=1000, updated_at=updated, idempotency_key=key
    )
    return Record(7, 1000, key, None, meta_of(user), data_of(row, version))


def rendered(kept: Record, parent: str, reader: str | None) -> Any:
    row = RowRenderer(parent).row(kept.seq, kept.ts, kept.data, kept.key, kept.meta)
    return msgspec.json.decode(row.whole(reader, None))


@given(
    payload=st.dictionaries(FIELDS.filter(lambda name: name not in OF_ROWS), VALUES, max_size=5),
    parent=st.sampled_from(["main", 'a "b"', "main:3", "ü"]),
    user=st.none() | st.sampled_from(["me", 'some"body']),
    key=st.none() | TEXTS,
    updated=st.sampled_from([1000, 2000]),
    version=st.sampled_from([None, 2, 10**6]),
    reader=st.sampled_from([None, "me", "you"]),
)
def test_a_rendered_row_is_the_row(
    payload: dict[str, Any],
    parent: str,
    user: str | None,
    key: str | None,
    updated: int,
    version: int | None,
    reader: str | None,
) -> None:
    kept = record(payload, user, key, updated, version)
    row = row_of(parent, kept)
    assert (row.payload, row.updated_at) == (payload, updated)
    assert split_stamps(kept.data)[1:] == ((version, updated) if row.is_edited else (None, None))
    expected = row.to_json()
    if reader is not None:
        expected["own"] = user == reader
    assert rendered(kept, parent, reader) == msgspec.json.decode(msgspec.json.encode(expected))


@pytest.mark.parametrize(
    "data", [b"{}", b" { } ", b'{ "a" : 1 }\n', b'{"$updatedAt":2000}', b'{"a":1,"$updatedAt":2000}']
)
def test_spaces_and_empty_payloads_do_no_harm(data: bytes) -> None:
    kept = Record(7, 1000, None, None, None, data)
    assert rendered(kept, "p", None) == row_of("p", kept).to_json()


def test_authors_are_looked_up_once_each() -> None:
    asked: list[str] = []

    def look_up(user: str) -> dict[str, str] | None:
        asked.append(user)
        return None if user == "gone" else {"name": user.title()}

    renderer = RowRenderer("p")
    rows = [renderer.row(1, 1, b"{}", None, meta_of(user)) for user in ("me", "gone", "me", None)]
    authors = authors_of(rows, look_up)
    assert sorted(asked) == ["gone", "me"]
    shown = [msgspec.json.decode(row.whole("me", authors)) for row in rows]
    assert [(row["author"], row["own"]) for row in shown] == [
        ({"name": "Me"}, True), (None, False), ({"name": "Me"}, True), (None, False),
    ]  # fmt: skip

"""Columns hold what values_of says of each record, however they were read."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.query.columns import AnyColumn, KeywordColumn, NumberColumn, TextColumn, join_columns
from strandline.query.config import Binding, Field
from strandline.query.extraction import BULK_ROWS, Extractor
from strandline.query.values import tokens, values_of

KINDS = ("keyword", "text", "integer", "float", "date", "bool")
FIELDS = [Field(kind, kind, (Binding(1, f"/{kind}"), Binding(2, f"/deep/{kind}"))) for kind in KINDS]
FIELDS += [
    Field("lower", "keyword", (Binding(1, "/keyword"),), normalizer="lowercase_v1"),
    Field("odd", "keyword", (Binding(1, "/a~1b/0"),)),
    Field("late", "keyword", (Binding(2, "/keyword"),)),
]

scalars = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["İstanbul", "ΣΑΣ", "a_b-c D1", "x\ny", 'say "so"', "back\\slash", "true", "12", "-7.5", "é"]),
    st.sampled_from(
        ["2026-03-25T10:18:23.123Z", "2026-03-25T10:18:23Z", "2026-02-30T10:18:23Z", "2026-03-25T24:00:00Z",
         "2024-02-29T23:59:59.999Z", "0000-01-01T00:00:00Z", "2026-03-25T10:18:23+01:00", "2026-03-25", "1774433783123"]
    ),
    st.integers(-(10**25), 10**25),
    st.integers(-1000, 1000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)  # fmt: skip
values = st.one_of(
    scalars,
    st.lists(st.one_of(scalars, st.lists(scalars, max_size=2)), max_size=3),
    st.dictionaries(st.sampled_from(["keyword", "x"]), scalars, max_size=1),
)
objects = st.dictionaries(st.sampled_from([*KINDS, "a/b", "other"]), values, max_size=8)
deep = st.builds(lambda inner, outer: {**outer, "deep": inner}, objects, objects)
documents = st.one_of(objects, objects, deep, scalars, st.lists(scalars, max_size=2))


def encode(document: object, ascii: bool) -> bytes:
    return json.dumps(document, ensure_ascii=ascii).encode(errors="replace")


def listed(column: AnyColumn, total: int) -> list[list[Any]]:
    """The values of each record; texts as their tokens."""
    if isinstance(column, NumberColumn):
        flat: list[Any] = column.values.tolist()
    elif isinstance(column, KeywordColumn):
        flat = [column.words[code].as_py() for code in column.codes.tolist()]
    else:
        assert isinstance(column, TextColumn)
        words = [column.words[code].as_py() for code in column.tokens.tolist()]
        flat = [words[column.bounds[at] : column.bounds[at + 1]] for at in range(column.count)]
    rows = range(total) if column.rows is None else column.rows.tolist()
    found: list[list[Any]] = [[] for _ in range(total)]
    for row, value in zip(rows, flat, strict=True):
        found[row].append(value)
    return found


def expected(field: Field, document: object, version: int) -> list[Any]:
    found = values_of(field, document, version)
    return [tokens(str(value)) for value in found] if field.kind == "text" else list(found)


def check(data: list[bytes], version: int) -> None:
    decoded = [msgspec.json.decode(payload) for payload in data]
    rows, columns = Extractor(FIELDS).extract(data, version)
    assert rows == [row for row, document in enumerate(decoded) if isinstance(document, dict)]
    for field in FIELDS:
        found = listed(columns[field.name], len(rows))
        assert found == [expected(field, decoded[row], version) for row in rows], field.name


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(documents, st.booleans()), max_size=40), st.sampled_from([1, 2]))
def test_what_is_read_in_bulk_is_what_is_read_record_by_record(found, version):
    data = [encode(*each) for each in found]
    filler = encode({"keyword": "filler", "integer": 1}, False)
    check(data, version)
    check(data + [filler] * BULK_ROWS, version)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"keyword":"first","keyword":"second"}',
        b'{"keyword":"first","k\\u0065yword":"second"}',
        b'{"deep":{"keyword":"a"},"deep":{"keyword":"b"}}',
        b' \n{ "keyword" : "spaced" }',
        b'{"integer":18446744073709551616,"float":1e308,"date":1e3}',
        b'{"integer":1.0,"float":-0.0,"date":-1.5,"bool":"false"}',
        b'{"integer":"0012","float":"1e3","date":"253402300800000"}',
        b'{"keyword":"\\ud83d\\ude00","deep":[{"keyword":"a"}],"integer":-0,"float":1E5}',
        b'{"keyword":"1e400","deep":"' + b"9" * 600 + b'","integer":' + b"9" * 600 + b"}",
        b'{"float":1e-400,"integer":123456789.0e0}',
    ],
)
def test_payloads_that_can_be_misread_are_not(payload):
    check([payload] + [b'{"keyword":"filler"}'] * BULK_ROWS, 1)
    check([payload] + [b'{"keyword":"filler"}'] * BULK_ROWS, 2)


def test_a_payload_that_is_not_json_is_left_out_and_harms_no_other():
    data = [b'{"keyword":"good"}'] * BULK_ROWS + [b'{"keyword":', b"\xff{", b'{"keyword":"\xff"}', b"", b"5"]
    rows, columns = Extractor(FIELDS).extract(data, 1)
    assert rows == list(range(BULK_ROWS))
    assert listed(columns["keyword"], len(rows)) == [["good"]] * BULK_ROWS


@pytest.mark.parametrize("number", [b"1e400", b"-1.5E+999", b"1e10000", b"9" * 400 + b".5", b"9" * 5000])
@pytest.mark.parametrize("name", [b"float", b"other"])
def test_a_payload_with_a_number_that_python_cannot_read_is_left_out(name: bytes, number: bytes):
    bad = b'{"keyword":"bad","%b":%b}' % (name, number)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(bad)
    rows, columns = Extractor(FIELDS).extract([bad] + [b'{"keyword":"good"}'] * BULK_ROWS, 1)
    assert rows == list(range(1, BULK_ROWS + 1))
    assert listed(columns["keyword"], len(rows)) == [["good"]] * BULK_ROWS


def test_good_payloads_are_read_in_bulk(monkeypatch):
    def one_by_one(*_):
        raise AssertionError("read one by one")

    monkeypatch.setattr(Extractor, "_one_by_one", one_by_one)
    rows, _ = Extractor(FIELDS).extract([b'{"keyword":"good","integer":1}'] * BULK_ROWS, 1)
    assert len(rows) == BULK_ROWS


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(documents, max_size=5), min_size=1, max_size=4))
def test_columns_that_are_joined_are_the_columns_of_all_records(batches):
    pieces = [Extractor(FIELDS).extract([encode(document, True) for document in batch], 1) for batch in batches]
    whole = Extractor(FIELDS).extract([encode(document, True) for batch in batches for document in batch], 1)
    totals = [len(piece.rows) for piece in pieces]
    for field in FIELDS:
        joined = join_columns([piece.columns[field.name] for piece in pieces], totals)
        assert listed(joined, sum(totals)) == listed(whole.columns[field.name], len(whole.rows))
        assert joined.present(sum(totals)).tolist() == [bool(each) for each in listed(joined, sum(totals))]


def test_integers_that_no_machine_number_holds_stay_exact():
    rows, columns = Extractor(FIELDS).extract([b'{"integer":123456789012345678901234567890}', b'{"integer":1}'], 1)
    column = columns["integer"]
    assert isinstance(column, NumberColumn)
    assert column.is_general
    assert column.equal(123456789012345678901234567890).tolist() == [True, False]
    assert column.compare(">", 1).tolist() == [True, False]
    assert np.flatnonzero(column.lone(len(rows))).tolist() == [0, 1]

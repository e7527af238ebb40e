from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    VariantVal,
)

from strandline.pipeline.source.frames import ROWS, BadFrame, FrameShape, appended, by_log, packed, unpacked


def shape_of(to: str | None = None, **kinds: Any) -> tuple[FrameShape, Any]:
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    return FrameShape(schema, to), to_arrow_schema(schema, timezone="UTC")


def rows_of(rows: list[dict[str, Any]], to: str | None = None, **kinds: Any) -> list[dict[str, Any]]:
    shape, arrow = shape_of(to, **kinds)
    found = shape.rows(pa.RecordBatch.from_pylist(rows, schema=arrow))
    assert found.schema == ROWS
    return [{name: value for name, value in row.items() if value is not None} for row in found.to_pylist()]


def test_text_and_bytes_are_payloads_as_they_are() -> None:
    rows = [{"data": "é", "key": "k", "node": None, "meta": "{}"}]
    expected = [{"log": "a", "data": "é".encode(), "key": "k", "meta": b"{}"}]
    text = StringType()
    assert rows_of(rows, "a", data=text, key=text, node=text, meta=text) == expected
    assert rows_of([{"data": b"\xff"}], "a", data=BinaryType()) == [{"log": "a", "data": b"\xff"}]


def test_anything_else_in_data_becomes_its_json() -> None:
    struct = StructType([StructField("n", IntegerType()), StructField("m", MapType(StringType(), LongType()))])
    rows = [{"data": {"n": None, "m": [("x", 1)]}}, {"data": {"n": 2, "m": None}}]
    assert [row["data"] for row in rows_of(rows, "a", data=struct)] == [b'{"m":{"x":1}}', b'{"n":2}']
    value = VariantVal.parseJson('{"a":[1,2.5,null]}')
    rows = [{"data": {"value": value.value, "metadata": value.metadata}}]
    assert rows_of(rows, "a", data=VariantType()) == [{"log": "a", "data": b'{"a":[1,2.5,null]}'}]


def test_without_data_all_other_columns_are_the_payload() -> None:
    rows = [
        {"log": "x", "key": "k", "n": 1, "ts": datetime(2024, 1, 2, tzinfo=UTC), "d": Decimal("1.50"), "l": [1, None]},
        {"log": "y", "key": None, "n": None, "ts": None, "d": None, "l": None},
    ]
    kinds = {
        "log": StringType(), "key": StringType(), "n": LongType(), "ts": TimestampType(), "d": DecimalType(10, 2),
        "l": ArrayType(LongType()),
    }  # fmt: skip
    assert rows_of(rows, **kinds) == [
        {"log": "x", "key": "k", "data": b'{"n":1,"ts":"2024-01-02T00:00:00Z","d":1.50,"l":[1,null]}'},
        {"log": "y", "data": b"{}"},
    ]


def test_rows_that_were_read_from_logs_say_where_they_come_from() -> None:
    kinds = {"log": StringType(), "epoch": LongType(), "seq": LongType(), "ts": TimestampType()}
    row = {"log": "orders", "epoch": 3, "seq": 7, "ts": None}
    expected = {"log": "copy", "source": "orders@3", "position": 7}
    assert rows_of([row | {"n": 1}], "copy", **kinds, n=LongType()) == [expected | {"data": b'{"n":1}'}]
    assert rows_of([row | {"data": "x"}], "copy", **kinds, data=StringType()) == [expected | {"data": b"x"}]
    assert rows_of([row | {"data": "x"}], **kinds, data=StringType()) == [{"log": "orders", "data": b"x"}]


@pytest.mark.parametrize(
    ("log", "kinds", "said"),
    [
        (None, {"data": StringType()}, "no target log"),
        ("a", {"key": StringType()}, "no column for the payload"),
        ("a", {"data": StringType(), "extra": LongType()}, "the columns extra would be lost"),
        ("a", {"data": StringType(), "key": LongType()}, "column key must be string, got bigint"),
        ("a", {"data": StringType(), "meta": LongType()}, "column meta must be string or binary"),
        ("a", {"data": StringType(), "source": StringType()}, "source and position belong together"),
        (
            "a",
            {"data": StringType(), "source": StringType(), "position": StringType()},
            "column position must be an integer",
        ),
        (None, {"data": StringType(), "log": LongType()}, "column log must be string"),
    ],
)
def test_a_frame_that_cannot_be_records_is_refused(log: str | None, kinds: dict[str, Any], said: str) -> None:
    with pytest.raises(BadFrame, match=said):
        shape_of(log, **kinds)


def test_a_row_without_payload_log_or_position_is_refused() -> None:
    with pytest.raises(BadFrame, match="column data contains null"):
        rows_of([{"data": None}], "a", data=StringType())
    with pytest.raises(BadFrame, match="column log contains null"):
        rows_of([{"data": "x", "log": None}], data=StringType(), log=StringType())
    kinds = {"data": StringType(), "source": StringType(), "position": LongType()}
    with pytest.raises(BadFrame, match="column position contains null"):
        rows_of([{"data": "x", "source": "s", "position": None}], "a", **kinds)


def test_rows_travel_and_are_parted_by_log_in_order() -> None:
    shape, arrow = shape_of(data=StringType(), log=StringType())
    rows = [{"data": "1", "log": "b"}, {"data": "2", "log": "a"}, {"data": "3", "log": "b"}]
    batch = shape.rows(pa.RecordBatch.from_pylist(rows, schema=arrow))
    found = unpacked([packed([batch]), packed([]), packed([batch])])
    parts = [(name, part.column("data").to_pylist()) for name, part in by_log(found)]
    assert parts == [("a", [b"2", b"2"]), ("b", [b"1", b"3", b"1", b"3"])]
    assert appended(found).column_names == ["data"]
    assert unpacked([]).num_rows == 0

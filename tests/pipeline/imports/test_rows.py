from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.lake.location import Lake
from strandline.pipeline.imports import files
from strandline.pipeline.imports import rows as reading
from strandline.pipeline.imports.files import (
    EXTENSIONS,
    BadShape,
    NothingToImport,
    RowShape,
    SourceFile,
    UnknownFormat,
    UnreadableFile,
    find_files,
    format_of,
    identity,
    parts_of,
)
from strandline.pipeline.imports.rows import SourceRow, read_rows


def rows_of(path: Path, shape: RowShape) -> list[SourceRow]:
    found = [row for part in parts_of(find_files([str(path)]), shape.format) for row in read_rows(part, shape)]
    return [row for row in found if row.record is not None or row.fault]


def data_of(path: Path, shape: RowShape) -> list[Any]:
    return [
        msgspec.json.decode(row.record.data) if row.record else (row.number, row.fault) for row in rows_of(path, shape)
    ]


JSONL = RowShape(format="jsonl", log="log")
CSV = RowShape(format="csv", log="log")


def test_lines_are_taken_as_they_are_and_bad_ones_told_by_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n [1,2] \nno\n"\xff"\n{"a":\n3')
    rows = rows_of(path, JSONL)
    assert [(row.number, row.record and row.record.data) for row in rows] == [
        (1, b'{"a": 1}'),
        (3, b"[1,2]"),
        (4, None),
        (5, None),
        (6, None),
        (7, b"3"),
    ]
    assert "not valid JSON" in rows[2].fault


@settings(max_examples=80, deadline=None)
@given(
    lines=st.lists(st.text("ab1 ", max_size=9), max_size=20), size=st.integers(1, 20), last=st.sampled_from(["", "\n"])
)
def test_however_a_file_is_divided_every_line_is_read_once(
    lines: list[str], size: int, last: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    wanted = [msgspec.json.encode(line) if line else b"" for line in lines]
    path.write_bytes(b"\n".join(wanted) + last.encode())
    before, files.PART_BYTES = files.PART_BYTES, size
    chunk, reading.CHUNK_BYTES = reading.CHUNK_BYTES, 7
    try:
        found = [row.record.data for row in rows_of(path, JSONL) if row.record] if path.stat().st_size else []
    finally:
        files.PART_BYTES, reading.CHUNK_BYTES = before, chunk
    assert found == [line for line in wanted if line]


def test_columns_of_json_lines_are_what_they_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = [
        b'{"id":7,"at":"2024-01-01T00:00:00.5Z","to":"orders","who":"n1","extra":{"x":1},"body": {"v": [1]}}',
        b'{"id":null,"at":1704067200000,"to":"orders","body":"text"}',
        b'{"id":"x","at":"never","to":"orders","body":1}',
        b'{"id":"x","at":1,"to":"_own","body":1}',
        b'{"id":"x","at":1,"to":"orders"}',
        b'{"id":[],"at":1,"to":"orders","body":1}',
        b"[]",
    ]
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    shape = RowShape(
        format="jsonl", log_column="to", key_column="id", ts_column="at", node_column="who", meta_column="extra",
        data_column="body",
    )  # fmt: skip
    rows = rows_of(path, shape)
    assert [row.record and tuple(row.record) for row in rows[:2]] == [
        ("orders", 1_704_067_200_500, "7", "n1", b'{"x":1}', b'{"v": [1]}'),
        ("orders", 1_704_067_200_000, None, None, None, b'"text"'),
    ]
    assert [row.number for row in rows[2:]] == [3, 4, 5, 6, 7]
    words = ["invalid time", "internal logs", "missing field 'body'", "key must be", "not a JSON object"]
    assert all(word in row.fault for word, row in zip(words, rows[2:], strict=True))


def test_a_key_can_be_deep_in_the_payload(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"user":{"id":"u1"}}\n{"user":{}}\n{"user":{"id":3}}\n')
    rows = rows_of(path, RowShape(format="jsonl", log="log", key_path="/user/id"))
    assert [row.record and row.record.key for row in rows] == ["u1", None, "3"]


def test_csv_is_text_unless_said_otherwise_and_its_bad_rows_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'name,count,ratio,ok,extra\n'
        b'"a\nb",1,0.5,true,"{""x"":1}"\n'
        b',2,1,FALSE,\n'
        b'"",3,2,true,null\n'
        b'too,few\n'
        b'x,many,0,true,1\n'
        b'\xff,5,1,true,1\n'
        b'last,6,1e3,no,1\n'
        b'end,7,1,true,[]\n'
    )  # fmt: skip
    shape = RowShape(
        format="csv", log="log", types={"count": "long", "ratio": "double", "ok": "boolean", "extra": "json"}
    )
    assert data_of(path, shape) == [
        {"name": "a\nb", "count": 1, "ratio": 0.5, "ok": True, "extra": {"x": 1}},
        {"count": 2, "ratio": 1.0, "ok": False},
        {"name": "", "count": 3, "ratio": 2.0, "ok": True},
        (5, "2 columns, expected 5"),
        (6, "invalid long in 'count': 'many'"),
        (7, "'name' is not valid UTF-8"),
        (8, "invalid boolean in 'ok': 'no'"),
        {"name": "end", "count": 7, "ratio": 1.0, "ok": True, "extra": []},
    ]
    assert data_of(path, CSV)[1] == {"count": "2", "ratio": "1", "ok": "FALSE"}


def test_csv_without_a_column_that_is_asked_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a;b\n1;2\n")
    with pytest.raises(UnreadableFile, match="no column c; its columns are a, b"):
        rows_of(path, RowShape(format="csv", log="log", delimiter=";", key_column="c"))
    (tmp_path / "b.csv").write_bytes(b"a,a\n1,2\n")
    with pytest.raises(UnreadableFile, match="several columns"):
        rows_of(tmp_path / "b.csv", CSV)
    (tmp_path / "c.csv").write_bytes(b"")
    assert rows_of(tmp_path / "c.csv", CSV) == []


def test_parquet_of_any_types_becomes_json(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "id": [1, 2, 3],
            "price": pa.array(["1.50", None, "3.25"]).cast(pa.decimal128(10, 2)),
            "at": pa.array([0, 1, None], pa.timestamp("ms", tz="UTC")),
            "tags": [["a"], [], None],
            "more": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
            "raw": [b"\xff", None, b""],
        }
    )
    pq.write_table(table, path, row_group_size=1)
    before, files.PART_ROWS = files.PART_ROWS, 2
    try:
        assert [(part.start, part.end) for part in parts_of(find_files([str(path)]), "parquet")] == [(0, 2), (2, 3)]
        found = data_of(path, RowShape(format="parquet", log="log"))
    finally:
        files.PART_ROWS = before
    assert found == [
        {"id": 1, "price": 1.5, "at": "1970-01-01T00:00:00Z", "tags": ["a"], "more": {"k": 1}, "raw": "/w=="},
        {"id": 2, "at": "1970-01-01T00:00:00.001000Z", "tags": [], "more": {}},
        {"id": 3, "price": 3.25, "raw": ""},
    ]


def test_times_in_nanoseconds_become_microseconds(tmp_path: Path) -> None:
    path, at = tmp_path / "a.parquet", pa.timestamp("ns", "UTC")
    table = pa.table(
        {
            "at": pa.array([1_001], at),
            "deep": pa.array([[{"at": 1_001}]], pa.list_(pa.struct([("at", at)]))),
            "time": pa.array([1_001], pa.time64("ns")),
        }
    )
    pq.write_table(table, path)
    time = "1970-01-01T00:00:00.000001Z"
    assert data_of(path, RowShape(format="parquet", log="log")) == [
        {"at": time, "deep": [{"at": time}], "time": "00:00:00.000001"}
    ]


def test_parquet_values_that_cannot_be_represented_are_invalid_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    at = pa.array([0, 10**15], pa.timestamp("s"))
    text = pa.StringArray.from_buffers(2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff"))
    for column in (at, text):
        pq.write_table(pa.table({"id": [1, 2], "value": column}), path)
        good, bad = data_of(path, RowShape(format="parquet", log="log"))
        assert good["id"] == 1
        assert (bad[0], bad[1].startswith("invalid value in 'value': ")) == (2, True)


def test_parquet_without_a_column_that_is_asked_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(UnreadableFile, match="no column key; its columns are a"):
        rows_of(path, RowShape(format="parquet", log="log", key_column="key"))
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(UnreadableFile, match="several columns"):
        rows_of(path, RowShape(format="parquet", log="log"))


@pytest.mark.parametrize("value", ["1_000", "\u0661", "nan", "1e999"])
def test_a_number_in_csv_is_a_number_of_json(value: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"n\n{value}\n")
    for kind in ("long", "double"):
        shape = RowShape(format="csv", log="log", types={"n": kind})
        assert data_of(path, shape) == [(2, f"invalid {kind} in 'n': {value!r}")]


def test_a_number_that_is_too_large_for_a_column_is_an_invalid_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"k":1e999}\n{"k":"b"}\n')
    bad, good = rows_of(path, RowShape(format="jsonl", log="log", key_column="k"))
    assert ("out of range" in bad.fault, good.record and good.record.key) == (True, "b")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_file_that_changes_while_it_is_read_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"1\n2\n3\n")
    shape = RowShape(format="csv" if name.endswith("csv") else "jsonl", log="log")
    (part,) = parts_of(find_files([str(path)]), shape.format)
    rows = read_rows(part, shape)
    next(rows)
    with path.open("ab") as file:
        file.write(b"4\n")
    with pytest.raises(UnreadableFile, match="changed during the import"):
        list(rows)


def test_what_is_not_a_file_with_a_valid_name_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(UnreadableFile, match="is a pipe or a device"):
        find_files([str(pipe)])
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")).write_bytes(b"1\n")
    with pytest.raises(UnreadableFile, match=r"\\udcff.jsonl' is not valid UTF-8"):
        find_files([str(tmp_path)])
    path = tmp_path / "utf16.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(UnreadableFile, match=r"column names of .*utf16\.csv are not valid UTF-8"):
        rows_of(path, CSV)


def test_a_file_that_is_not_what_it_should_be_or_changes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(UnreadableFile, match="not a Parquet file"):
        parts_of(find_files([str(path)]), "parquet")
    (part,) = parts_of(find_files([str(path)]), "jsonl")
    path.write_bytes(b"1")
    with pytest.raises(UnreadableFile, match="changed"):
        list(read_rows(part, JSONL))
    broken = tmp_path / "b.jsonl.gz"
    broken.write_bytes(gzip.compress(b"1\n" * 10_000)[:20])
    with pytest.raises(UnreadableFile, match="cannot read"):
        rows_of(broken, JSONL)


def test_files_are_found_by_name_directory_and_pattern(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "_SUCCESS", ".hidden", "deep/c.jsonl", "deep/_temporary/d.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1\n")
    everything = [file.name for file in find_files([str(tmp_path)])]
    assert everything == ["a.jsonl", "b.jsonl", "deep/c.jsonl"]
    assert [file.name for file in find_files([f"{tmp_path}/*.jsonl"])] == ["a.jsonl", "b.jsonl"]
    twice = find_files([f"{tmp_path}/b.jsonl", str(tmp_path)])
    assert [file.name for file in twice] == ["b.jsonl", "a.jsonl", "deep/c.jsonl"]
    with pytest.raises(NothingToImport):
        find_files([f"{tmp_path}/nothing*"])
    same = identity(twice, JSONL, "")
    assert same == identity(find_files([f"{tmp_path}/b.jsonl", str(tmp_path)]), JSONL, "")
    assert same != identity(twice, JSONL, "again")
    assert same != identity(twice, RowShape(format="jsonl", log="other"), "")
    (tmp_path / "b.jsonl").write_bytes(b"22\n")
    assert same != identity(find_files([f"{tmp_path}/b.jsonl", str(tmp_path)]), JSONL, "")


@pytest.mark.parametrize(
    "wishes",
    [
        {},
        {"log": "a", "log_column": "b"},
        {"log": "a", "key_column": "b", "key_path": "/c"},
        {"log": "a", "key_path": "no pointer"},
        {"log": "a", "keep_ts": True},
        {"exported": True, "key_column": "a"},
        {"log": "a", "delimiter": ";"},
        {"log": "a", "format": "csv", "delimiter": "ab"},
    ],
)
def test_wishes_that_make_no_sense_are_refused(wishes: dict[str, Any]) -> None:
    with pytest.raises(BadShape):
        RowShape(**{"format": "jsonl", **wishes}).check()


@pytest.mark.parametrize(
    ("names", "format"),
    [
        (["a.csv"], "csv"),
        (["a.CSV", "b.csv.gz"], "csv"),
        (["a.jsonl.zst", "b.ndjson"], "jsonl"),
        (["a.snappy.parquet"], "parquet"),
        (["a.csv", "b.jsonl"], "different formats: .*a.csv .csv. and .*b.jsonl .jsonl."),
        (["a"], "does not say its format: specify --format"),
        (["a.json"], "does not say its format"),
        (["a.parquet.gz"], "does not say its format"),
        (["csv.gz"], "does not say its format"),
    ],
)
def test_the_extensions_of_files_say_their_format(names: list[str], format: str) -> None:
    found = [SourceFile(Lake.at("/x"), name, 1, "") for name in names]
    if format in EXTENSIONS.values():
        assert format_of(found) == format
    else:
        with pytest.raises(UnknownFormat, match=format):
            format_of(found)

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.history.record_schema import RECORDS
from strandline.lake.location import Lake
from strandline.pipeline.export.files import (
    FORMATS,
    MANIFEST,
    BadTarget,
    Format,
    TargetNotEmpty,
    format_for,
    format_of_file,
    open_destination,
    write_part,
)
from strandline.pipeline.imports.files import RowShape, find_files, parts_of
from strandline.pipeline.imports.rows import read_rows

texts = st.text(st.characters(codec="utf-8"), max_size=6)
json_texts = st.one_of(st.integers(), texts, st.lists(texts, max_size=2), st.none()).map(msgspec.json.encode)
payloads = st.one_of(
    json_texts,
    st.binary(max_size=8),
    texts.map(str.encode),
    st.just(b'{"a":\n 1}'),
    st.just(b' "blanks" '),
    st.just(b'"\r"'),
)
rows = st.tuples(
    st.integers(0, 253_402_300_799_999), st.none() | texts, st.none() | texts, st.none() | json_texts, payloads
)


def batch_of(found: list[Any]) -> Any:
    columns = {
        "log": ["log"] * len(found),
        "epoch": [7] * len(found),
        "seq": list(range(1, len(found) + 1)),
        "ts": pa.array([row[0] * 1000 for row in found], RECORDS.field("ts").type),
        "key": [row[1] for row in found],
        "node": [row[2] for row in found],
        "meta": [row[3] for row in found],
        "data": [row[4] for row in found],
    }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in RECORDS], schema=RECORDS)


@settings(max_examples=60, deadline=None)
@given(found=st.lists(rows, min_size=1, max_size=5), format=st.sampled_from(FORMATS))
def test_whatever_is_exported_can_be_imported_and_is_the_same(
    found: list[Any], format: Format, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("export")
    part = write_part(Lake.at(directory), f"part.{format}", format, [batch_of(found)])
    assert part is not None
    assert (part.rows, part.logs) == (len(found), {"log": len(found)})
    shape = RowShape(format=format, exported=True, keep_ts=True, not_json=["log"])
    again = [row for each in parts_of(find_files([str(directory)]), format) for row in read_rows(each, shape)]
    assert [row.fault for row in again] == [""] * len(found)
    assert [row.record and tuple(row.record) for row in again] == [("log", *row) for row in found]


def test_files_are_readable_by_anybody(tmp_path: Path) -> None:
    batch = batch_of(
        [(1_700_000_000_123, "k", None, b'{"m":1}', b'{"a": 1}'), (1_700_000_000_124, None, "n", None, b"\xff")]
    )
    for format in FORMATS:
        write_part(Lake.at(tmp_path), f"part.{format}", format, [batch])
    assert (tmp_path / "part.jsonl").read_bytes() == (
        b'{"log":"log","epoch":7,"seq":1,"ts":"2023-11-14T22:13:20.123Z","key":"k","meta":{"m":1},"data":{"a": 1}}\n'
        b'{"log":"log","epoch":7,"seq":2,"ts":"2023-11-14T22:13:20.124Z","node":"n","bytes":"/w=="}\n'
    )
    assert (tmp_path / "part.csv").read_text().splitlines() == [
        '"log","epoch","seq","ts","key","node","meta","meta_bytes","data","bytes"',
        '"log",7,1,"2023-11-14T22:13:20.123Z","k",,"{""m"":1}",,"{""a"": 1}",',
        '"log",7,2,"2023-11-14T22:13:20.124Z",,"n",,,,"/w=="',
    ]
    table = pq.read_table(tmp_path / "part.parquet")
    assert table.column("data").to_pylist() == ['{"a": 1}', None]
    assert table.column("bytes").to_pylist() == [None, b"\xff"]


def test_nothing_is_there_before_everything_is(tmp_path: Path) -> None:
    target = tmp_path / "export"
    with open_destination(str(target), overwrite=False) as place:
        place.lake.write("part", b"1")
        assert not target.exists()
    assert list(tmp_path.iterdir()) == []
    with open_destination(str(target), overwrite=False) as place:
        place.lake.write("part", b"1")
        place.publish(b"{}")
    assert sorted(path.name for path in target.iterdir()) == [MANIFEST, "part"]
    assert list(tmp_path.iterdir()) == [target]


def test_what_is_there_is_replaced_only_if_that_is_said(tmp_path: Path) -> None:
    target = tmp_path / "export"
    target.mkdir()
    with open_destination(str(target), overwrite=False) as place:
        place.publish(b"1")
    (target / "part-9.csv").write_bytes(b"")
    with pytest.raises(TargetNotEmpty, match="not empty"), open_destination(str(target), overwrite=False):
        pass
    with open_destination(str(target), overwrite=True) as place:
        place.lake.write("new", b"")
        place.publish(b"2")
    assert sorted(path.name for path in target.iterdir()) == [MANIFEST, "new"]
    with pytest.raises(TargetNotEmpty, match="is a file"), open_destination(str(target / "new"), overwrite=True):
        pass
    assert list(tmp_path.iterdir()) == [target]


def test_only_an_export_is_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.txt").write_bytes(b"1")
    (other / MANIFEST).write_bytes(b"{}")
    below = tmp_path / "below"
    (below / "segments").mkdir(parents=True)
    (below / MANIFEST).write_bytes(b"{}")
    for target, name in ((other, "precious.txt"), (below, "segments/")):
        with (
            pytest.raises(TargetNotEmpty, match=f"such as {name}"),
            open_destination(str(target), overwrite=True),
        ):
            pass
    assert (other / "precious.txt").read_bytes() == b"1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["below", "other"]


def test_a_directory_that_another_program_fills_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def export(target: Path, overwrite: bool) -> None:
        with open_destination(str(target), overwrite) as place:
            target.mkdir()
            (target / "mine").write_bytes(b"1")
            place.publish(b"{}")

    for overwrite, words in ((False, "is not empty"), (True, "such as mine")):
        target = tmp_path / str(overwrite)
        with pytest.raises(TargetNotEmpty, match=words):
            export(target, overwrite)
        assert [path.name for path in target.iterdir()] == ["mine"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["False", "True"]


def test_a_link_to_a_directory_stays_and_the_directory_is_replaced(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "deep" / "real"
    link.symlink_to(target)
    for part in ("part-1", "part-2"):
        with open_destination(str(link), overwrite=True) as place:
            place.lake.write(part, b"1")
            place.publish(b"{}")
        assert sorted(path.name for path in target.iterdir()) == [MANIFEST, part]
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "link"]
    assert list(target.parent.iterdir()) == [target]


def test_an_empty_part_leaves_no_file(tmp_path: Path) -> None:
    assert write_part(Lake.at(tmp_path), "part.csv", "csv", [batch_of([])]) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "format"),
    [
        ("orders.parquet", "parquet"),
        ("a/b/orders.JSONL", "jsonl"),
        ("s3://bucket/orders.csv", "csv"),
        ("orders.csv/", None),
        ("s3://orders.csv", None),
        ("orders.csv.gz", None),
        (".csv", None),
        ("orders.txt", None),
        ("a.csv/orders", None),
    ],
)
def test_a_name_with_the_extension_of_a_format_is_a_file(target: str, format: Format | None) -> None:
    assert format_of_file(target) == format
    if format is None:
        assert (format_for(target, None), format_for(target, "csv")) == ("parquet", "csv")
    else:
        assert format_for(target, None) == format_for(target, format) == format
        with pytest.raises(BadTarget, match="contradicts"):
            format_for(target, "csv" if format != "csv" else "parquet")


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "orders.csv"

    def export(overwrite: bool, meanwhile: bytes | None) -> None:
        with open_destination(str(target), overwrite) as place:
            assert write_part(place.lake, place.aside, "csv", [batch_of([])], empty=True) is not None
            if meanwhile is not None:
                target.write_bytes(meanwhile)
            place.publish(b"")

    with pytest.raises(TargetNotEmpty, match="already exists"):
        export(False, b"mine")
    assert target.read_bytes() == b"mine"
    export(True, b"mine")
    assert target.read_bytes().startswith(b'"log"')
    with pytest.raises(TargetNotEmpty, match="already exists"):
        export(False, None)
    target.unlink()
    export(False, None)
    assert list(target.parent.iterdir()) == [target]

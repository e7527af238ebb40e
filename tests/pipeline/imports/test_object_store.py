"""Out to an object store and in from there, without Spark."""

from __future__ import annotations

import msgspec
import pytest
from support.object_store import object_store

from strandline.lake.location import Lake
from strandline.pipeline.export.files import MANIFEST, TargetNotEmpty, open_destination
from strandline.pipeline.imports.files import NothingToImport, RowShape, UnreadableFile, find_files, parts_of
from strandline.pipeline.imports.records import NewRecord
from strandline.pipeline.imports.rows import read_rows
from strandline.pipeline.imports.run import staging_place
from strandline.pipeline.imports.staging import put_aside, staged_batches


def test_exports_and_imports_in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store("bucket") as options:
        for name, value in {
            "AWS_ENDPOINT_URL": options["endpoint"],
            "AWS_REGION": options["region"],
            "AWS_ACCESS_KEY_ID": options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
            "AWS_ALLOW_HTTP": "true",
        }.items():
            monkeypatch.setenv(name, str(value))
        _export()
        _import()


def _export() -> None:
    target = "s3://bucket/out"
    with open_destination(target, overwrite=False) as place:
        place.lake.write(f"part{place.tag}", b"1")
    assert Lake.at(target).names("") == {}
    with open_destination(target, overwrite=False) as place:
        place.lake.write(f"part{place.tag}", b"1")
        place.publish(b"first")
    with pytest.raises(TargetNotEmpty), open_destination(target, overwrite=False):
        pass
    with open_destination(target, overwrite=True) as place:
        place.lake.write(f"part{place.tag}", b"2")
        place.publish(b"second")
        new = f"part{place.tag}"
    assert set(Lake.at(target).names("")) == {MANIFEST, new}
    assert Lake.at(target).read(MANIFEST) == b"second"
    Lake.at(f"{target}/deep").write("mine", b"1")
    with pytest.raises(TargetNotEmpty, match="such as deep/mine"), open_destination(target, overwrite=True):
        pass
    assert Lake.at(f"{target}/deep").read("mine") == b"1"


def _import() -> None:
    bucket = Lake.at("s3://bucket/in")
    bucket.write("a.jsonl", b'{"n":1}\n{"n":2}\n')
    bucket.write("deep/b.jsonl", b'{"n":3}')
    bucket.write("_SUCCESS", b"")
    files = find_files(["s3://bucket/in/"])
    assert [file.name for file in files] == ["a.jsonl", "deep/b.jsonl"]
    assert find_files(["s3://bucket/in/a.jsonl"])[0].path == files[0].path
    with pytest.raises(NothingToImport):
        find_files(["s3://bucket/nothing"])
    shape = RowShape(format="jsonl", log="log")
    rows = [row for part in parts_of(files, "jsonl") for row in read_rows(part, shape)]
    assert [msgspec.json.decode(row.record.data)["n"] for row in rows if row.record] == [1, 2, 3]
    (part,) = parts_of(files[:1], "jsonl")
    bucket.write("a.jsonl", b'{"n":4}\n{"n":5}\n')
    with pytest.raises(UnreadableFile, match="changed"):
        list(read_rows(part, shape))
    with staging_place("s3://bucket/aside") as place:
        name, rows_there, _ = put_aside(place, enumerate([NewRecord("log", None, "k", None, None, b"1")] * 3))
        assert rows_there == 3
        assert sum(batch.num_rows for batch in staged_batches(place, name)) == 3
        assert put_aside(place, iter([])) == ("", 0, 0)
    assert Lake.at("s3://bucket/aside").names("") == {}

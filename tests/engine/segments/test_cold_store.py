from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from strandline.engine.errors import BadConfig, DamagedFile, MissingFile
from strandline.engine.segments import cold_tier as cold_module
from strandline.engine.segments.cold_tier import PART_BYTES, ColdStore, ObjectStoreCold

S3Options = dict[str, str | bool]


@pytest.fixture(params=["directory", "s3"])
def cold(request: pytest.FixtureRequest, tmp_path: Path) -> ColdStore:
    if request.param == "directory":
        return ObjectStoreCold((tmp_path / "cold").as_uri())
    return ObjectStoreCold(f"s3://cold/{uuid4().hex}", **request.getfixturevalue("s3"))


def test_what_is_put_can_be_read_in_ranges(cold: ColdStore) -> None:
    cold.put("00000001.arrow", b"0123456789")
    assert cold.size("00000001.arrow") == 10
    assert cold.read("00000001.arrow", 0, 10) == b"0123456789"
    assert cold.read("00000001.arrow", 3, 5) == b"34"
    assert cold.read("00000001.arrow", 9, 10) == b"9"
    assert cold.read("00000001.arrow", 4, 4) == b""


def test_a_large_file_is_put_in_parts(cold: ColdStore, tmp_path: Path) -> None:
    content = Random(1).randbytes(2 * PART_BYTES + 12345)
    (tmp_path / "large").write_bytes(content)
    cold.put("00000001.arrow", tmp_path / "large")
    assert cold.size("00000001.arrow") == len(content)
    assert cold.read("00000001.arrow", 0, len(content)) == content


def test_an_object_that_is_put_again_is_replaced(cold: ColdStore) -> None:
    cold.put("00000001.arrow", b"first")
    cold.put("00000001.arrow", b"the second")
    assert cold.read("00000001.arrow", 0, 10) == b"the second"
    assert cold.list() == ["00000001.arrow"]


def test_an_object_that_was_never_put_is_missing(cold: ColdStore) -> None:
    assert cold.size("00000001.arrow") is None
    with pytest.raises(MissingFile) as caught:
        cold.read("00000001.arrow", 0, 10)
    assert caught.value.path == f"{cold.describe()}/00000001.arrow"


@pytest.mark.parametrize(("start", "end"), [(5, 11), (10, 12), (100, 200)])
def test_an_object_that_is_too_short_is_damaged(cold: ColdStore, start: int, end: int) -> None:
    cold.put("00000001.arrow", b"0123456789")
    with pytest.raises(DamagedFile, match=r"00000001\.arrow is damaged: it ends at byte 10"):
        cold.read("00000001.arrow", start, end)


def test_the_list_is_sorted_and_complete(cold: ColdStore) -> None:
    assert cold.list() == []
    for id in (3, 1, 2):
        cold.put(f"{id:08d}.arrow", b"x")
    assert cold.list() == ["00000001.arrow", "00000002.arrow", "00000003.arrow"]


def test_the_list_leaves_out_what_lies_deeper(cold: ColdStore) -> None:
    cold.put("00000001.arrow", b"x")
    cold.put("lake/00000002.arrow", b"x")
    assert cold.list() == ["00000001.arrow"]


def test_a_deleted_object_is_gone_and_may_be_deleted_again(cold: ColdStore) -> None:
    cold.put("00000001.arrow", b"x")
    cold.delete("00000001.arrow")
    cold.delete("00000001.arrow")
    assert cold.size("00000001.arrow") is None
    assert cold.list() == []


def test_a_plain_path_and_its_url_are_the_same_place(tmp_path: Path) -> None:
    directory = tmp_path / "with a space" / "and %20"
    ObjectStoreCold(str(directory)).put("a", b"hello")
    assert ObjectStoreCold(directory.as_uri()).read("a", 0, 5) == b"hello"
    assert (directory / "a").read_bytes() == b"hello"


def test_a_put_to_a_directory_is_flushed_with_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = ObjectStoreCold(str(tmp_path / "cold"))
    flushed: list[str] = []
    fsync = os.fsync

    def recorded(fd: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", recorded)
    cold.put("a", b"hello")
    assert flushed == [str(tmp_path / "cold" / "a"), str(tmp_path / "cold")]


def test_what_an_interrupted_put_left_in_a_directory_goes_with_the_next_put(tmp_path: Path) -> None:
    cold = ObjectStoreCold(str(tmp_path))
    (tmp_path / "00000001.arrow#1").write_bytes(b"hal")
    cold.put("00000001.arrow", b"half")
    assert os.listdir(tmp_path) == ["00000001.arrow"]


def test_what_an_interrupted_put_left_in_a_directory_goes_with_a_delete(tmp_path: Path) -> None:
    cold = ObjectStoreCold(str(tmp_path))
    (tmp_path / "00000001.arrow#1").write_bytes(b"hal")
    assert cold.list() == ["00000001.arrow"]
    assert cold.size("00000001.arrow") is None
    cold.delete("00000001.arrow")
    assert cold.list() == []
    assert os.listdir(tmp_path) == []


def test_an_error_of_the_system_keeps_its_number_and_tells_the_object(tmp_path: Path) -> None:
    cold = ObjectStoreCold(str(tmp_path / "cold"))
    (tmp_path / "cold").rmdir()
    (tmp_path / "cold").write_bytes(b"not a directory")
    with pytest.raises(OSError, match="00000001") as caught:
        cold.put("00000001.arrow", b"x")
    assert caught.value.errno == errno.ENOTDIR
    assert caught.value.filename == f"{tmp_path}/cold/00000001.arrow"


def test_a_bucket_that_does_not_exist_is_not_taken_for_a_missing_object(s3: S3Options) -> None:
    cold = ObjectStoreCold("s3://nowhere/prefix", **s3)
    for attempt in (
        lambda: cold.read("00000001.arrow", 0, 10),
        lambda: cold.put("00000001.arrow", b"x"),
        cold.list,
    ):
        with pytest.raises(OSError, match="NoSuchBucket"):
            attempt()


def test_a_store_that_cannot_be_reached_is_an_os_error(s3: S3Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_module, "RETRY", {"max_retries": 0})
    cold = ObjectStoreCold("s3://cold/prefix", **{**s3, "endpoint": "http://127.0.0.1:1"})
    with pytest.raises(OSError, match=r"s3://cold/prefix/00000001\.arrow"):
        cold.read("00000001.arrow", 0, 10)


def test_the_environment_gives_what_the_options_do_not(s3: S3Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(s3["endpoint"]))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    url = f"s3://cold/{uuid4().hex}"
    ObjectStoreCold(url).put("a", b"hello")
    assert ObjectStoreCold(url, **s3).read("a", 0, 5) == b"hello"


def test_a_url_or_an_option_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="gopher"):
        ObjectStoreCold("gopher://hole/prefix")
    with pytest.raises(BadConfig, match="colour"):
        ObjectStoreCold("s3://cold/prefix", colour="red")
    with pytest.raises(BadConfig, match="region"):
        ObjectStoreCold(str(tmp_path), region="eu-central-1")

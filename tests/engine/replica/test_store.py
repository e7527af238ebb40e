from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from bench.minio import BUCKET, MinioServer
from strandline.engine.errors import BadConfig
from strandline.engine.replica.store import ObjectStoreReplica, ReplicaStore, StoredObject
from strandline.engine.segments.cold_tier import PART_BYTES


@pytest.fixture(params=["directory", "s3", "minio"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ReplicaStore:
    if request.param == "directory":
        return ObjectStoreReplica((tmp_path / "replica").as_uri())
    if request.param == "minio":
        return ObjectStoreReplica(f"s3://{BUCKET}/{uuid4().hex}", **request.getfixturevalue("minio").options)
    return ObjectStoreReplica(f"s3://cold/{uuid4().hex}/", **request.getfixturevalue("s3"))


def test_an_object_is_created_once(store: ReplicaStore) -> None:
    assert store.create("chunks/1", b"first")
    assert not store.create("chunks/1", b"second")
    assert store.read("chunks/1") == b"first"


def test_of_many_that_create_an_object_one_succeeds(store: ReplicaStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        for name in (f"chunks/{number}" for number in range(20)):
            created = list(threads.map(lambda n, name=name: store.create(name, b"%d" % n), range(16)))
            assert sum(created) == 1
            assert store.read(name) == b"%d" % created.index(True)


def test_an_object_can_be_created_again_after_it_was_removed(store: ReplicaStore) -> None:
    store.create("a/1", b"first")
    store.delete("a/1")
    assert store.read("a/1") is None
    assert store.create("a/1", b"second")


def test_an_object_that_is_put_again_is_replaced(store: ReplicaStore, tmp_path: Path) -> None:
    store.put("leader", b"first")
    store.put("leader", b"second")
    assert store.read("leader") == b"second"
    (tmp_path / "file").write_bytes(b"third")
    store.put("leader", tmp_path / "file")
    assert store.read("leader") == b"third"


def test_objects_are_listed_in_order_after_a_name(store: ReplicaStore) -> None:
    for number in (3, 1, 12, 2):
        store.create(f"chunks/{number:04d}", b"x" * number)
    store.put("chunksother/0001", b"")
    store.put("leader", b"")
    assert store.list("chunks") == [StoredObject(f"chunks/{n:04d}", n) for n in (1, 2, 3, 12)]
    assert store.list("chunks", "chunks/0002") == [StoredObject(f"chunks/{n:04d}", n) for n in (3, 12)]
    assert store.list("chunks", "chunks/0012") == []
    assert store.list("nothing") == []


def test_more_objects_than_one_answer_holds_are_listed(store: ReplicaStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: store.create(f"chunks/{n:04d}", b""), range(1100)))
    assert [each.name for each in store.list("chunks")] == [f"chunks/{n:04d}" for n in range(1100)]
    assert len(store.list("chunks", "chunks/0049")) == 1050


def test_a_large_object_is_fetched_into_a_file(store: ReplicaStore, tmp_path: Path) -> None:
    content = Random(1).randbytes(PART_BYTES + 12345)
    (tmp_path / "large").write_bytes(content)
    store.put("segments/1", tmp_path / "large")
    assert store.fetch("segments/1", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == content


def test_an_object_that_does_not_exist(store: ReplicaStore, tmp_path: Path) -> None:
    assert store.read("chunks/1") is None
    assert not store.fetch("chunks/1", tmp_path / "fetched")
    store.delete("chunks/1")


def test_a_store_that_cannot_be_reached_is_an_error(s3: dict[str, str | bool], tmp_path: Path) -> None:
    store = ObjectStoreReplica("s3://cold/x", **{**s3, "endpoint": "http://127.0.0.1:1"})
    for act in (
        lambda: store.create("a", b""),
        lambda: store.put("a", b""),
        lambda: store.read("a"),
        lambda: store.list("a"),
        lambda: store.delete("a"),
        lambda: store.fetch("a", tmp_path / "a"),
    ):
        with pytest.raises(OSError) as caught:
            act()
        assert not isinstance(caught.value, (FileNotFoundError, FileExistsError))
        assert caught.value.filename == "s3://cold/x/a"


def test_a_missing_bucket_is_an_error_and_not_an_empty_store(s3: dict[str, str | bool], minio: MinioServer) -> None:
    for options in (s3, minio.options):
        store = ObjectStoreReplica("s3://missing/x", **options)
        with pytest.raises(OSError, match="NoSuchBucket") as caught:
            store.read("a")
        assert not isinstance(caught.value, FileNotFoundError)


def test_the_location_is_described_without_credentials(store: ReplicaStore) -> None:
    assert "secret" not in store.describe()
    assert not store.describe().endswith("/")


def test_what_no_store_understands_is_refused(tmp_path: Path) -> None:
    for url in ("ftp://host/x", "s3://"):
        with pytest.raises(BadConfig):
            ObjectStoreReplica(url)
    with pytest.raises(BadConfig, match="a replica in a directory has no options"):
        ObjectStoreReplica(str(tmp_path / "replica"), endpoint="http://127.0.0.1:1")


def test_large_objects_are_read_in_parts(store: ReplicaStore, tmp_path: Path) -> None:
    data = Random(1).randbytes(2 * PART_BYTES + 7)
    for size in (1, PART_BYTES, PART_BYTES + 1, len(data)):
        store.put("segments/1", data[:size])
        assert store.read("segments/1") == data[:size]
        assert store.fetch("segments/1", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data[:size]


def test_errors_keep_places_and_secrets_to_the_log() -> None:
    store = ObjectStoreReplica("s3://user:secret@bucket/p?x=secret", endpoint="http://127.0.0.1:9", allow_http=True)
    assert store.describe() == "s3://bucket/p"
    with pytest.raises(OSError, match="s3://bucket/p/leader: ") as caught:
        store.read("leader")
    assert caught.value.strerror == "the object store failed"


def test_a_directory_that_is_only_looked_at_stays_as_it_is(tmp_path: Path) -> None:
    store = ObjectStoreReplica(str(tmp_path))
    assert store.read("leader") is None
    assert store.list("chunks") == []
    assert list(tmp_path.iterdir()) == []
    assert store.create("chunks/1", b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["chunks"]


def test_a_directory_that_was_removed_is_not_an_empty_store(tmp_path: Path) -> None:
    store = ObjectStoreReplica(str(tmp_path / "replica"))
    store.put("chunks/1", b"x")
    shutil.rmtree(tmp_path / "replica")
    for request in (
        lambda: store.read("chunks/1"),
        lambda: store.read("chunks/2"),
        lambda: store.create("chunks/2", b"y"),
        lambda: store.put("leader", b"z"),
    ):
        with pytest.raises(OSError, match="was removed"):
            request()
    assert not (tmp_path / "replica").exists()

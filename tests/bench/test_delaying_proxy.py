from __future__ import annotations

import time

from bench.delaying_proxy import delaying_proxy
from bench.minio import BUCKET, MinioServer
from bench.peers import free_port
from strandline.engine.replica.store import ObjectStoreReplica


def test_requests_are_delayed_and_counted(minio: MinioServer) -> None:
    with delaying_proxy(free_port(), int(minio.url.rpartition(":")[2])) as proxy:
        store = ObjectStoreReplica(f"s3://{BUCKET}/proxied", **{**minio.options, "endpoint": proxy.url})
        assert store.create("a", b"x" * 100_000)
        assert not store.create("a", b"y")
        assert store.read("a") == b"x" * 100_000
        assert [each.name for each in store.list("")] == ["a"]
        assert proxy.counts() == {"PUT": 2, "GET": 2}
        proxy.delay(100)
        began = time.perf_counter()
        store.delete("a")
        assert time.perf_counter() - began >= 0.1
        assert store.read("a") is None
        assert proxy.counts() == {"PUT": 2, "GET": 3, "POST": 1}, "the library deletes with POST"

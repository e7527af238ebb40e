from __future__ import annotations

import tracemalloc

import pytest

from strandline.server import fast_lane
from strandline.server.fast_lane import Heads
from strandline.server.gate import Gate, Status
from strandline.service.access import Keys
from strandline.service.http import Reply, Route
from strandline.service.limits import Limits
from strandline.service.workers import Workers

ROUTE = Route(method="POST", path="/v0/topics/{topic}", handler=lambda _: Reply(b""), fast=True, body="required")


@pytest.mark.parametrize("keys", [None, "secret:rw"])
@pytest.mark.parametrize("path", ["/v0/topics/t%d", "/v0/elsewhere/%d"])
def test_remembered_heads_stay_within_their_budget(
    monkeypatch: pytest.MonkeyPatch, keys: str | None, path: str
) -> None:
    """Heads with as many small headers as fit take far more memory than they have bytes."""
    budget = 2 << 20
    monkeypatch.setattr(fast_lane, "MAX_HEADS_BYTES", budget)
    gate = Gate(
        [ROUTE],
        keys=None if keys is None else Keys.parse(keys),
        limits=Limits(),
        status=Status(ready=True),
        workers=Workers(),
        max_body_bytes=1 << 20,
    )
    heads = Heads(gate)
    headers = b"content-type: application/json\r\n" + b"".join(b"h%d:%d\r\n" % (n, n) for n in range(330))
    tracemalloc.start()
    try:
        for number in range(300):
            raw = b"POST " + (path % number).encode() + b" HTTP/1.1\r\nhost: localhost\r\n" + headers + b"\r\n"
            assert len(raw) <= fast_lane.MAX_HEAD_BYTES
            heads.get(raw)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert heads.known
    assert size < 1.5 * budget
    assert heads.get(raw) is heads.get(raw), "the last one is remembered"

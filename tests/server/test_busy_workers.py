"""Requests that find too much work waiting for threads: every protocol answers 429 and says when to retry."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import httpx
import pytest

from strandline.server.application import Application
from strandline.server.settings import Settings, StorageSettings

#: Too large to be decompressed on the event loop.
BODY = gzip.compress(b"[%b]" % b",".join(b"%d" % number for number in range(100_000)))


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/v0/topics/a", "application/json"),
        ("/v1/stream/a", "application/json"),
        ("/arrow/records/a?create=true", "application/vnd.apache.arrow.stream"),
    ],
)
def test_a_request_that_finds_too_much_work_waiting_is_told_when_to_retry(
    tmp_path: Path, path: str, content_type: str
) -> None:
    async def test() -> None:
        application = Application(Settings(storage=StorageSettings(data_dir=str(tmp_path / "data"))))
        app = application.app
        async with app.router.lifespan_context(app):
            while not application.status.ready:
                await asyncio.sleep(0.001)
            application.workers.normal.max_waiting = 0
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                headers = {"content-encoding": "gzip", "content-type": content_type}
                response = await client.post(path, content=BODY, headers=headers)
            assert response.status_code == 429, response.text
            assert int(response.headers["retry-after"]) >= 1
            assert application.workers.normal.refused == 1

    asyncio.run(test())

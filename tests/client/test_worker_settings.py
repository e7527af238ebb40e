"""What a worker goes by, and what it does with jobs that come when it wants none any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.server_process import ServerProcess

from strandline.client import AsyncClient, Busy, Client, Forbidden, Job, ServerFault, Unreachable
from strandline.client.queue_calls import LONGEST_DELAY_MS, is_passing, usual_delay_ms


def job(deliveries: int) -> Job[None]:
    return Job(seq=1, lease_id="lease_1", deadline=0, ts=0, deliveries=deliveries, data=None)


def test_a_job_is_kept_back_longer_with_every_failure() -> None:
    for deliveries, whole in ((1, 1000), (2, 2000), (5, 16_000), (100, LONGEST_DELAY_MS)):
        assert whole / 2 <= usual_delay_ms(job(deliveries)) <= whole


def test_a_worker_waits_for_what_passes_and_for_nothing_else() -> None:
    assert is_passing(Unreachable("cut", sent=True))
    assert is_passing(Busy(503, "not_ready", "soon"))
    assert is_passing(ServerFault(502, "", "a proxy"))
    assert not is_passing(ServerFault(500, "internal", "a bug"))
    assert not is_passing(Forbidden(403, "forbidden", "no"))


class Watched(httpx.HTTPTransport):
    """Tells when jobs have been claimed, before anybody else knows of it."""

    claimed: Callable[[], None]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if request.url.path.endswith("/claim"):
            self.claimed()
        return response


class AsyncWatched(httpx.AsyncHTTPTransport):
    claimed: Callable[[], None]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if request.url.path.endswith("/claim"):
            self.claimed()
        return response


@pytest.mark.parametrize("kind", ["threads", "event loop"])
def test_jobs_that_are_claimed_while_the_worker_stops_are_done(server: ServerProcess, name: str, kind: str) -> None:
    done: list[Any] = []
    with Client(server.url) as client:
        queue = client.queue(name)
        # A job that is returned would be dropped.
        queue.configure(lease_ms=3_600_000, max_deliveries=1)
        queue.enqueue_many(range(5))

        if kind == "threads":
            transport = Watched(verify=False)
            with Client(server.url, transport=transport) as own:
                worker = own.queue(name).worker(lambda job: done.append(job.data), concurrency=3)
                transport.claimed = worker.stop
                worker.run()
        else:
            asyncio.run(late(server.url, name, done))

        counters = queue.counters()
        assert (counters.dropped, counters.ready, counters.in_flight) == (0, 2, 0)
        assert sorted(done) == [0, 1, 2]
        assert [(job.data, job.deliveries) for job in queue.claim(5)] == [(3, 1), (4, 1)]


async def late(url: str, name: str, done: list[Any]) -> None:
    transport = AsyncWatched(verify=False)
    async with AsyncClient(url, transport=transport) as client:
        worker = client.queue(name).worker(lambda job: done.append(job.data), concurrency=3)
        transport.claimed = worker.stop
        await worker.run()

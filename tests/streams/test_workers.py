"""Questions that take long are asked on other threads, a few at a time, and not for ever."""

from __future__ import annotations

import asyncio
import threading
from time import perf_counter

import pytest

from strandline.protocols.http import Refusal
from strandline.protocols.streams.workers import THREADS, Workers

PATIENCE_SECONDS = 600.0


def test_what_the_work_gives_or_raises_is_the_answer() -> None:
    async def ask() -> None:
        workers = Workers(asyncio.get_running_loop())
        assert await workers.run(lambda: 5, perf_counter() + PATIENCE_SECONDS) == 5
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0, perf_counter() + PATIENCE_SECONDS)
        assert (workers.active, workers.queued) == (0, 0)
        workers.stop()

    asyncio.run(ask())


def test_whoever_waits_too_long_is_refused_and_work_that_nobody_began_is_never_done() -> None:
    async def ask() -> None:
        workers, gate, done = Workers(asyncio.get_running_loop()), threading.Event(), []
        busy = [asyncio.create_task(workers.run(gate.wait, perf_counter() + PATIENCE_SECONDS)) for _ in range(THREADS)]
        await asyncio.sleep(0)
        assert workers.active == THREADS
        with pytest.raises(Refusal) as refused:
            await workers.run(lambda: done.append("late"), perf_counter())
        assert refused.value.status == 408
        assert workers.queued == 0
        gate.set()
        assert await asyncio.gather(*busy) == [True] * THREADS
        assert await workers.run(lambda: 1, perf_counter() + PATIENCE_SECONDS) == 1
        assert done == []
        workers.stop()

    asyncio.run(ask())

from __future__ import annotations

import asyncio

from strandline.delivery.watch import Alarms
from strandline.delivery.watch.alarms import RETRY_SECONDS


class Bell:
    def __init__(self, every: float | None = None) -> None:
        self.rings_at: float | None = None
        self.every = every
        self.rung: list[float] = []

    def ring(self, now: float) -> float | None:
        self.rung.append(now)
        return None if self.every is None else now + self.every


def test_everybody_is_called_when_it_is_time_and_not_before() -> None:
    loop = asyncio.new_event_loop()
    alarms = Alarms(loop)
    early, late = Bell(), Bell()
    start = loop.time()
    alarms.set(late, start + 200)
    alarms.set(early, start + 100)
    alarms.ring(start + 99)
    assert early.rung == []
    alarms.ring(start + 100)
    assert early.rung == [start + 100]
    assert late.rung == []
    alarms.ring(start + 300)
    assert early.rung == [start + 100]
    assert late.rung == [start + 300]
    alarms.stop()
    loop.close()


def test_another_time_replaces_the_first_and_a_cancelled_one_is_passed_over() -> None:
    loop = asyncio.new_event_loop()
    alarms = Alarms(loop)
    moved, cancelled = Bell(), Bell()
    start = loop.time()
    alarms.set(moved, start + 100)
    alarms.set(moved, start + 50)
    alarms.set(cancelled, start + 50)
    alarms.cancel(cancelled)
    alarms.ring(start + 60)
    alarms.ring(start + 200)
    assert moved.rung == [start + 60]
    assert cancelled.rung == []
    alarms.stop()
    loop.close()


def test_who_wants_to_be_called_again_is() -> None:
    loop = asyncio.new_event_loop()
    alarms = Alarms(loop)
    bell = Bell(every=10)
    start = loop.time()
    alarms.set(bell, start + 10)
    for passed in (10, 15, 20, 30):
        alarms.ring(start + passed)
    assert bell.rung == [start + 10, start + 20, start + 30]
    alarms.stop()
    loop.close()


def test_the_loop_rings_by_itself() -> None:
    async def run() -> Bell:
        loop = asyncio.get_running_loop()
        alarms, bell = Alarms(loop), Bell()
        alarms.set(Bell(), loop.time() + 1000)
        alarms.set(bell, loop.time())
        async with asyncio.timeout(10):
            while not bell.rung:
                await asyncio.sleep(0)
        alarms.stop()
        return bell

    assert len(asyncio.run(run()).rung) == 1


def test_one_that_fails_is_called_again_and_keeps_no_other_from_being_called() -> None:
    class Broken(Bell):
        def ring(self, now: float) -> float | None:
            super().ring(now)
            if len(self.rung) == 1:
                raise RuntimeError("a defect")
            return None

    loop = asyncio.new_event_loop()
    alarms = Alarms(loop)
    broken, other = Broken(), Bell()
    start = loop.time()
    alarms.set(broken, start + 10)
    alarms.set(other, start + 10)
    alarms.ring(start + 10)
    assert (len(broken.rung), len(other.rung)) == (1, 1)
    alarms.ring(start + 10 + RETRY_SECONDS)
    assert (len(broken.rung), len(other.rung)) == (2, 1)
    alarms.stop()
    loop.close()

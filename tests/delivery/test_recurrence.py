"""What the event loop repeats goes on after an error."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import cast

from support.manual_loop import HandTurnedLoop

from strandline.delivery.hub import Hub


def test_an_error_puts_the_next_attempt_off_and_nothing_else() -> None:
    loop = HandTurnedLoop()
    hub = Hub(lambda: int(loop.now_ms), cast(asyncio.AbstractEventLoop, loop))
    done: list[float] = []
    broken = True

    def act() -> None:
        done.append(loop.now_ms)
        if broken:
            raise RuntimeError("a defect")

    recurrence = hub.every(1.0, "work", act)
    loop.advance(1_000)
    assert [trouble.task for trouble in hub.health.troubles()] == ["work"]
    loop.advance(300_000)
    gaps = [later - earlier for earlier, later in pairwise(done)]
    assert gaps[:6] == [1000, 1000, 1000, 1000, 1600, 3200]
    assert gaps[-1] == 60_000
    broken = False
    loop.advance(60_000)
    assert hub.health.troubles() == []
    count = len(done)
    loop.advance(5_000)
    assert len(done) == count + 5
    recurrence.stop()
    loop.advance(5_000)
    assert len(done) == count + 5

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from support.invalidation_clients import NOW, Client, change

from strandline.delivery.hub import Hub
from strandline.delivery.invalidation.keys import ID_MASK, table_key
from strandline.delivery.invalidation.live import TEMPLATES_NOTE, LiveInvalidation, Lives
from strandline.delivery.invalidation.request import WaitRequest
from strandline.delivery.watch.alarms import Alarms
from strandline.engine import Batch, Engine, Log, ManualClock
from strandline.schema.profiles.touch_settings import TouchSettings


class Bed:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.hub = Hub(lambda: NOW)
        self.alarms = Alarms(self.hub.loop)
        self.log = engine.create("changes").wait()
        self.settings: TouchSettings | None = TouchSettings()
        self.published: list[list[dict[str, object]]] = []
        self.lives = Lives(self.hub, self.alarms, lambda log: self.settings, self.published.append)

    def live(self, log: Log | None = None) -> LiveInvalidation:
        live = self.lives.get(log or self.log)
        assert live is not None
        return live

    def wait(self, entity: str, timeout_ms: int = 60_000) -> Client:
        client, live = Client(), self.live()
        request = WaitRequest(frozenset([table_key(entity) & ID_MASK]), timeout_ms, coarse=True)
        client.answer = live.runtime.wait(request, "", None, client.tell)
        live.go_on()
        return client

    async def until(self, there: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not there():
                await asyncio.sleep(0.001)


def on_a_loop(path: Path, scenario: Callable[[Bed], Awaitable[None]]) -> None:
    engine = Engine.open(path, clock=ManualClock(NOW), background=False)

    async def run() -> None:
        bed = Bed(engine)
        try:
            await scenario(bed)
        finally:
            bed.lives.stop()
            bed.alarms.stop()

    try:
        asyncio.run(run())
    finally:
        engine.close()


def test_the_loop_tells_by_itself(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        touched, late = bed.wait("posts"), bed.wait("users", timeout_ms=1)
        bed.log.append(Batch.of(change("posts", "delete")))
        await bed.until(lambda: touched.verdict and late.verdict)
        assert (touched.verdict, late.verdict) == ("touched", "timeout")

    on_a_loop(tmp_path, scenario)


def test_records_that_are_not_in_memory_are_fetched(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        client, live = bed.wait("posts"), bed.live()
        bed.log.append(Batch([change("other", "delete")] * 700 + [change("posts", "delete")])).wait()
        bed.engine.seal()
        assert bed.log.read_resident() is None
        await bed.until(lambda: client.verdict)
        assert client.verdict == "touched"
        assert live.runtime.follower.rows == 701

    on_a_loop(tmp_path, scenario)


def test_what_cannot_be_read_may_have_been_anything(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        client = bed.wait("posts")
        bed.log.append(Batch.of(change("other", "delete"))).wait()
        bed.engine.seal()
        for path in tmp_path.rglob("*"):
            if path.is_file() and "segment" in str(path.relative_to(tmp_path)):
                path.unlink()
        await bed.until(lambda: client.verdict)
        assert client.verdict == "touched"

    on_a_loop(tmp_path, scenario)


def test_everybody_is_sent_away_when_the_log_goes_or_nobody_wants_it_followed(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        first = bed.wait("posts")
        bed.live()._persist([["posts", [["a", "string"]], 5, NOW]])
        bed.settings = None
        bed.log.append(Batch.of(b"{}"))
        await bed.until(lambda: first.verdict)
        assert (first.verdict, len(bed.lives)) == ("ended", 0)
        assert TEMPLATES_NOTE not in bed.log.notes
        bed.settings = TouchSettings()
        second = bed.wait("posts")
        bed.log.drop()
        await bed.until(lambda: second.verdict)
        assert (second.verdict, len(bed.lives)) == ("ended", 0)
        assert bed.lives.get(bed.log) is None

    on_a_loop(tmp_path, scenario)


def test_with_other_settings_it_begins_anew(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        before, client = bed.live(), bed.wait("posts")
        bed.settings = TouchSettings()
        assert bed.live() is before
        bed.settings = TouchSettings(coarse_interval_ms=5)
        after = bed.live()
        assert after.runtime.epoch != before.runtime.epoch
        assert client.verdict == "ended"

    on_a_loop(tmp_path, scenario)


def test_what_has_happened_is_published(tmp_path: Path) -> None:
    async def scenario(bed: Bed) -> None:
        client = bed.wait("posts")
        assert bed.published == [[]]
        bed.log.append(Batch.of(change("posts", "delete")))
        await bed.until(lambda: client.verdict)
        assert bed.lives.ring(100.0) == 110.0
        (tick,) = bed.published[1]
        assert tick == tick | {"type": "live.tick", "stream": "changes", "ts": NOW, "touchesTable": 1, "waitTouched": 1}
        bed.lives.ring(110.0)
        assert len(bed.published) == 2

    on_a_loop(tmp_path, scenario)

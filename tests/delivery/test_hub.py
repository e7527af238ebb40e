from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from strandline.delivery import hub as hub_module
from strandline.delivery.hub import Hub, Waiter
from strandline.engine import Batch, Config, Engine, Log
from strandline.engine.errors import LogFull

NOW = 1_700_000_000_000


class Noted(Waiter):
    """Takes down when it is woken, in a list that several may share."""

    def __init__(self, name: str, woken: list[str], urgency: int = 0) -> None:
        self.name = name
        self.woken = woken
        self.urgency = urgency

    def wake(self, log: Log) -> None:
        self.woken.append(self.name)

    def priority(self, now: int) -> int:
        return self.urgency


def with_hub(path: Path, test: Callable[[Hub, Engine], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        with Engine.open(path, background=False) as engine:
            await test(Hub(lambda: NOW), engine)

    asyncio.run(main())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def make(engine: Engine, name: str = "log", **config: Any) -> Log:
    return engine.create(name, Config(**config)).wait()


def test_a_burst_of_changes_is_one_wake_up(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        log, woken = make(engine), list[str]()
        hub.watch(log, Noted("a", woken))
        for _ in range(10):
            log.append(Batch.of(b"1"))
        assert woken == []
        await turns()
        assert woken == ["a"]
        log.append(Batch.of(b"1"))
        await turns()
        assert woken == ["a", "a"]

    with_hub(tmp_path, test)


def test_everybody_who_waits_for_a_log_is_woken_and_nobody_else(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        log, other, woken = make(engine), make(engine, "other"), list[str]()
        hub.watch(log, Noted("a", woken))
        hub.watch(log, Noted("b", woken))
        hub.watch(other, Noted("c", woken))
        log.append(Batch.of(b"1"))
        await turns()
        assert woken == ["a", "b"]

    with_hub(tmp_path, test)


def test_whoever_stops_waiting_is_not_woken_even_by_what_has_happened_before(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        log, woken = make(engine), list[str]()
        gone, stays = Noted("gone", woken), Noted("stays", woken)
        hub.watch(log, gone)
        hub.watch(log, stays)
        log.append(Batch.of(b"1"))
        hub.unwatch(log, gone)
        hub.unwatch(log, gone)
        await turns()
        assert woken == ["stays"]
        hub.unwatch(log, stays)
        log.append(Batch.of(b"1"))
        await turns()
        assert woken == ["stays"]
        assert len(hub.scheduler) == 0

    with_hub(tmp_path, test)


def test_a_change_on_another_thread_wakes_on_the_loop(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        log, threads = make(engine), list[int]()
        woken = asyncio.Event()

        class Here(Waiter):
            def wake(self, log: Log) -> None:
                threads.append(threading.get_ident())
                woken.set()

        hub.watch(log, Here())
        writer = threading.Thread(target=lambda: log.append(Batch.of(b"1")))
        writer.start()
        await asyncio.wait_for(woken.wait(), 10)
        writer.join()
        assert threads == [threading.get_ident()]

    with_hub(tmp_path, test)


def test_the_more_urgent_log_is_delivered_first(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        woken: list[str] = []
        for name, urgency in (("idle", -10), ("usual", 0), ("urgent", 900)):
            log = make(engine, name)
            hub.watch(log, Noted(name, woken, urgency))
            log.append(Batch.of(b"1"))
        await turns()
        assert woken == ["urgent", "usual", "idle"]

    with_hub(tmp_path, test)


def test_the_most_urgent_waiter_decides_for_its_log(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        woken: list[str] = []
        first, second = make(engine, "first"), make(engine, "second")
        hub.watch(first, Noted("first", woken, 300))
        hub.watch(second, Noted("second a", woken, -5))
        hub.watch(second, Noted("second b", woken, 800))
        first.append(Batch.of(b"1"))
        second.append(Batch.of(b"1"))
        await turns()
        assert woken == ["second a", "second b", "first"]

    with_hub(tmp_path, test)


def test_a_crowd_is_woken_in_slices_with_room_for_others_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "SLICE_SECONDS", -1.0)

    async def test(hub: Hub, engine: Engine) -> None:
        log, woken = make(engine), list[str]()
        for number in range(5):
            hub.watch(log, Noted(str(number), woken))
        log.append(Batch.of(b"1"))
        seen: list[int] = []
        for _ in range(8):
            await asyncio.sleep(0)
            seen.append(len(woken))
        assert woken == ["0", "1", "2", "3", "4"]
        assert {1, 2, 3, 4, 5} <= set(seen)

    with_hub(tmp_path, test)


def test_a_task_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        problems: list[str] = []
        hub.loop.set_exception_handler(lambda _, context: problems.append(str(context["exception"])))
        woken: list[str] = []

        class Broken:
            def priority(self, now: int) -> int:
                return 0

            def run(self) -> None:
                raise RuntimeError("broken")

        hub.submit(Broken())
        log = make(engine, "b")
        hub.watch(log, Noted("b", woken))
        log.append(Batch.of(b"1"))
        await turns()
        assert (woken, problems) == (["b"], ["broken"])

    with_hub(tmp_path, test)


def test_what_is_posted_is_done_on_the_loop_in_order_and_once(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        done: list[int] = []
        all_done = asyncio.Event()
        for number in range(3):
            hub.post(lambda number=number: done.append(number))  # type: ignore[misc]
        assert done == []
        threads = [threading.Thread(target=lambda: hub.post(lambda: done.append(9))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        hub.post(all_done.set)
        await asyncio.wait_for(all_done.wait(), 10)
        assert done == [0, 1, 2, 9, 9, 9, 9]

    with_hub(tmp_path, test)


def test_a_mail_that_fails_leaves_the_rest_to_be_done(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        hub.loop.set_exception_handler(lambda *_: None)
        done: list[int] = []

        def broken() -> None:
            raise RuntimeError("broken")

        hub.post(broken)
        hub.post(lambda: done.append(1))
        await turns()
        assert done == [1]

    with_hub(tmp_path, test)


def test_a_commit_that_is_done_gives_what_is_made_of_it(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        log = make(engine, durability="fsync")
        commit = log.append(Batch([b"1", b"2"]))
        future = hub.when_done(commit, lambda appended: appended.last)
        assert await asyncio.wait_for(future, 10) == 2

        def refuse(_: object) -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await asyncio.wait_for(hub.when_done(log.append(Batch.of(b"3")), refuse), 10)

    with_hub(tmp_path, test)


def test_a_log_that_is_removed_wakes_those_who_wait_for_it(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        log, woken = make(engine, discard="reject", cap_records=1), list[str]()
        waiter = Noted("a", woken)
        hub.watch(log, waiter)
        log.append(Batch.of(b"1"))
        await turns()
        with pytest.raises(LogFull):
            log.append(Batch.of(b"2"))
        log.drop()
        await turns()
        assert woken == ["a", "a"]
        assert log.dropped
        hub.unwatch(log, waiter)

    with_hub(tmp_path, test)


def test_those_who_wait_can_be_woken_though_nothing_has_changed(tmp_path: Path) -> None:
    async def test(hub: Hub, engine: Engine) -> None:
        log, other, woken = make(engine), make(engine, "other"), list[str]()
        hub.watch(log, Noted("a", woken))
        hub.nudge(log)
        hub.nudge(other)
        await turns()
        assert woken == ["a"]

    with_hub(tmp_path, test)


def test_a_waiter_that_fails_keeps_no_other_from_being_woken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Noted):
        def wake(self, log: Log) -> None:
            raise RuntimeError("a defect of the waiter")

    async def test(hub: Hub, engine: Engine) -> None:
        log, woken = make(engine), list[str]()
        hub.watch(log, Broken("broken", woken))
        hub.watch(log, Noted("a", woken))
        log.append(Batch.of(b"1"))
        await turns()
        assert woken == ["a"]

    with_hub(tmp_path, test)
    assert "a defect of the waiter" in caplog.text

"""Work on threads: how much at a time, what waits, what is refused, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from time import perf_counter

import pytest

from strandline.engine.errors import SOON_MS, EngineClosed
from strandline.service.problems import Throttled
from strandline.service.workers import WorkClass, Workers

PATIENCE_SECONDS = 30.0


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.close()


class Blocked:
    """Functions that keep their threads until ``release``."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self._begun = threading.Semaphore(0)

    def __call__(self) -> bool:
        self._begun.release()
        return self._go.wait(PATIENCE_SECONDS)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self._begun.acquire(timeout=PATIENCE_SECONDS)

    def release(self) -> None:
        self._go.set()


def fill(work_class: WorkClass, more: int = 0) -> Blocked:
    """Take all threads of the class, and have ``more`` wait for them."""
    blocked = Blocked()
    for _ in range(work_class.threads + more):
        work_class.submit(blocked)
    blocked.wait_for(work_class.threads)
    return blocked


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))  # type: ignore[arg-type]


def test_the_result_of_the_work_or_its_error_is_the_answer(workers: Workers) -> None:
    async def test() -> None:
        assert await workers.normal.run(divmod, 7, 2) == (3, 1)
        assert await workers.normal.run(dict, a=1) == {"a": 1}
        with pytest.raises(ZeroDivisionError):
            await workers.normal.run(divmod, 7, 0)

    run(test)


def test_a_class_uses_its_threads_and_no_more(workers: Workers) -> None:
    blocked = fill(workers.bulk, more=3)
    assert (workers.bulk.active, workers.bulk.waiting) == (workers.bulk.threads, 3)
    blocked.release()
    blocked.wait_for(3)


@pytest.mark.parametrize("full", ["bulk", "callbacks", "lake", "lookups", "normal"])
def test_a_full_class_delays_no_other(workers: Workers, full: str) -> None:
    blocked = fill(getattr(workers, full), more=5)

    async def test() -> None:
        for each in workers.classes:
            if each.name != full:
                assert await each.run(lambda: 5) == 5
        assert await workers.in_order("new").run(lambda: 6) == 6

    run(test)
    blocked.release()


def test_work_in_order_is_done_one_after_the_other(workers: Workers) -> None:
    lane, done = workers.in_order("lane"), []

    def work(number: int) -> int:
        assert lane.active == 1
        done.append(number)
        return number

    futures = [lane.submit(work, number) for number in range(200)]
    assert [future.result(PATIENCE_SECONDS) for future in futures] == list(range(200))
    assert done == list(range(200))


def test_a_request_is_refused_when_too_many_wait(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.normal, "max_waiting", 2)
    blocked = fill(workers.normal, more=2)

    async def test() -> None:
        with pytest.raises(Throttled) as refused:
            await workers.normal.run(lambda: 1)
        assert refused.value.retry_after_ms == SOON_MS
        assert workers.normal.refused == 1
        # The server's own work has a bound elsewhere.
        internal = workers.normal.submit(lambda: 2)
        blocked.release()
        assert await asyncio.wrap_future(internal) == 2
        assert await workers.normal.run(lambda: 3) == 3

    run(test)


def test_work_that_has_not_begun_in_time_is_never_done(workers: Workers) -> None:
    blocked, done = fill(workers.bulk), []

    async def test() -> None:
        with pytest.raises(TimeoutError):
            await workers.bulk.run(done.append, "late", until=perf_counter())
        assert workers.bulk.waiting == 0
        blocked.release()
        assert await workers.bulk.run(lambda: 1, until=perf_counter() + PATIENCE_SECONDS) == 1
        assert done == []

    run(test)


def test_work_is_dropped_when_the_request_is_cancelled(workers: Workers) -> None:
    blocked, done = fill(workers.normal), []

    async def test() -> None:
        task = asyncio.ensure_future(workers.normal.run(done.append, "unwanted"))
        while not workers.normal.waiting:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert workers.normal.waiting == 0
        blocked.release()
        assert await workers.normal.run(lambda: 1) == 1
        assert done == []

    run(test)


def test_closing_lets_work_that_has_begun_finish_and_fails_the_rest() -> None:
    workers = Workers()
    blocked = Blocked()
    begun = [workers.normal.submit(blocked) for _ in range(workers.normal.threads)]
    waiting = workers.normal.submit(lambda: 1)
    blocked.wait_for(workers.normal.threads)
    closing = threading.Thread(target=workers.close)
    closing.start()
    with pytest.raises(EngineClosed):
        waiting.result(PATIENCE_SECONDS)
    with pytest.raises(EngineClosed):
        workers.normal.submit(lambda: 1)
    assert closing.is_alive()
    blocked.release()
    closing.join(PATIENCE_SECONDS)
    assert not closing.is_alive()
    assert all(future.result(0) for future in begun)


def test_closing_does_not_wait_for_functions_of_applications() -> None:
    workers = Workers()
    blocked = fill(workers.callbacks)
    workers.close()
    blocked.release()


def test_many_threads_submit_at_the_same_time(workers: Workers) -> None:
    counted, lock = [0], threading.Lock()

    def count() -> None:
        with lock:
            counted[0] += 1

    def submit() -> None:
        for future in [work_class.submit(count) for work_class in workers.classes for _ in range(100)]:
            future.result(PATIENCE_SECONDS)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert counted[0] == 4 * 100 * len(workers.classes)


def test_without_a_thread_the_caller_is_told(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            workers.normal.submit(lambda: 1)
    assert workers.normal.waiting == 0
    assert workers.normal.submit(lambda: 2).result(PATIENCE_SECONDS) == 2


class Held:
    """Something large."""


def fail(held: Held) -> None:
    raise ValueError(f"{held} is not valid")


def test_what_failed_work_held_is_free_at_once(workers: Workers) -> None:
    async def test() -> None:
        for until in (None, perf_counter() + PATIENCE_SECONDS):
            held = Held()
            gone = weakref.ref(held)
            with pytest.raises(ValueError, match="not valid"):
                await workers.normal.run(fail, held, until=until)
            del held
            while gone() is not None:  # until the thread has come back from its work
                await asyncio.sleep(0)

    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()

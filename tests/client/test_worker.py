"""Workers: jobs done by a function, kept by heartbeats, finished when the process is asked to end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from support.either_client import Run, Threaded
from support.server_process import ServerProcess
from support.topics_client import eventually

from strandline.client import Client, JobFailed, JobFailure, NotFound, Patience
from strandline.client.failures import summary_of

PATIENCE = Patience(30, first_wait=0.001, longest_wait=0.02)


def http_get(url: str, path: str) -> bytes:
    with urlopen(url + path, timeout=30) as answer:
        content: bytes = answer.read()
        return content


async def until(look: Any) -> None:
    await asyncio.to_thread(eventually, look)


def test_all_jobs_are_done_once(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure()
        await queue.enqueue_many(range(50))
        done: list[int] = []
        worker = queue.worker(lambda job: done.append(job.data), concurrency=4, poll_seconds=0.01)
        await worker.run(until_empty=True)
        assert sorted(done) == list(range(50))
        assert worker.done == 50
        assert (await queue.counters()).ready == 0

    run(scenario)


@pytest.mark.parametrize("jitter_ms", [0, 1])
def test_a_worker_claims_its_next_job_with_an_ack(run: Run, server: ServerProcess, name: str, jitter_ms: int) -> None:
    """Unless the queue collects claims: then they wait, and the ack would wait with them."""

    def answers(endpoint: str) -> int:
        metrics = http_get(server.url, "/v0/metrics").decode()
        found = re.search(rf"requests_total{{[^}}]*/v0/topics/{{topic}}/{endpoint}[^}}]*200\"}} (\d+)", metrics)
        return 0 if found is None else int(found[1])

    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(claim_jitter_ms=jitter_ms)
        await queue.enqueue_many(range(20))
        done: list[int] = []
        before = [await asyncio.to_thread(answers, endpoint) for endpoint in ("claim", "ack")]
        worker = queue.worker(lambda job: done.append(job.data), concurrency=1, poll_seconds=0.01)
        await worker.run(until_empty=True)
        assert done == list(range(20))
        assert worker.done == 20
        after = [await asyncio.to_thread(answers, endpoint) for endpoint in ("claim", "ack")]
        claimed, acked = (now - then for now, then in zip(after, before, strict=True))
        assert acked == 20
        assert claimed <= 3 if jitter_ms == 0 else claimed >= 20

    run(scenario)


def test_a_coroutine_function_is_fine_on_an_event_loop_and_refused_by_threads(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure()
        await queue.enqueue("one")
        done: list[str] = []

        async def work(job: Any) -> None:
            await asyncio.sleep(0)
            done.append(job.data)

        worker = queue.worker(poll_seconds=0.01)
        if isinstance(client, Threaded):
            with pytest.raises(TypeError, match="AsyncClient"):
                worker.handler(work)
            return
        worker.handler(work)
        await worker.run(until_empty=True)
        assert done == ["one"]

    run(scenario)


def test_so_many_jobs_are_under_way_at_a_time(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure()
        await queue.enqueue_many(range(24))
        together = threading.Barrier(12, timeout=30)

        def work(job: Any) -> None:
            # Passes only if twelve are here at once.
            together.wait()

        await queue.worker(work, concurrency=12, poll_seconds=0.01).run(until_empty=True)
        assert not together.broken

    run(scenario)


def test_a_job_that_fails_is_tried_again_and_ends_as_a_dead_letter(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=3, dead_letter=f"{name}:dead")
        await queue.enqueue_many(["good", "poison"])
        seen: list[tuple[str, int]] = []

        def work(job: Any) -> None:
            seen.append((job.data, job.deliveries))
            if job.data == "poison":
                raise ValueError("no")

        worker = queue.worker(work, poll_seconds=0.01, delay_ms=lambda job, error: 0)
        await worker.run(until_empty=True)
        assert sorted(seen) == [("good", 1), ("poison", 1), ("poison", 2), ("poison", 3)]
        assert (worker.done, worker.failed) == (1, 3)
        assert [record.data async for record in client.topic(f"{name}:dead").read()] == ["poison"]

    run(scenario)


async def work_off(queue: Any, work: Any, **options: Any) -> Any:
    """Processes all jobs, and returns the worker."""
    worker = queue.worker(work, poll_seconds=0.01, **options)
    await worker.run(until_empty=True)
    return worker


async def dead_letters(queue: Any) -> list[Any]:
    return [letter async for letter in queue.dead_letters()]


def test_the_exception_of_a_function_comes_with_the_next_delivery(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name, node="mailer")
        await queue.configure(max_deliveries=2, dead_letter=f"{name}:dead", retry_delay_ms=1)
        await queue.enqueue("job", priority=3)
        seen: list[Any] = []

        def work(job: Any) -> None:
            seen.append(job.failures)
            raise ValueError("not an image")

        await work_off(queue, work)
        assert seen[0] == []
        (failure,) = seen[1]
        assert isinstance(failure, JobFailure)
        assert (failure.delivery, failure.node, failure.summary) == (1, "mailer", "ValueError: not an image")
        assert failure.at > 0
        # Only the frames of the function, none of the worker.
        assert failure.reason["traceback"].count("  File ") == 1
        assert failure.reason["traceback"].splitlines()[-1].strip() == 'raise ValueError("not an image")'
        (letter,) = await dead_letters(queue)
        assert (letter.data, letter.queue, letter.job_seq, letter.deliveries, letter.priority) == ("job", name, 1, 2, 3)
        assert letter.reason == letter.failures[-1].reason
        assert [each.delivery for each in letter.failures] == [1, 2]

    run(scenario)


def test_a_huge_exception_is_cut_instead_of_refused(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead")
        await queue.enqueue("job")

        def work(job: Any) -> None:
            raise ValueError("\x00é" * 100_000)

        await work_off(queue, work)
        (letter,) = await dead_letters(queue)
        assert letter.reason["message"].startswith("\x00é\x00é")

    run(scenario)


def test_a_job_that_is_failed_by_call_returns_to_the_queue(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=3, dead_letter=f"{name}:dead", retry_delay_ms=1)
        await queue.enqueue("job")
        seen: list[Any] = []

        def work(job: Any) -> None:
            seen.append([failure.reason for failure in job.failures])
            if job.deliveries == 1:
                job.fail("no address")
            elif job.deliveries == 2:
                job.fail({"code": 550})

        worker = await work_off(queue, work)
        assert seen == [[], ["no address"], ["no address", {"code": 550}]]
        assert (worker.done, worker.failed, worker.retried) == (1, 2, 0)
        counters = await queue.counters()
        assert (counters.ready, counters.in_flight, counters.dead_lettered) == (0, 0, 0)

    run(scenario)


def test_a_coroutine_function_fails_its_job_by_call(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        if isinstance(client, Threaded):
            return
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead")
        await queue.enqueue("job")

        async def work(job: Any) -> None:
            await asyncio.sleep(0)
            job.fail("no")

        await work_off(queue, work)
        assert [letter.reason for letter in await dead_letters(queue)] == ["no"]

    run(scenario)


def test_a_function_that_exits_fails_only_its_job(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead", lease_ms=3_600_000)
        await queue.enqueue_many([3, "done"])
        errors: list[Any] = []

        def work(job: Any) -> None:
            if job.data == 3:
                sys.exit(job.data)

        worker = await work_off(queue, work, delay_ms=lambda job, error: errors.append(error))
        assert (worker.done, worker.failed, type(errors[0])) == (1, 1, JobFailed)
        assert [summary_of(letter.reason) for letter in await dead_letters(queue)] == ["SystemExit: 3"]

    run(scenario)


def test_a_coroutine_that_waits_for_something_cancelled_fails_only_its_job(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        if isinstance(client, Threaded):
            pytest.skip("a thread is not cancelled")
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead", lease_ms=3_600_000)
        await queue.enqueue("job")

        async def work(job: Any) -> None:
            other = asyncio.ensure_future(asyncio.sleep(3600))
            other.cancel()
            await other

        await work_off(queue, work)
        (letter,) = await dead_letters(queue)
        assert summary_of(letter.reason) == "RuntimeError: the function waited for something that was cancelled"

    run(scenario)


@pytest.mark.parametrize("chosen", [-1, float("inf"), float("nan"), "1", True, ZeroDivisionError()], ids=repr)
def test_a_delay_function_that_fails_leaves_the_usual_delay(run: Run, name: str, chosen: Any) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(lease_ms=3_600_000, retry_delay_ms=100_000)
        await queue.enqueue("job")
        worker = queue.worker(poll_seconds=0.01, delay_ms=delay_ms)

        def work(job: Any) -> None:
            worker.stop()
            raise ValueError("no")

        worker.handler(work)
        await worker.run()
        (waiting,) = await delayed(client.url, name)
        assert [summary_of(failure["reason"]) for failure in waiting["failures"]] == ["ValueError: no"]

    def delay_ms(job: Any, error: Exception) -> Any:
        if isinstance(chosen, Exception):
            raise chosen
        return chosen

    run(scenario)


@pytest.mark.parametrize("way", ["retry", "delay_ms"])
def test_a_longer_delay_than_a_day_is_a_day(run: Run, name: str, way: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(lease_ms=3_600_000)
        await queue.enqueue("job")
        worker = queue.worker(poll_seconds=0.01, delay_ms=lambda job, error: 1e300)

        def work(job: Any) -> None:
            worker.stop()
            if way == "delay_ms":
                raise ValueError("no")
            job.retry(after=10**400)

        worker.handler(work)
        began = time.time()
        await worker.run()
        (waiting,) = await delayed(client.url, name)
        assert 86_300 < waiting["at"] / 1000 - began < 86_500

    run(scenario)


@pytest.mark.parametrize("after", [3600, timedelta(hours=1)], ids=["seconds", "timedelta"])
def test_a_job_is_tried_again_after_the_time_that_the_function_says(run: Run, name: str, after: Any) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        # The delay of the queue would be a day.
        await queue.configure(retry_delay_ms=86_400_000, retry_max_ms=86_400_000)
        await queue.enqueue("job")
        worker = queue.worker(poll_seconds=0.01)

        def work(job: Any) -> None:
            job.retry(after=after, reason="rate limit")
            worker.stop()

        worker.handler(work)
        began = time.time()
        await worker.run()
        assert (worker.done, worker.failed, worker.retried) == (0, 0, 1)
        assert (await queue.counters()).delayed == 1
        (waiting,) = await delayed(client.url, name)
        assert 3590 < waiting["at"] / 1000 - began < 3700

    run(scenario)


async def delayed(url: str, name: str) -> list[Any]:
    """The delayed jobs of a queue, as the console shows them."""

    def look() -> list[Any]:
        with Client(url) as client:
            answer: Any = json.loads(client.call("GET", f"/console/api/queue/{name}").body)
            rows: list[Any] = answer["delayed"]
            return rows

    return await asyncio.to_thread(look)


def test_the_last_call_decides_and_an_exception_adds_only_the_reason(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead", lease_ms=3_600_000)
        await queue.enqueue_many(
            ["fail, raise", "retry, raise", "fail with a reason, raise", "retry, fail", "fail, retry"]
        )

        def work(job: Any) -> None:
            for call in job.data.split(", "):
                match call:
                    case "fail":
                        job.fail()
                    case "fail with a reason":
                        job.fail("mine")
                    case "retry":
                        job.retry(after=0)
                    case "raise":
                        raise ValueError("raised")

        worker = await work_off(queue, work)
        assert (worker.done, worker.failed, worker.retried) == (0, 3, 2)
        reasons = {letter.data: letter.reason and summary_of(letter.reason) for letter in await dead_letters(queue)}
        assert reasons == {
            "fail, raise": "ValueError: raised",
            "retry, raise": "ValueError: raised",
            "fail with a reason, raise": "mine",
            "retry, fail": None,
            "fail, retry": None,
        }
        # Nothing was reported twice: each job was delivered once and left the queue once.
        counters = await queue.counters()
        assert (counters.ready, counters.in_flight, counters.delayed, counters.dead_lettered) == (0, 0, 0, 5)

    run(scenario)


def test_a_function_that_is_given_decides_about_the_delay_before_the_queue_does(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=3, dead_letter=f"{name}:dead", retry_delay_ms=1)
        await queue.enqueue("job")
        errors: list[Any] = []

        def delay_ms(job: Any, error: Exception) -> int | None:
            errors.append(error)
            # None: as the queue is configured.
            return 0 if job.deliveries == 1 else None

        def work(job: Any) -> None:
            if job.deliveries == 2:
                raise ValueError("raised")
            job.fail("called")

        await work_off(queue, work, delay_ms=delay_ms)
        assert [(type(error), error.args) for error in errors] == [
            (JobFailed, ("called",)),
            (ValueError, ("raised",)),
            (JobFailed, ("called",)),
        ]

    run(scenario)


def test_what_cannot_be_a_reason_or_a_time_fails_the_job_with_that_error(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead")
        await queue.enqueue_many(["reason", "time"])

        def work(job: Any) -> None:
            if job.data == "reason":
                job.fail(object())
            else:
                job.retry(after=-1)

        await work_off(queue, work)
        assert [letter.reason["type"] for letter in await dead_letters(queue)] == ["TypeError", "ValueError"]

    run(scenario)


def test_a_job_that_no_worker_processes_is_not_returned_by_call(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure()
        await queue.enqueue_many(["claimed", "processed"])
        (job,) = await queue.claim()
        with pytest.raises(RuntimeError, match=r"queue\.nack"):
            job.fail("no")
        await queue.ack(job)
        kept: list[Any] = []
        await work_off(queue, kept.append)
        with pytest.raises(RuntimeError, match="job 2 is not being processed"):
            kept[0].retry(after=1)

    run(scenario)


def test_a_job_that_is_not_of_the_type_is_a_dead_letter_and_hinders_nobody(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        await client.queue(name).configure(max_deliveries=1, dead_letter=f"{name}:dead")
        await client.queue(name).enqueue_many(["no number", 1])
        done: list[int] = []
        worker = client.queue(name, int).worker(
            lambda job: done.append(job.data), poll_seconds=0.01, delay_ms=lambda job, error: 0
        )
        await worker.run(until_empty=True)
        assert done == [1]
        (letter,) = await dead_letters(client.queue(name, int))
        assert letter.data == "no number"
        assert letter.reason["type"] == "msgspec.ValidationError"

    run(scenario)


def test_heartbeats_keep_a_job(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(lease_ms=3_600_000)
        await queue.enqueue("long")

        def work(job: Any) -> None:
            first = job.deadline
            eventually(lambda: job.deadline > first)

        worker = queue.worker(work, heartbeat_seconds=0.01, poll_seconds=0.01)
        await worker.run(until_empty=True)
        assert (worker.done, worker.failed) == (1, 0)

    run(scenario)


def test_a_job_that_was_lost_to_somebody_else_is_told(run: Run, name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name, node="slow")
        await queue.configure(lease_ms=3_600_000)
        await queue.enqueue("job")

        def work(job: Any) -> None:
            with Client(client.url) as other:
                # The same node, as far as the server can see, gives the job back.
                other.queue(name, node="slow").nack(job)
                other.queue(name, node="quick").ack(*other.queue(name, node="quick").claim())
            eventually(lambda: "no longer leased to this worker" in caplog.text)

        await queue.worker(work, heartbeat_seconds=0.01, poll_seconds=0.01).run(until_empty=True)

    run(scenario)


def test_stopping_finishes_what_is_under_way_and_takes_nothing_more(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure()
        await queue.enqueue_many(range(10))
        begun, go_on = threading.Event(), threading.Event()
        finished: list[int] = []

        def work(job: Any) -> None:
            begun.set()
            go_on.wait(30)
            finished.append(job.data)

        worker = queue.worker(work, concurrency=2, poll_seconds=0.01)
        running = asyncio.ensure_future(worker.run())
        await until(begun.is_set)
        await until(lambda: in_flight(client.url, name) == 2)
        worker.stop()
        go_on.set()
        await running
        assert len(finished) == 2
        counters = await queue.counters()
        assert (counters.ready, counters.in_flight) == (8, 0)

    run(scenario)


def in_flight(url: str, name: str) -> int:
    with Client(url) as client:
        return client.queue(name).counters().in_flight


def test_an_idle_worker_is_woken_by_a_new_job(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure()
        done: list[int] = []
        worker = queue.worker(lambda job: done.append(job.data), poll_seconds=20)
        running = asyncio.ensure_future(worker.run())
        for number in range(3):
            await queue.enqueue(number)
            await until(lambda number=number: number in done)
        worker.stop()
        # It waits for news on the server: these wake it.
        await queue.enqueue("for somebody else")
        await running

    run(scenario)


def test_a_worker_survives_a_restart_of_the_server(run: Run, mortal: ServerProcess, name: str) -> None:

    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(durability="fsync")
        await queue.enqueue_many(range(3))
        done: list[int] = []
        worker = queue.worker(lambda job: done.append(job.data), poll_seconds=0.01)
        running = asyncio.ensure_future(worker.run())
        await until(lambda: len(done) == 3)
        mortal.kill()
        await asyncio.to_thread(mortal.start, mortal.port)
        await queue.enqueue(3)
        await until(lambda: 3 in done)
        worker.stop()
        await running

    run(scenario, mortal.url, patience=PATIENCE)


def test_there_must_be_a_queue_and_a_function(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        with pytest.raises(NotFound):
            await client.queue(name).worker(print).run()
        with pytest.raises(ValueError, match="no handler"):
            await client.queue(name).worker().run()
        with pytest.raises(ValueError, match="concurrency"):
            client.queue(name).worker(concurrency=0)
        with pytest.raises(ValueError, match="timeout must be a number of seconds above 0, got 0"):
            client.queue(name).worker(timeout=0)

    run(scenario)


def test_the_handler_of_a_queue_works_for_its_workers(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.enqueue_many(range(3))
        done: list[int] = []

        @queue.handler
        def work(job: Any) -> None:
            done.append(job.data)

        await work_off(queue, None)
        assert done == [0, 1, 2]
        await queue.enqueue(3)
        # A function of the worker comes first.
        await work_off(queue, lambda job: done.append(-job.data))
        assert done == [0, 1, 2, -3]

    run(scenario)


def test_a_job_that_takes_too_long_fails_and_keeps_its_place(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead", lease_ms=3_600_000)
        await queue.enqueue_many(["endless", "next"])
        let_go = threading.Event()
        done: list[str] = []

        def work(job: Any) -> None:
            if job.data == "endless":
                let_go.wait(30)
            done.append(job.data)

        worker = queue.worker(work, poll_seconds=0.01, timeout=0.2)
        running = asyncio.ensure_future(worker.run(until_empty=True))
        while not (letters := await dead_letters(queue)):
            await asyncio.sleep(0.01)
        assert letters[0].reason["type"] == "TimeoutError"
        assert letters[0].reason["message"] == "the function took longer than 0.2 s"
        # The thread still runs, so there is no place for the next job.
        assert (done, worker.failed, (await queue.counters()).ready) == ([], 1, 1)
        let_go.set()
        await running
        assert (done, worker.done) == (["endless", "next"], 1)
        assert len(await dead_letters(queue)) == 1

    run(scenario)


def test_a_coroutine_that_takes_too_long_is_cancelled(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        if isinstance(client, Threaded):
            return
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead")
        await queue.enqueue("endless")
        cancelled: list[str] = []

        async def work(job: Any) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(job.data)
                raise

        await work_off(queue, work, timeout=0.05)
        assert cancelled == ["endless"]
        assert [letter.reason["type"] for letter in await dead_letters(queue)] == ["TimeoutError"]

    run(scenario)


def test_exits_and_errors_are_reported_with_a_timeout_too(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead")
        await queue.enqueue_many([0, 1])

        def work(job: Any) -> None:
            raise (ValueError, SystemExit)[job.data]("no")

        async def work_later(job: Any) -> None:
            work(job)

        await work_off(queue, work if isinstance(client, Threaded) else work_later, timeout=30)
        assert [letter.reason["type"] for letter in await dead_letters(queue)] == ["ValueError", "SystemExit"]

    run(scenario)


PROGRAM = """
import asyncio, sys, time
from strandline.client import AsyncClient, Client

def work(job):
    print("begun", flush=True)
    sys.stdin.readline()
    print("finished", job.data, flush=True)

def threads(url, queue):
    with Client(url) as client:
        client.queue(queue).worker(work, poll_seconds=0.05).run()

async def loop(url, queue):
    async with AsyncClient(url) as client:
        await client.queue(queue).worker(work, poll_seconds=0.05).run()

kind, url, queue = sys.argv[1:]
threads(url, queue) if kind == "threads" else asyncio.run(loop(url, queue))
print("ended", flush=True)
"""


@pytest.mark.parametrize("kind", ["threads", "loop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_asked_to_end_finishes_its_job_first(
    server: ServerProcess, name: str, tmp_path: Path, kind: str, number: int
) -> None:
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM)
    with Client(server.url) as client:
        client.queue(name).configure()
        client.queue(name).enqueue_many(["first", "second"])
        with subprocess.Popen(
            [sys.executable, str(program), kind, server.url, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ.copy(),
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            process.stdin.write("\n")
            process.stdin.close()
            assert process.stdout.read() in (
                "finished first\nended\n",
                "finished first\nbegun\nfinished second\nended\n",
            )
            assert process.wait(30) == 0
        counters = client.queue(name).counters()
        assert counters.in_flight == 0

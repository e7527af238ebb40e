"""Workers: jobs done by a function, kept by heartbeats, finished when the process is asked to end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.either_client import Run, Threaded
from support.server_process import ServerProcess
from support.topics_client import eventually

from strandline.client import Client, NotFound, Patience

PATIENCE = Patience(30, first_wait=0.001, longest_wait=0.02)


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
        assert [record.data async for record in client.topic(f"{name}:dead").read()] == ["no number"]

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

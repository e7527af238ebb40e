"""``strandline demo``: what the server does, shown on a directory and a port of its own. Ends by itself."""

from __future__ import annotations

import logging
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import msgspec
from rich.console import Console

from strandline.cli import demo_history as history
from strandline.cli.demo_server import DemoServer
from strandline.client import Client, Draft, Job, Unreachable
from strandline.engine.care.verify import verify
from strandline.engine.disk import LocalDisk

ORDERS = 50_000
BATCH = 1000
JOBS = 200
WORKERS = 4
#: Payments that are acknowledged before the server is killed.
PAYMENTS = 300


def demo_command() -> None:
    """Show writes, a watch stream, a queue, a router, a kill -9, and history on Spark: half a minute."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="strandline-demo-") as directory, DemoServer(Path(directory)) as server:
        _Tour(console, server).run()
    console.print(
        "\n[bold green]Nothing was lost.[/] Start your own with `make run`; the guides are in docs/.",
        soft_wrap=True,
    )


class _Task(msgspec.Struct):
    job: int | str
    poison: bool = False


class _Tour:
    def __init__(self, console: Console, server: DemoServer) -> None:
        self._console = console
        self._server = server

    def run(self) -> None:
        self._start()
        with self._server.client() as client:
            self._write(client)
            self._watch(client)
            self._lose(client)
            self._work(client)
            self._route(client)
        self._kill()
        self._come_back()
        self._look_back()
        self._verify()

    def _say(self, title: str, *lines: str) -> None:
        self._console.print(f"\n[bold cyan]{title}[/]")
        for line in lines:
            self._console.print(f"  {line}", markup=False, soft_wrap=True)

    # --- one scene each --------------------------------------------------------------------------------------------

    def _start(self) -> None:
        seconds = self._server.start()
        self._say("A server", f"strandline serve on {self._server.address}, ready after {seconds:.1f} s")

    def _write(self, client: Client) -> None:
        started = time.perf_counter()
        for base in range(0, ORDERS, BATCH):
            client.topic("orders").write_many(_order(number) for number in range(base, base + BATCH))
        seconds = time.perf_counter() - started
        page = client.topic("orders").diff(ORDERS - 1)
        (last,) = page.records
        self._say(
            "Write and read",
            f"{ORDERS:,} orders over HTTP, {BATCH} at a time: {ORDERS / seconds:,.0f} records/s, here and now",
            f"the last one: seq {last.seq}, tag {last.tag}, {last.data}; caught up: {page.caught_up}",
        )

    def _watch(self, client: Client) -> None:
        delays = []
        with self._server.client() as watcher, watcher.topic("orders").tail(ORDERS) as tail:
            for number in range(20):
                written_at = time.perf_counter()
                client.topic("orders").write_many([_order(ORDERS + number)])
                next(tail)
                delays.append(time.perf_counter() - written_at)
        self._say(
            "Watch",
            "an event stream, opened at the head, while 20 more orders were written one by one",
            f"from the write to the event: {sorted(delays)[10] * 1000:.1f} ms in the middle",
        )

    def _lose(self, client: Client) -> None:
        recent, orders = client.topic("recent"), client.topic("orders")
        recent.configure(cap_records=3)
        recent.write_many(range(1, 6))
        page = recent.diff()
        orders.delete_records(match="customer-7")
        self._say(
            "Loss is never silent",
            "a topic capped at 3 records got 5; a reader from the start is told before it gets the rest:",
            f"{page.tombstone}; then {[record.seq for record in page.records]}",
            "what is deleted on purpose, here all orders of customer-7, leaves no tombstone: "
            f"{orders.diff(limit=1).tombstone}",
        )

    def _work(self, client: Client) -> None:
        queue = client.queue("jobs")
        queue.configure(lease_ms=500, max_deliveries=2, dead_letter="jobs:dead")
        queue.enqueue_many(_Task(number, poison=number == 13) for number in range(JOBS))
        # Somebody claims ten jobs and is never heard of again.
        client.queue("jobs", node="sleepyhead").claim(10)
        # That the poison fails is meant, and told below.
        logging.getLogger("strandline.client.worker").addHandler(logging.NullHandler())
        names = [f"worker-{number}" for number in range(WORKERS)]
        with ThreadPoolExecutor(WORKERS) as workers:
            done = dict(zip(names, workers.map(self._work_off, names), strict=True))
        (dead,) = client.topic("jobs:dead").read()
        self._say(
            "Queue",
            f"{JOBS} jobs for {WORKERS} workers, and one who claimed ten and went silent",
            f"done: {', '.join(f'{name} {count}' for name, count in done.items())}, together {sum(done.values())}",
            f"job {dead.data['job']} failed every time and is a dead letter now: {dead.meta}",
        )

    def _work_off(self, name: str) -> int:
        """Work until there is nothing to do, in anybody's hands; returns how much was done."""

        def work(job: Job[_Task]) -> None:
            if job.data.poison:
                raise ValueError("this one always fails")

        with self._server.client() as client:
            queue = client.queue("jobs", _Task, node=name)
            worker = queue.worker(work, concurrency=2, poll_seconds=0.05, delay_ms=lambda job, error: 0)
            worker.run(until_empty=True)
            return worker.done

    def _route(self, client: Client) -> None:
        orders = client.topic("orders")
        client.router("orders-big").configure("orders", "orders:big", filter="big*")
        billing = orders.consumer("billing")
        billing.commit(1000)
        tags = ["big:1", "small:2", "big:3"]
        orders.write_many(Draft(tag, tag=tag) for tag in tags)
        copies = [record.data for record in client.topic("orders:big").read()]
        self._say(
            "Router and consumer",
            f"orders tagged {tags}; the router of the big ones has copied {copies}",
            f"the consumer billing has committed seq 1000 and is {billing.position().lag:,} behind",
        )

    def _kill(self) -> None:
        with self._server.client() as client:
            client.topic("payments").configure(durability="fsync")
            client.queue("jobs").enqueue(_Task("for later"))
        self._acknowledged = 0
        writer = Thread(target=self._pay)
        writer.start()
        while self._acknowledged < PAYMENTS and writer.is_alive():
            time.sleep(0.001)
        self._server.kill()
        writer.join()
        self._say("kill -9", f"in the middle of payments; {self._acknowledged} had been acknowledged")

    def _pay(self) -> None:
        """Pay one by one until the server is gone."""
        with self._server.client(patience=0) as client:
            try:
                while True:
                    number = self._acknowledged + 1
                    client.topic("payments").write({"paid": number}, idempotency_key=f"payment-{number}")
                    self._acknowledged = number
            except Unreachable:
                return

    def _come_back(self) -> None:
        seconds = self._server.start()
        with self._server.client() as client:
            payments = client.topic("payments")
            found = payments.state().head_seq
            assert found >= self._acknowledged
            last = self._acknowledged
            again = payments.write({"paid": last}, idempotency_key=f"payment-{last}")
            copies = client.topic("orders:big").state().count
            consumer = client.topic("orders").consumer("billing").position().seq
            ready = client.queue("jobs").counters().ready
            assert again.deduped
            # It was written, and the kill came before the answer.
            unheard = f", {found - last} of them never answered for" if found > last else ""
        self._say(
            "What is still there",
            f"ready again after {seconds:.1f} s: {found} payments{unheard}",
            f"the last one sent once more, to be sure: seq {again.first_seq}, deduped: {again.deduped}",
            f"{copies} copies by the router, {ready} job waiting, billing at seq {consumer}",
        )

    def _look_back(self) -> None:
        missing = history.missing()
        if missing:
            self._say("History on Spark", "left out, because something is missing here:", *missing)
            return
        with self._server.client() as client:
            seconds = history.sell(client)
        self._say("A stream", f"a week of {history.SALES:,} sales in {seconds:.1f} s, with a schema for searching")
        seconds, last = history.run_pipeline(self._server)
        self._say("History on Spark", f"one round, beside the running server, {seconds:.0f} s with Spark's start", last)
        with self._server.client() as client:
            found, days = history.search(client), history.days(client)
            self._say(
                "Search and add up",
                f"desk lamps sold in Graz for more than 89.00, the dearest first, in {found.took_ms:.0f} ms "
                f"(index files: {found.coverage['indexed_segments']}, read record by record: "
                f"{found.coverage['scanned_tail_docs']}):",
                *(f"{hit.source['customer']:<13} {hit.source['cents'] / 100:.2f}" for hit in found.hits),
                f"takings of every day (added up ahead of time: {days.coverage['used_rollups']}):",
                *history.bars(days),
            )
        best = history.best_customers(self._server)
        self._say(
            "The lake, with DuckDB",
            "who bought the most, from the Delta table `records`:",
            *(f"{key:<13} {count:>4} sales {cents / 100:>10,.2f}" for key, count, cents in best),
        )

    def _verify(self) -> None:
        code = self._server.stop()
        report = verify(LocalDisk(self._server.data))
        assert not report.problems
        self._say("Stop and verify", f"exit code {code}; every checksum and every promise: no problems")


def _order(number: int) -> Draft[dict[str, int]]:
    return Draft({"order": number, "cents": number * 37 % 10_000}, tag=f"customer-{number % 500}")

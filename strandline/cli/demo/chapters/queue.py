"""A queue: jobs for workers, one that vanishes, and one job that nobody can do."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import msgspec

from strandline.cli.demo.server import Broken
from strandline.cli.demo.shop import Shipment
from strandline.cli.demo.stage import Stage
from strandline.client import Job

QUEUE, DEAD = "packing", "packing:dead"
JOBS = 120
WORKERS = 4
LOST_JOBS = 10
#: Short, for the audience: who is silent for so long loses its jobs to others.
LEASE_MS = 500
MAX_DELIVERIES = 3


def pack_parcels(stage: Stage) -> None:
    with stage.teller.chapter("A queue, its workers, and a job that nobody can do") as tell:
        with stage.server.client() as client:
            jobs = stage.shop.warehouse(JOBS)
            # A parcel that weighs less than nothing: every attempt to pack it fails.
            poison = msgspec.structs.replace(jobs[13], grams=-1)
            jobs[13] = poison
            queue = client.queue(QUEUE, Shipment)
            queue.configure(lease_ms=LEASE_MS, max_deliveries=MAX_DELIVERIES, dead_letter=DEAD)
            queue.enqueue_many(jobs)
            lost = client.queue(QUEUE, Shipment, node="vanished").claim(LOST_JOBS)
        tell.say(
            f"{len(jobs)} parcels are to be packed. One worker takes {len(lost)} and is never heard of again; its jobs "
            f"go to the other {WORKERS} when its lease is over. One parcel cannot be packed at all."
        )
        names = [f"packer-{number}" for number in range(1, WORKERS + 1)]
        # That the poison fails is meant, and told below.
        logging.getLogger("strandline.client.worker").addHandler(logging.NullHandler())
        with ThreadPoolExecutor(WORKERS) as workers:
            done = list(workers.map(lambda name: _pack(stage, name), names))
        with stage.server.client() as client:
            dead = list(client.topic(DEAD, Shipment).read())
            counters = client.queue(QUEUE).counters()
        tell.show(("worker", "packed"), [*zip(names, map(str, done), strict=True)], right=("packed",))
        if [letter.data for letter in dead] != [poison] or sum(done) != len(jobs) - 1 or counters.ready:
            raise Broken(f"of {len(jobs)} jobs {sum(done)} were done and {len(dead)} are dead letters")
        tell.proved(
            f"{sum(done)} of {len(jobs)} jobs done. The one that cannot be ({poison.order}) was tried {MAX_DELIVERIES} "
            f"times and is a dead letter in `{DEAD}`, where it stops nobody."
        )
        tell.say(f"Once it is mended, `strandline queue redrive {QUEUE}` sends it back.")


def _pack(stage: Stage, name: str) -> int:
    """Work until there is nothing to do, in anybody's hands; returns how much was done."""

    def pack(job: Job[Shipment]) -> None:
        if job.data.grams < 0:
            raise ValueError("nothing weighs less than nothing")

    with stage.server.client() as client:
        queue = client.queue(QUEUE, Shipment, node=name)
        worker = queue.worker(pack, concurrency=2, poll_seconds=0.05, delay_ms=lambda job, error: 0)
        worker.run(until_empty=True)
        return worker.done

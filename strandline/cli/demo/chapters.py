"""The chapters of the demo. Each is a function that shows one feature and checks every claim it prints."""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import msgspec

from strandline.cli.demo.chart import draw_week
from strandline.cli.demo.declared import ORDERS as ORDERS_REGISTRY
from strandline.cli.demo.narration import Teller
from strandline.cli.demo.server import DemoFailed, DemoServer
from strandline.cli.demo.shop import MONDAY, WEEK_MS, Order, Payment, Shipment, Shop
from strandline.cli.search import bar_of
from strandline.client import NOW, Client, Draft, Forbidden, Job, OwnIdentity
from strandline.client.search_types import Aggregated
from strandline.engine.disk import LocalDisk
from strandline.engine.verify.directory_check import verify
from strandline.signing.keys import KemKey, Signer

# --- shared by the chapters ----------------------------------------------------------------------------------------

ORDERS, PAYMENTS, SHIPMENTS = "orders", "payments", "shipments"


@dataclass
class DemoStage:
    server: DemoServer
    teller: Teller
    shop: Shop
    picture: Path
    with_spark: bool
    #: Jars for Spark; without any, those on this machine are used.
    jars: list[str] = field(default_factory=list)
    #: Whether the pipeline has run.
    has_lake: bool = False
    #: Every order that the server has acknowledged; the log is compared with it.
    acknowledged: list[Order] = field(default_factory=list)


def money(cents: float) -> str:
    return f"{cents / 100:,.2f}"


# --- a server -------------------------------------------------------------------------------------------------------


def start_a_server(stage: DemoStage) -> None:
    with stage.teller.chapter("A server") as tell:
        seconds = stage.server.start()
        tell.say(f"`strandline serve` was ready after {seconds:.1f} s. It listens on {stage.server.url}.")
        tell.say("It is one process with one data directory. Open its console while the demo runs:")
        tell.quote(f"{stage.server.url}/console")


# --- a week of traffic ----------------------------------------------------------------------------------------------

WEEK_ORDERS = 20_000
#: Hours of the week that one request per log writes.
PART_HOURS = 6


def trade_for_a_week(stage: DemoStage) -> None:
    with stage.teller.chapter("A week of orders") as tell, stage.server.client() as client:
        tell.say("A shop appends every order, payment and shipment to a log. Records in a log are never rewritten.")
        tell.doing("generating the orders")
        parts = list(stage.shop.week(WEEK_ORDERS, PART_HOURS))
        orders = client.stream(ORDERS)
        orders.create()
        orders.set_schema(ORDERS_REGISTRY)
        producer = orders.producer("shop")
        payments, shipments = client.topic(PAYMENTS), client.topic(SHIPMENTS)
        started = time.perf_counter()
        for part in parts:
            tell.doing(f"{datetime.fromtimestamp(part.until / 1000, UTC):%A, %H:%M}")
            if part.orders:
                producer.append_many(part.orders)
                stage.acknowledged += part.orders
            if part.payments:
                payments.write_many(Draft(payment, tag=payment.method) for payment in part.payments)
            if part.shipments:
                shipments.write_many(Draft(shipment, tag=shipment.city) for shipment in part.shipments)
        seconds = time.perf_counter() - started
        heads = {name: client.topic(name).state().head_seq for name in (ORDERS, PAYMENTS, SHIPMENTS)}
        tell.show(
            ("log", "records", "description"),
            (
                (ORDERS, f"{heads[ORDERS]:,}", "a stream with a schema: orders are validated and searchable"),
                (PAYMENTS, f"{heads[PAYMENTS]:,}", "a topic, tagged with the payment method"),
                (SHIPMENTS, f"{heads[SHIPMENTS]:,}", "a topic, tagged with the city"),
            ),
            right=("records",),
        )
        total = sum(heads.values())
        tell.say(f"The shop wrote {total:,} records over HTTP in {seconds:.1f} s: {total / seconds:,.0f} per second.")
        if heads[ORDERS] != len(stage.acknowledged):
            raise DemoFailed(f"{len(stage.acknowledged):,} orders were acknowledged, but the log has {heads[ORDERS]:,}")


# --- a topic, read as a stream --------------------------------------------------------------------------------------

HOUR = 8
LIVE = 20
SHOWN = 4


def follow_payments(stage: DemoStage) -> None:
    """The first payments on Monday at eight."""
    with (
        stage.teller.chapter("Written as a topic, read as a stream") as tell,
        stage.server.client() as checkout,
        stage.server.client() as reader,
    ):
        tell.say(
            "Two protocols share one log. A checkout writes to the topic `payments` (/v0), and a reader follows the "
            "stream `payments` (/v1) over one open connection. Nothing is copied in between."
        )
        payments = stage.shop.payments_of(_order(stage, checkout))
        stream = reader.stream(PAYMENTS, Payment)
        seen: list[Payment] = []
        delays: list[float] = []
        with stream.tail(stream.page(NOW).next_offset) as tail:
            values = tail.values()
            for payment in payments:
                written_at = time.perf_counter()
                checkout.topic(PAYMENTS).write_many([Draft(payment, tag=payment.method)])
                seen.append(next(values))
                delays.append(time.perf_counter() - written_at)
        if seen != payments:
            raise DemoFailed("the stream did not deliver the payments that were written to the topic")
        tell.show(
            ("paid at", "order", "method", "EUR"),
            [
                (f"{datetime.fromtimestamp(one.at / 1000, UTC):%a %H:%M:%S}", one.order, one.method, money(one.cents))
                for one in seen[:SHOWN]
            ],
            right=("EUR",),
        )
        tell.proved(f"All {LIVE} payments arrived, {median(delays) * 1000:.1f} ms (median) after they were sent.")


def _order(stage: DemoStage, client: Client) -> list[Order]:
    orders = stage.shop.next_monday(HOUR, LIVE)
    client.stream(ORDERS).producer("first-customers").append_many(orders)
    stage.acknowledged += orders
    return orders


# --- a router -------------------------------------------------------------------------------------------------------

PARCELS = 200
ROUTER, CITY, DESTINATION = "shipments->graz", "Graz", "shipments:graz"


def route_to_a_city(stage: DemoStage) -> None:
    with stage.teller.chapter("A router") as tell, stage.server.client() as client:
        shipments = client.topic(SHIPMENTS, Shipment)
        new = stage.shop.warehouse(PARCELS)
        client.router(ROUTER).configure(SHIPMENTS, DESTINATION, filter=CITY)
        shipments.write_many(Draft(shipment, tag=shipment.city) for shipment in new)
        wanted = [shipment for shipment in new if shipment.city == CITY]
        tell.say(
            f"The courier in {CITY} needs only the parcels for {CITY}. The router `{ROUTER}` copies records with the "
            f"tag {CITY} to the topic `{DESTINATION}`: by reference, in order, and each once."
        )
        if routed(client) != wanted:
            raise DemoFailed(f"the router did not copy the {len(wanted)} shipments to {CITY}")
        tell.proved(
            f"Of {len(new)} new shipments, {len(wanted)} are for {CITY}, and `{DESTINATION}` has exactly these."
        )


def routed(client: Client) -> list[Shipment]:
    return [record.data for record in client.topic(DESTINATION, Shipment).read()]


# --- a queue --------------------------------------------------------------------------------------------------------

QUEUE, DEAD = "packing", "packing:dead"
JOBS = 120
WORKERS = 4
LOST_JOBS = 10
#: Short, so that the demo does not wait long for the jobs of the lost worker.
LEASE_MS = 500
MAX_DELIVERIES = 3


def pack_parcels(stage: DemoStage) -> None:
    with stage.teller.chapter("A queue with a dead letter") as tell:
        with stage.server.client() as client:
            jobs = stage.shop.warehouse(JOBS)
            # A parcel with a negative weight: every attempt to pack it fails.
            poison = msgspec.structs.replace(jobs[13], grams=-1)
            jobs[13] = poison
            queue = client.queue(QUEUE, Shipment)
            queue.configure(lease_ms=LEASE_MS, max_deliveries=MAX_DELIVERIES, dead_letter=DEAD)
            queue.enqueue_many(jobs)
            lost = client.queue(QUEUE, Shipment, node="vanished").claim(LOST_JOBS)
        tell.say(
            f"The queue has {len(jobs)} jobs. One worker leases {len(lost)} of them and disappears; when the leases "
            f"expire, the other {WORKERS} workers get these jobs. One job fails on every attempt."
        )
        names = [f"packer-{number}" for number in range(1, WORKERS + 1)]
        # The failures are intended, and reported below.
        logging.getLogger("strandline.client.worker").addHandler(logging.NullHandler())
        with ThreadPoolExecutor(WORKERS) as workers:
            done = list(workers.map(lambda name: _pack(stage, name), names))
        with stage.server.client() as client:
            dead = list(client.topic(DEAD, Shipment).read())
            counters = client.queue(QUEUE).counters()
        tell.show(("worker", "jobs done"), [*zip(names, map(str, done), strict=True)], right=("jobs done",))
        if [letter.data for letter in dead] != [poison] or sum(done) != len(jobs) - 1 or counters.ready:
            raise DemoFailed(f"of {len(jobs)} jobs, {sum(done)} were done and {len(dead)} became dead letters")
        tell.proved(
            f"{sum(done)} of {len(jobs)} jobs are done. The failing job ({poison.order}) was delivered "
            f"{MAX_DELIVERIES} times and is now a dead letter in `{DEAD}`."
        )
        tell.say(f"`strandline queue redrive {QUEUE}` moves dead letters back to the queue.")


def _pack(stage: DemoStage, name: str) -> int:
    """Work until the queue has no jobs, leased ones included; returns the number of jobs done."""

    def pack(job: Job[Shipment]) -> None:
        if job.data.grams < 0:
            raise ValueError("negative weight")

    with stage.server.client() as client:
        queue = client.queue(QUEUE, Shipment, node=name)
        worker = queue.worker(pack, concurrency=2, poll_seconds=0.05, delay_ms=lambda job, error: 0)
        worker.run(until_empty=True)
        return worker.done


# --- a search, and an aggregate as a chart --------------------------------------------------------------------------

CITY, PRODUCT, CENTS = "Graz", "desk lamp", 20_000
QUERY = f'items:"{PRODUCT}" city:{CITY} cents:>{CENTS}'
BAR = 40


def search_orders(stage: DemoStage) -> None:
    with stage.teller.chapter("A search") as tell, stage.server.client() as client:
        orders = client.stream(ORDERS, Order)
        found = orders.search(QUERY, sort=["cents:desc"], size=SHOWN)
        again = orders.search(QUERY, sort=["cents:desc"], size=SHOWN)
        hits = [hit.source for hit in orders.hits(QUERY)]
        wanted = [one for one in stage.acknowledged if PRODUCT in one.items and one.city == CITY and one.cents > CENTS]
        if sorted(hit.order for hit in hits) != sorted(one.order for one in wanted):
            raise DemoFailed(f"the search has {len(hits)} hits; expected {len(wanted)}")
        tell.say(f"Which customers in {CITY} bought a {PRODUCT} in an order over {money(CENTS)} EUR? The query:")
        tell.quote(QUERY)
        tell.show(
            ("order", "customer", "items", "EUR"),
            [(one.source.order, one.source.customer, one.source.items, money(one.source.cents)) for one in found.hits],
            right=("EUR",),
        )
        how = "from the indexes that Spark built" if stage.has_lake else "from memory, because no index is built yet"
        tell.proved(
            f"{len(hits)} hits in {len(stage.acknowledged):,} orders, {how}: {found.took_ms:.0f} ms, and "
            f"{again.took_ms:.0f} ms the second time."
        )


def draw_takings(stage: DemoStage) -> None:
    with stage.teller.chapter("A chart") as tell, stage.server.client() as client:
        by_day = _aggregate(client, "1d")
        days, hours = _takings(by_day), _takings(_aggregate(client, "1h"))
        total = sum(one.cents for one in stage.acknowledged if one.at < MONDAY + WEEK_MS)
        if sum(days.values()) != total or sum(hours.values()) != total:
            raise DemoFailed("the aggregate differs from the sum of the week's orders")
        if by_day.coverage.used_rollups:
            tell.say(
                "The revenue of the week, from sums that the pipeline has stored (a rollup), so few records are read:"
            )
        else:
            tell.say(
                "The revenue of the week, computed from the records. With the pipeline, it comes from stored sums:"
            )
        highest = max(days.values())
        tell.draw(
            [
                (f"{datetime.fromisoformat(day):%a %d %b}  {money(cents):>12}", bar_of(cents, highest, BAR))
                for day, cents in days.items()
            ]
        )
        by_moment = {round(datetime.fromisoformat(hour).timestamp() * 1000): cents for hour, cents in hours.items()}
        stage.picture.write_bytes(draw_week(by_moment))
        tell.say("A chart by hour is in this file:")
        tell.quote(str(stage.picture))
        tell.proved(f"The total is {money(total)} EUR, equal to the sum of all orders of the week.")


def _aggregate(client: Client, interval: str) -> Aggregated:
    return client.stream(ORDERS).aggregate("takings", start=MONDAY, end=MONDAY + WEEK_MS, interval=interval)


def _takings(answer: Aggregated) -> dict[str, float]:
    """Revenue in cents by interval, for all cities."""
    return {bucket.start: sum(group.measures["cents"].sum or 0 for group in bucket.groups) for bucket in answer.buckets}


# --- signed elements, and rows of a table ---------------------------------------------------------------------------


def sign_a_delivery(stage: DemoStage) -> None:
    order = stage.acknowledged[-1].order
    with stage.teller.chapter("A signed delivery note") as tell, stage.server.client() as client:
        courier, stranger = _new_identity(), _new_identity()
        path = f"deliveries/{courier.user_id}"
        notes = client.collections(courier).document(path, verify=courier.signer.public)
        notes.append({"order": order, "handed over": "at the door"})
        (note,) = client.collections(stranger).document(path, verify=courier.signer.public).pull(full=True).elements
        tell.say(
            f"The courier signs a note: order {note.data['order']} was handed over {note.data['handed over']}. Every "
            "reader verifies the signature, so readers need not trust the server."
        )
        try:
            client.collections(stranger).document(path).append({"order": order, "handed over": "never"})
        except Forbidden:
            tell.proved("The signature is the courier's. The server refused a note from another key.")
        else:
            raise DemoFailed("the server accepted a note from another key")


def review_a_lamp(stage: DemoStage) -> None:
    customer = stage.acknowledged[-1].customer
    with stage.teller.chapter("A row in a table") as tell, stage.server.client(user=customer) as client:
        reviews = client.table("review")
        # Sent twice, as a browser does after a lost connection.
        first, again = (
            reviews.append("desk-lamp", {"stars": 3, "text": "a warm light"}, idempotency_key="review-1")
            for _ in range(2)
        )
        reviews.update(first.id, {"stars": 5})
        rows, edits = list(reviews.list("desk-lamp")), reviews.history(first.id)
        if first.id != again.id or len(rows) != 1 or rows[0].payload["stars"] != 5 or len(edits) != 1:
            raise DemoFailed("expected one review with one edit")
        tell.say(f"{customer} reviews the desk lamp. The row is typed, can be edited, and is pushed to open browsers.")
        tell.proved(
            f"Sent twice, stored once. The edit from {edits[0].previous['stars']} to 5 stars is in its history."
        )


def _new_identity() -> OwnIdentity:
    return OwnIdentity(Signer.generate(), KemKey.generate())


# --- the pipeline ---------------------------------------------------------------------------------------------------

BEST = 3
STATEMENT = (
    "select key as customer, count(*) as orders, sum((data->>'cents')::int) as cents "
    f"from orders group by key order by cents desc, customer limit {BEST}"
)


def run_the_pipeline(stage: DemoStage) -> None:
    with stage.teller.chapter("The pipeline on Spark") as tell:
        missing = _missing() if stage.with_spark else ["--no-spark was given"]
        if missing:
            tell.say(f"Skipped: {'; '.join(missing)}")
            tell.say("The following chapters work without the pipeline.")
            return
        tell.say(
            "Spark copies the logs to a lake while the server keeps running: Delta tables for other tools, and indexes "
            "for searches. This runs one round; starting Spark takes a while."
        )
        tell.doing("starting Spark, building tables and indexes")
        data = str(stage.server.data)
        started = time.perf_counter()
        stage.server.run_beside("pipeline", "run", "--once", "--data", data)
        seconds = time.perf_counter() - started
        stage.has_lake = True
        with stage.server.client() as client:
            head = client.topic("orders").state().head_seq
        tell.say(f"Done after {seconds:.0f} s. The best customers, queried with `strandline sql` from the lake:")
        best = [
            json.loads(line)
            for line in stage.server.run_beside("sql", STATEMENT, "--data", data, "--json").splitlines()
        ]
        rows = [(row["customer"], str(row["orders"]), money(row["cents"])) for row in best]
        tell.show(("customer", "orders", "EUR"), rows, right=("orders", "EUR"))
        _check(stage, rows, head)


def _missing() -> list[str]:
    from strandline.pipeline.spark_session import what_is_missing

    return what_is_missing()


def _check(stage: DemoStage, rows: list[tuple[str, str, str]], head: int) -> None:
    """Compare with the best customers as the shop knows them."""
    sums: dict[str, tuple[int, int]] = {}
    for order in stage.acknowledged:
        count, cents = sums.get(order.customer, (0, 0))
        sums[order.customer] = count + 1, cents + order.cents
    best = sorted(sums.items(), key=lambda one: (-one[1][1], one[0]))[:BEST]
    if rows != [(customer, str(count), money(cents)) for customer, (count, cents) in best]:
        raise DemoFailed(f"the lake differs from the {head:,} orders of the shop")


# --- the end --------------------------------------------------------------------------------------------------------


def stop_and_verify(stage: DemoStage) -> None:
    with stage.teller.chapter("Stop and verify") as tell:
        stage.server.stop()
        report = verify(LocalDisk(stage.server.data))
        if report.problems:
            raise DemoFailed(f"the data directory has problems: {report.problems[0]}")
        tell.say(
            "The server stopped on SIGTERM. The demo then checked every file of its data directory, like "
            "`strandline verify`."
        )
        tell.proved("No problems found: all checksums are correct, also after the kill.")

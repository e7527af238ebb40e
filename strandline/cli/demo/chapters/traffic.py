"""A week of traffic."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from strandline.cli.demo.declared import ORDERS as ORDERS_REGISTRY
from strandline.cli.demo.server import Broken
from strandline.cli.demo.stage import ORDERS, PAYMENTS, SHIPMENTS, Stage
from strandline.client import Draft

WEEK_ORDERS = 20_000
#: So much of the week is written in one request per log.
PART_HOURS = 6


def trade_for_a_week(stage: Stage) -> None:
    with stage.teller.chapter("A week of a shop") as tell, stage.server.client() as client:
        tell.say("Customers order, pay, and get parcels. Each kind of event is a log: appended to, never rewritten.")
        tell.doing("the week is made up")
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
            ("log", "records", "what it is"),
            (
                (ORDERS, f"{heads[ORDERS]:,}", "a stream with a schema: every order is checked, and can be searched"),
                (PAYMENTS, f"{heads[PAYMENTS]:,}", "a topic, tagged with how it was paid"),
                (SHIPMENTS, f"{heads[SHIPMENTS]:,}", "a topic, tagged with the city"),
            ),
            right=("records",),
        )
        total = sum(heads.values())
        tell.say(f"{total:,} records over HTTP in {seconds:.1f} s: {total / seconds:,.0f} a second, here and now.")
        if heads[ORDERS] != len(stage.acknowledged):
            raise Broken(f"{len(stage.acknowledged):,} orders were acknowledged, and {heads[ORDERS]:,} are there")

"""A topic, read as a stream."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from statistics import median

from strandline.cli.demo.server import Broken
from strandline.cli.demo.shop import Order, Payment
from strandline.cli.demo.stage import ORDERS, PAYMENTS, Stage, money
from strandline.client import NOW, Client, Draft

HOUR = 8
LIVE = 20
SHOWN = 4


def follow_payments(stage: Stage) -> None:
    """On Monday at eight, when the first customers come."""
    with (
        stage.teller.chapter("Written as a topic, read as a stream") as tell,
        stage.server.client() as till,
        stage.server.client() as reader,
    ):
        tell.say(
            "Two protocols, one log. The till writes to the topic `payments` (/v0); somebody else follows the stream "
            "`payments` (/v1), over a connection that stays open. No copy, no connector in between."
        )
        payments = stage.shop.payments_of(_order(stage, till))
        stream = reader.stream(PAYMENTS, Payment)
        seen: list[Payment] = []
        delays: list[float] = []
        with stream.tail(stream.page(NOW).next_offset) as tail:
            values = tail.values()
            for payment in payments:
                written_at = time.perf_counter()
                till.topic(PAYMENTS).write_many([Draft(payment, tag=payment.method)])
                seen.append(next(values))
                delays.append(time.perf_counter() - written_at)
        if seen != payments:
            raise Broken("the stream has not brought the payments that were written to the topic")
        tell.show(
            ("paid at", "order", "how", "EUR"),
            [
                (f"{datetime.fromtimestamp(one.at / 1000, UTC):%a %H:%M:%S}", one.order, one.method, money(one.cents))
                for one in seen[:SHOWN]
            ],
            right=("EUR",),
        )
        tell.proved(f"{LIVE} payments, each seen {median(delays) * 1000:.1f} ms (median) after it was written.")


def _order(stage: Stage, client: Client) -> list[Order]:
    orders = stage.shop.next_monday(HOUR, LIVE)
    client.stream(ORDERS).producer("first-customers").append_many(orders)
    stage.acknowledged += orders
    return orders

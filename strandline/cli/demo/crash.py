"""kill -9 during writes, and a count of the records afterwards."""

from __future__ import annotations

import time
from collections import Counter
from threading import Thread

from strandline.cli.demo.chapters import DEAD, DESTINATION, ORDERS, PAYMENTS, SHIPMENTS, DemoStage, routed
from strandline.cli.demo.server import DemoFailed, DemoServer
from strandline.cli.demo.shop import Order
from strandline.client import Client, Patience

CHECKOUTS = 4
HOUR = 9
MORNING_ORDERS = 1_200
#: Orders that are acknowledged before the server is killed.
BEFORE = 400
#: The checkouts retry often while the server is down.
PATIENCE = Patience(seconds=120.0, longest_wait=0.25)


def kill_and_recover(stage: DemoStage) -> None:
    with stage.teller.chapter("kill -9") as tell:
        tell.say(
            f"On Monday morning, {CHECKOUTS} checkouts write orders at once. The server acknowledges an order when it "
            "is on disk. During the writes, the demo kills the server with SIGKILL. The checkouts retry until it is "
            "back."
        )
        with stage.server.client() as client:
            before = _heads(client)
            copies = routed(client)
        morning = stage.shop.next_monday(HOUR, MORNING_ORDERS)
        checkouts = [_Checkout(stage.server, number, morning[number::CHECKOUTS]) for number in range(CHECKOUTS)]
        for checkout in checkouts:
            checkout.start()
        _wait_for(checkouts, BEFORE)
        stage.server.kill()
        known = [*stage.acknowledged, *(order for checkout in checkouts for order in checkout.acknowledged)]
        tell.doing("restarting the server")
        seconds = stage.server.start()
        with stage.server.client() as client:
            at_once = _orders_in(client)
            check_orders(known, at_once)
            _wait_for(checkouts, MORNING_ORDERS)
            stage.acknowledged += [order for checkout in checkouts for order in checkout.acknowledged]
            found, after = _orders_in(client), _heads(client)
            if routed(client) != copies:
                raise DemoFailed("the copies of the router changed during the kill")
        check_orders(stage.acknowledged, found)
        _check_heads(before, after)
        tell.show(
            ("", "acknowledged", "in the log"),
            (
                ("orders at the kill", f"{len(known):,}", f"{sum(at_once[one.order] for one in known):,}"),
                ("orders at the end", f"{len(stage.acknowledged):,}", f"{found.total():,}"),
                *((name, f"{before[name]:,}", f"{after[name]:,}") for name in before if name != ORDERS),
            ),
            right=("acknowledged", "in the log"),
        )
        tell.say(f"The server was ready again after {seconds:.1f} s.")
        tell.proved("Every acknowledged order is in the log exactly once.")


class _Checkout(Thread):
    """Writes its orders one by one, and retries while the server is down."""

    def __init__(self, server: DemoServer, number: int, orders: list[Order]) -> None:
        # If the demo is interrupted, it does not wait for this thread.
        super().__init__(name=f"checkout-{number}", daemon=True)
        self._client = server.client(patience=PATIENCE)
        self._orders = orders
        self.acknowledged: list[Order] = []
        self.error: Exception | None = None

    def run(self) -> None:
        # The producer numbers its appends, so an append that is sent twice is stored once.
        with self._client as client:
            producer = client.stream(ORDERS).producer(self.name)
            try:
                for order in self._orders:
                    producer.append(order)
                    self.acknowledged.append(order)
            except Exception as error:
                self.error = error


def _wait_for(checkouts: list[_Checkout], orders: int) -> None:
    """Wait until this many orders are acknowledged. Raises the error of a checkout that failed."""
    while sum(len(checkout.acknowledged) for checkout in checkouts) < orders:
        for checkout in checkouts:
            if checkout.error is not None:
                raise checkout.error
        time.sleep(0.002)


def _orders_in(client: Client) -> Counter[str]:
    return Counter(order.order for order in client.stream(ORDERS, Order).read())


def _heads(client: Client) -> dict[str, int]:
    return {name: client.topic(name).state().head_seq for name in (ORDERS, PAYMENTS, SHIPMENTS, DESTINATION, DEAD)}


def check_orders(acknowledged: list[Order], found: Counter[str]) -> None:
    """Raises DemoFailed unless the log has every acknowledged order, and no order twice."""
    missing = [order.order for order in acknowledged if order.order not in found]
    twice = [number for number, times in found.items() if times > 1]
    if missing or twice:
        raise DemoFailed(f"missing acknowledged orders: {len(missing)}; duplicate orders: {len(twice)}")


def _check_heads(before: dict[str, int], after: dict[str, int]) -> None:
    for name in before:
        if name != ORDERS and after[name] != before[name]:
            raise DemoFailed(f"log {name} had {before[name]:,} records before the kill and {after[name]:,} after it")

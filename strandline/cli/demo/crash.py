"""kill -9 in the middle of everything, and a count of what is there afterwards."""

from __future__ import annotations

import time
from collections import Counter
from threading import Thread

from strandline.cli.demo.chapters import DEAD, DESTINATION, ORDERS, PAYMENTS, SHIPMENTS, DemoStage, routed
from strandline.cli.demo.server import DemoFailed, DemoServer
from strandline.cli.demo.shop import Order
from strandline.client import Client, Patience

TILLS = 4
HOUR = 9
MORNING_ORDERS = 1_200
#: So many of them are acknowledged before the server is killed.
BEFORE = 400
#: The tills wait for the server to come back, and look for it often.
PATIENCE = Patience(seconds=120.0, longest_wait=0.25)


def kill_and_recover(stage: DemoStage) -> None:
    with stage.teller.chapter("kill -9") as tell:
        tell.say(
            f"Monday morning: {TILLS} tills sell at once, and an order counts when the server has acknowledged it, "
            "which is when it is on the disk. In the middle of it the server is killed, with no chance to put anything "
            "in order. The tills send again until it is back."
        )
        with stage.server.client() as client:
            before = _heads(client)
            copies = routed(client)
        morning = stage.shop.next_monday(HOUR, MORNING_ORDERS)
        tills = [_Till(stage.server, number, morning[number::TILLS]) for number in range(TILLS)]
        for till in tills:
            till.start()
        _wait_for(tills, BEFORE)
        stage.server.kill()
        known = [*stage.acknowledged, *(order for till in tills for order in till.acknowledged)]
        tell.doing("the server starts again")
        seconds = stage.server.start()
        with stage.server.client() as client:
            at_once = _orders_in(client)
            check_orders(known, at_once)
            _wait_for(tills, MORNING_ORDERS)
            stage.acknowledged += [order for till in tills for order in till.acknowledged]
            found, after = _orders_in(client), _heads(client)
            if routed(client) != copies:
                raise DemoFailed("the router's copies are not what they were before the kill")
        check_orders(stage.acknowledged, found)
        _check_heads(before, after)
        tell.show(
            ("", "acknowledged", "in the log"),
            (
                ("orders when it was killed", f"{len(known):,}", f"{sum(at_once[one.order] for one in known):,}"),
                ("orders when the tills were done", f"{len(stage.acknowledged):,}", f"{found.total():,}"),
                *((name, f"{before[name]:,}", f"{after[name]:,}") for name in before if name != ORDERS),
            ),
            right=("acknowledged", "in the log"),
        )
        tell.say(f"Ready again after {seconds:.1f} s.")
        tell.proved("Every acknowledged order was counted: none is missing, none is there twice.")


class _Till(Thread):
    """Sells its orders one by one, whatever becomes of the server meanwhile."""

    def __init__(self, server: DemoServer, number: int, orders: list[Order]) -> None:
        # If the demonstration is broken off, nobody waits for a till.
        super().__init__(name=f"till-{number}", daemon=True)
        self._client = server.client(patience=PATIENCE)
        self._orders = orders
        self.acknowledged: list[Order] = []
        self.error: Exception | None = None

    def run(self) -> None:
        # The producer numbers its appends: one that is sent twice, because its answer was lost, is there once.
        with self._client as client:
            producer = client.stream(ORDERS).producer(self.name)
            try:
                for order in self._orders:
                    producer.append(order)
                    self.acknowledged.append(order)
            except Exception as error:
                self.error = error


def _wait_for(tills: list[_Till], orders: int) -> None:
    """Until so many orders are acknowledged. Raises what has stopped a till."""
    while sum(len(till.acknowledged) for till in tills) < orders:
        for till in tills:
            if till.error is not None:
                raise till.error
        time.sleep(0.002)


def _orders_in(client: Client) -> Counter[str]:
    return Counter(order.order for order in client.stream(ORDERS, Order).read())


def _heads(client: Client) -> dict[str, int]:
    return {name: client.topic(name).state().head_seq for name in (ORDERS, PAYMENTS, SHIPMENTS, DESTINATION, DEAD)}


def check_orders(acknowledged: list[Order], found: Counter[str]) -> None:
    """Raises Broken unless every acknowledged order is there, and none twice."""
    missing = [order.order for order in acknowledged if order.order not in found]
    twice = [number for number, times in found.items() if times > 1]
    if missing or twice:
        raise DemoFailed(f"{len(missing)} acknowledged orders are missing, {len(twice)} are there twice")


def _check_heads(before: dict[str, int], after: dict[str, int]) -> None:
    for name in before:
        if name != ORDERS and after[name] != before[name]:
            raise DemoFailed(f"{name} had {before[name]:,} records before the kill, and has {after[name]:,} after it")

"""The shop of the demo: generates a week of orders, payments and shipments. The same seed gives the same week."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal, NamedTuple

import msgspec

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
#: Monday, 26 October 2026, 00:00 UTC. The week is fixed, so that every run is the same.
MONDAY = 1_792_972_800_000
WEEK_MS = 7 * DAY_MS

CUSTOMERS = 2_000
#: Prices in cents by product.
PRODUCTS = {
    "green tea": 890,
    "black tea": 790,
    "tea pot": 3_450,
    "desk lamp": 7_900,
    "blue notebook": 1_250,
    "fountain pen": 4_600,
    "ink bottle": 1_100,
    "wool blanket": 9_900,
    "rain coat": 12_500,
    "oak shelf": 18_900,
}
#: Relative demand of the products.
_POPULAR = (30, 28, 10, 8, 22, 7, 12, 5, 4, 2)
CITIES = ("Lyon", "Turin", "Ghent", "Porto", "Graz")
_RESIDENTS = (5, 4, 3, 2, 1)
METHODS = ("card", "invoice", "transfer")
CARRIERS = ("bike", "van", "post")
#: Relative demand by hour of the day, and by day from Monday on.
_HOURS = (2, 1, 1, 1, 1, 2, 4, 8, 12, 14, 15, 19, 24, 20, 15, 14, 15, 18, 24, 31, 36, 30, 16, 6)
_DAYS = (10, 9, 10, 11, 13, 16, 19)
DECLINED = 0.02
SOURCES = ("search", "newsletter", "direct")
_SOURCES_WEIGHTS = (5, 3, 2)
#: The time from the start of a session to its order, in milliseconds.
TIME_TO_ORDER = range(30_000, 300_000)
#: Sessions that end without an order, for each one that ends with an order.
BOUNCES = 2


class Visit(msgspec.Struct, frozen=True):
    """The start of a session on the website, and what brought the customer there."""

    session: str
    source: str
    at: int


class Order(msgspec.Struct, frozen=True):
    order: str
    session: str
    at: int
    customer: str
    city: str
    items: str
    cents: int


class Payment(msgspec.Struct, frozen=True):
    order: str
    at: int
    method: str
    cents: int
    outcome: Literal["paid", "declined"]


class Shipment(msgspec.Struct, frozen=True):
    order: str
    at: int
    city: str
    carrier: str
    grams: int


class Traffic(NamedTuple):
    """The events of a part of the week, up to ``until``."""

    until: int
    orders: list[Order]
    payments: list[Payment]
    shipments: list[Shipment]


class Shop:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._number = 0
        self._waiting: list[Shipment] = []

    def week(self, orders: int, hours: int) -> Iterator[Traffic]:
        """A week with this many orders, in parts of ``hours``. Payments after the week are left out; shipments after it
        wait in the warehouse."""
        sold = self._orders(sorted(self._moment() for _ in range(orders)))
        paid = sorted((self._payment(order) for order in sold), key=lambda payment: payment.at)
        by_number = {order.order: order for order in sold}
        sent = sorted(
            (self._shipment(by_number[payment.order], payment) for payment in paid if payment.outcome == "paid"),
            key=lambda shipment: shipment.at,
        )
        self._waiting = [shipment for shipment in sent if shipment.at >= MONDAY + WEEK_MS]
        for since in range(MONDAY, MONDAY + WEEK_MS, hours * HOUR_MS):
            until = since + hours * HOUR_MS
            yield Traffic(
                until,
                [order for order in sold if since <= order.at < until],
                [payment for payment in paid if since <= payment.at < until],
                [shipment for shipment in sent if since <= shipment.at < until],
            )

    def warehouse(self, parcels: int) -> list[Shipment]:
        """Take this many shipments out of the warehouse."""
        taken, self._waiting = self._waiting[:parcels], self._waiting[parcels:]
        return taken

    def next_monday(self, hour: int, orders: int, minute: int = 0) -> list[Order]:
        """Orders of the Monday after the week, one second apart."""
        opening = MONDAY + WEEK_MS + hour * HOUR_MS + minute * MINUTE_MS
        return self._orders([opening + second * 1000 for second in range(orders)])

    def visits_of(self, orders: list[Order]) -> list[Visit]:
        """The start of the session of each order, with sessions that led to no order, in the order of time."""
        visits = []
        for order in orders:
            sessions = [order.session, *(f"{order.session}-{number}" for number in range(1, BOUNCES + 1))]
            visits += [Visit(each, self._source(), order.at - self._random.choice(TIME_TO_ORDER)) for each in sessions]
        return sorted(visits, key=lambda visit: visit.at)

    def payments_of(self, orders: list[Order]) -> list[Payment]:
        return [self._payment(order) for order in orders]

    def _moment(self) -> int:
        day = self._random.choices(range(7), cum_weights=_DAYS_SUMMED)[0]
        hour = self._random.choices(range(24), cum_weights=_HOURS_SUMMED)[0]
        return MONDAY + day * DAY_MS + hour * HOUR_MS + self._random.randrange(HOUR_MS)

    def _orders(self, moments: list[int]) -> list[Order]:
        return [self._order(at) for at in moments]

    def _order(self, at: int) -> Order:
        self._number += 1
        items = self._random.choices(
            list(PRODUCTS), cum_weights=_POPULAR_SUMMED, k=self._random.choice((1, 1, 1, 2, 3))
        )
        return Order(
            order=f"A-{self._number:06}",
            session=f"S-{self._number:06}",
            at=at,
            customer=f"customer-{int(self._random.triangular(0, CUSTOMERS, 0)):04}",
            city=self._random.choices(CITIES, cum_weights=_RESIDENTS_SUMMED)[0],
            items=", ".join(items),
            cents=sum(PRODUCTS[item] for item in items),
        )

    def _source(self) -> str:
        return self._random.choices(SOURCES, _SOURCES_WEIGHTS)[0]

    def _payment(self, order: Order) -> Payment:
        return Payment(
            order=order.order,
            at=order.at + self._random.randrange(5_000, 300_000),
            method=self._random.choices(METHODS, (7, 2, 1))[0],
            cents=order.cents,
            outcome="declined" if self._random.random() < DECLINED else "paid",
        )

    def _shipment(self, order: Order, payment: Payment) -> Shipment:
        return Shipment(
            order=order.order,
            at=payment.at + self._random.randrange(2 * HOUR_MS, 30 * HOUR_MS),
            city=order.city,
            carrier=self._random.choice(CARRIERS),
            grams=self._random.randrange(150, 9_000),
        )


# Computed once, because `choices` would take half of its time to compute them.
_DAYS_SUMMED = list(accumulate(_DAYS))
_HOURS_SUMMED = list(accumulate(_HOURS))
_POPULAR_SUMMED = list(accumulate(_POPULAR))
_RESIDENTS_SUMMED = list(accumulate(_RESIDENTS))

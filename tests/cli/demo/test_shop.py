from __future__ import annotations

from strandline.cli.demo.shop import MONDAY, PRODUCTS, WEEK_MS, Shop, Traffic


def week(seed: int) -> list[Traffic]:
    return list(Shop(seed).week(500, 12))


def test_the_same_seed_makes_the_same_week_and_another_one_another() -> None:
    assert week(1) == week(1)
    assert week(1) != week(2)


def test_a_week_is_in_the_order_of_time() -> None:
    parts = week(1)
    orders = [order for part in parts for order in part.orders]
    assert len(parts) == 14
    assert len({order.order for order in orders}) == len(orders) == 500
    assert [order.at for order in orders] == sorted(order.at for order in orders)
    for since, part in zip([MONDAY, *(part.until for part in parts)], parts, strict=False):
        assert all(since <= event.at < part.until for event in [*part.orders, *part.payments, *part.shipments])
    assert parts[-1].until == MONDAY + WEEK_MS


def test_an_order_costs_what_its_items_cost() -> None:
    for part in week(1):
        for order in part.orders:
            assert order.cents == sum(PRODUCTS[item] for item in order.items.split(", "))


def test_what_is_sent_was_paid_before() -> None:
    parts = week(1)
    paid = {payment.order: payment for part in parts for payment in part.payments}
    for part in parts:
        for shipment in part.shipments:
            assert paid[shipment.order].outcome == "paid"
            assert paid[shipment.order].at < shipment.at


def test_what_is_not_sent_in_the_week_waits_in_the_warehouse() -> None:
    shop = Shop(1)
    sent = {shipment.order for part in shop.week(500, 12) for shipment in part.shipments}
    first, second = shop.warehouse(3), shop.warehouse(1_000)
    assert len(first) == 3
    assert not {shipment.order for shipment in first} & {shipment.order for shipment in second}
    assert not sent & {shipment.order for shipment in [*first, *second]}
    assert shop.warehouse(1) == []


def test_orders_go_on_being_numbered_on_monday() -> None:
    shop = Shop(1)
    list(shop.week(5, 12))
    assert [order.order for order in shop.next_monday(9, 2)] == ["A-000006", "A-000007"]


def test_every_order_has_one_session_that_began_before_it() -> None:
    shop = Shop(1)
    orders = shop.next_monday(10, 20, minute=3)
    visits = shop.visits_of(orders)
    assert orders[0].at == MONDAY + WEEK_MS + 10 * 3_600_000 + 3 * 60_000
    assert [visit.at for visit in visits] == sorted(visit.at for visit in visits)
    sessions = {visit.session: visit.at for visit in visits}
    assert len(sessions) == len(visits) > len(orders)
    assert all(sessions[order.session] < order.at for order in orders)

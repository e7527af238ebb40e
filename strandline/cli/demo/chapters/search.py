"""A search, and an aggregate as a chart."""

from __future__ import annotations

from datetime import datetime

from strandline.cli.bars import bar_of
from strandline.cli.demo.chart import draw_week
from strandline.cli.demo.server import Broken
from strandline.cli.demo.shop import MONDAY, WEEK_MS, Order
from strandline.cli.demo.stage import ORDERS, Stage, money
from strandline.client import Client
from strandline.client.stream_types import Aggregated

CITY, PRODUCT, CENTS = "Graz", "desk lamp", 20_000
QUERY = f'items:"{PRODUCT}" city:{CITY} cents:>{CENTS}'
SHOWN = 4
BAR = 40


def search_orders(stage: Stage) -> None:
    with stage.teller.chapter("A search") as tell, stage.server.client() as client:
        orders = client.stream(ORDERS, Order)
        found = orders.search(QUERY, sort=["cents:desc"], size=SHOWN)
        again = orders.search(QUERY, sort=["cents:desc"], size=SHOWN)
        hits = [hit.source for hit in orders.hits(QUERY)]
        wanted = [one for one in stage.acknowledged if PRODUCT in one.items and one.city == CITY and one.cents > CENTS]
        if sorted(hit.order for hit in hits) != sorted(one.order for one in wanted):
            raise Broken(f"the search has {len(hits)} hits, and the shop knows of {len(wanted)}")
        tell.say(
            f"Who in {CITY} bought a {PRODUCT} in an order of more than {money(CENTS)}? Asked in the query language:"
        )
        tell.quote(QUERY)
        tell.show(
            ("order", "customer", "items", "EUR"),
            [(one.source.order, one.source.customer, one.source.items, money(one.source.cents)) for one in found.hits],
            right=("EUR",),
        )
        how = (
            "from the indexes that Spark made" if stage.has_lake else "from columns in memory, as there is no index yet"
        )
        tell.proved(
            f"{len(hits)} hits among {len(stage.acknowledged):,} orders, {how}: {found.took_ms:.0f} ms, and "
            f"{again.took_ms:.0f} ms when asked again."
        )


def draw_takings(stage: Stage) -> None:
    with stage.teller.chapter("A chart") as tell, stage.server.client() as client:
        by_day = _aggregate(client, "1d")
        days, hours = _takings(by_day), _takings(_aggregate(client, "1h"))
        total = sum(one.cents for one in stage.acknowledged if one.at < MONDAY + WEEK_MS)
        if sum(days.values()) != total or sum(hours.values()) != total:
            raise Broken("the aggregate is not the sum of the week's orders")
        if by_day.coverage.get("used_rollups"):
            tell.say("The week's takings, from sums that the pipeline has kept ready (a rollup): few records are read.")
        else:
            tell.say("The week's takings, added up from the records. The pipeline would keep such sums ready.")
        highest = max(days.values())
        tell.draw(
            [
                (f"{datetime.fromisoformat(day):%a %d %b}  {money(cents):>12}", bar_of(cents, highest, BAR))
                for day, cents in days.items()
            ]
        )
        by_moment = {round(datetime.fromisoformat(hour).timestamp() * 1000): cents for hour, cents in hours.items()}
        stage.picture.write_bytes(draw_week(by_moment))
        tell.say("By the hour, as a picture:")
        tell.quote(str(stage.picture))
        tell.proved(f"Together {money(total)} EUR, to the cent what the shop has sold in that week.")


def _aggregate(client: Client, interval: str) -> Aggregated:
    return client.stream(ORDERS).aggregate("takings", start=MONDAY, end=MONDAY + WEEK_MS, interval=interval)


def _takings(answer: Aggregated) -> dict[str, int]:
    """Cents by when they were taken, of all cities together."""
    return {bucket.start: sum(group.measures["cents"]["sum"] for group in bucket.groups) for bucket in answer.buckets}

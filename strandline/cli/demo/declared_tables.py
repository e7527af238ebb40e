"""The chapters about declared tables: a project over two logs, and its result while orders are written."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from strandline.cli.demo.chapters import ORDERS, DemoStage, money
from strandline.cli.demo.page import served_page
from strandline.cli.demo.server import CommandBeside, DemoFailed
from strandline.cli.demo.shop import MINUTE_MS, Order, Visit
from strandline.client import Client, Draft, NotFound
from strandline.lake.location import Lake
from strandline.lake.status import BadStatus, read_status

#: Where wheels have the project, and where a clone of the repository has it.
INSTALLED = Path(__file__).parent / "shop-pipeline"
SOURCE = Path(__file__).parents[3] / "examples" / "shop-pipeline"

VISITS, REVENUE = "visits", "revenue"
#: The hour of the first live orders, and the minutes that are there when the tables are made.
HOUR = 10
FIRST_MINUTES = 5
#: Further minutes of the shop: at least enough to watch for some seconds, and at most what a busy machine may need
#: until the table has changed.
LEAST_MINUTES, MOST_MINUTES = 20, 2_000
#: Orders in a minute of the shop; the number changes from minute to minute.
ORDERS_PER_MINUTE = (6, 9, 14, 11, 8, 17, 12)
#: The time in which a minute of the shop passes.
MINUTE_SECONDS = 0.5
#: The table must have changed this often while orders are written.
CHANGES = 2
#: Maximum time until the table has the orders that were written.
TABLE_SECONDS = 240.0
LOOK_SECONDS = 0.2


class RevenueRow(msgspec.Struct, frozen=True):
    """A row of the declared table ``revenue_per_minute``, as it is written to the log."""

    minute: str
    source: str
    orders: int
    cents: int


#: Orders and revenue by minute and source.
Revenue = dict[tuple[int, str], tuple[int, int]]


def declare_tables(stage: DemoStage) -> None:
    project = INSTALLED if INSTALLED.is_dir() else SOURCE
    with ExitStack() as stack:
        with stage.teller.chapter("Tables over logs") as tell:
            jars, missing = _jars(stage)
            if missing:
                tell.say(f"Skipped: {'; '.join(missing)}")
                return
            tell.say(
                "A visit to the website starts a session, and a session may end with an order. A project declares two "
                "tables over these logs: every order with its session (a join), and the revenue per minute:"
            )
            for line in _statement(project / "tables" / "revenue_per_minute.sql"):
                tell.quote(line)
            tell.doing("starting Spark")
            website = _Website(stage, stack.enter_context(stage.server.client()))
            website.pass_minutes(FIRST_MINUTES)
            started = time.perf_counter()
            table = stack.enter_context(_kept_current(stage, project, jars))
            table.wait_for(website.revenue)
            seconds = time.perf_counter() - started
            tell.show(("minute", "orders", "EUR"), _by_minute(website.revenue), right=("orders", "EUR"))
            tell.proved(
                f"After {seconds:.0f} s, with the start of Spark, the log `{REVENUE}` had the rows of the table. They "
                "are equal to the shop's own sums."
            )
            tell.say("To watch the table while it changes, open this page, or the pipeline in the console:")
            tell.quote(f"{stack.enter_context(served_page(project / 'page'))}/?server={stage.server.url}")
            tell.quote(f"{stage.server.url}/console/#/pipeline")
        _watch(stage, website, table)


@contextmanager
def _kept_current(stage: DemoStage, project: Path, jars: list[str]) -> Iterator[_Table]:
    """Run the project until the block ends."""
    lake = stage.server.data / "lake"
    options = ["--url", stage.server.url, "--lake", str(lake), "--project", str(project), "--continuous"]
    # One round for the lake, so that the next one does not compete with the tables.
    options += ["--interval", str(TABLE_SECONDS * 2)]
    options += [part for jar in jars for part in ("--jar", jar)]
    with stage.server.beside("pipeline", "run", *options) as pipeline, stage.server.client() as client:
        yield _Table(client, pipeline, Lake.at(str(lake)))


def _watch(stage: DemoStage, website: _Website, table: _Table) -> None:
    with stage.teller.chapter("A table that moves") as tell:
        tell.say(
            "The shop keeps selling, and a minute passes in half a second. Spark joins each order with its session, "
            "changes the rows of its minute, and writes the changed rows to the log that the page reads (SSE)."
        )
        before = len(website.revenue)
        tell.doing("selling")
        changes = _sell(website, table)
        written = time.perf_counter()
        tell.doing("waiting until the table has the last order")
        table.wait_for(website.revenue)
        late = time.perf_counter() - written
        by_source: dict[str, tuple[int, int]] = {}
        for (_, source), (orders, cents) in website.revenue.items():
            known = by_source.get(source, (0, 0))
            by_source[source] = known[0] + orders, known[1] + cents
        rows = [(source, f"{orders:,}", money(cents)) for source, (orders, cents) in sorted(by_source.items())]
        tell.show(("source", "orders", "EUR"), rows, right=("orders", "EUR"))
        tell.proved(
            f"The table changed {changes} times while the orders were written, and had the last one {late:.1f} s after "
            f"it was acknowledged. All {len(website.revenue) - before:,} new rows are exact."
        )


def _sell(website: _Website, table: _Table) -> int:
    """Let minutes pass until the table has changed a few times. Returns how often it has."""
    changes, shown = 0, table.rows()
    for minute in range(MOST_MINUTES):
        if minute >= LEAST_MINUTES and changes >= CHANGES:
            return changes
        begin = time.perf_counter()
        website.pass_minutes(1)
        now = table.rows()
        changes, shown = changes + (now != shown), now
        time.sleep(max(0.0, MINUTE_SECONDS - (time.perf_counter() - begin)))
    raise DemoFailed(f"the declared table did not change {CHANGES} times while {MOST_MINUTES:,} minutes passed")


def _jars(stage: DemoStage) -> tuple[list[str], list[str]]:
    """The jars of Delta, and what is missing."""
    if not stage.with_spark:
        return [], ["--no-spark was given"]
    from strandline.pipeline.delta import DeltaMissing, find_jars
    from strandline.pipeline.spark_session import what_is_missing

    missing = what_is_missing()
    if missing or stage.jars:
        return stage.jars, missing
    try:
        return find_jars(), []
    except DeltaMissing as error:
        return [], [str(error)]


def _statement(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("--")]


# --- the website ------------------------------------------------------------------------------------------------------


class _Website:
    """Sessions and their orders, and the revenue that they add up to."""

    def __init__(self, stage: DemoStage, client: Client) -> None:
        self._stage = stage
        self._orders = client.stream(ORDERS, Order).producer("website")
        self._visits = client.topic(VISITS, Visit)
        self._minute = 0
        self.revenue: Revenue = {}

    def pass_minutes(self, minutes: int) -> None:
        for _ in range(minutes):
            count = ORDERS_PER_MINUTE[self._minute % len(ORDERS_PER_MINUTE)]
            orders = self._stage.shop.next_monday(HOUR, count, self._minute)
            visits = self._stage.shop.visits_of(orders)
            self._minute += 1
            self._visits.write_many(Draft(visit) for visit in visits)
            self._orders.append_many(orders)
            self._stage.acknowledged += orders
            sources = {visit.session: visit.source for visit in visits}
            for order in orders:
                row = order.at - order.at % MINUTE_MS, sources[order.session]
                count, cents = self.revenue.get(row, (0, 0))
                self.revenue[row] = count + 1, cents + order.cents


def _by_minute(revenue: Revenue) -> list[tuple[str, str, str]]:
    orders: Counter[int] = Counter()
    cents: Counter[int] = Counter()
    for (minute, _), (number, sum_) in revenue.items():
        orders[minute] += number
        cents[minute] += sum_
    return [
        (f"{datetime.fromtimestamp(minute / 1000, UTC):%a %H:%M}", str(orders[minute]), money(cents[minute]))
        for minute in sorted(orders)
    ]


# --- the declared table -----------------------------------------------------------------------------------------------


class _Table:
    """The declared table, as the log that it is written to has it: the last record of each key."""

    def __init__(self, client: Client, pipeline: CommandBeside, lake: Lake) -> None:
        self._stream = client.stream(REVENUE, RevenueRow)
        self._pipeline = pipeline
        self._lake = lake

    def rows(self) -> Revenue:
        """Raises DemoFailed if the pipeline has ended, or a table has failed."""
        self._pipeline.check()
        try:
            page = self._stream.page(latest=True)
            values = page.values
            while not page.up_to_date:
                page = self._stream.page(page.next_offset, latest=True)
                values += page.values
        except NotFound:
            return {}
        return {
            (round(datetime.fromisoformat(row.minute).timestamp() * 1000), row.source): (row.orders, row.cents)
            for row in values
        }

    def wait_for(self, revenue: Revenue) -> None:
        """Raises DemoFailed if the table does not get these rows in time."""
        _wait(lambda: self.rows() == revenue, self._problem)

    def _problem(self) -> str:
        try:
            status = read_status(self._lake)
        except (BadStatus, OSError) as error:
            return str(error)
        if status is None or status.declared is None:
            return "the pipeline has not reported its tables"
        told = [f"{table.name}: {table.error}" for table in status.declared.tables if table.error is not None]
        return "; ".join([*told, *([status.declared.error] if status.declared.error else [])]) or "its rows differ"


def _wait(condition: Callable[[], bool], problem: Callable[[], str]) -> None:
    deadline = time.perf_counter() + TABLE_SECONDS
    while not condition():
        if time.perf_counter() > deadline:
            raise DemoFailed(f"the declared table did not have all orders after {TABLE_SECONDS:.0f} s: {problem()}")
        time.sleep(LOOK_SECONDS)

"""The pipeline: history becomes tables and indexes, on Spark."""

from __future__ import annotations

import json
import time

from strandline.cli.demo.server import Broken
from strandline.cli.demo.stage import Stage, money

BEST = 3
STATEMENT = (
    "select key as customer, count(*) as orders, sum((data->>'cents')::int) as cents "
    f"from orders group by key order by cents desc, customer limit {BEST}"
)


def run_the_pipeline(stage: Stage) -> None:
    with stage.teller.chapter("History, on Spark") as tell:
        missing = _missing() if stage.with_spark else ["it was not wanted (--no-spark)"]
        if missing:
            tell.say(f"Left out: {'; '.join(missing)}")
            tell.say("All that follows works without it; it only makes much history quick.")
            return
        tell.say(
            "Beside the server, Spark turns history into a lake: Delta tables that any tool reads, and indexes that "
            "searches are answered from. The server goes on meanwhile. One round now; Spark takes a while to start."
        )
        tell.doing("Spark starts, and makes tables and indexes")
        data = str(stage.server.data)
        started = time.perf_counter()
        stage.server.run_beside("pipeline", "run", "--once", "--data", data)
        seconds = time.perf_counter() - started
        stage.has_lake = True
        with stage.server.client() as client:
            head = client.topic("orders").state().head_seq
        tell.say(f"Done after {seconds:.0f} s. The best customers, with `strandline sql`, DuckDB on the lake:")
        best = [
            json.loads(line)
            for line in stage.server.run_beside("sql", STATEMENT, "--data", data, "--json").splitlines()
        ]
        rows = [(row["customer"], str(row["orders"]), money(row["cents"])) for row in best]
        tell.show(("customer", "orders", "EUR"), rows, right=("orders", "EUR"))
        _check(stage, rows, head)


def _missing() -> list[str]:
    from strandline.pipeline.requirements import what_is_missing

    return what_is_missing()


def _check(stage: Stage, rows: list[tuple[str, str, str]], head: int) -> None:
    """The shop knows by itself who has bought most."""
    sums: dict[str, tuple[int, int]] = {}
    for order in stage.acknowledged:
        count, cents = sums.get(order.customer, (0, 0))
        sums[order.customer] = count + 1, cents + order.cents
    best = sorted(sums.items(), key=lambda one: (-one[1][1], one[0]))[:BEST]
    if rows != [(customer, str(count), money(cents)) for customer, (count, cents) in best]:
        raise Broken(f"the lake does not say of {head:,} orders what the shop has sold")

"""The demonstration's scene of history: a stream, the pipeline on Spark, and what can be asked afterwards."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from strandline.cli.demo_server import DemoServer
from strandline.client import Client
from strandline.client.stream_types import Aggregated, Found

SALES = 40_000
BATCH = 2000
STREAM = "sales"
#: A week of sales begins here.
FIRST = 1_793_000_000_000 // 86_400_000 * 86_400_000
WEEK_MS = 7 * 86_400_000
ITEMS = ("blue pen", "red pen", "desk lamp", "lamp oil", "green notebook", "paper", "ink bottle", "blue ink")
CITIES = ("Lyon", "Turin", "Ghent", "Porto", "Graz")
BAR = 40

REGISTRY: dict[str, Any] = {
    "schema": {"type": "object"},
    "routingKey": {"jsonPointer": "/customer", "required": True},
    "search": {
        "primaryTimestampField": "at",
        "defaultFields": [{"field": "item"}],
        "fields": {
            name: {"kind": kind, **flags, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}]}
            for name, kind, flags in (
                ("at", "date", {"column": True, "sortable": True}),
                ("customer", "keyword", {"exact": True}),
                ("city", "keyword", {"exact": True}),
                ("item", "text", {"analyzer": "unicode_word_v1", "positions": True}),
                ("cents", "integer", {"column": True, "sortable": True, "aggregatable": True}),
            )
        },
        "rollups": {
            "takings": {
                "dimensions": ["city"],
                "intervals": ["1h", "1d"],
                "measures": {"sales": {"kind": "count"}, "cents": {"kind": "summary", "field": "cents"}},
            }
        },
    },
}


def missing() -> list[str]:
    """What the pipeline lacks on this machine."""
    from strandline.pipeline.missing import what_is_missing

    return what_is_missing()


def sell(client: Client) -> float:
    """Make the stream and fill it; returns the seconds that took."""
    stream = client.stream(STREAM)
    stream.create()
    stream.set_schema(REGISTRY)
    # Each batch is appended once, however often it has to be sent.
    producer = stream.producer()
    started = time.perf_counter()
    for batch in _sales():
        producer.append_many(batch)
    return time.perf_counter() - started


def _sales() -> Iterator[list[dict[str, Any]]]:
    """The same sales every time, more of them in the middle of the day."""
    rng = random.Random(7)
    moments = sorted(
        FIRST + rng.randrange(7) * 86_400_000 + round(rng.triangular(0, 86_399_000, 50_000_000)) for _ in range(SALES)
    )
    for first in range(0, SALES, BATCH):
        yield [
            {
                "at": at,
                "customer": f"customer-{rng.randrange(500)}",
                "city": rng.choices(CITIES, (5, 4, 3, 2, 1))[0],
                "item": rng.choice(ITEMS),
                "cents": rng.randrange(80, 9000),
            }
            for at in moments[first : first + BATCH]
        ]


def run_pipeline(server: DemoServer) -> tuple[float, str]:
    """A whole round, beside the running server; the seconds it took, and what it says at last. Raises OSError if it
    fails."""
    command = [sys.executable, "-m", "strandline", "pipeline", "run", "--once", "--data", str(server.data)]
    started = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"the pipeline ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started, done.stderr.strip().rpartition("\n")[2]


def search(client: Client) -> Found[Any]:
    return client.stream(STREAM).search('item:"desk lamp" city:Graz cents:>8900', sort=["cents:desc"], size=3)


def days(client: Client) -> Aggregated:
    return client.stream(STREAM).aggregate("takings", start=FIRST, end=FIRST + WEEK_MS, interval="1d")


def bars(answer: Aggregated) -> Iterator[str]:
    """The takings of every day as a line."""
    takings = {bucket.start[:10]: bucket.groups[0].measures["cents"]["sum"] for bucket in answer.buckets}
    most = max(takings.values())
    for day, cents in takings.items():
        yield f"{day}  {'█' * round(BAR * cents / most):<{BAR}}  {cents / 100:>12,.2f}"


def best_customers(server: DemoServer) -> list[tuple[Any, ...]]:
    """Straight from the lake, without the server."""
    import duckdb
    from deltalake import DeltaTable

    files = DeltaTable(str(server.data / "lake" / "records")).file_uris()
    return duckdb.execute(
        "SELECT key, count(*), sum((data ->> 'cents')::INT) FROM read_parquet(?) WHERE log = 'sales' "
        "GROUP BY key ORDER BY 3 DESC LIMIT 3",
        [files],
    ).fetchall()

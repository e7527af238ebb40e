"""The status of a pipeline with declared tables, as a file that a server reads: no Spark is needed to show it."""

from __future__ import annotations

from pathlib import Path
from time import time

import msgspec

from strandline.lake.location import Lake
from strandline.lake.status import DeclaredStatus, DeclaredTable, PipelineStatus, write_status

ERROR = "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate a divisor of 0 and return NULL instead."


def shop_tables(now: int) -> list[DeclaredTable]:
    """A join of two logs, an aggregation that is written to a log, a view that fails, and one of each other kind."""
    return [
        DeclaredTable(name="placed_orders", kind="temporary_view", state="running", inputs=["orders"]),
        DeclaredTable(
            name="orders_by_session", kind="streaming_table", state="running", mode="append",
            comment="Each order with the session that led to it", inputs=["orders", "visits"],
            dead_letter_log="orders:rejected", rows=48_200, lag=1_250, updated=now - 12_000, seconds=0.84,
        ),
        DeclaredTable(
            name="revenue_per_minute", kind="materialized_view", state="running", mode="state",
            reason="an aggregation of one stream, kept by its state", inputs=["orders_by_session"], log="revenue",
            rows=46_950, lag=0, updated=now - 2_000, seconds=1.31, erasures=3,
        ),
        DeclaredTable(
            name="customers", kind="streaming_table", state="running", mode="cdc", inputs=["orders"], rows=48_200,
            lag=0, updated=now - 1_000, seconds=0.4,
        ),
        DeclaredTable(
            name="average_basket", kind="materialized_view", state="failed", mode="refresh",
            reason="computed as a whole: it reads 2 logs and tables", inputs=["customers", "orders_by_session"],
            updated=now - 75_000, seconds=3.2, failures=4, error=ERROR, retry=now + 8_000,
        ),
        DeclaredTable(name="not_started", kind="streaming_table", inputs=["orders"]),
    ]  # fmt: skip


def write_declared(data: Path, tables: list[DeclaredTable] | None = None, error: str | None = None) -> None:
    """Write the status into the lake of a data directory."""
    now = round(time() * 1000)
    declared = DeclaredStatus(
        project="shop", directory="/projects/shop", tables=shop_tables(now) if tables is None else tables, error=error
    )
    write_status(
        Lake.at(str(data / "lake")),
        PipelineStatus(state="running", since=now - 600_000, updated=now, master="local[2]", declared=declared),
    )


def changed(tables: list[DeclaredTable], name: str, **members: object) -> list[DeclaredTable]:
    return [msgspec.structs.replace(each, **members) if each.name == name else each for each in tables]

"""Rows of benchmarks beside peers."""

from __future__ import annotations

from bench.measure import Figure, Row, Unit


def row(name: str, peer: str, ours: float, theirs: float, unit: Unit, chart: str, at: int | None = None) -> Row:
    figures = [Figure(value, value * 0.9, value * 1.1) for value in (ours, theirs, ours / theirs)]
    return Row(
        group="peers", name=name, unit=unit, result=figures[0], rounds=3, peer_is=f"{peer}, as it comes",
        peer=figures[1], times_peer=figures[2], chart=chart, at=at,
    )  # fmt: skip


BARS = [
    row("batches, disk", "Redis Streams", 600, 200, "records/s", "appends"),
    row("batches, disk", "NATS <JetStream>", 600, 1200, "records/s", "appends"),
    row("one append, disk", "Redis Streams", 60, 20, "µs", "appends"),
]
LINES = [
    row(f"one append to {size}", peer, 50, cost, "µs", "growth-topics", size)
    for size in (1000, 10_000, 100_000)
    for peer, cost in (("Redis Streams", 20), ("PostgreSQL", 21))
]

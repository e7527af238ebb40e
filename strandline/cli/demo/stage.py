"""What the chapters share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from strandline.cli.demo.narration import Teller
from strandline.cli.demo.server import DemoServer
from strandline.cli.demo.shop import Order, Shop

ORDERS, PAYMENTS, SHIPMENTS = "orders", "payments", "shipments"


@dataclass
class Stage:
    server: DemoServer
    teller: Teller
    shop: Shop
    picture: Path
    with_spark: bool
    #: Whether the pipeline has been through the logs.
    has_lake: bool = False
    #: Every order that the server has acknowledged, as the shop knows it: what is counted against the log.
    acknowledged: list[Order] = field(default_factory=list)


def money(cents: float) -> str:
    return f"{cents / 100:,.2f}"

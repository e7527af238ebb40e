"""The demonstration would tell if something were lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from strandline.cli.demo.crash import check_orders
from strandline.cli.demo.server import DemoFailed, DemoServer
from strandline.cli.demo.shop import Shop

ORDERS = Shop(1).next_monday(9, 3)
NUMBERS = [order.order for order in ORDERS]


def test_all_orders_once_are_fine_also_one_that_was_never_answered_for() -> None:
    check_orders(ORDERS, Counter(NUMBERS))
    check_orders(ORDERS[:2], Counter(NUMBERS))


def test_an_order_that_is_missing_is_told() -> None:
    with pytest.raises(DemoFailed, match="missing acknowledged orders: 1; duplicate orders: 0"):
        check_orders(ORDERS, Counter(NUMBERS[:2]))


def test_an_order_that_is_there_twice_is_told() -> None:
    with pytest.raises(DemoFailed, match="missing acknowledged orders: 0; duplicate orders: 1"):
        check_orders(ORDERS, Counter([*NUMBERS, NUMBERS[0]]))


def test_a_server_that_does_not_start_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("this is no directory")
    with DemoServer(tmp_path) as server, pytest.raises(DemoFailed, match=r"^the server did not start: [^\n]+$"):
        server.start()


def test_a_command_that_fails_is_told_in_one_line(tmp_path: Path) -> None:
    with (
        DemoServer(tmp_path) as server,
        pytest.raises(DemoFailed, match=r"`strandline verify` failed with .+: [^\n]+$"),
    ):
        server.run_beside("verify")

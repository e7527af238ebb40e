from __future__ import annotations

import pytest

from strandline.pipeline.declared.project import BadProject
from strandline.pipeline.declared.statements import NamedTable, View, substituted


def view_of(name: str, streaming: bool) -> View:
    return View(f"{'stream' if streaming else 'batch'}_{name}", streaming)


def test_names_are_replaced_and_stay_the_names_of_columns() -> None:
    text = "select o.a from STREAM orders o join `shop/x` on stream(visits).b"
    tables = [
        NamedTable(16, 31, "orders", True, True),
        NamedTable(37, 45, "shop/x", False, False),
        NamedTable(49, 63, "visits", True, False),
    ]
    assert substituted(text, tables, view_of) == (
        "select o.a from STREAM `stream_orders` o join `batch_shop/x` AS `shop/x` "
        "on STREAM `stream_visits` AS `visits`.b"
    )


def test_a_watermark_stays_before_the_alias() -> None:
    text = "select * from STREAM orders WATERMARK ts DELAY OF INTERVAL 1 MINUTE"
    found = substituted(text, [NamedTable(14, len(text), "orders", True, False)], view_of)
    assert found == "select * from STREAM `stream_orders` WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS `orders`"


def test_a_name_after_a_comment_is_not_guessed() -> None:
    text = "select * from STREAM /* all */ orders"
    with pytest.raises(BadProject, match="cannot find the name 'orders'"):
        substituted(text, [NamedTable(14, len(text), "orders", True, False)], view_of)


@pytest.mark.parametrize("written", ["STREAM orders", "stream(orders)", "Stream ( `orders` )", "STREAM`orders`"])
def test_a_part_of_a_batch_takes_the_place_of_a_stream(written: str) -> None:
    found = substituted(written, [NamedTable(0, len(written), "orders", True, True)], lambda *_: View("part", False))
    assert found == "`part`"

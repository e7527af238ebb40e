"""The charts of one log."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from browser.console.conftest import Visit
from playwright.sync_api import expect
from support.console_shop import Shop


def test_the_records_of_a_log_are_counted_over_time(visit: Visit, shop: Shop) -> None:
    name = shop.topic(records=30)
    shop.call("PUT", f"/v0/topics/{name}/consumers/billing", {"seq": 10})
    page = visit(f"log/{name}")
    page.get_by_role("tab", name="Activity").click()
    panel = page.get_by_role("tabpanel")
    expect(panel.get_by_role("status")).to_have_text("30 records")
    expect(panel.locator("canvas")).to_have_count(4)
    lag = panel.locator("figure.chart", has=page.get_by_role("heading", name="Lag of the slowest consumer"))
    expect(lag.locator(".chart-values")).to_have_text("20")
    shop.write(name, *range(5))
    expect(lag.locator(".chart-values")).to_have_text("25")
    expect(panel.get_by_role("status")).to_have_text("35 records")
    panel.get_by_role("radio", name="All time").check()
    expect(panel.get_by_role("status")).to_have_text("35 records")
    page.reload()
    expect(panel.get_by_role("radio", name="All time")).to_be_checked()
    expect(panel.get_by_role("status")).to_have_text("35 records")


def test_a_range_leads_to_its_records(visit: Visit, shop: Shop) -> None:
    name = shop.topic(records=30)
    written = datetime.fromtimestamp(shop.state(name)["last_write_ts"] / 1000, UTC)
    page = visit(f"log/{name}?tab=activity&hours=all", zone="UTC")
    expect(page.get_by_role("tabpanel").get_by_role("status")).to_have_text("30 records")
    box = page.locator(".histogram .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 30, steps=5)
    page.mouse.up()
    expect(page.get_by_role("tab", name="Filter")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_label("From this time")).to_have_value(re.compile(f"{written:%Y-%m-%d} "))
    expect(page.get_by_role("status").first).to_have_text("30 matches; complete")


def test_an_empty_log_has_an_empty_chart(visit: Visit, shop: Shop) -> None:
    page = visit(f"log/{shop.topic()}?tab=activity")
    expect(page.get_by_role("tabpanel").get_by_role("status")).to_have_text("0 records")

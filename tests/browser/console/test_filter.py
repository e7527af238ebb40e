"""Records found by their content, over time and live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]


def payments(shop: Shop, number: int) -> str:
    name = shop.topic("payments")
    shop.write(name, *({"n": at, "status": "failed" if at % 7 == 3 else "paid"} for at in range(number)))
    return name


def test_a_filter_finds_records_and_follows_new_ones(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = payments(shop, 70)
    page = visit(f"log/{name}")
    page.get_by_role("tab", name="Filter").click()
    field = page.get_by_label("Filter by content")
    field.fill(".status = failed and .n < 30")
    page.keyboard.press("Enter")
    expect(rows(page, "Matches").locator("td:first-child")).to_have_text(["25", "18", "11", "4"])
    expect(page.get_by_role("status").first).to_have_text("4 matches; complete")
    expect(page.locator(".live")).to_have_text("Live")
    shop.write(name, {"n": 1, "status": "paid"}, {"n": 2, "status": "failed"}, {"n": 99, "status": "failed"})
    expect(rows(page, "Matches").locator("td:first-child")).to_have_text(["72", "25", "18", "11", "4"])
    rows(page, "Matches").nth(1).click()
    expect(page.get_by_role("region", name="Record 25")).to_contain_text('"n": 24')
    page.reload()
    expect(field).to_have_value(".status = failed and .n < 30")
    expect(rows(page, "Matches").locator("td:first-child")).to_have_text(["72", "25", "18", "11", "4"])


def test_a_range_of_time_is_dragged(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = payments(shop, 70)
    page = visit(f"log/{name}?tab=filter&where=.status+%3D+failed")
    expect(rows(page, "Matches")).to_have_count(10)
    box = page.locator(".histogram .u-over").bounding_box()
    assert box is not None
    # The bars before the first record are empty.
    page.mouse.move(box["x"] + 5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 20, steps=4)
    page.mouse.up()
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()
    expect(page.get_by_label("From this time")).not_to_have_value("")
    expect(page.locator(".live")).to_be_hidden()
    page.get_by_role("button", name="All time").click()
    expect(rows(page, "Matches")).to_have_count(10)
    page.get_by_label("From this time").fill("-1h")
    page.keyboard.press("Enter")
    expect(rows(page, "Matches")).to_have_count(10)


def test_a_filter_that_is_not_valid_says_why(visit: Visit, shop: Shop, refusals: list[str]) -> None:
    refusals.append("status of 400")
    page = visit(f"log/{payments(shop, 3)}?tab=filter&where=/(/")
    expect(page.get_by_role("alert")).to_contain_text("the regular expression /(/ is not valid")
    page.get_by_label("From this time").fill("whenever")
    page.keyboard.press("Enter")
    expect(page.locator(".notice")).to_contain_text("“whenever” is not a time")


def test_fields_become_columns_and_their_values_filters(
    visit: Visit, shop: Shop, rows: Rows, check: Callable[[Page], None]
) -> None:
    page = visit(f"log/{payments(shop, 21)}?tab=filter&where=.n+%3C+14")
    expect(rows(page, "Matches")).to_have_count(14)
    page.get_by_text("Fields and values").click()
    status = page.get_by_role("region", name=".status")
    expect(status.locator("li")).to_have_text(["paid12", "failed2"])
    page.get_by_role("checkbox", name=".n", exact=True).check()
    check(page)
    page.locator("th .sort", has_text=".n").click()
    expect(rows(page, "Matches").locator("td:nth-child(4)").first).to_have_text("0")
    status.get_by_role("button", name="failed").click()
    expect(page.get_by_label("Filter by content")).to_have_value(".n < 14 and .status = failed")
    expect(rows(page, "Matches").locator("td:nth-child(4)")).to_have_text(["3", "10"])
    page.reload()
    expect(rows(page, "Matches").locator("td:nth-child(4)")).to_have_text(["10", "3"])

"""Search and charts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]


@pytest.fixture(scope="session")
def requests(shop: Shop) -> str:
    return shop.requests()


def test_hits_are_shown_with_what_was_looked_for(visit: Visit, requests: str, rows: Rows) -> None:
    page = visit(f"search?log={requests}")
    expect(page.get_by_role("status").first).to_contain_text("more than 100 hits")
    page.get_by_label("Query").fill("bank ms:>=500 -service:shop")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("7 hits")
    expect(rows(page, "Hits").first.locator("mark").first).to_have_text("bank")
    rows(page, "Hits").first.click()
    expect(page.get_by_role("region", name="Record").locator("mark")).to_have_text("bank")
    page.get_by_role("link", name="Open in log").click()
    expect(page.get_by_role("heading", name=requests)).to_be_visible()
    expect(page.locator(".detail .record")).to_contain_text("the bank did not answer")


def test_fields_and_values_that_were_seen_are_completed(visit: Visit, requests: str, rows: Rows) -> None:
    page = visit(f"search?log={requests}")
    expect(rows(page, "Hits").first).to_be_visible()
    query = page.get_by_label("Query")
    query.press_sequentially("ser")
    expect(page.locator("#completions li")).to_have_text(["service:keyword"])
    page.keyboard.press("Tab")
    expect(query).to_have_value("service:")
    query.press_sequentially("p")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(query).to_have_value("service:payments ")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("40 hits")


def test_what_makes_no_sense_is_said(visit: Visit, requests: str, refusals: list[str]) -> None:
    refusals.append("status of 400")
    page = visit(f"search?log={requests}&q=colour:red")
    expect(page.get_by_role("alert")).to_contain_text("colour")


def test_a_log_without_searchable_fields_says_what_is_missing(visit: Visit, shop: Shop) -> None:
    page = visit(f"search?log={shop.topic(records=3)}")
    expect(page.get_by_role("heading", name="This log cannot be searched")).to_be_visible()
    expect(page.locator(".state")).to_contain_text("item")


def test_rollups_are_drawn_and_grouped(visit: Visit, requests: str, rows: Rows) -> None:
    page = visit(f"search?log={requests}&view=chart")
    expect(page.locator("main canvas")).to_be_visible()
    expect(rows(page, "Groups").locator("td:nth-child(2)")).to_have_text(["120"])
    page.get_by_label("Group by").select_option("service")
    expect(rows(page, "Groups").locator("td")).to_have_text(["shop", "80", "80", "payments", "40", "40"])
    page.get_by_label("Interval").select_option("1h")
    expect(rows(page, "Groups").locator("td")).to_have_text(["shop", "80", "2", "payments", "40", "2"])
    page.get_by_label("Measure").select_option("ms|max")
    expect(page.get_by_role("heading", name="max of ms, every 1h, by service")).to_be_visible()
    page.get_by_label("Query").fill("service:shop")
    page.keyboard.press("Enter")
    expect(rows(page, "Groups")).to_have_count(1)
    expect(page.locator("details.code")).to_contain_text('"group_by":["service"]')


def test_percentiles_are_offered_for_measures_with_a_histogram(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = shop.requests()
    page = visit(f"search?log={name}&view=chart")
    expect(page.get_by_label("Measure").locator("option").last).to_have_text("max of ms")
    search = shop.call("GET", f"/v1/stream/{name}/_schema")["search"]
    search["rollups"]["load"]["measures"]["ms"]["histogram"] = "log2_v1"
    shop.call("POST", f"/v1/stream/{name}/_schema", {"search": search})
    page.reload()
    page.get_by_label("Measure").select_option("p95 of ms")
    expect(rows(page, "Groups").locator("td:nth-child(2)")).to_have_text(re.compile(r"[1-9]"))


def test_a_chart_is_shared_with_its_query_and_its_choices(visit: Visit, requests: str, rows: Rows) -> None:
    page = visit(f"search?log={requests}&view=chart&q=service:shop")
    expect(rows(page, "Groups").locator("td")).to_have_text(["requests", "80", "80"])
    page.get_by_label("Interval").select_option("1h")
    page.get_by_label("Measure").select_option("ms|max")
    expect(page.get_by_role("heading", name="max of ms, every 1h")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="max of ms, every 1h")).to_be_visible()
    expect(page.get_by_label("Query")).to_have_value("service:shop")


def test_all_time_is_the_time_of_all_records_in_whatever_order(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = shop.requests(sortable=False)
    early = {"at": "2026-11-10T00:00:00Z", "service": "shop", "ms": 1, "message": "late"}
    last = {"at": "2026-11-15T11:30:00Z", "service": "shop", "ms": 1, "message": "in the middle"}
    shop.call("POST", f"/v1/stream/{name}", [early, last])
    page = visit(f"search?log={name}&view=chart")
    expect(rows(page, "Groups").locator("td:nth-child(2)")).to_have_text(["122"])


def test_a_new_record_is_found_at_once(visit: Visit, shop: Shop) -> None:
    name = shop.requests()
    page = visit(f"search?log={name}&q=unheard-of")
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()
    record = {"at": "2026-11-15T12:00:00Z", "service": "shop", "ms": 1, "message": "something unheard-of happened"}
    shop.call("POST", f"/v1/stream/{name}", [record])
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("status").first).to_contain_text("1 hit ")

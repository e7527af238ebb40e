"""The screens of subscriptions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from browser.console.conftest import LOOKS, Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]


def test_one_is_found_and_opened(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = shop.subscription(description="finds documents")
    shop.subscription()
    page = visit("subscriptions")
    page.get_by_role("searchbox").fill(name)
    row = rows(page, "Subscriptions")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("2 streams")
    expect(row.get_by_role("link", name=f"{name}/wakes")).to_be_visible()
    expect(row.locator(".chip").first).to_have_text("waiting")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    expect(page.locator(".stats")).to_contain_text(re.compile(r"Lag2"))
    streams = rows(page, "Streams")
    expect(streams.first).to_contain_text(f"{name}/docs")
    expect(streams).to_have_count(2)
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name="Subscriptions", level=1)).to_be_visible()


def test_a_worker_that_claims_a_wake_is_shown_at_once(visit: Visit, shop: Shop) -> None:
    name = shop.subscription()
    page = visit(f"subscription/{name}")
    delivery = page.locator("section[aria-label=Delivery]")
    expect(page.locator("header .chip[data-kind=warn]")).to_have_text("waiting")
    shop.call("POST", f"/v1/stream/__ds/subscriptions/{name}/claim", {"worker": "indexer-7"})
    expect(page.locator("header .chip[data-kind=accent]")).to_have_text("leased")
    expect(delivery).to_contain_text("indexer-7")
    expect(delivery).to_contain_text(re.compile(r"Lease endsin \d"))


@pytest.mark.parametrize("look", LOOKS)
def test_one_is_created_changed_and_deleted(
    visit: Visit, shop: Shop, rows: Rows, check: Callable[[Page], None], refusals: list[str], look: str
) -> None:
    refusals.append("status of 400")
    name = shop.name("mailer")
    page = visit("subscriptions", look=look)
    page.get_by_role("button", name="New subscription").click()
    dialog = page.get_by_role("dialog")
    check(page)
    dialog.get_by_label("Id").fill(name)
    dialog.get_by_label("Pattern").fill(f"{name}/*")
    dialog.get_by_label("URL").fill("http://127.0.0.1/hook")
    dialog.get_by_role("button", name="Create").click()
    # The server says what is wrong with it.
    expect(dialog.get_by_role("alert")).to_contain_text("webhook_allow_loopback")
    dialog.get_by_label("Type").select_option("wakes a worker through a stream")
    expect(dialog.get_by_label("URL")).to_be_hidden()
    dialog.get_by_label("Stream", exact=True).fill(f"{name}-wakes")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    expect(page.get_by_role("heading", name="No streams")).to_be_visible()
    page.get_by_role("button", name="Add streams…").click()
    page.get_by_role("dialog").get_by_label("Names").fill(f"{name}/a\n{name}-later")
    page.get_by_role("dialog").get_by_role("button", name="Add").click()
    expect(rows(page, "Streams")).to_have_count(2)
    check(page)
    page.get_by_role("button", name=f"Remove {name}-later").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(rows(page, "Streams")).to_have_count(1)
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete subscription").click()
    expect(page.get_by_role("heading", name="Subscriptions", level=1)).to_be_visible()
    assert name not in [row["id"] for row in shop.call("GET", "/console/api/subscriptions?limit=500")["subscriptions"]]


def test_one_that_does_not_exist_is_told(visit: Visit, refusals: list[str]) -> None:
    refusals.append("status of 404")
    page = visit("subscription/nobody")
    expect(page.get_by_role("alert")).to_contain_text("“nobody” does not exist")

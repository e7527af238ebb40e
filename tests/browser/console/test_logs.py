"""Finding a log among many, sorting, and making one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]
MANY = 3000


@pytest.fixture(scope="session")
def many(shop: Shop) -> str:
    """How the names of very many topics begin."""
    word = shop.name("sensor")
    for start in range(0, MANY, 500):
        writes = [{"topic": f"{word}:{at:05}", "records": [{"data": at}]} for at in range(start, start + 500)]
        shop.call("POST", "/v0/write", {"writes": writes})
    return word


def test_thousands_of_logs_are_scrolled_through_and_few_rows_exist(
    visit: Visit, shop: Shop, many: str, rows: Rows
) -> None:
    page = visit(f"logs?search={many}")
    expect(page.get_by_role("status").first).to_have_text("3\u202f000 logs")
    expect(rows(page, "Logs").first).to_contain_text(f"{many}:00000")
    page.keyboard.press("End")
    expect(page.get_by_role("link", name=f"{many}:02999")).to_be_visible()
    assert rows(page, "Logs").count() < 100
    page.get_by_label("Search by name").fill(f"{many}:0123")
    expect(rows(page, "Logs")).to_have_count(10)
    page.get_by_label("Search by name").fill("no such log")
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()


def test_names_are_a_tree_of_prefixes(visit: Visit, shop: Shop, rows: Rows, check: Callable[[Page], None]) -> None:
    shop_name = shop.name("shop")
    for name in ("eu:orders", "eu:payments", "us:orders", "us:payments", "audit"):
        shop.call("PUT", f"/v0/topics/{shop_name}:{name}", {})
    page = visit("logs")
    prefixes = page.get_by_role("navigation", name="Prefixes")
    prefixes.get_by_role("button", name=re.compile(f"^{shop_name}: ?5$")).click()
    expect(rows(page, "Logs")).to_have_count(5)
    prefixes.get_by_role("button", name=re.compile("^us: ?2$")).click()
    expect(rows(page, "Logs")).to_have_count(2)
    check(page)
    page.reload()
    expect(rows(page, "Logs").locator("td:first-child")).to_contain_text(["us:orders", "us:payments"])
    prefixes.get_by_role("button", name=f"{shop_name}:", exact=True).click()
    expect(rows(page, "Logs")).to_have_count(5)
    prefixes.get_by_role("button", name="All logs").click()
    expect(prefixes.get_by_role("button", name=re.compile(f"^{shop_name}: ?5$"))).to_be_visible()


def test_logs_are_sorted_by_what_one_clicks(visit: Visit, shop: Shop, rows: Rows) -> None:
    word = shop.name("sorted")
    for records in (3, 1, 2):
        shop.topic(f"{word}-{records}", records)
    page = visit(f"logs?search={word}")
    expect(rows(page, "Logs")).to_have_count(3)
    page.get_by_role("button", name="Records").click()
    expect(page.get_by_role("columnheader", name="Records")).to_have_attribute("aria-sort", "descending")
    expect(rows(page, "Logs").locator("td:nth-child(3)")).to_have_text(["3", "2", "1"])
    page.get_by_role("button", name="Records").click()
    expect(rows(page, "Logs").locator("td:nth-child(3)")).to_have_text(["1", "2", "3"])
    page.reload()
    expect(rows(page, "Logs").locator("td:nth-child(3)")).to_have_text(["1", "2", "3"])


def test_what_is_written_shows_by_itself(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = shop.topic("live", 1)
    page = visit(f"logs?search={name}")
    expect(rows(page, "Logs").locator("td:nth-child(3)")).to_have_text(["1"])
    shop.write(name, *range(9))
    expect(rows(page, "Logs").locator("td:nth-child(3)")).to_have_text(["10"])
    # A point of the line needs five seconds, and a line two points.
    expect(rows(page, "Logs").get_by_role("img", name=re.compile("in the last two minutes"))).to_be_visible()


def test_a_queue_is_made_and_one_is_taken_to_it(visit: Visit, shop: Shop) -> None:
    name = shop.name("jobs")
    page = visit("logs")
    page.get_by_role("button", name="New log").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("dialog").get_by_label("Kind").select_option("queue")
    page.get_by_label("Max deliveries").fill("3")
    page.get_by_label("Dead-letter log").fill(f"{name}:dead")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    config = shop.state(name)["config"]
    assert (config["type"], config["max_deliveries"], config["dead_letter"]) == ("queue", 3, f"{name}:dead")


def test_a_stream_of_text_is_made_and_appended_to(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = f"{shop.name('logs')}/web"
    page = visit("logs")
    page.get_by_role("button", name="New log").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("dialog").get_by_label("Kind").select_option("stream")
    page.get_by_label("Media type").fill("text/plain")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="No records")).to_be_visible()
    page.get_by_role("button", name="Append", exact=True).click()
    page.get_by_label("Data (text/plain)").fill("started")
    page.get_by_role("dialog").get_by_role("button", name="Append").click()
    expect(rows(page, "Records")).to_contain_text(["started"])
    assert shop._client.get(f"/v1/stream/{name}").text == "started"


def test_a_name_that_cannot_be_one_is_refused_and_said(visit: Visit, shop: Shop, refusals: list[str]) -> None:
    refusals.append("status of 400")
    page = visit("logs")
    page.get_by_role("button", name="New log").click()
    page.get_by_label("Name", exact=True).fill("topics/have no slashes".replace(" ", "-"))
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("invalid topic name")

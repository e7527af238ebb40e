"""The declared tables of a project, from a status file as a pipeline writes it."""

from __future__ import annotations

from collections.abc import Callable
from time import time

import pytest
from browser.console.conftest import LOOKS, Visit
from playwright.sync_api import Page, expect
from support.declared_status import ERROR, changed, shop_tables, write_declared
from support.server_process import ServerProcess


@pytest.fixture(autouse=True)
def stopping(refusals: list[str]) -> None:
    # The server of a test stops before its page is closed, and says so.
    refusals.append("status of 503")


@pytest.mark.parametrize("look", LOOKS)
def test_the_tables_of_a_project_are_drawn_and_listed(
    visit: Visit, own: ServerProcess, check: Callable[[Page], None], look: str
) -> None:
    write_declared(own.data)
    page = visit("pipeline", url=own.url, look=look)
    card = page.get_by_role("region", name="Declared tables")
    expect(card.locator("details")).to_have_count(6)
    # From left to right: logs, tables, the logs that they write. Views are part of the queries.
    expect(card.locator("svg .table-node")).to_have_count(5)
    expect(card.locator("svg .log-node")).to_have_count(4)
    path = ["orders log", "orders_by_session streaming", "revenue_per_minute kept by state", "revenue log"]
    boxes = [card.locator("svg").get_by_role("link", name=label).bounding_box() for label in path]
    places = [box["x"] for box in boxes if box is not None]
    assert len(places) == len(path)
    assert places == sorted(places)
    streaming = card.locator("details[data-table=orders_by_session]")
    expect(streaming).to_contain_text("streaming")
    expect(streaming).to_contain_text("1\u202f250 behind · 12\u202fs")
    expect(card.locator("details[data-table=revenue_per_minute] summary")).to_contain_text("kept by state")
    # A table that failed is open, with the reason.
    expect(card.get_by_text(ERROR)).to_be_visible()
    check(page)


def test_tables_are_reached_by_keyboard_and_stay_open_while_they_change(visit: Visit, own: ServerProcess) -> None:
    tables = shop_tables(round(time() * 1000))
    write_declared(own.data, tables)
    page = visit("pipeline", url=own.url)
    page.locator("svg").get_by_role("link", name="revenue_per_minute").focus()
    page.keyboard.press("Enter")
    revenue = page.locator("details[data-table=revenue_per_minute]")
    expect(revenue.locator("summary")).to_be_focused()
    expect(revenue.get_by_text("materialized view", exact=True)).to_be_visible()
    expect(revenue.locator(".facts")).to_contain_text("3 erasures since the table was computed")
    tables = changed(tables, "revenue_per_minute", rows=50_000)
    write_declared(own.data, changed(tables, "average_basket", error=None, state="running"))
    expect(revenue.locator("summary")).to_contain_text("50\u202f000 rows")
    expect(revenue.locator("summary")).to_be_focused()
    expect(revenue.locator(".facts")).to_be_visible()
    expect(page.get_by_text(ERROR)).to_have_count(0)
    revenue.get_by_role("button", name="orders_by_session").click()
    expect(page.locator("details[data-table=orders_by_session] summary")).to_be_focused()
    rejected = page.get_by_role("link", name="orders:rejected", exact=True)
    expect(rejected).to_have_attribute("href", "#/log/orders%3Arejected")


def test_without_a_project_it_says_how_to_make_one_and_a_bad_one_has_a_reason(
    visit: Visit, own: ServerProcess, check: Callable[[Page], None]
) -> None:
    page = visit("pipeline", url=own.url)
    card = page.get_by_role("region", name="Declared tables")
    expect(card.locator("pre")).to_contain_text(f"strandline pipeline init shop --url {own.url}")
    expect(card.locator("pre")).to_contain_text(f"--lake {own.data / 'lake'}")
    check(page)
    reason = "tables/revenue.sql:3: there is no log or declared table 'order'; did you mean 'orders'?"
    write_declared(own.data, [], error=reason)
    expect(card.get_by_role("alert")).to_have_text(reason)
    check(page)

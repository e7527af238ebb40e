"""Queues: what is in them, who holds it, and dead letters that get another chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]


def test_a_queue_shows_what_is_in_it_and_follows_it(visit: Visit, shop: Shop, rows: Rows) -> None:
    name, dead = shop.queue()
    page = visit("queues")
    page.get_by_label("Search by name").fill(name)
    expect(rows(page, "Queues")).to_have_count(1)
    expect(rows(page, "Queues").locator("td")).to_have_text([name, "", "4", "2", "1", "2", dead])
    shop.write(name, {"to": "one more"})
    expect(rows(page, "Queues").locator("td").nth(2)).to_have_text("5")


def test_it_is_told_who_holds_what_until_when(visit: Visit, shop: Shop, rows: Rows) -> None:
    name, _ = shop.queue()
    page = visit(f"queue/{name}")
    held = rows(page, "Leased to workers")
    expect(held).to_have_count(2)
    expect(held.first.locator("td")).to_contain_text(["3", "mailer-1", "in ", "1", "0", "Return"])
    expect(rows(page, "Delayed")).to_have_count(1)
    expect(rows(page, "Next jobs").first).to_contain_text("reader 4")
    page.get_by_role("button", name="Return job 3").click()
    expect(held).to_have_count(1)
    expect(page.locator(".notice")).to_have_text("Job 3 was returned to the queue.")


def test_dead_letters_are_driven_back(visit: Visit, shop: Shop, rows: Rows) -> None:
    name, dead = shop.queue()
    page = visit(f"queue/{name}")
    expect(rows(page, "Dead letters")).to_have_count(2)
    page.get_by_role("button", name="Re-drive…").click()
    page.get_by_role("button", name="Re-drive 2 dead letters").click()
    expect(page.locator(".notice")).to_have_text("2 jobs moved.")
    expect(page.locator("section[aria-label='Dead letters']")).to_contain_text("No dead letters.")
    expect(page.locator("section[aria-label='Next jobs'] .chip").first).to_have_text("6")
    assert shop.state(dead)["count"] == 0


def test_some_dead_letters_are_driven_elsewhere(visit: Visit, shop: Shop, rows: Rows) -> None:
    name, _ = shop.queue()
    elsewhere = shop.topic("elsewhere")
    page = visit(f"queue/{name}")
    expect(rows(page, "Dead letters")).to_have_count(2)
    page.get_by_role("button", name="Re-drive…").click()
    page.get_by_label("Key filter").fill("customer:ann")
    page.get_by_label("Destination", exact=True).fill(elsewhere)
    page.get_by_role("dialog").get_by_role("button", name="Re-drive").click()
    expect(rows(page, "Dead letters")).to_have_count(1)
    assert shop.state(elsewhere)["count"] == 1


def test_a_job_is_added(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = shop.topic("jobs", type="queue")
    page = visit(f"queue/{name}")
    expect(page.locator("section[aria-label='Next jobs']")).to_contain_text("No job is ready.")
    page.get_by_role("button", name="Add a job").click()
    page.get_by_label("Data (JSON)").fill('{"to": "ann"}')
    page.get_by_role("dialog").get_by_role("button", name="Append").click()
    expect(rows(page, "Next jobs")).to_contain_text(["ann"])

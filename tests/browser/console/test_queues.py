"""Queues: what is in them, who holds it, and dead letters that get another chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]


def figure(page: Page, label: str) -> Any:
    return page.locator(".stats > div", has=page.get_by_text(label, exact=True)).locator("dd")


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
    expect(held.first.locator("td")).to_contain_text(["3", "mailer-1", "in ", "1", "Return"])
    expect(rows(page, "Delayed")).to_have_count(1)
    expect(rows(page, "Next jobs").first).to_contain_text("reader 4")
    page.get_by_role("button", name="Return job 3").click()
    expect(held).to_have_count(1)
    expect(page.locator(".notice")).to_have_text("Job 3 was returned to the queue.")


def test_dead_letters_are_driven_back(visit: Visit, shop: Shop, rows: Rows) -> None:
    name, dead = shop.queue()
    page = visit(f"queue/{name}")
    expect(rows(page, "Dead letters")).to_have_count(2)
    page.get_by_role("button", name="Redrive…").click()
    page.get_by_role("button", name="Redrive 2 dead letters").click()
    expect(page.locator(".notice")).to_have_text("2 jobs moved.")
    expect(page.locator("section[aria-label='Dead letters']")).to_contain_text("No dead letters.")
    expect(page.locator("section[aria-label='Next jobs'] .chip").first).to_have_text("6")
    expect(figure(page, "Dead letters")).to_have_text("0")
    expect(figure(page, "Dead-lettered in total")).to_have_text("2")
    assert shop.state(dead)["count"] == 0
    page = visit("queues")
    page.get_by_label("Search by name").fill(name)
    expect(rows(page, "Queues").locator("td")).to_have_text([name, "", "6", "2", "1", "0", dead])


def test_one_dead_letter_is_driven_back(visit: Visit, shop: Shop, rows: Rows) -> None:
    name, dead = shop.queue()
    page = visit(f"queue/{name}")
    expect(rows(page, "Dead letters")).to_have_count(2)
    page.get_by_role("button", name="Redrive dead letter 1").click()
    expect(page.locator(".notice")).to_have_text("Dead letter 1 was moved back to its queue.")
    expect(rows(page, "Dead letters")).to_have_count(1)
    expect(page.locator("section[aria-label='Dead letters'] .chip").first).to_have_text("1")
    assert shop.state(dead)["count"] == 1


def test_a_dead_letter_says_why_it_failed(visit: Visit, shop: Shop, rows: Rows, check: Callable[[Page], None]) -> None:
    name, _ = shop.queue()
    page = visit(f"queue/{name}")
    reason = rows(page, "Dead letters").first.get_by_role("button", name="smtplib.SMTPRecipientsRefused: ")
    expect(reason).to_be_visible()
    reason.click()
    dialog = page.get_by_role("dialog", name="Failures of job 2")
    expect(dialog).to_contain_text("Delivery 1 at mailer-0")
    expect(dialog.get_by_text("smtp.send_message(mail)")).to_be_hidden()
    dialog.get_by_text("Traceback", exact=True).click()
    expect(dialog.get_by_text("smtp.send_message(mail)")).to_be_visible()
    check(page)


def test_failures_are_shown_wherever_a_job_is(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = shop.failing_queue()
    page = visit(f"queue/{name}")
    for place in ("Leased to workers", "Delayed", "Next jobs"):
        expect(rows(page, place).get_by_role("button", name="smtplib.SMTPRecipientsRefused: ")).to_have_count(1)
    rows(page, "Next jobs").get_by_role("button", name="smtplib").click()
    dialog = page.get_by_role("dialog", name="Failures of job 3")
    expect(dialog.locator("li")).to_have_count(2)
    expect(dialog.locator("li").nth(1)).to_contain_text("exit code 3: no such file")
    expect(dialog.get_by_text("first line of a long text")).to_be_hidden()


def test_the_figures_of_a_queue_are_current(visit: Visit, shop: Shop) -> None:
    name = shop.topic("jobs", type="queue")
    page = visit(f"queue/{name}")
    expect(figure(page, "Oldest ready")).to_have_text("–")
    expect(figure(page, "Failure rate")).to_have_text("0\u202f%")
    shop.write(name, 1, 2, 3)
    expect(figure(page, "Oldest ready")).to_contain_text("s")
    shop.call("POST", f"/v0/topics/{name}/claim", {"node": "worker", "max": 2})
    shop.call("POST", f"/v0/topics/{name}/ack", {"node": "worker", "seqs": [1]})
    shop.call("POST", f"/v0/topics/{name}/nack", {"node": "worker", "seqs": [2], "delay_ms": 3_600_000})
    expect(figure(page, "Failure rate")).to_have_text("50\u202f%")
    expect(figure(page, "Throughput")).to_contain_text("/s")
    charts = page.get_by_role("group", name="Since this screen was opened")
    expect(charts.locator("canvas")).to_have_count(3)
    expect(charts.get_by_role("img", name="Failure rate: failures 50\u202f%")).to_be_visible()


#: Where the lists begin, before and after every figure becomes longer.
LONGER_FIGURES = """() => {
  const top = () => document.querySelector(".queue-parts").getBoundingClientRect().top;
  const before = top();
  for (const figure of document.querySelectorAll(".stats dd")) figure.textContent = "23 h 59 min and some more";
  return [before, top()];
}"""


def test_the_lists_do_not_move_when_a_figure_gets_longer(visit: Visit, shop: Shop, rows: Rows) -> None:
    """Otherwise a click misses its button if the page is updated at that moment."""
    name, _ = shop.queue()
    page = visit(f"queue/{name}")
    expect(rows(page, "Dead letters")).to_have_count(2)
    before, after = page.evaluate(LONGER_FIGURES)
    assert before == after


def test_some_dead_letters_are_driven_elsewhere(visit: Visit, shop: Shop, rows: Rows) -> None:
    name, _ = shop.queue()
    elsewhere = shop.topic("elsewhere")
    page = visit(f"queue/{name}")
    expect(rows(page, "Dead letters")).to_have_count(2)
    page.get_by_role("button", name="Redrive…").click()
    page.get_by_label("Key filter").fill("customer:ann")
    page.get_by_label("Destination", exact=True).fill(elsewhere)
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
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

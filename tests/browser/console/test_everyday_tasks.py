"""The tasks of the guide ``everyday-tasks.md`` in the console. Another test follows its commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pytest
from browser.console.conftest import Visit, install
from playwright.sync_api import Page, expect
from support.console_shop import EXCEPTION, Shop
from support.document_tables import ROOT
from support.server_process import ServerProcess

Rows = Callable[[Page, str], Any]

GUIDE = ROOT / "docs/how-to/everyday-tasks.md"


@pytest.fixture
def payments(shop: Shop) -> str:
    name = shop.topic("payments")
    paid, failed = {"id": 1, "status": "paid", "amount": 20}, {"id": 2, "status": "failed", "amount": 75}
    shop.write(name, paid, failed, {"id": 3, "status": "failed", "amount": 9})
    return name


@pytest.fixture
def failed_jobs(shop: Shop) -> str:
    """A queue with two dead letters."""
    name = shop.name("emails")
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": f"{name}:dead"}
    shop.call("PUT", f"/v0/topics/{name}", config)
    shop.write(name, {"to": "ann@"}, {"to": "bob@example.com"})
    shop.call("POST", f"/v0/topics/{name}/claim", {"node": "worker-1", "max": 2})
    shop.call("POST", f"/v0/topics/{name}/nack", {"node": "worker-1", "seqs": [1, 2], "reason": EXCEPTION})
    return name


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    process = ServerProcess(tmp_path_factory.mktemp("keys") / "data", keys="root")
    try:
        shop = Shop(process.start().url, "root")
        yield shop
        shop.close()
    finally:
        process.end()


def open_access(visit: Visit, guarded: Shop) -> Page:
    page = visit("access", url=guarded.url)
    page.get_by_label("API key").fill("root")
    page.keyboard.press("Enter")
    return page


def test_1(visit: Visit, shop: Shop, rows: Rows, payments: str) -> None:
    """Find yesterday's failed payment"""
    page = visit("logs")
    page.get_by_label("Search by name").fill(payments)
    page.get_by_role("link", name=payments, exact=True).click()
    page.get_by_role("tab", name="Filter").click()
    page.get_by_label("Filter by content").fill(".status = failed and .amount > 50")
    page.get_by_label("From this time").fill("-1d")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(rows(page, "Matches")).to_have_count(1)
    expect(rows(page, "Matches")).to_contain_text(['"id":2'])
    expect(page.locator(".histogram canvas")).to_be_visible()


def test_2(visit: Visit, shop: Shop, rows: Rows, payments: str) -> None:
    """Follow new records"""
    page = visit(f"log/{payments}")
    expect(page.locator(".live")).to_have_text("Live")
    expect(rows(page, "Records")).to_have_count(3)
    shop.write(payments, {"id": 4})
    expect(rows(page, "Records").last).to_contain_text('"id":4')


def test_3(visit: Visit, shop: Shop, rows: Rows, payments: str) -> None:
    """See the history of a key"""
    page = visit(f"log/{payments}")
    page.get_by_label("Filter by key").fill("customer:ann")
    expect(rows(page, "Records")).to_have_count(2)
    rows(page, "Records").last.click()
    page.get_by_role("button", name="Compare…").click()
    expect(rows(page, "Differences").first).to_contain_text(".id13")


def test_4(visit: Visit, shop: Shop, payments: str) -> None:
    """Chart errors per minute"""
    page = visit("sql")
    statement = f"select date_trunc('minute', ts) as minute, count(*) as errors from \"{payments}\""
    page.get_by_label("SQL statement").fill(f"{statement} where data->>'status' = 'failed' group by minute")
    page.keyboard.press("Control+Enter")
    page.get_by_role("radio", name="Chart").check()
    expect(page.get_by_role("heading", name="errors over minute")).to_be_visible()
    expect(page.locator("main canvas")).to_be_visible()


def test_5(visit: Visit, shop: Shop, payments: str, tmp_path: Path) -> None:
    """Export a day as Parquet"""
    page = visit("sql")
    page.get_by_label("SQL statement").fill(f'from "{payments}" where ts >= now() - interval 1 day')
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("status").first).to_contain_text("3 rows")
    with page.expect_download() as download:
        page.get_by_role("button", name="Parquet").click()
    download.value.save_as(tmp_path / "day.parquet")
    assert polars.read_parquet(tmp_path / "day.parquet")["seq"].to_list() == [1, 2, 3]


def test_6(visit: Visit, shop: Shop, rows: Rows, payments: str) -> None:
    """Rewind a consumer by an hour"""
    shop.call("PUT", f"/v0/topics/{payments}/consumers/billing", {"seq": 3})
    page = visit(f"log/{payments}")
    page.get_by_role("tab", name="Readers and routers").click()
    page.get_by_role("button", name="Seek consumer billing").click()
    page.get_by_role("radio", name="Time").check()
    page.get_by_label("Time", exact=True).last.fill("-1h")
    page.get_by_role("button", name="Seek", exact=True).click()
    expect(page.locator(".notice")).to_have_text("Consumer billing is at 0.")
    expect(rows(page, "Consumers")).to_contain_text(["billing03"])


def test_7(visit: Visit, shop: Shop, rows: Rows, payments: str) -> None:
    """See which consumers lag"""
    shop.call("PUT", f"/v0/topics/{payments}/consumers/billing", {"seq": 1})
    page = visit("logs")
    page.get_by_label("Search by name").fill(payments)
    page.get_by_role("button", name="Lag").click()
    expect(rows(page, "Logs").locator("td:nth-child(6)")).to_have_text(["2"])
    page.get_by_role("link", name=payments, exact=True).click()
    page.get_by_role("tab", name="Readers and routers").click()
    expect(rows(page, "Consumers")).to_contain_text(["billing12"])


def test_8(visit: Visit, shop: Shop, rows: Rows) -> None:
    """Create a queue with retries"""
    name = shop.name("emails")
    page = visit("logs")
    page.get_by_role("button", name="New log").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Kind").select_option("queue")
    expect(dialog.get_by_label("Dead-letter log")).to_have_value(f"{name}:dead")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    assert shop.state(name)["config"]["max_deliveries"] == 5
    page.evaluate("hash => location.hash = hash", f"#/queue/{name}")
    page.get_by_role("button", name="Add a job").click()
    page.get_by_label("Data (JSON)").fill('{"to": "ann@example.com"}')
    page.get_by_role("dialog").get_by_role("button", name="Append").click()
    expect(rows(page, "Next jobs")).to_contain_text(["ann@example.com"])


def test_9(visit: Visit, shop: Shop, rows: Rows, failed_jobs: str) -> None:
    """See why a job failed, and retry it"""
    page = visit("queues")
    page.get_by_label("Search by name").fill(failed_jobs)
    page.get_by_role("link", name=failed_jobs, exact=True).click()
    rows(page, "Dead letters").last.get_by_role("button", name="smtplib.SMTPRecipientsRefused").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Traceback", exact=True).click()
    expect(dialog).to_contain_text("smtp.send_message(mail)")
    dialog.get_by_role("button", name="Close").first.click()
    page.get_by_role("button", name="Redrive dead letter 2").click()
    expect(rows(page, "Next jobs")).to_contain_text(["bob@example.com"])


def test_10(
    visit: Visit, shop: Shop, rows: Rows, failed_jobs: str, refusals: list[str], check: Callable[[Page], None]
) -> None:
    """Correct a job, and retry it"""
    page = visit(f"queue/{failed_jobs}")
    page.get_by_role("button", name="Edit dead letter 1").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Data (JSON)")).to_have_value('{\n  "to": "ann@"\n}')
    check(page)
    dialog.get_by_label("Data (JSON)").fill('{"to": ann}')
    dialog.get_by_role("button", name="Save and redrive").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The data is not valid JSON")
    dialog.get_by_label("Data (JSON)").fill('{"to": "ann@example.com"}')
    dialog.get_by_role("button", name="Save and redrive").click()
    expect(page.locator(".notice")).to_have_text("Dead letter 1 was changed and moved back to its queue.")
    expect(rows(page, "Next jobs")).to_contain_text(["ann@example.com"])
    expect(rows(page, "Dead letters")).to_have_count(1)


def test_11(visit: Visit, shop: Shop, rows: Rows, payments: str) -> None:
    """Make a log searchable"""
    page = visit(f"log/{payments}")
    page.get_by_role("tab", name="Schema").click()
    page.get_by_role("button", name="Choose searchable fields…").click()
    install(page.get_by_role("dialog"))
    page.get_by_role("link", name="Search this log").click()
    page.get_by_label("Query").fill("status:failed amount:>50")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("1 hit")
    expect(rows(page, "Hits")).to_contain_text(['"id":2'])


def test_12(visit: Visit, shop: Shop, payments: str) -> None:
    """Keep records for a week"""
    page = visit(f"log/{payments}")
    page.get_by_role("tab", name="Configuration").click()
    page.get_by_label("Max age").fill("7d")
    page.get_by_role("button", name="Save 1 change").click()
    expect(page.locator(".notice")).to_have_text("Configuration saved.")
    assert shop.state(payments)["config"]["ttl_ms"] == 7 * 86_400_000


def test_13(visit: Visit, shop: Shop, rows: Rows, payments: str) -> None:
    """Delete the records of a customer"""
    page = visit(f"log/{payments}")
    page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key", exact=True).fill("customer:ann")
    dialog.get_by_role("button", name="Delete 2 records").click()
    expect(rows(page, "Records")).to_have_count(1)


def test_14(visit: Visit, guarded: Shop, rows: Rows) -> None:
    """Rotate an API key"""
    page = open_access(visit, guarded)
    page.get_by_role("button", name="New API key").click()
    page.get_by_label("Name", exact=True).fill("shop")
    page.get_by_label("Names that start with").fill("orders payments")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    old = page.get_by_label("Secret").inner_text()
    page.keyboard.press("Escape")
    expect(rows(page, "API keys")).to_have_count(2)
    page.get_by_role("button", name="Rotate shop").click()
    page.get_by_label("The old key").select_option("stops at once")
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    dialog = page.get_by_role("dialog", name="The API key was rotated")
    new = dialog.get_by_label("Secret").inner_text()
    assert guarded.status(old) == 401
    assert guarded.status(new) == 200


def test_15(visit: Visit, guarded: Shop, rows: Rows) -> None:
    """See who changed what"""
    name = guarded.topic("payments")
    page = open_access(visit, guarded)
    first = rows(page, "Audit log").first
    expect(first).to_contain_text(f"PUT /v0/topics/{name}")
    expect(first).to_contain_text("done")


def test_every_task_of_the_guide_is_done() -> None:
    titles = re.findall(r"^## (\d+)\. (.*)$", GUIDE.read_text(), re.MULTILINE)
    assert len(titles) == 15
    assert dict(titles) == {
        name.removeprefix("test_"): test.__doc__ for name, test in globals().items() if re.fullmatch(r"test_\d+", name)
    }

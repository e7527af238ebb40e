"""Statements in SQL, their results, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]


def cells(rows: Rows, page: Page) -> Any:
    return rows(page, "Result").locator("td")


def test_a_statement_is_completed_run_drawn_and_shared(visit: Visit, shop: Shop, rows: Rows, tmp_path: Path) -> None:
    name = shop.topic("sales", records=10)
    page = visit("sql")
    text = page.get_by_label("SQL statement")
    text.press_sequentially("sel")
    expect(page.locator("#sql-completions li")).to_have_text(["select"])
    page.keyboard.press("Tab")
    text.press_sequentially(f' key, count(*) as n from "{name[:-1]}')
    expect(page.locator("#sql-completions li", has_text=name).first).to_be_visible()
    page.keyboard.press("Escape")
    text.fill(f'select it from "{name}"')
    text.evaluate("field => field.setSelectionRange(9, 9)")
    page.keyboard.press("Control+Space")
    expect(page.locator("#sql-completions li").first).to_have_text("data->>'item'string")
    page.keyboard.press("Enter")
    expect(text).to_have_value(f"select data->>'item' from \"{name}\"")
    text.fill(f'select key, count(*) as n from "{name}" group by key order by key')
    page.keyboard.press("Control+Enter")
    expect(cells(rows, page)).to_have_text(["customer:ann", "5", "customer:bob", "5"])
    expect(page.get_by_role("status").first).to_contain_text("2 rows in")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "result.csv")
    assert (tmp_path / "result.csv").read_text() == "key,n\ncustomer:ann,5\ncustomer:bob,5\n"
    page.get_by_role("radio", name="Chart").check()
    expect(page.get_by_role("region", name="Bars").locator("li")).to_have_text(["customer:ann5", "customer:bob5"])
    page.reload()
    expect(page.get_by_role("region", name="Bars").locator("li")).to_have_text(["customer:ann5", "customer:bob5"])
    expect(text).to_have_value(f'select key, count(*) as n from "{name}" group by key order by key')


def test_a_statement_is_saved_and_opened_again(visit: Visit, rows: Rows, check: Callable[[Page], None]) -> None:
    page = visit("sql")
    page.get_by_label("SQL statement").fill("select 40 + 2 as answer")
    page.get_by_role("button", name="Save…").click()
    page.get_by_label("Name").fill("The answer")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.reload()
    page.get_by_role("button", name="Saved…").click()
    check(page)
    page.get_by_role("button", name="The answer", exact=True).click()
    expect(cells(rows, page)).to_have_text(["42"])
    page.get_by_role("button", name="Saved…").click()
    page.get_by_role("button", name="Delete The answer").click()
    expect(page.get_by_role("button", name="The answer", exact=True)).to_have_count(0)


def test_an_error_is_shown_and_a_query_can_be_cancelled(visit: Visit, refusals: list[str]) -> None:
    refusals += ["status of 400", "status of 409"]
    page = visit("sql?q=select+nope")
    expect(page.get_by_role("alert")).to_contain_text('Referenced column "nope"')
    page.get_by_label("SQL statement").fill("select count(*) from range(1000000000) a, range(1000000000) b")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="Cancelled")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_enabled()


def test_times_are_drawn_as_lines(visit: Visit) -> None:
    statement = (
        "select ts, 'a' as name, 1 as n from generate_series(now() - interval 5 minute, now(), interval 1 minute) t(ts)"
    )
    page = visit("sql?view=chart&q=" + statement.replace(" ", "+"))
    expect(page.get_by_role("heading", name="n over ts, by name")).to_be_visible()
    expect(page.locator("main canvas")).to_be_visible()


def test_without_the_extra_the_screen_says_what_to_install(visit: Visit, check: Callable[[Page], None]) -> None:
    page = visit("logs")
    session = page.evaluate("() => fetch('/console/api/session').then((answer) => answer.json())")
    page.route("**/console/api/session", lambda route: route.fulfill(json={**session, "sql": False}))
    page.evaluate("() => { location.hash = '#/sql'; }")
    page.reload()
    expect(page.get_by_role("heading", name="SQL is not installed")).to_be_visible()
    expect(page.get_by_text("pip install 'strandline[sql]'")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    check(page)

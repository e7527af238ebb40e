"""Signing in with a key, and seeing what it may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop
from support.server_process import ServerProcess

Rows = Callable[[Page, str], Any]

KEYS = "everything,reader:read,shop:rw:orders|payments,writer:write"


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    process = ServerProcess(tmp_path_factory.mktemp("guarded") / "data", keys=KEYS)
    try:
        shop = Shop(process.start().url, "everything")
        for name in ("orders", "payments", "secrets"):
            shop.write(name, 1, 2, 3)
        yield shop
        shop.close()
    finally:
        process.end()


def sign_in(page: Page, key: str, *, remember: bool = False) -> None:
    page.get_by_label("API key").fill(key)
    if remember:
        page.get_by_label("Remember on this device").check()
    page.keyboard.press("Enter")


def test_a_key_that_nobody_knows_is_refused(
    visit: Visit, guarded: Shop, check: Callable[[Page], None], refusals: list[str]
) -> None:
    refusals.append("status of 401")
    page = visit("logs", url=guarded.url)
    check(page)
    sign_in(page, "a guess")
    expect(page.get_by_role("alert")).to_have_text("Invalid API key.")
    sign_in(page, "everything")
    expect(page.get_by_role("link", name="secrets")).to_be_visible()
    assert "everything" not in page.content()


def test_a_key_is_kept_for_the_tab_or_for_the_device_and_forgotten(visit: Visit, guarded: Shop) -> None:
    page = visit("logs", url=guarded.url)
    sign_in(page, "reader")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    other = page.context.new_page()
    other.goto(f"{guarded.url}/console/#/logs")
    sign_in(other, "reader", remember=True)
    expect(other.get_by_role("link", name="orders")).to_be_visible()
    third = page.context.new_page()
    third.goto(f"{guarded.url}/console/#/logs")
    expect(third.get_by_role("link", name="orders")).to_be_visible()
    third.get_by_role("button", name="Sign out").click()
    expect(third.get_by_label("API key")).to_be_visible()


def test_a_key_that_may_only_read_changes_nothing(visit: Visit, guarded: Shop, rows: Rows) -> None:
    page = visit("log/orders", url=guarded.url)
    sign_in(page, "reader")
    expect(rows(page, "Records")).to_have_count(3)
    for name in ("Append", "Delete…"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    expect(page.get_by_role("button", name="Append", exact=True)).to_have_attribute(
        "title", "Your API key lacks the write scope"
    )
    page.get_by_role("tab", name="Configuration").click()
    expect(page.get_by_label("Durability")).to_be_disabled()
    guarded.write("orders", 4)
    page.get_by_role("tab", name="Records").click()
    expect(rows(page, "Records")).to_have_count(4)
    expect(page.locator("details.code")).to_contain_text("$STRANDLINE_KEY")
    assert "Bearer reader" not in page.content()


def test_a_key_for_some_names_sees_only_those(visit: Visit, guarded: Shop, rows: Rows, refusals: list[str]) -> None:
    refusals.append("status of 403")
    page = visit("logs", url=guarded.url)
    sign_in(page, "shop")
    expect(rows(page, "Logs")).to_have_count(2)
    expect(page.get_by_role("button", name="New log")).to_be_disabled()
    page.goto(f"{guarded.url}/console/#/log/secrets")
    expect(page.get_by_role("alert")).to_contain_text("Your API key does not have permission")


def test_a_key_that_may_not_read_is_told_so_on_every_screen(visit: Visit, guarded: Shop, refusals: list[str]) -> None:
    refusals.append("status of 403")
    page = visit("overview", url=guarded.url)
    sign_in(page, "writer")
    for screen in ("overview", "logs", "queues", "routers", "pipeline"):
        page.evaluate("hash => location.hash = hash", f"#/{screen}")
        expect(page.locator(f".screen[data-screen={screen}]").get_by_role("alert")).to_contain_text("read scope")

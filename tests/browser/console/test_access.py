"""API keys and the audit log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser.console.conftest import LOOKS, Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop
from support.server_process import ServerProcess

Rows = Callable[[Page, str], Any]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    process = ServerProcess(tmp_path_factory.mktemp("access") / "data", keys="root,reader:read")
    try:
        shop = Shop(process.start().url, "root")
        yield shop
        shop.close()
    finally:
        process.end()


def sign_in(visit: Visit, shop: Shop, key: str = "root", look: str = "light") -> Page:
    page = visit("access", url=shop.url, look=look)
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    return page


@pytest.mark.parametrize("look", LOOKS)
def test_keys_are_shown_without_their_secrets(
    visit: Visit, guarded: Shop, rows: Rows, check: Callable[[Page], None], look: str
) -> None:
    name = guarded.name("key")
    secret = guarded.call("POST", "/v0/keys", {"name": name, "scopes": ["read"], "prefixes": ["orders"]})["secret"]
    page = sign_in(visit, guarded, look=look)
    row = rows(page, "API keys").filter(has_text=name)
    expect(row).to_contain_text("read")
    expect(rows(page, "API keys").filter(has_text="in use")).to_have_count(1)
    # Keys of the settings are changed there.
    expect(row.get_by_role("button", name=f"Rotate {name}")).to_be_enabled()
    expect(rows(page, "API keys").filter(has_text="in use").get_by_role("button")).to_have_count(0)
    check(page)
    page.get_by_role("button", name="New API key").click()
    check(page)
    assert secret not in page.content()


def test_a_key_is_created_used_and_revoked(visit: Visit, guarded: Shop, rows: Rows) -> None:
    page = sign_in(visit, guarded)
    page.get_by_role("button", name="New API key").click()
    dialog = page.get_by_role("dialog")
    name = guarded.name("worker")
    dialog.get_by_label("Name", exact=True).fill(name)
    dialog.get_by_role("checkbox", name="read").uncheck()
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_have_text("Choose at least one scope.")
    dialog.get_by_role("checkbox", name="read").check()
    dialog.get_by_label("Ends").select_option("in 30 days")
    dialog.get_by_role("button", name="Create").click()
    shown = page.get_by_role("dialog", name="The API key was created")
    shown.get_by_role("button", name="Copy").click()
    secret = page.evaluate("navigator.clipboard.readText()")
    assert guarded.status(secret) == 200
    shown.get_by_role("button", name="Close").first.click()
    expect(rows(page, "API keys").filter(has_text=name)).to_contain_text(re.compile(r"in (29|30)\W"))
    page.get_by_role("button", name=f"Revoke {name}").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(rows(page, "API keys").filter(has_text=name)).to_have_count(0)
    assert guarded.status(secret) == 401


def test_older_changes_are_loaded(visit: Visit, guarded: Shop, rows: Rows) -> None:
    first = guarded.topic("first")
    for _ in range(100):
        guarded.call("PUT", f"/v0/topics/{first}", {})
    page = sign_in(visit, guarded)
    changes = rows(page, "Audit log")
    expect(changes).to_have_count(100)
    page.get_by_role("button", name="Older entries").click()
    expect(page.locator("section[aria-label='Audit log'] header")).not_to_contain_text("100 changes")
    assert changes.count() > 100


def test_a_key_without_the_scope_is_told_so(visit: Visit, guarded: Shop, refusals: list[str]) -> None:
    refusals.append("status of 403")
    page = sign_in(visit, guarded, "reader")
    expect(page.get_by_role("alert")).to_have_count(2)
    expect(page.get_by_role("alert").first).to_contain_text("admin")
    expect(page.get_by_role("button", name="New API key")).to_be_disabled()


def test_a_server_without_keys_says_how_to_have_some(visit: Visit, shop: Shop, rows: Rows) -> None:
    name = shop.topic()
    page = visit("access")
    expect(page.get_by_role("heading", name="No API keys")).to_be_visible()
    expect(page.get_by_role("button", name="New API key")).to_be_disabled()
    expect(rows(page, "Audit log").filter(has_text=name)).to_have_count(1)

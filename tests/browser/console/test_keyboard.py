"""Everything by keyboard."""

from __future__ import annotations

from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_chords_lead_to_every_screen(visit: Visit) -> None:
    page = visit("overview")
    screens = {"l": "Logs", "q": "Queues", "r": "Routers", "s": "Search", "d": "SQL", "p": "Pipeline"}
    screens |= {"a": "Access", "t": "Tables", "c": "Collections", "o": "Overview"}
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    for key, title in screens.items():
        press(page, "g", key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page).to_have_title(f"{title} · Strandline")


def test_from_the_list_of_logs_to_a_record_and_back(visit: Visit, shop: Shop) -> None:
    name = shop.topic("keyboard", 5)
    # Found by everything but the last letter as well: alone in the list is only what was looked for in full.
    shop.call("PUT", f"/v0/topics/{name[:-1]}x", {})
    page = visit("logs")
    expect(page.get_by_role("heading", name="Logs", exact=True)).to_be_visible()
    press(page, "/")
    page.keyboard.type(name)
    expect(page.locator("tbody a")).to_have_text([name])
    press(page, "Escape", "j", "Enter")
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    expect(page.locator("tbody tr[data-index]")).to_have_count(5)
    press(page, "k", "k", "Enter")
    expect(page.get_by_role("region", name="Record 4")).to_be_visible()
    press(page, "Escape")
    expect(page.get_by_role("region", name="Record 4")).to_have_count(0)
    press(page, "3")
    expect(page.get_by_role("tab", name="Keys")).to_have_attribute("aria-selected", "true")
    press(page, "u")
    expect(page.get_by_role("heading", name="Logs", exact=True)).to_be_visible()


def test_a_record_is_appended_without_a_mouse(visit: Visit, shop: Shop) -> None:
    name = shop.topic("keyboard")
    page = visit(f"log/{name}")
    expect(page.get_by_role("heading", name="No records")).to_be_visible()
    press(page, "a", "Control+a")
    page.keyboard.type('{"item": "a pen"}')
    press(page, "Tab")
    page.keyboard.type("customer:eve")
    press(page, "Enter")
    expect(page.locator("tbody tr[data-index]")).to_contain_text(["customer:eve"])
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_one_jumps_to_a_log_by_part_of_its_name(visit: Visit, shop: Shop) -> None:
    name = shop.topic("far-away", 1)
    page = visit("overview")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    press(page, "Control+k")
    page.keyboard.type(name)
    expect(page.get_by_role("option")).to_contain_text([name])
    press(page, "Enter")
    expect(page.get_by_role("heading", name=name)).to_be_visible()


def test_the_keys_are_told(visit: Visit) -> None:
    page = visit("logs")
    expect(page.get_by_role("heading", name="Logs", exact=True)).to_be_visible()
    press(page, "?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_contain_text("On this screen")
    expect(dialog).to_contain_text("Go to a log or screen")
    press(page, "Escape")
    expect(dialog).to_have_count(0)


def test_the_commands_of_a_screen_are_copied(visit: Visit, shop: Shop) -> None:
    name = shop.topic("copied", 1)
    page = visit(f"log/{name}")
    expect(page.locator("tbody tr[data-index]")).to_have_count(1)
    press(page, "c")
    page.get_by_role("button", name="Copy the curl code").click()
    expect(page.locator(".notice")).to_have_text("Copied.")
    assert f"/v0/topics/{name}/diff" in page.evaluate("navigator.clipboard.readText()")

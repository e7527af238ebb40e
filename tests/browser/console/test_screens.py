"""Every screen, in every light and at every size: it opens, it fits, it complains of nothing, and axe is content."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from browser.console.conftest import LOOKS, Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop


@pytest.fixture(scope="session")
def world(shop: Shop) -> dict[str, str]:
    queue, dead = shop.queue()
    names = shop.chain()
    shop.write(names[0], *range(20))
    lossy = shop.topic("clicks", 50, cap_records=10)
    return {
        "subscription": shop.subscription(),
        "log": shop.topic(records=300),
        "queue": queue,
        "dead": dead,
        "stream": shop.requests(),
        "lossy": lossy,
    }


#: What to open, and what is to be seen when it is open.
SCREENS = {
    "overview": ("overview", "main canvas >> nth=0"),
    "logs": ("logs", "table[aria-label=Logs] tbody a >> nth=0"),
    "log": ("log/{log}", "table[aria-label=Records] tbody button >> nth=0"),
    "log of bounded size": ("log/{lossy}?at=0", ".tombstone"),
    "filter": ("log/{log}?tab=filter&where=%2F7%24%2F+or+.item", "table[aria-label=Matches] tbody button >> nth=0"),
    "keys": ("log/{log}?tab=keys", "table[aria-label=Keys] tbody button >> nth=0"),
    "config": ("log/{log}?tab=config", "form.config select >> nth=0"),
    "schema": ("log/{stream}?tab=schema", "table[aria-label=Fields]"),
    "readers": ("log/{log}?tab=readers", "section[aria-label=Consumers]"),
    "activity": ("log/{log}?tab=activity", "main canvas >> nth=3"),
    "queues": ("queues", "table[aria-label=Queues] tbody a >> nth=0"),
    "queue": ("queue/{queue}", "table[aria-label='Dead letters']"),
    "routers": ("routers", "svg .node >> nth=0"),
    "subscriptions": ("subscriptions", "table[aria-label=Subscriptions] tbody a >> nth=0"),
    "subscription": ("subscription/{subscription}", "table[aria-label=Streams] tbody a >> nth=0"),
    "search": ("search?log={stream}&q=bank", "mark >> nth=0"),
    "chart": ("search?log={stream}&view=chart", "main canvas >> nth=0"),
    "sql": ("sql?q=select+1+as+one", "table[aria-label=Result] tbody td.number"),
    "pipeline": ("pipeline", "section[aria-label='Last rounds']"),
    "clients": ("clients", "table[aria-label=Clients] tbody button >> nth=0"),
    "backups": ("backups", "section[aria-label='If this machine is lost']"),
    "access": ("access", "table[aria-label='Audit log'] tbody td >> nth=0"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_every_screen_works_at_every_size_and_in_every_light(
    visit: Visit, world: dict[str, str], check: Callable[[Page], None], look: str
) -> None:
    page = visit("overview", look=look)
    for name, (address, sign) in SCREENS.items():
        page.evaluate("hash => location.hash = hash", f"#/{address.format(**world)}")
        expect(page.locator(sign), name).to_be_visible()
        check(page)
        code = page.locator("details.code")
        code.locator("summary").click()
        expect(code.locator("pre").first, name).to_contain_text("curl")
        code.locator("summary").click()


def press_until_open(page: Page, key: str) -> None:
    """A screen that is still being built on a busy machine may miss a key."""
    for _ in range(5):
        page.keyboard.press(key)
        with suppress(AssertionError):
            return expect(page.locator("dialog[open]")).to_be_visible(timeout=5_000)
    raise AssertionError(f"{key} opens no dialog")


def test_dialogs_are_for_everybody_too(visit: Visit, world: dict[str, str], check: Callable[[Page], None]) -> None:
    page = visit(f"log/{world['log']}")
    for key in ("a", "d", "?", "Control+k"):
        expect(page.locator("table[aria-label=Records] tbody button").first).to_be_visible()
        press_until_open(page, key)
        check(page)
        page.keyboard.press("Escape")
        expect(page.locator("dialog[open]")).to_have_count(0)


def test_a_log_that_is_not_there_is_said_to_be_missing(
    visit: Visit, check: Callable[[Page], None], refusals: list[str]
) -> None:
    refusals.append("status of 404")
    page = visit("log/nothing")
    expect(page.get_by_role("alert")).to_contain_text("The log “nothing” does not exist")
    check(page)


def test_an_address_without_a_screen_says_so(visit: Visit, check: Callable[[Page], None]) -> None:
    for address in ("nothing", "constructor"):
        page = visit(address)
        expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
        expect(page.locator("nav [aria-current]")).to_have_count(0)
        check(page)
        page.get_by_role("link", name="Go to the overview").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_a_message_goes_with_the_screen_that_it_is_about(visit: Visit, world: dict[str, str]) -> None:
    page = visit(f"log/{world['log']}?seq=5000")
    expect(page.locator(".notice")).to_contain_text("no longer exists")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.get_by_role("heading", name="Queues", exact=True)).to_be_visible()
    expect(page.locator(".notice")).to_have_count(0)


def test_the_code_of_a_screen_uses_documented_addresses(visit: Visit, world: dict[str, str]) -> None:
    page = visit("overview")
    for name, (address, sign) in SCREENS.items():
        page.evaluate("hash => location.hash = hash", f"#/{address.format(**world)}")
        expect(page.locator(sign), name).to_be_visible()
        code = page.locator("details.code")
        # What only the console offers has an address of its own in the reference of the API.
        expect(code).not_to_contain_text(re.compile(r"/console/api/(?!sql|log/[^/]+/matches)"))


def test_times_are_shown_and_typed_in_the_chosen_zone(visit: Visit, shop: Shop) -> None:
    name = shop.topic(records=2)
    written = datetime.fromtimestamp(shop.state(name)["last_write_ts"] / 1000, UTC)
    page = visit(f"log/{name}?tab=filter&where=.item", zone="Asia/Kolkata")
    first = page.get_by_role("table", name="Matches").locator("td:nth-child(2)").first
    expect(first).to_contain_text(f"{written + timedelta(hours=5, minutes=30):%Y-%m-%d %H:%M:%S.}")
    page.get_by_role("button", name="Times: Local").click()
    expect(page.get_by_role("button", name="Times: UTC")).to_be_visible()
    expect(first).to_contain_text(f"{written:%Y-%m-%d %H:%M:%S.}")
    page.get_by_label("To this time").fill(f"{written - timedelta(minutes=1):%Y-%m-%d %H:%M}")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()
    page.get_by_label("To this time").fill(f"{written + timedelta(minutes=2):%Y-%m-%d %H:%M}")
    page.keyboard.press("Enter")
    expect(first).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Times: UTC")).to_be_visible()
    page.keyboard.press("z")
    expect(page.get_by_role("button", name="Times: Local")).to_be_visible()


def test_a_phone_switches_to_utc_as_well(visit: Visit) -> None:
    page = visit("logs", look="phone")
    page.get_by_role("button", name="Go to a log or screen").click()
    page.get_by_role("combobox", name="Go to").fill("utc")
    page.get_by_role("option", name="Times: UTC").click()
    expect(page.locator(".zone-button")).to_have_text("Times: UTC")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_theme_is_chosen_and_kept(visit: Visit) -> None:
    page = visit("queues", look="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    expect(page.get_by_role("heading", name="Queues", exact=True)).to_be_visible()
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Theme: System").click()
    expect(page.get_by_role("button", name="Theme: Light")).to_be_visible()
    assert page.evaluate(ground) != dark
    page.reload()
    expect(page.get_by_role("button", name="Theme: Light")).to_be_visible()
    assert page.evaluate(ground) != dark

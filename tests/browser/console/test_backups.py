"""The screen of backups: what survives the loss of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from browser.console.conftest import LOOKS, Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop
from support.server_process import ServerProcess

from strandline.engine.backup import backup

Rows = Callable[[Page, str], Any]
LOST = "section[aria-label='If this machine is lost']"


class Copied(NamedTuple):
    url: str
    pool: Path
    backup: str


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    """A server with a replica, a cold tier, and two backups, the newer of which lacks a file."""
    place = tmp_path_factory.mktemp("backups")
    settings: dict[str, object] = {name: str(place / name) for name in ("replica", "backups", "cold_url")}
    pool = str(settings["backups"])
    process = ServerProcess(place / "data", settings=settings)
    try:
        shop = Shop(process.start().url)
        shop.topic(records=10)
        whole = backup(place / "data", pool).name
        known = set((place / "backups" / "journal").iterdir())
        shop.topic(records=10)
        backup(place / "data", pool)
        (grown,) = set((place / "backups" / "journal").iterdir()) - known
        grown.unlink()
        shop.close()
        yield Copied(process.url, place / "backups", whole)
    finally:
        process.end()


@pytest.mark.parametrize("look", LOOKS)
def test_backups_the_replica_and_the_cold_tier_are_shown(
    visit: Visit, copied: Copied, rows: Rows, check: Callable[[Page], None], look: str
) -> None:
    page = visit("backups", url=copied.url, look=look)
    expect(page.locator(LOST)).to_contain_text("Another server can take over from the replica.")
    expect(page.locator("section[aria-label=Replica]")).to_contain_text("leader")
    expect(page.locator("section[aria-label='Cold tier']")).to_contain_text("reachable")
    taken = rows(page, "Backups")
    expect(taken).to_have_count(2)
    expect(taken.first).to_contain_text("1 missing")
    check(page)
    command = page.locator("section[aria-label=Commands] pre")
    expect(command).to_contain_text(f"strandline backup {copied.pool.parent / 'data'} {copied.pool}")


def test_a_server_without_copies_says_what_to_do(visit: Visit, check: Callable[[Page], None]) -> None:
    page = visit("backups")
    expect(page.locator(LOST)).to_contain_text("Everything on its disk is lost.")
    expect(page.get_by_role("heading", name="The location of the backups is not known")).to_be_visible()
    check(page)


def test_the_screens_are_reached_by_key_and_by_name(visit: Visit) -> None:
    page = visit("overview")
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    for key, title in (("w", "Subscriptions"), ("n", "Clients"), ("b", "Backups")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("clien")
    expect(page.get_by_role("option", name="Clients")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Clients", level=1)).to_be_visible()

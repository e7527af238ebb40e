"""The page of the example project: a declared table, from the log that it is written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from browser.conftest import HERE
from playwright.sync_api import Page, expect
from support.browser_pages import ROOT, served_files
from support.server_process import ServerProcess, StartServer

pytestmark = pytest.mark.xdist_group("browser")

LOOKS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "dark phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served_files(ROOT / "examples" / "shop-pipeline" / "page") as address:
        yield address


def row(minute: int, source: str, orders: int, cents: int) -> dict[str, object]:
    return {"minute": f"2026-11-02T10:{minute:02}:00.000Z", "source": source, "orders": orders, "cents": cents}


def write(server: ServerProcess, *rows: dict[str, object]) -> None:
    for each in rows:
        key = f"{each['minute']}/{each['source']}"
        url = f"{server.url}/v1/stream/revenue"
        assert httpx.post(url, json=[each], headers={"stream-key": key}, trust_env=False).is_success


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("look", LOOKS)
def test_the_page_follows_the_table(
    new_context_page: Callable[..., Page], start_server: StartServer, address: str, look: str
) -> None:
    server = start_server()
    page = new_context_page(f"{address}/?server={server.url}", **LOOKS[look])
    # Before the pipeline writes the first row, there is no log.
    expect(page.get_by_role("status")).to_have_text("Waiting for the server…")
    httpx.put(f"{server.url}/v1/stream/revenue", headers={"content-type": "application/json"}, trust_env=False)
    write(server, row(0, "search", 3, 4_500), row(0, "direct", 1, 1_250), row(1, "search", 2, 99_000))
    expect(page.get_by_role("status")).to_have_text("Live")
    cells = page.locator("tbody tr > :not(.bars)")
    expect(cells).to_have_text(["10:01", "2", "990.00", "10:00", "4", "57.50"])
    expect(page.locator("#revenue")).to_have_text("1,047.50 EUR")
    # The row of a minute changes.
    write(server, row(1, "search", 3, 100_000), row(1, "newsletter", 1, 500))
    expect(cells).to_have_text(["10:01", "4", "1,005.00", "10:00", "4", "57.50"])
    expect(page.locator("#orders")).to_have_text("8")
    expect(page.locator("#legend li")).to_have_text(["search", "direct", "newsletter"])
    page.evaluate((HERE / "node_modules" / "axe-core" / "axe.min.js").read_text())
    assert page.evaluate("async () => (await axe.run()).violations.map(each => each.id)") == []
    width, inner = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner

"""The console in a real browser, with a real server behind it. Whatever it says on the console of the browser fails the
test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect
from support import declared_office
from support.browser_pages import PATIENCE_MS
from support.console_office import Office
from support.console_shop import Shop
from support.server_process import ServerProcess

AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}, "has_touch": True},
}

Visit = Callable[..., Page]


@pytest.fixture(scope="session")
def shop(server: ServerProcess) -> Iterator[Shop]:
    shop = Shop(server.url)
    try:
        yield shop
    finally:
        shop.close()


@pytest.fixture(scope="session")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """A server with tables and collections."""
    settings = {"declare": declared_office.__file__}
    process = ServerProcess(tmp_path_factory.mktemp("office") / "data", settings=settings)
    try:
        office = Office(process.start().url)
        yield office
        office.close()
    finally:
        process.end()


@pytest.fixture
def refusals() -> list[str]:
    """Put "status of 403" and the like here where a test is about them: browsers call them errors."""
    return []


@pytest.fixture
def visit(browser: Browser, server: ServerProcess, refusals: list[str]) -> Iterator[Visit]:
    """Open a screen of the console in a window of its own."""
    said: list[str] = []
    contexts = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(words in message.text for words in refusals):
            said.append(f"{message.type}: {message.text}")

    def visit(address: str = "", *, url: str = server.url, look: str = "light", zone: str | None = None) -> Page:
        context = browser.new_context(
            **LOOKS[look], timezone_id=zone, permissions=["clipboard-read", "clipboard-write"]
        )
        context.set_default_timeout(PATIENCE_MS)
        context.on("console", hear)
        context.on("weberror", lambda error: said.append(str(error.error)))
        contexts.append(context)
        page = context.new_page()
        page.goto(f"{url}/console/#/{address}")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert said == []


def check_accessible(page: Page) -> None:
    """Nothing that axe knows of is in the way of anybody."""
    page.evaluate(AXE.read_text())
    # A screen that follows its data may change while axe looks at it. What is wrong with it stays wrong.
    assert not violations(page) or violations(page) == []


def violations(page: Page) -> list[tuple[str, list[str]]]:
    found = page.evaluate("async () => (await axe.run()).violations")
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


def check_fits(page: Page) -> None:
    width, inner = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner, "nothing sticks out at the side"


def rows_of(page: Page, label: str) -> Any:
    return page.get_by_role("table", name=label).locator("tbody tr:not(.spacer)")


@pytest.fixture
def check(packages: None) -> Callable[[Page], None]:
    """That the page fits the window and can be used by everybody."""

    def check(page: Page) -> None:
        check_accessible(page)
        check_fits(page)

    return check


@pytest.fixture
def rows() -> Callable[[Page, str], Any]:
    return rows_of


expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def own(tmp_path: Path, refusals: list[str]) -> Iterator[ServerProcess]:
    """A server that the test may kill."""
    process = ServerProcess(tmp_path / "data")
    refusals.append("net::ERR_")
    try:
        yield process.start()
    finally:
        process.end()

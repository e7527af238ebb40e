"""Real pages in a real browser, and a real server behind them. Nothing is left out where something is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support import declared_rooms
from support.browser_pages import PATIENCE_MS, Complaints, served_files
from support.node_packages import Unavailable, require_packages
from support.server_process import ServerProcess

HERE = Path(__file__).parent

#: A name that is not the loopback to a browser, so a page from there is not trusted as one of this machine is.
UNTRUSTED = "pages.example"

NewPage = Callable[..., Page]

expect.set_options(timeout=PATIENCE_MS)


# For one file after the other: as long as it is open, Playwright has an event loop on this thread, where no other test
# could have one of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("chromium is not installed: apt-get install chromium", pytrace=False)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", f"--host-resolver-rules=MAP {UNTRUSTED} 127.0.0.1"]
        # Some browsers keep pages away from this machine by themselves. The server does not rely on it.
        arguments.append("--disable-features=LocalNetworkAccessChecks")
        launched = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield launched
        finally:
            launched.close()


@pytest.fixture(scope="session")
def packages() -> None:
    try:
        require_packages(HERE)
    except Unavailable as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    with served_files() as url:
        yield url


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the tables of ``declared.py``, shared by all tests: use rooms of your own, and never stop it."""
    settings = {"declare": declared_rooms.__file__, "allowed_origins": "*"}
    process = ServerProcess(tmp_path_factory.mktemp("browser") / "data", settings=settings)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def room(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)[:200]


@pytest.fixture
def new_context_page(browser: Browser) -> Iterator[NewPage]:
    """Open a page at an address, in a window of its own. What it says on its console fails the test."""
    complaints = Complaints()
    contexts = []

    def new(url: str, **options: Any) -> Page:
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        complaints.listen(context)
        contexts.append(context)
        page = context.new_page()
        page.goto(url)
        return page

    yield new
    for context in contexts:
        context.close()
    assert complaints.said == []


@pytest.fixture
def new_page(new_context_page: NewPage, site: str) -> Callable[[], Page]:
    """Open a page that has the module."""

    def new(origin: str = site) -> Page:
        page = new_context_page(f"{origin}/tests/browser/module.html")
        page.wait_for_function("window.isReady")
        return page

    return new


@pytest.fixture
def page(new_page: Callable[[], Page]) -> Page:
    return new_page()

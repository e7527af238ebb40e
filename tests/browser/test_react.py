"""The hook, in React as it is published, in its strict mode."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, expect
from support.browser_pages import Held
from support.server_process import ServerProcess

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def page(packages: None, new_context_page: Callable[..., Page], site: str) -> Page:
    page = new_context_page(f"{site}/tests/browser/react.html")
    page.wait_for_function("window.isReady")
    return page


@pytest.fixture(params=["show", "showTable"])
def form(request: pytest.FixtureRequest) -> str:
    """The first argument of the hook: the URL of a server, or a table of a connection."""
    return str(request.param)


def show(page: Page, server: ServerProcess, room: str, form: str = "show", **options: object) -> None:
    options = {"table": "note", "parent": room, "user": "ada", "public": True, **options}
    page.evaluate(f"([url, options]) => {form}(url, options)", [server.url, options])
    expect(page.locator("section[data-live=true][data-loading=false]")).to_be_visible()


def write(server: ServerProcess, room: str, *texts: str) -> None:
    body = {"parent": room, "items": [{"payload": {"text": text}} for text in texts]}
    httpx.post(f"{server.url}/tables/note/appendBulk", json=body, trust_env=False, timeout=60).raise_for_status()


def test_a_component_shows_rows_as_they_come(page: Page, server: ServerProcess, room: str, form: str) -> None:
    write(server, room, "one", "two", "three")
    show(page, server, room, form, pageSize=2)
    rows = page.locator("li")
    expect(rows).to_have_text(["three", "two"])
    page.get_by_role("button", name="More").click()
    expect(rows).to_have_text(["three", "two", "one"])
    expect(page.get_by_role("button", name="More")).to_be_disabled()
    write(server, room, "four")
    expect(rows).to_have_text(["four", "three", "two", "one"])


def test_a_row_is_there_at_once_and_keeps_its_element(page: Page, server: ServerProcess, room: str) -> None:
    show(page, server, room)
    page.get_by_label("Text").fill("mine")
    held = Held(page, "**/append")
    page.get_by_role("button", name="Add").click()
    row = page.locator("li")
    expect(row).to_have_class("pending")
    row.evaluate("(element) => (window.row = element)")
    held.wait().release()
    expect(row).not_to_have_class("pending")
    assert row.evaluate("(element) => element === window.row")


def test_what_is_refused_disappears_and_says_why(page: Page, server: ServerProcess, room: str) -> None:
    show(page, server, room)
    page.get_by_label("Text").fill("x" * 50)
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("alert")).to_have_text("VALIDATION_FAILED")
    expect(page.locator("li")).to_have_count(0)


def test_nothing_is_rendered_while_nothing_changes(page: Page, server: ServerProcess, room: str, form: str) -> None:
    show(page, server, room, form)
    before = page.evaluate("window.renders")
    page.evaluate("() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
    assert page.evaluate("window.renders") == before
    write(server, room, "one")
    expect(page.locator("li")).to_have_count(1)
    assert page.evaluate("window.methods.size") == 1


def test_another_parent_is_another_log_and_none_is_left_open(
    page: Page, server: ServerProcess, room: str, form: str
) -> None:
    opened: list[str] = []
    closed: list[str] = []
    page.on("request", lambda request: opened.append(request.url) if "/live?" in request.url else None)
    page.on("requestfailed", lambda request: closed.append(request.url) if "/live?" in request.url else None)
    write(server, room, "here")
    show(page, server, room, form)
    expect(page.locator("li")).to_have_text(["here"])
    with page.expect_event("requestfailed", lambda request: "/live?" in request.url):
        page.evaluate(f"([url, options]) => {form}(url, options)", [server.url, {
            "table": "note", "parent": f"{room} too", "user": "ada", "public": True,
        }])  # fmt: skip
    expect(page.locator("section[data-live=true][data-loading=false]")).to_be_visible()
    expect(page.locator("li")).to_have_count(0)
    with page.expect_event("requestfailed", lambda request: "/live?" in request.url):
        page.evaluate("() => show()")
    assert len(opened) == len(closed) == 2, "in strict mode, too, one connection for each log"

"""Pages of other sites, in a real browser, against a server without keys: they get nothing and do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from browser.conftest import UNTRUSTED
from playwright.sync_api import Browser, BrowserContext, Error, Page
from support.browser_pages import PATIENCE_MS
from support.server_process import ServerProcess

#: What a page can try; each is a promise of what came of it.
FETCH = "(url) => fetch(url).then((answer) => answer.text(), () => 'refused')"
SEND = """(url) => fetch(url, {method: "POST", mode: "no-cors", body: "3", headers: {"content-type": "text/plain"}})
    .then((answer) => answer.type, () => "refused")"""
DELETE = "(url) => fetch(url, {method: 'DELETE'}).then((answer) => answer.status, () => 'refused')"
SOCKET = """(url) => new Promise((tell) => {
    const socket = new WebSocket(url.replace("http", "ws") + "/v0/ws");
    socket.onopen = () => tell("open");
    socket.onerror = () => tell("refused");
})"""
EVENTS = """(url) => new Promise((tell) => {
    const source = new EventSource(url);
    source.onopen = () => tell("open");
    source.onerror = () => { source.close(); tell("refused"); };
})"""
ELEMENT = """([tag, url]) => new Promise((tell) => {
    const element = document.createElement(tag);
    element.onload = () => tell("loaded");
    element.onerror = () => tell("refused");
    element.src = url;
    document.body.append(element);
})"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("foreign") / "data")
    try:
        process.start()
        ask(process, "PUT", "/v1/stream/numbers", "[1,2]", "application/json")
        ask(process, "PUT", "/v1/stream/script", "document.title = 'owned'", "text/javascript")
        ask(process, "PUT", "/v1/stream/page", "<script>document.title = 'owned'</script>", "text/html")
        yield process
    finally:
        process.end()


def ask(server: ServerProcess, method: str, path: str, body: str = "", content_type: str = "") -> httpx.Response:
    headers = {"content-type": content_type} if content_type else {}
    return httpx.request(method, server.url + path, content=body, headers=headers, trust_env=False).raise_for_status()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


def opened(context: BrowserContext, origin: str) -> Page:
    """An empty page of an origin, whoever answers there otherwise."""
    context.route("**/attack.html", lambda route: route.fulfill(content_type="text/html", body="<body></body>"))
    page = context.new_page()
    page.goto(f"{origin}/attack.html")
    return page


def attempts(page: Page, url: str) -> dict[str, Any]:
    stream = f"{url}/v1/stream/numbers"
    return {
        "read": page.evaluate(FETCH, stream),
        "write": page.evaluate(SEND, stream),
        "delete": page.evaluate(DELETE, stream),
        "socket": page.evaluate(SOCKET, url),
        "events": page.evaluate(EVENTS, f"{stream}?live=sse&offset=-1"),
        "script": page.evaluate(ELEMENT, ["script", f"{url}/v1/stream/script"]),
    }


def test_a_page_of_another_site(server: ServerProcess, context: BrowserContext) -> None:
    page = opened(context, f"http://{UNTRUSTED}")
    told = attempts(page, server.url)
    assert set(told.values()) == {"refused"}, told
    assert page.title() != "owned"
    assert ask(server, "GET", "/v1/stream/numbers").json() == [1, 2]


def test_a_page_of_another_site_can_load_the_module_but_not_use_it(
    server: ServerProcess, context: BrowserContext
) -> None:
    page = opened(context, f"http://{UNTRUSTED}")
    told = page.evaluate(
        """async (url) => {
            const { connect, createLog } = await import(url + "/js/strandline.js");
            const log = createLog(connect(url).vote, { parent: "p", live: false, retry: { forMs: 0 } });
            return log.counts("x").catch((error) => error.code).finally(() => log.close());
        }""",
        server.url,
    )
    # Without CORS headers a page cannot tell a refusal from a server that is away.
    assert told == "UNREACHABLE"


def test_a_page_whose_name_was_pointed_at_the_server(server: ServerProcess, context: BrowserContext) -> None:
    """DNS rebinding: to the browser, the page and the server are one origin."""
    url = server.url.replace("127.0.0.1", UNTRUSTED)
    page = opened(context, url)
    told = {name: str(value) for name, value in attempts(page, url).items()}
    assert "STRANDLINE_ALLOWED_HOSTS=pages.example" in told.pop("read")
    assert (told.pop("write"), told.pop("delete")) == ("basic", "403")
    assert set(told.values()) == {"refused"}, told
    assert ask(server, "GET", "/v1/stream/numbers").json() == [1, 2]


def test_a_page_of_this_machine_and_the_console_work(server: ServerProcess, context: BrowserContext) -> None:
    page = opened(context, "http://localhost:5173")
    assert page.evaluate(FETCH, f"{server.url}/v1/stream/numbers") == "[1,2]"
    assert page.evaluate(SOCKET, server.url) == "open"
    page = opened(context, f"http://{UNTRUSTED}")
    page.evaluate("(url) => { location.href = url }", f"{server.url}/console/")
    page.wait_for_url(f"{server.url}/console/**")
    assert page.get_by_role("link", name="Logs").first.text_content() == "Logs"


def test_a_stored_page_is_saved_and_not_shown(server: ServerProcess, context: BrowserContext) -> None:
    page = context.new_page()
    with pytest.raises(Error, match="Download"):
        page.goto(f"{server.url}/v1/stream/page")
    assert page.title() != "owned"

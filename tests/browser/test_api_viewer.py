"""The page that shows the API of a server, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from support.browser_pages import Complaints
from support.server_process import ServerProcess


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_the_routes_of_the_server(browser: Browser, tmp_path: Path, scheme: str) -> None:
    server = ServerProcess(tmp_path / "data").start()
    complaints, asked = Complaints(), list[str]()
    try:
        context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
        complaints.listen(context)
        context.on("request", lambda request: asked.append(request.url))
        page = context.new_page()
        page.goto(f"{server.url}/docs/api")
        assert page.url == f"{server.url}/docs/api/"
        page.locator("#operations-tag-queues").click()
        expect(page.locator("#operations-queues-post_topics_topic_claim")).to_contain_text("/v0/topics/{topic}/claim")
        assert page.evaluate("document.documentElement.classList.contains('dark-mode')") == (scheme == "dark")
        page.goto(server.url)
        assert page.url.startswith(f"{server.url}/console/")
        context.close()
    finally:
        server.end()
    assert not complaints.said
    assert all(url.startswith((server.url, "data:")) for url in asked)

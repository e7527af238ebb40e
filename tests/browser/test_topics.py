"""The client of topics and queues in a page, against a real server. Topics have no CORS headers, so the page has the
origin of the server, as behind a proxy."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route
from support.document_tables import ROOT
from support.server_process import ServerProcess

pytestmark = pytest.mark.xdist_group("browser")

SCENARIO = (ROOT / "tests" / "clients" / "js" / "topics_scenario.mjs").read_text()
PROGRAM = """async ([url, name]) => {
    const [client, tests] = await Promise.all([import("/js/topics.js"), import("/page/scenario.mjs")]);
    return tests.scenario(client, url, name);
}"""


def served(route: Route) -> None:
    if route.request.url.endswith(".mjs"):
        route.fulfill(body=SCENARIO, content_type="text/javascript")
    else:
        route.fulfill(
            body='<!doctype html><html lang="en"><title>A page</title><link rel="icon" href="data:," /></html>',
            content_type="text/html",
        )


def test_a_page_uses_topics_and_queues(page: Page, server: ServerProcess) -> None:
    page.route("**/page/**", served)
    page.goto(f"{server.url}/page/index.html")
    assert page.evaluate(PROGRAM, [server.url, "page"]) == "all is well"

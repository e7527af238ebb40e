"""Collections: find a document, and see its elements and their authors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from browser.console.conftest import LOOKS, Visit
from playwright.sync_api import Page, expect
from support.console_office import Office
from support.server_process import ServerProcess

from strandline.signing.keys import Signer

Rows = Callable[[Page, str], Any]
Check = Callable[[Page], None]

SEALED = {"_encrypted": "A" * 344, "_epoch": 2}


def test_a_document_is_found_and_its_elements_are_shown(visit: Visit, office: Office, rows: Rows) -> None:
    signer = Signer.generate()
    path = office.room({"text": "hello"})
    office.push(path, {"text": "signed"}, signer)
    office.push(path, SEALED, signer)
    page = visit("collections", url=office.url)
    expect(rows(page, "Collections")).to_have_count(3)
    page.get_by_role("link", name="chat", exact=True).click()
    page.get_by_label("Documents whose path starts with").fill(path)
    page.get_by_role("link", name=path, exact=True).click()
    elements = rows(page, "Elements")
    expect(elements).to_have_count(3)
    expect(elements).to_contain_text(["encrypted, 258", '{"text":"signed"}', '{"text":"hello"}'])
    expect(elements).to_contain_text(["signed", "signed", "not signed"])
    elements.nth(1).get_by_role("button").click()
    panel = page.get_by_role("region", name="Element 2")
    expect(panel).to_contain_text(signer.public)
    expect(panel).to_contain_text("The signature of the author fits the data and the path.")
    elements.nth(0).get_by_role("button").click()
    panel = page.get_by_role("region", name="Element 3")
    expect(panel).to_contain_text("with the key of epoch 2")
    expect(panel.locator("pre")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name="chat", exact=True)).to_be_visible()


def test_new_elements_are_shown(visit: Visit, office: Office, rows: Rows) -> None:
    path = office.room({"text": "first"})
    page = visit(f"document/{path}", url=office.url)
    expect(rows(page, "Elements")).to_have_count(1)
    office.push(path, {"text": "second"})
    expect(rows(page, "Elements")).to_contain_text(["second", "first"])
    expect(page.locator(".stats")).to_contain_text("Elements2")


def test_the_versions_of_a_regular_document_are_compared(visit: Visit, office: Office, rows: Rows) -> None:
    path = f"{office.room({'text': 'hello'})}/members"
    hash = None
    for names in (["ann"], ["ann", "ben"]):
        hash = office.call("POST", f"/push/{path}", {"data": {"names": names}, "baseHash": hash})["hash"]
    page = visit(f"document/{path}", url=office.url)
    expect(rows(page, "Elements").first).to_contain_text("current")
    rows(page, "Elements").first.get_by_role("button").click()
    page.get_by_role("region", name="Version 2").get_by_role("button", name="Compare…").click()
    expect(rows(page, "Differences")).to_contain_text(['.names[1]–"ben"'])
    page.keyboard.press("Escape")
    page.get_by_role("button", name=f"{hash[:12]}…").click()
    expect(page.locator(".notice")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == hash


def test_access_is_readable(visit: Visit, office: Office, rows: Rows) -> None:
    page = visit("collection/members?tab=access", url=office.url)
    card = page.get_by_role("region", name="Who may do what")
    expect(card).to_contain_text("the caller whose identity is the {identity} in the path")
    expect(card).to_contain_text("callers with a certificate that allows to write in members")
    page.evaluate("hash => location.hash = hash", "#/collection/chat?tab=access")
    expect(rows(page, "Field permissions")).to_contain_text(["verdict"])
    page.evaluate("hash => location.hash = hash", "#/collection/pings")
    expect(page.get_by_role("link", name="Open ping-events")).to_be_visible()


def test_the_log_of_a_document_leads_to_it_and_back(visit: Visit, office: Office, rows: Rows) -> None:
    path = office.room({"text": "hello"})
    page = visit(f"document/{path}", url=office.url)
    page.get_by_role("link", name="Open as log").click()
    expect(rows(page, "Records")).to_have_count(1)
    page.get_by_role("link", name="document", exact=True).click()
    expect(rows(page, "Elements")).to_have_count(1)


def test_without_collections_the_screen_says_how_to_configure_one(
    visit: Visit, own: ServerProcess, check: Check
) -> None:
    page = visit("overview", url=own.url)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link", name="Collections")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="No collections are configured")).to_be_visible()
    expect(page.locator("main")).to_contain_text("[[collections.collection]]")
    check(page)


def test_what_does_not_exist_is_said_to_be_missing(
    visit: Visit, office: Office, check: Check, refusals: list[str]
) -> None:
    refusals.append("status of 404")
    page = visit("document/rooms/nowhere", url=office.url)
    expect(page.get_by_role("alert")).to_contain_text("does not exist")
    page = visit("collection/nothing", url=office.url)
    expect(page.get_by_role("alert")).to_contain_text("the collection 'nothing' does not exist")
    page = visit("collection/chat?prefix=rooms/nowhere", url=office.url)
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()
    check(page)


@pytest.mark.parametrize("look", LOOKS)
def test_the_screens_fit_every_size_and_light(visit: Visit, office: Office, check: Check, look: str) -> None:
    path = office.room({"text": "hello"}, SEALED, signer=Signer.generate())
    page = visit("collections", url=office.url, look=look)
    screens = {
        "collections": "table[aria-label=Collections] tbody a >> nth=0",
        "collection/chat": "table[aria-label=Documents] tbody a >> nth=0",
        "collection/chat?tab=access": "section[aria-label=Configuration]",
        f"document/{path}": "table[aria-label=Elements] tbody button >> nth=0",
        f"document/{path}?seq=2": "section.record",
    }
    for address, sign in screens.items():
        page.evaluate("hash => location.hash = hash", f"#/{address}")
        expect(page.locator(sign), address).to_be_visible()
        check(page)
        if page.locator("dialog[open]").count():
            page.keyboard.press("Escape")
        code = page.locator("details.code")
        expect(code).not_to_contain_text(re.compile("/console/api/"))
        code.locator("summary").click()
        expect(code.locator("pre").first, address).to_contain_text("curl")
        code.locator("summary").click()

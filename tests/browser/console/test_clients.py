"""The screen of connected clients."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser.console.conftest import LOOKS, Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop
from support.server_process import ServerProcess

Rows = Callable[[Page, str], Any]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    process = ServerProcess(tmp_path_factory.mktemp("clients") / "data", keys="root,reader:read")
    try:
        shop = Shop(process.start().url, "root")
        yield shop
        shop.close()
    finally:
        process.end()


def sign_in(visit: Visit, shop: Shop, key: str = "root", look: str = "light") -> Page:
    page = visit("clients", url=shop.url, look=look)
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    return page


@pytest.fixture
def tail(guarded: Shop) -> Iterator[tuple[str, socket.socket]]:
    """A log, and a client that follows it."""
    log = guarded.topic(records=3)
    with socket.create_connection(("127.0.0.1", int(guarded.url.rpartition(":")[2])), timeout=20) as line:
        line.sendall(
            f"GET /console/api/log/{log}/tail?after=0 HTTP/1.1\r\nhost: localhost\r\n"
            "authorization: Bearer root\r\n\r\n".encode()
        )
        assert line.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        yield log, line


def read_to_end(line: socket.socket) -> bytes:
    received = b""
    while chunk := line.recv(1 << 16):
        received += chunk
    return received


@pytest.mark.parametrize("look", LOOKS)
def test_a_connection_is_looked_at_and_ended(
    visit: Visit,
    guarded: Shop,
    tail: tuple[str, socket.socket],
    rows: Rows,
    check: Callable[[Page], None],
    look: str,
) -> None:
    log, line = tail
    page = sign_in(visit, guarded, look=look)
    search = page.get_by_role("searchbox")
    search.fill(log)
    row = rows(page, "Clients").filter(has_text=str(line.getsockname()[1]))
    expect(row).to_have_count(1)
    expect(row).to_contain_text("Event stream")
    check(page)
    row.get_by_role("button", name="127.0.0.1").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_have_count(1)
    expect(dialog).to_contain_text("/console/api/log/{name}/tail")
    expect(dialog.get_by_role("link", name=log)).to_be_visible()
    expect(dialog).to_contain_text("up to date")
    check(page)
    dialog.get_by_role("button", name="End connection…").click()
    page.get_by_role("dialog").get_by_role("button", name="End connection").click()
    assert b"an administrator closed the connection" in read_to_end(line)
    expect(row).to_have_count(0)


def test_kinds_are_counted_and_chosen(visit: Visit, guarded: Shop, tail: tuple[str, socket.socket], rows: Rows) -> None:
    log, _ = tail
    page = sign_in(visit, guarded)
    kinds = page.get_by_role("group", name="Kinds of connections")
    kinds.get_by_role("button", name="Event stream").click()
    expect(kinds.get_by_role("button", name="Event stream")).to_have_attribute("aria-pressed", "true")
    expect(rows(page, "Clients").filter(has_text="Idle")).to_have_count(0)
    expect(rows(page, "Clients").filter(has_text=log)).to_have_count(1)
    assert "kind=event_stream" in page.url
    page.reload()
    expect(kinds.get_by_role("button", name="Event stream")).to_have_attribute("aria-pressed", "true")


def test_a_key_without_the_scope_is_told_so(visit: Visit, guarded: Shop, refusals: list[str]) -> None:
    refusals.append("status of 403")
    page = sign_in(visit, guarded, "reader")
    expect(page.get_by_role("alert")).to_contain_text("admin")

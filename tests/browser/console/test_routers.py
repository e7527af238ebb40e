"""Routers: drawn, listed, made and deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]


def test_a_chain_is_drawn_from_left_to_right(visit: Visit, shop: Shop, rows: Rows) -> None:
    names = shop.chain()
    page = visit(f"routers?router={names[1]}")
    expect(rows(page, "Routers")).to_have_count(2)
    nodes = page.locator("svg .node")
    expect(nodes).to_have_count(3)
    places = [page.locator("svg .node", has_text=name).locator("rect").bounding_box() for name in names]
    edges = [place["x"] for place in places if place is not None]
    assert edges == sorted(edges)
    assert len(edges) == 3
    shop.write(names[0], *range(7))
    expect(rows(page, "Routers").locator("td:nth-child(5)")).to_have_text(["7", "7"])
    nodes.first.click()
    expect(page.get_by_role("heading", name=names[0])).to_be_visible()


def test_what_goes_in_circles_is_drawn_as_well(visit: Visit, shop: Shop) -> None:
    names = shop.chain()
    back = {"source": names[2], "dest": names[0], "allow_cycle": True}
    shop.call("PUT", f"/v0/routers/back-to-{names[0]}", back)
    page = visit(f"routers?router={names[0]}")
    expect(page.locator("svg .edge")).to_have_count(2)
    page.get_by_label("Search by router or log").fill(names[2])
    expect(page.locator("svg .node", has_text=names[2])).to_be_visible()


def test_a_router_is_made_and_deleted(visit: Visit, shop: Shop, rows: Rows) -> None:
    source, dest = shop.topic("source"), shop.name("dest")
    page = visit("routers")
    page.get_by_role("button", name="New router").click()
    page.get_by_label("From", exact=True).fill(source)
    page.get_by_label("To", exact=True).fill(dest)
    page.get_by_label("Key filter").fill("customer:bob")
    page.get_by_role("button", name="Create").click()
    expect(page.locator(".notice")).to_contain_text(f"{source}->{dest} was created.")
    page.get_by_label("Search by router or log").fill(dest)
    expect(rows(page, "Routers")).to_contain_text(["customer:bob"])
    shop.write(source, "for ann", "for bob")
    expect(rows(page, "Routers").locator("td:nth-child(5)")).to_have_text(["1"])
    page.get_by_role("button", name=f"Delete router {source}->{dest}").click()
    page.get_by_role("button", name="Delete router", exact=True).click()
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()

"""The editor of a log's searchable fields, and the progress of indexing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from browser.console.conftest import LOOKS, Visit, install
from playwright.sync_api import Locator, Page, Route, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]
Check = Callable[[Page], None]

RECORDS = [
    {"at": "2026-11-15T10:00:00Z", "level": "error", "ms": 12, "message": "the bank did not answer"},
    {"at": "2026-11-15T10:01:00Z", "level": "info", "ms": 3, "message": "paid"},
]
LEVEL = {"fields": {"level": {"kind": "keyword", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/level"}]}}}


@pytest.fixture
def log(shop: Shop) -> str:
    name = shop.topic("requests")
    shop.write(name, *RECORDS)
    return name


def search_of(shop: Shop, log: str) -> Any:
    return shop.call("GET", f"/v1/stream/{log}/_schema").get("search")


def open_editor(page: Page, button: str = "Searchable fields…") -> Locator:
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


def choose(dialog: Locator, name: str, *, chosen: bool) -> None:
    dialog.get_by_role("checkbox", name=name, exact=True).set_checked(chosen)


def test_a_topic_with_records_becomes_searchable(visit: Visit, shop: Shop, rows: Rows, log: str) -> None:
    page = visit(f"search?log={log}")
    page.get_by_role("link", name="Choose searchable fields").click()
    dialog = open_editor(page, "Choose searchable fields…")
    expect(dialog).to_contain_text("4 fields proposed from the last 2 records.")
    expect(rows(page, "Fields of the records").locator("td:nth-child(3)")).to_have_text(
        ["/at", "/level", "/ms", "/message"]
    )
    expect(dialog.get_by_label("Primary timestamp")).to_have_value("at")
    choose(dialog, "ms", chosen=False)
    install(dialog)
    expect(page.locator(".notice")).to_contain_text("3 fields can be searched.")
    expect(rows(page, "Fields").locator("td:nth-child(1)")).to_have_text(["at", "level", "message"])
    search = search_of(shop, log)
    assert (list(search["fields"]), search["primaryTimestampField"]) == (["at", "level", "message"], "at")
    assert search["defaultFields"] == [{"field": "message"}]
    page.get_by_role("link", name="Search this log").click()
    page.get_by_label("Query").fill("bank level:error")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("1 hit ")
    shop.write(log, {"level": "error", "message": "the bank is closed"})
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("status").first).to_contain_text("2 hits ")


def test_the_editor_starts_from_what_is_installed(visit: Visit, shop: Shop, log: str) -> None:
    shop.call("PUT", f"/v0/topics/{log}", {"search": LEVEL})
    page = visit(f"log/{log}?tab=schema")
    dialog = open_editor(page)
    expect(dialog).to_contain_text("3 fields proposed from the last 2 records.")
    expect(dialog.get_by_role("checkbox", name="level", exact=True)).to_be_checked()
    expect(dialog.get_by_role("checkbox", name="ms", exact=True)).not_to_be_checked()
    choose(dialog, "ms", chosen=True)
    choose(dialog, "at", chosen=True)
    expect(dialog.get_by_label("Primary timestamp")).to_have_value("at")
    dialog.get_by_label("Primary timestamp").select_option("none")
    dialog.get_by_label("Kind of ms").select_option("float")
    install(dialog)
    expect(page.get_by_role("table", name="Fields", exact=True)).to_contain_text("float")
    search = search_of(shop, log)
    assert list(search["fields"]) == ["level", "at", "ms"]
    assert search["fields"]["level"] == LEVEL["fields"]["level"]
    assert search["fields"]["ms"]["kind"] == "float"
    assert "primaryTimestampField" not in search


def test_the_configuration_is_edited_as_json(
    visit: Visit, shop: Shop, rows: Rows, log: str, refusals: list[str]
) -> None:
    refusals.append("status of 400")
    page = visit(f"log/{log}?tab=schema")
    dialog = open_editor(page)
    choose(dialog, "at", chosen=False)
    dialog.get_by_role("radio", name="JSON").check()
    text = dialog.get_by_label("Search configuration (JSON)")
    shown = json.loads(text.input_value())
    assert (list(shown["fields"]), "primaryTimestampField" in shown) == (["level", "ms", "message"], False)
    text.fill("{")
    dialog.get_by_role("radio", name="Fields").click()
    expect(dialog.get_by_role("alert").first).to_contain_text("not valid JSON")
    expect(dialog.get_by_role("radio", name="JSON")).to_be_checked()
    text.fill(json.dumps({"fields": {"level": {"kind": "word", "bindings": []}}}))
    dialog.get_by_role("button", name="Review").click()
    expect(dialog.get_by_role("alert")).to_contain_text("search.fields.level.kind must be keyword")
    assert search_of(shop, log) is None
    text.fill(json.dumps({**LEVEL, "aliases": {"severity": "level"}}))
    dialog.get_by_role("radio", name="Fields").check()
    expect(rows(page, "Fields of the records").locator("input:checked")).to_have_count(1)
    install(dialog)
    expect(page.get_by_role("table", name="Fields", exact=True)).to_contain_text("level")
    assert search_of(shop, log) == {**LEVEL, "aliases": {"severity": "level"}}


def test_without_a_field_nothing_can_be_installed(visit: Visit, log: str) -> None:
    dialog = open_editor(visit(f"log/{log}?tab=schema"))
    for name in RECORDS[0]:
        choose(dialog, name, chosen=False)
    expect(dialog.get_by_role("button", name="Review")).to_be_disabled()
    choose(dialog, "ms", chosen=True)
    expect(dialog.get_by_role("button", name="Review")).to_be_enabled()


def test_a_log_without_members_starts_with_an_example(visit: Visit, shop: Shop) -> None:
    dialog = open_editor(visit(f"log/{shop.topic()}?tab=schema"))
    expect(dialog).to_contain_text("no other members to propose")
    assert "jsonPointer" in dialog.get_by_label("Search configuration (JSON)").input_value()


def test_the_fields_are_removed(visit: Visit, shop: Shop, log: str) -> None:
    shop.call("POST", f"/v1/stream/{log}/_schema", {"search": LEVEL})
    page = visit(f"log/{log}?tab=schema")
    page.get_by_role("button", name="Remove fields…").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_role("button", name="Choose searchable fields…")).to_be_visible()
    assert search_of(shop, log) is None


def test_saving_the_configuration_keeps_the_fields(visit: Visit, shop: Shop, log: str) -> None:
    shop.call("PUT", f"/v0/topics/{log}", {"search": LEVEL})
    page = visit(f"log/{log}?tab=config")
    page.get_by_label("Max records").fill("1000")
    page.get_by_role("button", name="Save 1 change").click()
    expect(page.locator(".notice")).to_contain_text("Configuration saved.")
    assert shop.state(log)["config"]["cap_records"] == 1000
    assert search_of(shop, log) == LEVEL


def test_the_owner_of_a_log_declares_its_fields(visit: Visit, shop: Shop) -> None:
    row = {"parent": shop.name("room"), "payload": {"text": "hello"}}
    shop.call("POST", "/tables/note/append", row)
    page = visit(f"log/note%2F{row['parent']}?tab=schema")
    expect(page.get_by_role("table", name="Fields", exact=True)).to_contain_text("text")
    expect(page.get_by_role("button", name="Searchable fields…", exact=True)).to_be_disabled()


# --- progress -------------------------------------------------------------------------------------------------------


class Progress:
    """Answers in place of the server, whose index of a few records is complete at once."""

    def __init__(self, page: Page) -> None:
        self.indexed = 81_234
        page.route("**/_index_status", self._answer)

    def _answer(self, route: Route) -> None:
        complete = self.indexed == 200_000
        rates = {"records_per_second": None if complete else 25_000.0, "remaining_ms": None if complete else 4_700}
        progress = {"indexed_records": self.indexed, "records": 200_000, **rates, "complete": complete}
        route.fulfill(json={"progress": progress})


@pytest.mark.parametrize("look", LOOKS)
def test_indexing_is_shown_until_it_is_complete(visit: Visit, log: str, look: str, check: Check) -> None:
    page = visit(f"log/{log}?tab=schema", look=look)
    progress = Progress(page)
    dialog = open_editor(page)
    expect(dialog.get_by_role("checkbox").first).to_be_visible()
    check(page)
    install(dialog)
    bar = page.get_by_role("progressbar", name="Indexed records")
    expect(bar).to_have_attribute("value", "81234")
    spaces = "\u202f"
    expect(page.locator(".indexing")).to_have_text(
        f"Indexing: 81{spaces}234 of 200{spaces}000 records · 25{spaces}k/s · 4.7{spaces}s remaining"
    )
    check(page)
    progress.indexed = 150_000
    expect(bar).to_have_attribute("value", "150000")
    page.get_by_role("link", name="Search this log").click()
    expect(bar).to_have_attribute("value", "150000")
    check(page)
    progress.indexed = 200_000
    expect(bar).to_have_count(0)


def test_an_index_status_without_a_progress_is_complete(visit: Visit, shop: Shop, log: str, rows: Rows) -> None:
    shop.call("POST", f"/v1/stream/{log}/_schema", {"search": LEVEL})
    page = visit(f"log/{log}?tab=schema")
    page.route("**/_index_status", lambda route: route.fulfill(json={"stream": log}))
    expect(rows(page, "Fields")).to_have_count(1)
    expect(page.get_by_role("progressbar")).to_have_count(0)


# --- the review -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", LOOKS)
def test_a_change_is_reviewed_before_it_is_installed(
    visit: Visit, shop: Shop, rows: Rows, log: str, look: str, check: Check
) -> None:
    shop.write(log, {"level": 7, "ms": "soon"})
    shop.call("PUT", f"/v0/topics/{log}", {"search": LEVEL})
    page = visit(f"log/{log}?tab=schema", look=look)
    dialog = open_editor(page)
    choose(dialog, "ms", chosen=True)
    dialog.get_by_role("button", name="Review").click()
    difference = dialog.get_by_label("Difference")
    expect(difference.locator("[data-sign='+']").first).to_be_visible()
    expect(difference.locator("[data-sign='+']", has_text='"ms": {')).to_have_count(1)
    expect(difference.locator("[data-sign='-']", has_text='"level"')).to_have_count(0)
    expect(dialog.get_by_role("status")).to_have_text("3 records examined.")
    level, ms = (rows(page, "Values of fields").nth(at) for at in (0, 1))
    # The records, the values, and the records with another type: the kind and the sample are hidden on a phone.
    expect(level.locator("td.number")).to_have_text(["2", "2", "1"])
    expect(ms.locator("td.number")).to_have_text(["2", "2", "1"])
    expect(ms.locator("td.data")).to_have_text('3, 12, "soon"')
    check(page)
    assert search_of(shop, log) == LEVEL
    dialog.get_by_role("button", name="Edit").click()
    choose(dialog, "ms", chosen=False)
    dialog.get_by_role("button", name="Review").click()
    expect(dialog.get_by_text("Nothing changes.")).to_be_visible()
    dialog.get_by_role("button", name="Install").click()
    expect(dialog).to_have_count(0)


def test_records_that_a_schema_rejects_are_shown_before_it_is_installed(
    visit: Visit, shop: Shop, rows: Rows, log: str
) -> None:
    page = visit(f"log/{log}?tab=schema")
    dialog = open_editor(page, "Change schema…")
    strict = {"type": "object", "properties": {"ms": {"type": "integer", "maximum": 10}}}
    dialog.get_by_label("Update (JSON)").fill(json.dumps({"schema": strict}))
    dialog.get_by_role("button", name="Review").click()
    expect(dialog.get_by_role("alert")).to_have_text(
        "The server would refuse this: first schema requires empty stream."
    )
    expect(dialog.get_by_role("status")).to_have_text("2 records examined: 1 would be rejected.")
    expect(rows(page, "Rejected records")).to_have_text(["1/ms value is greater than the maximum of 10"])
    expect(dialog.get_by_role("button", name="Install")).to_have_count(0)
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.get_by_label("Update (JSON)")).to_be_focused()


def test_json_is_coloured_while_it_is_edited(visit: Visit, log: str) -> None:
    dialog = open_editor(visit(f"log/{log}?tab=schema"), "Change schema…")
    dialog.get_by_label("Update (JSON)").fill('{"schema": true, "n": 12')
    expect(dialog.locator(".json-editor .json-key")).to_have_text(['"schema"', '"n"'])
    expect(dialog.locator(".json-editor .json-number")).to_have_text("12")

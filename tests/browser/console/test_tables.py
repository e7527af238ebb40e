"""Tables: find a row, edit it, see its history, remove and restore it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser.console.conftest import LOOKS, Visit
from playwright.sync_api import Locator, Page, expect
from support import declared_office
from support.console_office import Office
from support.server_process import ServerProcess

Rows = Callable[[Page, str], Any]
Check = Callable[[Page], None]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """A server with API keys."""
    settings = {"declare": declared_office.__file__}
    process = ServerProcess(
        tmp_path_factory.mktemp("keys") / "data", keys="root,writer:read+write+delete,reader:read", settings=settings
    )
    try:
        office = Office(process.start().url, "root")
        yield office
        office.close()
    finally:
        process.end()


def open_rows(visit: Visit, office: Office, parent: str, more: str = "", **options: Any) -> Page:
    page = visit(f"table/vote?parent={parent}{more}", url=office.url, **options)
    expect(page.get_by_role("heading", name=parent, exact=True)).to_be_visible()
    return page


def sign_in(page: Page, key: str) -> Page:
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    return page


def open_row(page: Page, rows: Rows, seq: int) -> Locator:
    rows(page, "Rows").get_by_role("button", name=str(seq), exact=True).click()
    panel = page.get_by_role("region", name=re.compile(rf"Row .*:{seq}$"))
    expect(panel).to_be_visible()
    return panel


def sort(page: Page, column: str) -> None:
    page.locator("th", has_text=column).get_by_role("button").click()


def wait_for(page: Page, text: str) -> None:
    expect(page.locator(".notice").last).to_have_text(text)


def test_a_row_is_found(visit: Visit, office: Office, rows: Rows) -> None:
    parent = office.poll(1, 2, 3, 2)
    page = visit("tables", url=office.url)
    expect(rows(page, "Tables")).to_have_count(3)
    page.get_by_role("link", name="vote", exact=True).click()
    page.get_by_label("Search parents").fill(parent)
    page.get_by_role("link", name=parent, exact=True).click()
    expect(rows(page, "Rows")).to_have_count(4)
    expect(rows(page, "Rows").first).to_contain_text("comment 4")
    page.get_by_label("Filter rows").fill('.option = 2 and "comment 2"')
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(rows(page, "Rows")).to_have_count(1)
    expect(page.get_by_role("status").filter(has_text="1 match")).to_be_visible()
    # The address has the filter.
    page.reload()
    expect(rows(page, "Rows")).to_have_count(1)
    page.get_by_label("Filter rows").fill(".option = 7")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No matches")).to_be_visible()


def test_one_goes_to_a_row_by_its_id(visit: Visit, office: Office) -> None:
    parent = office.poll(1, 2)
    page = visit("table/vote", url=office.url)
    page.get_by_label("Go to a parent or a row").fill(f"{parent}:2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name=f"Row {parent}:2")).to_contain_text("comment 2")
    page.get_by_label("Go to a row").fill("1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name=f"Row {parent}:1")).to_contain_text("comment 1")
    expect(page.locator("tr[aria-current]")).to_contain_text("comment 1")


def test_rows_are_sorted_by_their_fields(visit: Visit, office: Office, rows: Rows) -> None:
    page = open_rows(visit, office, office.poll(2, 9, 1))
    first = rows(page, "Rows").first
    expect(first).to_contain_text("comment 3")
    sort(page, "option")
    expect(first).to_contain_text("comment 3")
    sort(page, "option")
    expect(first).to_contain_text("comment 2")
    expect(page.get_by_role("columnheader", name="option")).to_have_attribute("aria-sort", "descending")
    sort(page, "Row")
    sort(page, "Row")
    expect(first).to_contain_text("comment 1")


def test_a_row_is_edited_and_its_history_is_shown(
    visit: Visit, office: Office, rows: Rows, refusals: list[str]
) -> None:
    refusals.append("status of 400")
    parent = office.poll(1, 2)
    page = open_rows(visit, office, parent)
    panel = open_row(page, rows, 2)
    expect(panel).to_contain_text("The row was never edited.")
    panel.get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The row is changed by bob.")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert").last).to_have_text("Nothing was changed.")
    dialog.get_by_label("option").fill("12")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.locator("[data-field=option] .problem")).to_contain_text("<= 9")
    dialog.get_by_label("option").fill("5")
    dialog.get_by_label("mood").select_option("happy")
    dialog.get_by_label("weight").fill("0.5")
    dialog.get_by_label("tags").fill('["late"]')
    dialog.get_by_role("button", name="Save").click()
    wait_for(page, f"Row {parent}:2 was saved.")
    expect(panel).to_contain_text("History: 1 edit")
    expect(panel.locator(".edits li")).to_contain_text(["option2 → 5"])
    expect(rows(page, "Rows").first).to_contain_text("happy")
    row = office.row(f"{parent}:2")
    assert [row["row"][name] for name in ("option", "mood", "weight", "tags")] == [5, "happy", 0.5, ["late"]]
    assert row["edits"][0]["user"] == "bob"


def test_an_edit_that_meets_another_one_shows_both(
    visit: Visit, office: Office, rows: Rows, check: Check, refusals: list[str]
) -> None:
    refusals.append("status of 409")
    parent = office.poll(1)
    page = open_rows(visit, office, parent)
    open_row(page, rows, 1).get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog")
    office.table("vote/update", {"id": f"{parent}:1", "patch": {"option": 4, "mood": "happy"}}, "ann")
    dialog.get_by_label("option").fill("7")
    dialog.get_by_label("comment").fill("mine")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("ann changed this row")
    expect(rows(page, "Conflict").filter(has_text="option")).to_have_text(["option147"])
    expect(rows(page, "Conflict").filter(has_text="mood")).to_have_text(["moodcalmhappyunchanged"])
    check(page)
    dialog.get_by_role("button", name="Save anyway").click()
    wait_for(page, f"Row {parent}:1 was saved.")
    row = office.row(f"{parent}:1")["row"]
    assert [row[name] for name in ("option", "comment", "mood")] == [7, "mine", "happy"]


def test_a_row_is_removed_and_restored(visit: Visit, office: Office, rows: Rows) -> None:
    parent = office.poll(1, 2, 3)
    page = open_rows(visit, office, parent)
    open_row(page, rows, 2).get_by_role("button", name="Remove…").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    wait_for(page, f"Row {parent}:2 was removed.")
    expect(rows(page, "Rows")).to_have_count(2)
    page.get_by_role("tab", name="Trash").click()
    expect(rows(page, "Trash")).to_have_count(1)
    expect(rows(page, "Trash")).to_contain_text(["comment 2"])
    page.get_by_role("button", name="Restore row 2").click()
    wait_for(page, f"Row {parent}:2 was restored.")
    expect(page.get_by_role("heading", name="The trash is empty")).to_be_visible()
    page.get_by_role("tab", name="Rows").click()
    expect(rows(page, "Rows")).to_have_count(3)


def test_a_row_is_deleted_permanently(visit: Visit, office: Office, rows: Rows) -> None:
    parent = office.poll(1, 2)
    office.table("vote/rm", {"id": f"{parent}:1"}, "ann")
    page = open_rows(visit, office, parent, "&tab=trash")
    page.get_by_role("button", name="Delete row 1 permanently").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("cannot be undone")
    dialog.get_by_role("button", name="Remove permanently").click()
    expect(page.get_by_role("heading", name="The trash is empty")).to_be_visible()
    assert [row["seq"] for row in office.rows(parent)] == [2]


def test_all_rows_are_removed_and_restored_by_the_owner(visit: Visit, office: Office, rows: Rows) -> None:
    page = open_rows(visit, office, office.poll(1, 2, 3))
    page.get_by_role("button", name="Remove all…").click()
    expect(page.get_by_role("dialog")).to_contain_text("The rows are removed by ann.")
    page.get_by_role("dialog").get_by_role("button", name="Remove all rows").click()
    wait_for(page, "3 rows removed.")
    expect(page.get_by_role("heading", name="No rows")).to_be_visible()
    page.get_by_role("tab", name="Trash").click()
    page.get_by_role("button", name="Restore all").click()
    wait_for(page, "3 rows restored.")


def test_a_row_is_appended_as_a_user(visit: Visit, office: Office, rows: Rows) -> None:
    parent = office.poll()
    page = open_rows(visit, office, parent)
    page.get_by_label("Change rows as this user").fill("zoë")
    page.get_by_role("button", name="New row").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The row is written by zoë.")
    expect(dialog.get_by_label("mood")).to_have_value('"calm"')
    dialog.get_by_label("option").fill("3")
    dialog.get_by_label("Idempotency key").fill("first")
    dialog.get_by_role("button", name="Append").click()
    wait_for(page, f"Row {parent}:1 was appended.")
    expect(rows(page, "Rows")).to_contain_text(["zoë"])
    assert office.rows(parent)[0]["idempotencyKey"] == "first"


def test_rows_without_declared_fields_are_edited_as_json(visit: Visit, office: Office, rows: Rows) -> None:
    book = office.name("book")
    office.table("ledger/append", {"parent": book, "payload": {"amount": 5, "note": "lunch"}}, "ann")
    page = visit(f"table/ledger?parent={book}", url=office.url)
    expect(rows(page, "Rows")).to_contain_text(['{"amount":5,"note":"lunch"}'])
    open_row(page, rows, 1).get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Payload (JSON)").fill('{"amount": 6}')
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("A field cannot be removed from a row: note")
    dialog.get_by_label("Payload (JSON)").fill('{"amount": 6, "note": "lunch"}')
    dialog.get_by_role("button", name="Save").click()
    wait_for(page, f"Row {book}:1 was saved.")
    page.get_by_role("tab", name="Trash").click()
    expect(page.get_by_role("heading", name="This table has no trash")).to_be_visible()


def test_changes_by_others_are_shown(visit: Visit, office: Office, rows: Rows) -> None:
    parent = office.poll(1)
    page = open_rows(visit, office, parent)
    panel = open_row(page, rows, 1)
    office.table("vote/append", {"parent": parent, "payload": {"option": 4, "comment": "new"}}, "cat")
    expect(rows(page, "Rows").first).to_contain_text("new")
    office.table("vote/update", {"id": f"{parent}:1", "patch": {"option": 8}}, "ann")
    expect(panel).to_contain_text("History: 1 edit")
    expect(page.locator("tr[aria-current]")).to_contain_text("comment 1")


def test_many_rows_are_read_as_one_scrolls(visit: Visit, office: Office, rows: Rows) -> None:
    page = open_rows(visit, office, office.poll(*[number % 10 for number in range(350)]))
    expect(rows(page, "Rows").first).to_contain_text("comment 350")
    page.wait_for_function(
        """() => {
            const table = document.querySelector(".list .table");
            table.scrollTop = table.scrollHeight;
            return table.querySelector("tbody").textContent.includes("comment 1c");
        }"""
    )


def test_the_rows_of_all_parents_are_shown(visit: Visit, office: Office, rows: Rows) -> None:
    parents = [office.poll(1), office.poll(2)]
    page = visit("table/vote?tab=feed", url=office.url)
    expect(rows(page, "All rows").first).to_contain_text(f"{parents[1]}:1")
    page.get_by_role("link", name=f"{parents[0]}:1", exact=True).click()
    expect(page.get_by_role("region", name=f"Row {parents[0]}:1")).to_be_visible()
    page = visit("table/poll?tab=feed", url=office.url)
    expect(page.get_by_role("heading", name="This table has no feed")).to_be_visible()


def test_a_declaration_is_readable(visit: Visit, office: Office, rows: Rows) -> None:
    page = visit("table/vote?tab=declaration", url=office.url)
    expect(page.get_by_role("region", name="Access")).to_contain_text("users with the role moderator")
    expect(rows(page, "Hooks")).to_have_count(2)
    expect(rows(page, "Fields")).to_have_count(5)
    expect(rows(page, "Fields").first).to_contain_text("The index of the option.")
    expect(page.get_by_role("region", name="Schema")).to_contain_text("Version 1 current")
    expect(page.get_by_role("region", name="Options")).to_contain_text(
        "100 000 rows per user".replace(" 000", "\u202f000")
    )


def test_the_log_of_rows_leads_to_the_table_and_back(visit: Visit, office: Office, rows: Rows) -> None:
    parent = office.poll(1)
    page = open_rows(visit, office, parent)
    page.get_by_role("link", name="records").first.click()
    expect(page.get_by_role("heading", name=f"vote/{parent}")).to_be_visible()
    page.get_by_role("link", name="rows", exact=True).click()
    expect(rows(page, "Rows")).to_have_count(1)


def test_by_keyboard(visit: Visit, office: Office, rows: Rows) -> None:
    parent = office.poll(1, 2)
    page = visit("overview", url=office.url)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(rows(page, "Tables").nth(1)).to_contain_text("vote")
    for key in ("j", "j", "Enter"):
        page.keyboard.press(key)
    expect(rows(page, "Parents").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(parent)
    expect(rows(page, "Parents")).to_have_count(1)
    for key in ("Escape", "j", "Enter"):
        page.keyboard.press(key)
    expect(rows(page, "Rows")).to_have_count(2)
    for key in ("j", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("region", name=f"Row {parent}:2")).to_be_visible()
    page.keyboard.press("e")
    expect(page.get_by_role("dialog", name=f"Edit row {parent}:2")).to_be_visible()
    page.keyboard.press("Escape")
    # A closed dialog is removed a moment later, when the focus returns to the screen.
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name=f"Row {parent}:2")).to_have_count(0)
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name="vote", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("Tables")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Tables", exact=True)).to_be_visible()


def test_an_api_key_may_do_what_its_scopes_and_the_table_allow(
    visit: Visit, guarded: Office, rows: Rows, refusals: list[str]
) -> None:
    refusals.append("status of 403")
    parent = guarded.poll(1)
    reader = sign_in(visit(f"table/vote?parent={parent}", url=guarded.url), "reader")
    # A row of someone else is shown, as in the screen of its log.
    panel = open_row(reader, rows, 1)
    expect(panel.get_by_role("button", name="Edit…")).to_be_disabled()
    expect(reader.get_by_role("button", name="New row")).to_be_disabled()
    writer = sign_in(visit(f"table/vote?parent={parent}", url=guarded.url), "writer")
    open_row(writer, rows, 1).get_by_role("button", name="Edit…").click()
    expect(writer.get_by_label("Change rows as this user")).to_have_count(0)
    dialog = writer.get_by_role("dialog")
    expect(dialog).to_contain_text("The row is changed by your API key")
    dialog.get_by_label("comment").fill("not mine")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert").last).to_contain_text("only its author, the owner of the poll")
    admin = sign_in(visit(f"table/vote?parent={parent}", url=guarded.url), "root")
    open_row(admin, rows, 1).get_by_role("button", name="Edit…").click()
    dialog = admin.get_by_role("dialog")
    expect(dialog).to_contain_text("The row is changed by the program")
    dialog.get_by_label("comment").fill("by an administrator")
    dialog.get_by_role("button", name="Save").click()
    wait_for(admin, f"Row {parent}:1 was saved.")
    assert guarded.row(f"{parent}:1")["edits"][0]["user"] is None


def test_without_tables_the_screen_says_how_to_declare_one(visit: Visit, own: ServerProcess, check: Check) -> None:
    page = visit("tables", url=own.url)
    expect(page.get_by_role("heading", name="No tables are declared")).to_be_visible()
    expect(page.locator("main")).to_contain_text("make_log")
    expect(page.get_by_role("navigation").get_by_role("link", name="Tables")).to_have_count(0)
    check(page)


def test_what_does_not_exist_is_said_to_be_missing(
    visit: Visit, office: Office, check: Check, refusals: list[str]
) -> None:
    refusals.append("status of 404")
    page = visit("table/nothing", url=office.url)
    expect(page.get_by_role("alert")).to_contain_text("the table 'nothing' does not exist")
    page = visit("table/vote?parent=main:99999", url=office.url)
    expect(page.locator("main")).to_contain_text("does not exist, so no one can append rows")
    check(page)


@pytest.mark.parametrize("look", LOOKS)
def test_the_screens_fit_every_size_and_light(
    visit: Visit, office: Office, rows: Rows, check: Check, look: str
) -> None:
    parent = office.poll(*range(9))
    office.table("vote/update", {"id": f"{parent}:9", "patch": {"option": 4}}, "ann")
    office.table("vote/rm", {"id": f"{parent}:1"}, "ann")
    page = visit("tables", url=office.url, look=look)
    screens = {
        "tables": "table[aria-label=Tables] tbody a >> nth=0",
        "table/vote": "table[aria-label=Parents] tbody a >> nth=0",
        "table/vote?tab=feed": "table[aria-label='All rows'] tbody a >> nth=0",
        "table/vote?tab=declaration": "section[aria-label=Schema]",
        f"table/vote?parent={parent}": "table[aria-label=Rows] tbody button >> nth=0",
        f"table/vote?parent={parent}&row=9": "section.record .edits",
        f"table/vote?parent={parent}&tab=trash": "table[aria-label=Trash] tbody button >> nth=0",
    }
    for address, sign in screens.items():
        page.evaluate("hash => location.hash = hash", f"#/{address}")
        expect(page.locator(sign), address).to_be_visible()
        check(page)
        if page.locator("dialog[open]").count():
            page.keyboard.press("Escape")
        code = page.locator("details.code")
        expect(code).not_to_contain_text(re.compile(r"/console/api/(?!table/)"))
        code.locator("summary").click()
        expect(code.locator("pre").first, address).to_contain_text("curl")
        code.locator("summary").click()
    for button in ("New row", "Remove all…"):
        page.evaluate("hash => location.hash = hash", f"#/table/vote?parent={parent}&order=asc")
        page.get_by_role("button", name=button).click()
        check(page)
        page.keyboard.press("Escape")

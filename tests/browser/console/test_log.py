"""One log: its tail, its past, and what can be done to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from browser.console.conftest import Visit, install
from playwright.sync_api import Page, expect
from support.console_shop import Shop

Rows = Callable[[Page, str], Any]

#: Whether the first row below the headings says this; rows above it exist, but are not seen.
FIRST_IN_SIGHT = """text => {
  const table = document.querySelector("[role=group][aria-label=Records]");
  const top = table.querySelector("thead th").getBoundingClientRect().bottom;
  const row = [...table.querySelectorAll("tr[data-index]")].find((one) => one.getBoundingClientRect().bottom > top + 2);
  return row?.textContent.includes(text);
}"""


def go_to(page: Page, place: str) -> None:
    page.get_by_label("Go to a sequence number or time").fill(place)
    page.keyboard.press("Enter")


def figure(page: Page, name: str) -> Any:
    return page.locator(".log-head .stats > div", has_text=name).locator("dd")


class TestRecords:
    def test_what_is_written_comes_in_by_itself(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=2)
        page = visit(f"log/{name}")
        expect(rows(page, "Records")).to_have_count(2)
        expect(page.locator(".live")).to_have_text("Live")
        shop.write(name, {"item": "a lamp"})
        expect(rows(page, "Records")).to_have_count(3)
        expect(rows(page, "Records").last).to_contain_text("a lamp")

    def test_a_tail_that_is_paused_stays_as_it_is_and_goes_on(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=2)
        page = visit(f"log/{name}")
        expect(rows(page, "Records")).to_have_count(2)
        page.get_by_role("button", name="Pause").click()
        expect(page.locator(".live")).to_have_text("Paused")
        shop.write(name, {"item": "a lamp"})
        expect(figure(page, "Records")).to_have_text("3")
        expect(rows(page, "Records")).to_have_count(2)
        page.get_by_role("button", name="Resume").click()
        expect(rows(page, "Records")).to_have_count(3)

    def test_a_long_log_is_gone_through_from_end_to_beginning(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=2000)
        page = visit(f"log/{name}")
        expect(rows(page, "Records").last).to_contain_text("item 1999")
        table = page.locator(".table")
        while not page.get_by_role("button", name="1", exact=True).count():
            # Further ones are put in front of what is in sight, which stays where it is.
            table.evaluate("element => element.scrollTop = 0")
            page.wait_for_function(
                "table => table.scrollTop > 0 || table.querySelector('.link')?.textContent === '1'",
                arg=table.element_handle(),
            )
        expect(page.get_by_role("button", name="1", exact=True)).to_be_visible()
        assert rows(page, "Records").count() < 100

    def test_one_goes_to_a_seq(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=3000)
        page = visit(f"log/{name}")
        expect(rows(page, "Records").last).to_contain_text("item 2999")
        go_to(page, "1 500")
        # What is before it is loaded as well, and stays out of sight.
        expect(page.get_by_role("button", name="1\u202f499", exact=True)).to_be_attached()
        page.wait_for_function(FIRST_IN_SIGHT, arg="1\u202f500")
        expect(page.locator(".live")).to_have_text("Not following")
        expect(page.get_by_role("button", name="Pause")).to_be_hidden()
        slider = page.get_by_label("Position in the log")
        assert 1490 <= int(slider.input_value()) <= 1510
        page.get_by_role("button", name="Follow").click()
        expect(rows(page, "Records").last).to_contain_text("item 2999")
        expect(page.locator(".live")).to_have_text("Live")
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        expect(slider).to_have_value("3000")

    def test_where_one_went_is_not_left_when_more_comes(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=300)
        page = visit(f"log/{name}")
        expect(rows(page, "Records").last).to_contain_text("item 299")
        go_to(page, "150")
        page.wait_for_function(FIRST_IN_SIGHT, arg="150")
        expect(page.locator(".live")).to_have_text("Live")
        shop.write(name, {"item": "a lamp"})
        expect(page.get_by_role("button", name="1 new")).to_be_visible()
        page.wait_for_function(FIRST_IN_SIGHT, arg="150")
        page.get_by_role("button", name="1 new").click()
        expect(rows(page, "Records").last).to_contain_text("a lamp")

    def test_one_goes_to_a_time(self, visit: Visit, shop: Shop, rows: Rows, refusals: list[str]) -> None:
        name = shop.topic(records=10)
        page = visit(f"log/{name}")
        expect(rows(page, "Records")).to_have_count(10)
        go_to(page, "-1h")
        expect(rows(page, "Records").first).to_contain_text("item 0")
        go_to(page, "2020-01-01")
        expect(rows(page, "Records")).to_have_count(10)
        go_to(page, "whenever")
        expect(page.locator(".notice")).to_contain_text("Enter a sequence number or a time")

    def test_where_records_were_lost_a_tombstone_says_so(self, visit: Visit, shop: Shop) -> None:
        name = shop.topic("clicks", 50, cap_records=10)
        page = visit(f"log/{name}")
        go_to(page, "1")
        expect(page.locator(".tombstone")).to_have_text("Records 1 to 40 are lostremoved by max records or max bytes")

    def test_a_record_is_looked_at_and_its_key_selects(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=10)
        page = visit(f"log/{name}")
        page.get_by_role("button", name="4", exact=True).click()
        detail = page.get_by_role("region", name="Record 4")
        expect(detail).to_contain_text('"item": "item 3"')
        detail.get_by_role("button", name="customer:bob").click()
        expect(rows(page, "Records")).to_have_count(5)
        shop.write(name, "for ann", "for bob")
        expect(rows(page, "Records")).to_have_count(6)
        expect(rows(page, "Records").last).to_contain_text("for bob")
        page.get_by_label("Filter by key").fill("customer:*")
        expect(rows(page, "Records")).to_have_count(12)

    def test_the_address_of_a_record_opens_it(self, visit: Visit, shop: Shop) -> None:
        page = visit(f"log/{shop.topic(records=900)}?seq=450")
        expect(page.get_by_role("region", name="Record 450")).to_contain_text("item 449")
        expect(page.locator("tr[aria-current]")).to_contain_text("450")

    def test_a_record_is_appended_by_hand(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic()
        page = visit(f"log/{name}")
        page.get_by_role("button", name="Append", exact=True).click()
        dialog = page.get_by_role("dialog")
        page.get_by_label("Data (JSON)").fill("{item: a book}")
        dialog.get_by_role("button", name="Append").click()
        expect(dialog.get_by_role("alert")).to_contain_text("The data is not valid JSON")
        page.get_by_label("Data (JSON)").fill('{"item": "a book"}')
        page.get_by_label("Key", exact=True).fill("customer:eve")
        dialog.get_by_role("button", name="Append").click()
        expect(rows(page, "Records")).to_have_count(1)
        expect(rows(page, "Records")).to_contain_text(["customer:eve"])


class TestDeleting:
    def test_what_would_go_is_shown_and_then_goes(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=10)
        page = visit(f"log/{name}")
        expect(rows(page, "Records")).to_have_count(10)
        page.get_by_role("button", name="Delete…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
        page.get_by_label("Key", exact=True).fill("customer:ann")
        expect(dialog).to_contain_text("5 records (")
        expect(dialog).to_contain_text("sequence numbers 1 to 9) will be deleted permanently")
        expect(dialog.locator(".sample li").first).to_contain_text("item 0")
        assert shop.state(name)["count"] == 10
        dialog.get_by_role("button", name="Delete 5 records").click()
        expect(rows(page, "Records")).to_have_count(5)
        assert shop.state(name)["count"] == 5

    def test_nothing_goes_where_nothing_matches(self, visit: Visit, shop: Shop) -> None:
        page = visit(f"log/{shop.topic(records=4)}")
        page.get_by_role("button", name="Delete…").click()
        page.get_by_label("Key", exact=True).fill("nobody")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Nothing would be deleted")
        expect(dialog.get_by_role("button", name="Delete", exact=True)).to_be_disabled()

    def test_the_beginning_goes_by_seq(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=10)
        page = visit(f"log/{name}")
        page.get_by_role("button", name="Delete…").click()
        page.get_by_role("radio", name="Before seq").check()
        page.get_by_role("spinbutton", name="Before sequence number").fill("8")
        page.get_by_role("button", name="Delete 7 records").click()
        expect(rows(page, "Records")).to_have_count(3)

    def test_a_log_goes_as_a_whole(self, visit: Visit, shop: Shop, refusals: list[str]) -> None:
        refusals.append("status of 404")
        name = shop.topic(records=3)
        page = visit(f"log/{name}?tab=config")
        page.get_by_role("button", name="Delete log…").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete log").click()
        expect(page.get_by_role("heading", name="Logs", exact=True)).to_be_visible()
        assert shop._client.get(f"/v0/topics/{name}").status_code == 404


class TestOtherParts:
    def test_the_configuration_is_changed(self, visit: Visit, shop: Shop) -> None:
        name = shop.topic(records=5, durability="fsync")
        page = visit(f"log/{name}?tab=config")
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        page.get_by_label("Max records").fill("3")
        page.get_by_label("When the log is full").select_option("reject")
        expect(page.locator("details.code")).to_contain_text('"cap_records":3')
        page.get_by_role("button", name="Save 2 changes").click()
        expect(page.locator(".notice")).to_have_text("Configuration saved.")
        config = shop.state(name)["config"]
        assert (config["cap_records"], config["discard"], config["durability"]) == (3, "reject", "fsync")

    def test_what_cannot_be_is_refused_and_nothing_changes(self, visit: Visit, shop: Shop, refusals: list[str]) -> None:
        refusals.append("status of 400")
        queue, dead = shop.queue()
        page = visit(f"log/{queue}?tab=config")
        page.get_by_label("Dead-letter log").fill(queue)
        page.get_by_role("button", name="Save 1 change").click()
        expect(page.locator(".notice")).to_contain_text("must be another topic than the queue")
        assert shop.state(queue)["config"]["dead_letter"] == dead

    def test_the_keys_lead_to_their_records(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        page = visit(f"log/{shop.topic(records=7)}")
        page.get_by_role("tab", name="Keys").click()
        expect(rows(page, "Keys").locator("td:nth-child(2)")).to_have_text(["4", "3"])
        page.get_by_role("button", name="customer:bob").click()
        expect(rows(page, "Records")).to_have_count(3)

    def test_a_schema_is_installed_and_shown(self, visit: Visit, shop: Shop, refusals: list[str]) -> None:
        refusals.append("status of 400")
        page = visit(f"log/{shop.topic()}?tab=schema")
        expect(page.get_by_role("heading", name="No schema")).to_be_visible()
        page.get_by_role("button", name="Change schema…").click()
        dialog = page.get_by_role("dialog")
        page.get_by_label("Update (JSON)").fill('{"schema": 7}')
        dialog.get_by_role("button", name="Review").click()
        expect(dialog.get_by_role("alert")).to_be_visible()
        page.get_by_label("Update (JSON)").fill(
            '{"schema": {"type": "object"}, "search": {"fields": {"page": {"kind": "keyword", "exact": true,'
            ' "bindings": [{"version": 1, "jsonPointer": "/page"}]}}}}'
        )
        install(dialog)
        expect(page.get_by_role("heading", name="Version 1")).to_be_visible()
        expect(page.get_by_role("table", name="Fields")).to_contain_text("page")

    def test_consumers_are_shown_with_their_lag_and_forgotten(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=10)
        shop.call("PUT", f"/v0/topics/{name}/consumers/billing", {"seq": 4})
        page = visit(f"log/{name}?tab=readers")
        expect(rows(page, "Consumers")).to_contain_text(["billing46"])
        expect(page.get_by_role("img", name="Lag, since this tab was opened: billing 6")).to_be_visible()
        shop.write(name, *range(4))
        expect(page.get_by_role("img", name="Lag, since this tab was opened: billing 10")).to_be_visible()
        page.get_by_role("button", name="Delete consumer billing").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.locator("section[aria-label=Consumers]")).to_contain_text("No consumers.")


class TestOneRecord:
    def test_it_is_shown_as_a_tree_whose_values_become_filters(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic("payments")
        shop.write(name, {"user": {"name": "ann"}, "items": [{"sku": 7}]}, {"user": {"name": "bob"}, "items": []})
        page = visit(f"log/{name}?seq=1")
        detail = page.get_by_role("region", name="Record 1")
        detail.get_by_role("button", name="Tree").click()
        expect(detail.locator(".leaf-text")).to_have_text(['name: "ann"', "sku: 7"])
        detail.get_by_text("sku: 7").hover()
        detail.get_by_role("button", name="Copy the path .items[0].sku").click()
        assert page.evaluate("navigator.clipboard.readText()") == ".items[0].sku"
        detail.locator("summary", has_text="user").click()
        expect(detail.get_by_text('name: "ann"')).to_be_hidden()
        detail.get_by_role("button", name="Filter by .items[0].sku").click(force=True)
        expect(page.get_by_label("Filter by content")).to_have_value(".items[0].sku = 7")
        expect(rows(page, "Matches")).to_have_count(1)

    def test_it_is_compared_with_the_one_before_of_its_key(
        self, visit: Visit, shop: Shop, rows: Rows, check: Callable[[Page], None]
    ) -> None:
        name = shop.topic("payments")
        shop.write(name, {"state": "new", "n": 1}, {"state": "other"}, {"state": "paid", "n": 1, "by": "card"})
        page = visit(f"log/{name}?seq=3")
        page.get_by_role("region", name="Record 3").get_by_role("button", name="Compare…").click()
        expect(page.get_by_label("With record")).to_have_value("1")
        expect(rows(page, "Differences").locator("td")).to_have_text(
            [".state", '"new"', '"paid"', ".by", "–", '"card"']
        )
        check(page)
        page.get_by_label("With record").fill("2")
        page.get_by_label("With record").press("Tab")
        expect(rows(page, "Differences").locator("td").nth(1)).to_have_text('"other"')


class TestConsumers:
    def test_one_is_created_and_moved(self, visit: Visit, shop: Shop, rows: Rows) -> None:
        name = shop.topic(records=40)
        page = visit(f"log/{name}?tab=readers")
        page.get_by_role("button", name="New consumer").click()
        page.get_by_label("Name").fill("billing")
        page.get_by_role("button", name="Create").click()
        expect(rows(page, "Consumers").locator("td").nth(1)).to_have_text("40")
        page.get_by_role("button", name="Seek consumer billing").click()
        page.get_by_role("radio", name="Sequence number").check()
        page.get_by_label("Sequence number").last.fill("12")
        page.get_by_role("button", name="Seek", exact=True).click()
        expect(rows(page, "Consumers").locator("td").nth(2)).to_have_text("28")
        page.get_by_role("button", name="Seek consumer billing").click()
        page.get_by_role("radio", name="Time").check()
        page.get_by_role("button", name="Seek", exact=True).click()
        expect(rows(page, "Consumers").locator("td").nth(2)).to_have_text("40")

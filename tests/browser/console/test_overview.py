"""The overview and the pipeline: how the server is doing, by itself."""

from __future__ import annotations

import re

from browser.console.conftest import Visit
from playwright.sync_api import Page, expect
from support.console_shop import Shop
from support.server_process import ServerProcess


def figure(page: Page, name: str) -> int:
    return int(page.locator(".stats > div", has_text=name).locator("dd").inner_text().replace("\u202f", ""))


def test_the_figures_move_by_themselves(visit: Visit, shop: Shop) -> None:
    name = shop.topic("busy", 10)
    page = visit("overview")
    expect(page.locator(".live")).to_have_text("Live")
    expect(page.locator("main canvas")).to_have_count(9)
    expect(page.locator(".stats").first).to_contain_text("ready")
    before = figure(page, "Records")
    busiest = page.locator("section[aria-label='Busiest logs']").get_by_role("link", name=name)
    for _ in range(300):
        shop.write(name, *range(100))
        if busiest.count():
            break
    expect(busiest).to_be_visible()
    page.wait_for_function(
        "before => Number([...document.querySelectorAll('.stats > div')]"
        ".find(one => one.textContent.startsWith('Records'))"
        ".querySelector('dd').textContent.replace(/\\D/g, '')) > before",
        arg=before,
    )


def test_hours_and_days_are_shown(visit: Visit, shop: Shop) -> None:
    page = visit("overview")
    expect(page.locator("main canvas")).to_have_count(9)
    with page.expect_response("**/console/api/history?hours=24"):
        page.get_by_role("radio", name="24 h").check()
    expect(page.locator("main canvas")).to_have_count(9)
    expect(page.get_by_role("heading", name="Request time")).to_be_visible()
    with page.expect_response("**/console/api/history?hours=24"):
        page.reload()
    expect(page.get_by_role("radio", name="24 h")).to_be_checked()
    page.get_by_role("radio", name="10 min").check()
    expect(page.locator(".live")).to_have_text("Live")


def test_the_disk_is_shown(visit: Visit, shop: Shop) -> None:
    page = visit("overview")
    disk = page.locator("section[aria-label=Disk]")
    expect(disk.locator(".stats > div")).to_have_count(4)
    expect(disk.locator(".stats > div").first).to_have_text(re.compile(r"Used[\d.]+\s.?B"))
    expect(disk.locator(".legend dt")).to_have_text(
        ["Journal", "Segments", "Index files", "Checkpoints", "Lake", "Other"]
    )
    expect(disk.locator(".legend dd").first).to_have_text(re.compile(r"[1-9][\d.]*\s.?B"))
    expect(page.locator(".stats").first).to_contain_text("Disk free")


def test_a_history_with_a_gap_is_drawn(visit: Visit) -> None:
    """With the history of a server that has run for hours: tests have no hours."""
    page = visit("overview?hours=6")
    now = int(page.evaluate("Date.now()"))
    minutes = [at for at in range(now - 5 * 3_600_000, now, 60_000) if not 60 < (now - at) // 60_000 < 120]
    page.route(
        "**/console/api/history?hours=6",
        lambda route: route.fulfill(json={"now": now, "samples": [minute(at) for at in minutes]}),
    )
    page.reload()
    memory = page.locator("figure.chart", has=page.get_by_role("heading", name="Memory")).locator(".plot")
    expect(memory).to_have_attribute("aria-label", re.compile("resident 64.MB"))


def minute(at: int) -> dict[str, float | None]:
    names = (
        "appends",
        "bytes",
        "requests",
        "errors",
        "latency_p50_ms",
        "latency_p99_ms",
        "flush_p50_us",
        "flush_p99_us",
        "live_bytes",
        "connections",
        "pressure",
    )
    return {
        "at": at,
        **dict.fromkeys(names, 1.0),
        "rss_bytes": 64_000_000,
        "disk_bytes": 5_000,
        "disk_free_bytes": 9_000,
    }


def test_it_says_when_the_server_is_gone_and_goes_on_when_it_is_back(
    visit: Visit, own: ServerProcess, refusals: list[str]
) -> None:
    # A server that is still starting says so.
    refusals.append("status of 503")
    page = visit("overview", url=own.url)
    expect(page.locator(".live")).to_have_text("Live")
    own.kill()
    expect(page.locator(".live")).to_have_text("Reconnecting…")
    own.start(own.port)
    expect(page.locator(".live")).to_have_text("Live")


def test_a_pipeline_that_is_off_is_said_to_be(visit: Visit) -> None:
    page = visit("pipeline")
    expect(page.locator(".screen > header .chip")).to_have_text("off")
    expect(page.locator(".pipeline")).to_contain_text("turned off in the server's settings")
    expect(page.get_by_role("button", name="Run now")).to_be_disabled()


def test_what_the_pipeline_says_is_shown(visit: Visit) -> None:
    """With the answer of a pipeline that has run: Spark itself is for other tests."""
    page = visit("overview")
    asked = []
    page.route("**/pipeline", lambda route: route.fulfill(json=PIPELINE))
    page.route("**/pipeline/run", lambda route: (asked.append(route.request.method), route.fulfill(json={})))
    page.keyboard.press("g")
    page.keyboard.press("p")
    expect(page.locator(".screen > header .chip")).to_have_text("idle")
    expect(page.get_by_role("table", name="Progress by log")).to_contain_text("orders1\u202f000100")
    runs = page.locator("section[aria-label='Last rounds'] .rounds > li")
    expect(runs).to_have_count(2)
    expect(runs.first).to_contain_text("failed")
    expect(runs.first).to_contain_text("no space left")
    expect(runs.last).to_contain_text("records900 records180\u202f/s")
    expect(page.get_by_role("table", name="Problems")).to_contain_text("not a date")
    page.get_by_role("button", name="Run now").click()
    expect(page.locator(".notice")).to_have_text("Pipeline run requested.")
    assert asked == ["POST"]


PIPELINE = {
    "state": "idle", "pid": None, "starts": 1, "failures": 1, "last_error": None, "retry_seconds": 0.0, "missing": [],
    "new_records": 100, "new_erasures": 0, "reason": "", "lake": "/data/lake", "status_error": None,
    "status": {
        "state": "ended", "since": 1, "updated": 1, "pid": 1, "host": "", "master": "local[2]", "source": "",
        "stages": [],
        "rounds": [
            {"begin": 1_794_700_000_000, "end": 1_794_700_005_000, "stages": [
                {"stage": "records", "records": 900, "bytes": 9000, "seconds": 5.0, "rate": 180.0}]},
            {"begin": 1_794_700_010_000, "end": 1_794_700_011_000, "error": "no space left"},
        ],
        "rounds_total": 2, "records_total": {"records": 900}, "problems_total": 1, "missing": [],
        "problems": [
            {"time": 1_794_700_005_000, "stage": "rollups", "message": "not a date", "log": "orders", "seq": 7}],
        "lag": {"logs": 1, "heads": 1000, "covered": {"records": 900}, "behind": 100, "rows": [
            {"log": "orders", "epoch": 1, "head": 1000, "covered": {"records": 900, "keys": 950}}]},
    },
}  # fmt: skip

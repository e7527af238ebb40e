"""Records found by their content: in memory and in segments, part by part, and live."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from support.console_in_process import NOW, ConsoleStand

from strandline.protocols.console import matches


def payments(stand: ConsoleStand, number: int) -> None:
    """Every seventh payment fails."""
    for start in range(0, number, 50):
        rows = [
            {"n": at, "status": "failed" if at % 7 == 3 else "paid"} for at in range(start, min(start + 50, number))
        ]
        stand.log("payments", *rows, keys=[f"user-{at % 3}" for at in range(len(rows))])
        stand.clock.advance(1000)


def ask(stand: ConsoleStand, where: str = "", **params: Any) -> Any:
    query = "&".join(f"{name}={quote(str(value))}" for name, value in {"where": where, **params}.items())
    return stand.get(f"/log/payments/matches?{query}")


def walk(stand: ConsoleStand, where: str, **params: Any) -> tuple[list[int], int, dict[int, int]]:
    """All records, request by request: their seqs, the number of records that match, and the counts."""
    seqs, matched, counts, before = [], 0, dict[int, int](), {}
    while True:
        page = ask(stand, where, **params, **before)
        seqs += [record["seq"] for record in page["records"]]
        matched += page["matched"]
        for start, number in page["counts"]:
            counts[start] = counts.get(start, 0) + number
        if page["next"] is None:
            return seqs, matched, counts
        assert page["next"] < before.get("before", 1 << 60)
        before = {"before": page["next"]}


def failed(number: int) -> list[int]:
    return [at + 1 for at in range(number) if at % 7 == 3][::-1]


def test_matches_come_newest_first_wherever_they_are(stand: ConsoleStand) -> None:
    payments(stand, 100)
    stand.engine.seal()
    payments(stand, 30)
    page = ask(stand, ".status = failed")
    assert [record["seq"] for record in page["records"]] == [100 + seq for seq in failed(30)] + failed(100)
    assert page["records"][-1]["data"] == {"n": 3, "status": "failed"}
    assert (page["matched"], page["scanned"], page["next"]) == (len(failed(100)) + len(failed(30)), 130, None)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("step", [1, 5, 64, 1000])
def test_pages_put_together_have_each_match_once(
    stand: ConsoleStand, monkeypatch: pytest.MonkeyPatch, limit: int, step: int
) -> None:
    payments(stand, 60)
    stand.engine.seal()
    payments(stand, 20)
    monkeypatch.setattr(matches, "STEP_RECORDS", step)
    monkeypatch.setattr(matches, "MAX_SCANNED", 17)
    expected = [60 + seq for seq in failed(20)] + failed(60)
    seqs, matched, counts = walk(stand, ".status = failed", limit=limit, bucket_ms=1000)
    assert (seqs, matched, sum(counts.values())) == (expected, len(expected), len(expected))
    assert walk(stand, ".status = failed", limit=0, bucket_ms=1000) == ([], matched, counts)


def test_an_answer_has_a_size(stand: ConsoleStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "MAX_BYTES", 200)
    payments(stand, 50)
    assert len(ask(stand, ".status = failed", limit=50)["records"]) < len(failed(50))
    assert walk(stand, ".status = failed", limit=50) == (failed(50), len(failed(50)), {})


def test_a_step_of_large_records_is_made_smaller(stand: ConsoleStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "STEP_BYTES", 300)
    monkeypatch.setattr(matches, "step_of", lambda log: 1000)
    payments(stand, 120)
    stand.log("payments", {"status": "failed", "text": "x" * 5000})
    assert walk(stand, ".status = failed")[0] == [121, *failed(120)]


def test_the_first_step_of_a_filter_is_small_and_slow_steps_stay_small(
    stand: ConsoleStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments(stand, 700)
    monkeypatch.setattr(matches, "step_of", lambda log: 640)
    monkeypatch.setattr(matches, "MAX_SECONDS", 0.0)
    assert ask(stand, ".status = failed", limit=0)["scanned"] == 10
    assert ask(stand, limit=0)["scanned"] == 640
    monkeypatch.setattr(matches, "MAX_SECONDS", 60.0)
    monkeypatch.setattr(matches, "SLOW_SECONDS", 0.0)
    assert walk(stand, ".status = failed")[0] == failed(700)


def test_records_are_counted_per_interval_and_selected_by_time_and_key(stand: ConsoleStand) -> None:
    payments(stand, 150)
    counted = ask(stand, limit=0, bucket_ms=1000)
    assert counted["counts"] == [[NOW, 50], [NOW + 1000, 50], [NOW + 2000, 50]]
    middle = ask(stand, ".status = failed", since=NOW + 1000, until=NOW + 2000)
    assert [record["seq"] for record in middle["records"]] == [seq for seq in failed(150) if 50 < seq <= 100]
    assert ask(stand, ".n < 6", key="user-1")["matched"] == 2
    assert ask(stand, ".n < 6", prefix="user-")["matched"] == 6
    assert ask(stand, ".n < 6", prefix="none")["matched"] == 0


def test_deleted_records_are_not_found_and_an_empty_log_has_none(stand: ConsoleStand) -> None:
    payments(stand, 20)
    stand.log("payments").delete(seqs=[4, 18]).wait()
    assert [record["seq"] for record in ask(stand, ".status = failed")["records"]] == [11]
    stand.log("empty")
    assert stand.get("/log/empty/matches") == {"records": [], "counts": [], "matched": 0, "scanned": 0, "next": None}


@pytest.mark.parametrize("query", ["where=/(/", "where=.a%20%3D", "limit=1001", "bucket_ms=0", "since=x"])
def test_what_is_not_valid_is_refused(stand: ConsoleStand, query: str) -> None:
    stand.log("payments", 1)
    assert stand.refused(f"/log/payments/matches?{query}") == (400, "invalid_request")
    if query.startswith("where"):
        assert stand.refused(f"/log/payments/tail?{query}") == (400, "invalid_request")


def test_a_tail_of_a_filter_has_only_its_records(stand: ConsoleStand) -> None:
    stand.log("payments", {"status": "failed"})
    opened = stand.open("/log/payments/tail?where=" + quote(".status = failed"))
    stand.log("payments", {"status": "paid"}, {"status": "failed"}, {"status": "paid"})
    stand.log("payments", {"status": "paid"})
    stand.log("payments", {"status": "failed"})
    assert [(name, event["seq"]) for name, event in opened.events()] == [("record", 3), ("record", 6)]
    opened.close()


def test_a_tail_skips_records_that_are_too_large_for_its_regular_expression(stand: ConsoleStand) -> None:
    stand.log("payments", {"text": "first"})
    opened = stand.open("/log/payments/tail?where=" + quote("/(x|y){200}z/"))
    stand.log("payments", {"text": "xy" * 200 + "z"}, {"text": "xy" * 50_000})
    events = opened.events()
    assert sorted((name, event["seq"]) for name, event in events) == [("record", 2), ("skipped", 3)]
    skipped = dict(events)["skipped"]
    assert skipped["bytes"] > skipped["max_bytes"] > 0
    opened.close()


def test_a_tail_with_a_plain_filter_has_large_records_too(stand: ConsoleStand) -> None:
    stand.log("payments", {"text": "first"})
    opened = stand.open("/log/payments/tail?where=" + quote(".status = failed"))
    stand.log("payments", {"text": "xy" * 500_000, "status": "failed"})
    assert [(name, event["seq"]) for name, event in opened.events()] == [("record", 2)]
    opened.close()

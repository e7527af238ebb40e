"""Who asks, how the server is doing, and how that goes on."""

from __future__ import annotations

from pathlib import Path

from support.console_in_process import NOW, Answered, ConsoleStand, Opened

import strandline

KEYS = "all-of-it,looks:read:app-,writes:write"


def test_without_keys_everybody_is_let_in(stand: ConsoleStand) -> None:
    assert stand.get("/session") == {
        "name": "strandline",
        "version": strandline.__version__,
        "keys_required": False,
        "key": None,
        "pipeline": False,
        "sql": True,
        "tables": False,
        "collections": False,
    }


def test_a_key_learns_what_it_may_do(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, KEYS) as stand:
        key = stand.get("/session", key="looks")["key"]
        assert (key["scopes"], key["prefixes"]) == (["read"], ["app-"])
        assert stand.get("/session", key="all-of-it")["key"]["scopes"] == ["read", "write", "delete", "admin"]


def test_somebody_without_a_key_learns_that_one_is_needed(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, KEYS) as stand:
        for key in ("", "wrong"):
            session = stand.get("/session", key=key)
            assert (session["keys_required"], session["key"]) == (True, None)
            assert stand.refused("/overview", key=key) == (401, "unauthorized")


def test_a_key_that_may_not_read_sees_only_who_it_is(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, KEYS) as stand:
        stand.log("orders", 1, keys=["a"])
        assert stand.get("/session", key="writes")["key"]["scopes"] == ["write"]
        below = ["", "/records", "/keys", "/removal?key=a", "/inference", "/tail"]
        targets = [
            "/overview",
            "/history",
            "/live",
            "/logs",
            "/prefixes",
            "/queues",
            "/routers",
            "/fields/orders",
            "/queue/orders",
        ]
        for target in [*targets, *(f"/log/orders{each}" for each in below)]:
            assert stand.refused(target, key="writes") == (403, "forbidden"), target


def test_the_totals_are_of_all_logs(stand: ConsoleStand) -> None:
    stand.log("orders", 1, 22)
    stand.log("payments", 333)
    overview = stand.get("/overview")
    totals = overview["totals"]
    assert (overview["now"], totals["logs"], totals["records"], totals["bytes"]) == (NOW, 2, 3, 6)
    assert totals["journal_bytes"] > 0
    assert overview["health"] == {"ready": True, "read_only": False, "uptime_ms": 1000}


def test_a_key_is_told_only_of_logs_it_may_touch(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, KEYS) as stand:
        stand.sample()
        stand.log("app-orders", 1, 2)
        stand.log("other", 1, 2, 3)
        stand.sample()
        overview = stand.get("/overview", key="looks")
        assert [overview["totals"][each] for each in ("logs", "records", "bytes")] == [1, 2, 2]
        assert [busy["log"] for busy in overview["busiest"]] == ["app-orders"]
        assert [busy["log"] for busy in stand.get("/overview", key="all-of-it")["busiest"]] == ["other", "app-orders"]


def test_a_sample_says_how_much_was_appended_per_second(stand: ConsoleStand) -> None:
    stand.log("orders", 1)
    stand.sample()
    stand.log("orders", *range(10))
    stand.log("payments", *range(5))
    stand.sample(2_000)
    stand.sample()
    overview = stand.get("/overview")
    assert [(each["at"], each["appends"], each["bytes"]) for each in overview["samples"]] == [
        (NOW + 1_000, 0.0, 0.0),
        (NOW + 3_000, 7.5, 7.5),
        (NOW + 4_000, 0.0, 0.0),
    ]
    last = overview["samples"][-1]
    assert (last["connections"], last["pressure"], last["rss_bytes"] > 0) == (7, 0.0, True)


def test_flushes_are_timed(stand: ConsoleStand) -> None:
    stand.sample()
    stand.log("orders", 1, durability="fsync")
    stand.sample()
    stand.sample()
    timed = [each["flush_p99_us"] for each in stand.get("/overview")["samples"]]
    assert timed[0] is None
    assert timed[1] > 0
    assert timed[2] is None


def test_ten_minutes_are_kept(stand: ConsoleStand) -> None:
    for _ in range(605):
        stand.sample()
    samples = stand.get("/overview")["samples"]
    assert (len(samples), samples[-1]["at"] - samples[0]["at"]) == (600, 599_000)


def test_requests_errors_and_their_durations_are_sampled(stand: ConsoleStand) -> None:
    stand.sample()
    for _ in range(4):
        stand.get("/session")
    stand.sample(2_000)
    stand.sample()
    asked = [(each["requests"], each["errors"]) for each in stand.get("/overview")["samples"]]
    assert asked == [(0.0, 0.0), (2.0, 0.0), (0.0, 0.0)]
    timed = [each["latency_p99_ms"] for each in stand.get("/overview")["samples"]]
    assert timed[0] is None
    assert timed[1] > 0
    assert timed[2] is None


def test_hours_are_shown_in_averages_of_minutes(stand: ConsoleStand) -> None:
    stand.sample()
    for _ in range(2):
        stand.log("orders", *range(60))
        for _ in range(6):
            stand.sample(10_000)
    samples = stand.get("/history")["samples"]
    # The minutes have two, six and five samples.
    assert [each["appends"] for each in samples] == [3.0, 1.0, 0.0]
    stand.clock.advance(2 * 3_600_000)
    assert stand.get("/history")["samples"] == []
    assert stand.get("/history?hours=3")["samples"] == samples
    assert stand.refused("/history?hours=0") == (400, "invalid_request")


def test_every_sample_is_told_to_those_who_want_to_know(stand: ConsoleStand) -> None:
    live = stand.tail("/live")
    stand.sample()
    stand.log("orders", 1)
    stand.sample()
    (_, before), (kind, after) = live.events()
    assert (kind, before["busiest"], after["appends"]) == ("sample", [], 1.0)
    assert after["busiest"] == [{"log": "orders", "appends": 1.0, "bytes": 1.0}]
    live.close()
    stand.sample()
    assert live.events() == []


def test_who_does_not_keep_up_misses_samples(stand: ConsoleStand) -> None:
    live = stand.tail("/live")
    live.sink.full = True
    for _ in range(3):
        stand.sample()
    live.resume()
    stand.sample()
    assert [told["at"] - NOW for _, told in live.events()] == [1_000, 4_000]


def test_streams_count_as_others_do(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, streams=2) as stand:
        stand.log("orders")
        first, second = stand.tail("/live"), stand.tail("/log/orders/tail")
        assert stand.limits.streams.used == 2
        for target in ("/live", "/log/orders/tail"):
            refused = stand.open(target)
            assert isinstance(refused, Answered)
            assert refused.error == (429, "throttled")
        first.close()
        second.close()
        assert stand.limits.streams.used == 0
        assert isinstance(stand.open("/live"), Opened)


def test_streams_end_when_the_server_does(stand: ConsoleStand) -> None:
    stand.log("orders")
    streams = [stand.tail("/live"), stand.tail("/log/orders/tail")]
    stand.do(stand.live.drain)
    assert [each.sink.is_closed for each in streams] == [True, True]

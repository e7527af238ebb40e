"""Rates of logs: exact while few of them change, and at a bounded cost when many do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.engine import Batch, Config, Engine
from strandline.engine.disk import LocalDisk
from strandline.protocols.console.rates import MAX_POINTS, POINT_MEASUREMENTS, Rates
from strandline.service.access import FULL_ACCESS


@pytest.fixture
def engine(tmp_path: object) -> Iterator[Engine]:
    with Engine.open(str(tmp_path), background=False) as engine:
        yield engine


def append(engine: Engine, name: str, count: int = 1) -> None:
    log = engine.find(name) or engine.create(name).wait()
    log.append(Batch([b"data"] * count)).wait()


def measured(rates: Rates, engine: Engine, now: int) -> dict[str, float]:
    rates.measure(now, engine.stats().frames)
    return {name: rate.appends for name, rate in rates.now.items()}


def test_what_was_there_before_does_not_count(engine: Engine) -> None:
    append(engine, "orders", 5)
    rates = Rates(engine)
    assert measured(rates, engine, 1_000) == {}
    append(engine, "orders", 3)
    assert measured(rates, engine, 3_000) == {"orders": 1.5}
    assert (rates.of("orders"), rates.of("payments")) == (1.5, 0.0)


def test_a_log_that_is_new_counts_from_its_first_record(engine: Engine) -> None:
    rates = Rates(engine)
    measured(rates, engine, 0)
    append(engine, "orders", 3)
    assert measured(rates, engine, 1_000) == {"orders": 3.0}
    engine.fork("fork", engine.log("orders"), 2).wait()
    append(engine, "fork")
    assert measured(rates, engine, 2_000) == {"fork": 1.0}


def test_a_rate_goes_on_over_the_sealing_of_a_log(engine: Engine) -> None:
    append(engine, "orders")
    rates = Rates(engine)
    measured(rates, engine, 0)
    append(engine, "orders", 2)
    engine.seal()
    assert measured(rates, engine, 1_000) == {"orders": 2.0}
    append(engine, "orders", 4)
    assert measured(rates, engine, 2_000) == {"orders": 4.0}


def test_bytes_are_estimated_where_others_were_lost_meanwhile(engine: Engine) -> None:
    engine.create("capped", Config(cap_records=2)).wait()
    rates = Rates(engine)
    measured(rates, engine, 0)
    append(engine, "capped", 10)
    measured(rates, engine, 1_000)
    assert rates.now["capped"].bytes == 40.0


def test_the_rates_of_two_minutes_are_kept(engine: Engine) -> None:
    append(engine, "orders")
    append(engine, "idle")
    rates = Rates(engine)
    measured(rates, engine, 0)
    epoch = engine.log("orders").book.epoch
    for second in range(1, POINT_MEASUREMENTS + 1):
        assert rates.recent(epoch) == ()
        append(engine, "orders", 2)
        measured(rates, engine, second * 1000)
    assert rates.recent(epoch) == (2.0,)
    assert rates.recent(engine.log("idle").book.epoch) == ()
    start = POINT_MEASUREMENTS + 1
    for second in range(start, start + POINT_MEASUREMENTS * MAX_POINTS - 1):
        measured(rates, engine, second * 1000)
    assert rates.recent(epoch) == (2.0, *[0.0] * (MAX_POINTS - 1))
    measured(rates, engine, POINT_MEASUREMENTS * (MAX_POINTS + 1) * 1000)
    assert rates.recent(epoch) == ()
    assert rates.recent(epoch + 1000) == ()


def test_the_servers_own_logs_do_not_count(engine: Engine) -> None:
    rates = Rates(engine)
    measured(rates, engine, 0)
    append(engine, "_own", 3)
    assert measured(rates, engine, 1_000) == {}


def test_a_log_that_is_dropped_is_forgotten(engine: Engine) -> None:
    rates = Rates(engine)
    measured(rates, engine, 0)
    append(engine, "orders")
    engine.log("orders").drop().wait()
    assert measured(rates, engine, 1_000) == {}


def test_no_time_has_no_rate(engine: Engine) -> None:
    rates = Rates(engine)
    measured(rates, engine, 0)
    append(engine, "orders")
    assert measured(rates, engine, 0) == {}
    assert measured(rates, engine, 1_000) == {"orders": 1.0}


def test_the_busiest_come_first(engine: Engine) -> None:
    rates = Rates(engine)
    measured(rates, engine, 0)
    for number in range(1, 13):
        append(engine, f"log-{number}", number)
    measured(rates, engine, 1_000)
    assert [rate.log for rate in rates.busiest(FULL_ACCESS)] == [f"log-{number}" for number in range(12, 2, -1)]


def test_many_logs_are_looked_at_by_chance_and_the_busy_ones_always(engine: Engine) -> None:
    for number in range(100):
        append(engine, f"log-{number}")
    rates = Rates(engine, max_known=10, max_new=7)
    seen = set[str]()
    now = 0
    for _ in range(60):
        append(engine, "log-0", 5)
        for number in range(1, 100):
            append(engine, f"log-{number}")
        now += 1_000
        found = measured(rates, engine, now)
        assert len(found) <= 17
        seen |= set(found)
    assert len(seen) > 60
    assert "log-0" in rates.now
    # Every append was a frame: that much is known of those that were not looked at.
    assert rates.total.appends >= 100


def test_rates_of_an_engine_on_a_disk_that_was_there_before(tmp_path: object) -> None:
    with Engine.open(LocalDisk(str(tmp_path)), background=False) as engine:
        append(engine, "orders", 5)
    with Engine.open(LocalDisk(str(tmp_path)), background=False) as engine:
        rates = Rates(engine)
        assert measured(rates, engine, 0) == {}
        append(engine, "orders")
        measured(rates, engine, 1_000)
        append(engine, "orders", 2)
        assert measured(rates, engine, 2_000) == {"orders": 2.0}

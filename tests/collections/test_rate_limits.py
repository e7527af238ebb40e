from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.collections import rate_limits as rates
from strandline.collections.config import (
    Collection,
    CollectionRateLimit,
    CollectionsConfig,
    RateDimension,
    RateLimit,
    RateRule,
)
from strandline.collections.errors import CollectionError
from strandline.collections.rate_limits import LIST, PULL, PUSH, RateCounter, RateLimiter, UnresolvedLimit, counters_of

NOW = 1_714_000_000_000
EVERYWHERE = RateLimit(window_ms=1000, max_requests=2)


def limited(everywhere: RateLimit | None = None, **limits: Any) -> RateLimiter:
    collection = Collection(name="events", storage_path="events", rate_limit=CollectionRateLimit(**limits))
    return RateLimiter(CollectionsConfig(collections=(collection,), rate_limit=everywhere))


def allowed(rates: RateLimiter, action: str = PUSH, identity: str = "alice", address: str = "", now: int = NOW) -> bool:
    try:
        rates.check("", "events", action, identity, address, now)
    except CollectionError as refused:
        return refused.code != "rate_limited"
    return True


def test_one_request_too_many_is_refused_until_the_window_ends() -> None:
    rates = limited(window_ms=1000, max_requests=2)
    assert [allowed(rates, now=NOW + at) for at in (0, 400, 600, 999)] == [True, True, False, False]
    assert [allowed(rates, now=NOW + at) for at in (1000, 1001, 1002)] == [True, True, False]


def test_a_refusal_says_when_to_come_again() -> None:
    rates = limited(window_ms=2500, max_requests=1)
    allowed(rates)
    with pytest.raises(CollectionError) as caught:
        rates.check("", "events", PUSH, "alice", "", NOW + 100)
    assert caught.value.retry_after_ms == 2400
    with pytest.raises(CollectionError) as caught:
        rates.check("", "events", PUSH, "alice", "", NOW + 2499)
    assert caught.value.retry_after_ms == 1


def test_everybody_has_a_count_of_their_own() -> None:
    rates = limited(window_ms=1000, max_requests=1)
    assert allowed(rates, identity="alice")
    assert allowed(rates, identity="bob")
    assert not allowed(rates, identity="alice")


def test_who_has_no_identity_counts_by_address_and_who_has_neither_together() -> None:
    rates = limited(window_ms=1000, max_requests=1)
    assert allowed(rates, identity="", address="1.1.1.1")
    assert allowed(rates, identity="", address="2.2.2.2")
    assert not allowed(rates, identity="", address="1.1.1.1")
    assert allowed(rates, identity="", address="")
    assert not allowed(rates, identity="", address="")
    assert allowed(rates, identity="2.2.2.2"), "an identity is never an address"


def test_by_address_the_identity_does_not_matter() -> None:
    rates = limited(window_ms=1000, max_requests=1, bucket="ip")
    assert allowed(rates, identity="alice", address="1.1.1.1")
    assert not allowed(rates, identity="bob", address="1.1.1.1")


def test_by_both_every_pair_has_a_count() -> None:
    rates = limited(window_ms=1000, max_requests=1, bucket="identity+ip")
    assert allowed(rates, identity="alice", address="1.1.1.1")
    assert allowed(rates, identity="alice", address="2.2.2.2")
    assert allowed(rates, identity="bob", address="1.1.1.1")
    assert not allowed(rates, identity="alice", address="1.1.1.1")


def test_two_limits_of_a_rule_are_counted_each_by_itself() -> None:
    rule = RateRule(identity=RateDimension(max_requests=1), ip=RateDimension(max_requests=3), window_ms=1000)
    rates = limited(pull=rule)
    assert allowed(rates, PULL, "alice", "1.1.1.1")
    assert not allowed(rates, PULL, "alice", "1.1.1.1")
    assert allowed(rates, PULL, "bob", "1.1.1.1")
    assert not allowed(rates, PULL, "carol", "1.1.1.1"), "what was refused by one has counted for the other"
    assert allowed(rates, PULL, "carol", "2.2.2.2") is False, "and so it did here"


def test_a_rule_takes_what_it_lacks_from_the_collection_and_then_from_everywhere() -> None:
    rates = limited(EVERYWHERE, max_requests=1, pull=RateRule(), list=RateRule(max_requests=3))
    for action, count in ((PUSH, 1), (PULL, 1), (LIST, 3)):
        assert [allowed(rates, action) for _ in range(count + 1)] == [True] * count + [False]
    assert allowed(rates, PULL, now=NOW + 1000)


def test_without_a_limit_nothing_is_counted() -> None:
    rates = RateLimiter(CollectionsConfig(collections=(Collection(name="events", storage_path="events"),)))
    assert not rates.limits("", "events", PUSH)
    assert all(allowed(rates) for _ in range(100))


def test_numbers_alone_limit_pushes_and_nothing_else() -> None:
    rates = limited(window_ms=1000, max_requests=1)
    assert [rates.limits("", "events", action) for action in (PUSH, PULL, LIST)] == [True, False, False]


def test_beside_rules_the_numbers_limit_pushes_where_there_is_a_limit_everywhere() -> None:
    assert limited(EVERYWHERE, pull=RateRule()).limits("", "events", PUSH)
    alone = limited(window_ms=1000, max_requests=1, pull=RateRule())
    assert not alone.limits("", "events", PUSH)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (CollectionRateLimit(), "rate_limit has no window_ms and max_requests"),
        (CollectionRateLimit(window_ms=1), "rate_limit has no max_requests"),
        (CollectionRateLimit(pull=RateRule(max_requests=1)), "rate_limit.pull has no window_ms"),
        (CollectionRateLimit(pull=RateRule(ip=RateDimension(window_ms=1))), "rate_limit.pull.ip has no max_requests"),
    ],
)
def test_a_limit_that_is_never_completed_is_an_error(limits: CollectionRateLimit, message: str) -> None:
    collection = Collection(name="events", storage_path="events", rate_limit=limits)
    with pytest.raises(UnresolvedLimit, match=message):
        list(counters_of(collection, None))


def test_the_same_collection_in_two_namespaces_has_two_counts() -> None:
    collection = Collection(
        name="events", storage_path="events", rate_limit=CollectionRateLimit(window_ms=1000, max_requests=1)
    )
    rates = RateLimiter(CollectionsConfig(collections=(collection,), namespaces={"acme": (collection,)}))
    rates.check("", "events", PUSH, "alice", "", NOW)
    rates.check("acme", "events", PUSH, "alice", "", NOW)


def test_the_number_of_counts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_WINDOWS", 3)
    counter = RateCounter(RateLimit(window_ms=1000, max_requests=1), "identity")
    for number in range(100):
        assert not counter.count(str(number), "", NOW + number)
    assert counter.count("99", "", NOW + 100)
    assert not counter.count("0", "", NOW + 100), "its count was forgotten"


steps = st.lists(st.tuples(st.integers(0, 700), st.sampled_from("ab")), max_size=60)


@given(steps, st.integers(1, 1500), st.integers(1, 5))
def test_windows_are_those_of_a_simple_model(steps: list[tuple[int, str]], window: int, maximum: int) -> None:
    counter = RateCounter(RateLimit(window_ms=window, max_requests=maximum), "identity")
    hits: dict[str, list[int]] = defaultdict(list)
    now = NOW
    for on, who in steps:
        now += on
        if hits[who] and now >= hits[who][0] + window:
            hits[who].clear()
        hits[who].append(now)
        wait = counter.count(who, "", now)
        assert wait == (0 if len(hits[who]) <= maximum else hits[who][0] + window - now)

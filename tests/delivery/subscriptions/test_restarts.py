from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from strandline.delivery.subscriptions import WakeHolder, store
from strandline.delivery.subscriptions.errors import AlreadyClaimed, BadPosition, Fenced, NothingPending
from strandline.delivery.subscriptions.store import NAME
from strandline.engine import Batch
from strandline.engine.verify.dump import dump


def test_everything_is_as_it_was(stand: Any) -> None:
    stand.write("events/a", "1")
    stand.pull(pattern="events/*", streams=("named",), description="words", lease_ttl_ms=5000)
    stand.write("events/a", "2")
    stand.write("events/b", "1")
    claim = stand.claim(worker="me")
    stand.ack(claim, {"events/a": 2}, done=False)
    before = stand.get("pull")
    kid = stand.subscriptions.signer.kid
    stand.reopen()
    after = stand.get("pull")
    assert after is not before
    for field in ("definition", "made_at", "base_url", "generation", "wake_id", "until", "holder"):
        assert getattr(after, field) == getattr(before, field)
    assert stand.acked("pull") == {"named": 0, "events/a": 2, "events/b": 0}
    assert stand.subscriptions.signer.kid == kid
    with pytest.raises(AlreadyClaimed):
        stand.claim(worker="other")
    assert stand.ack(claim, {"events/b": 1}) is False, "its token is as good as before"


def test_a_lease_that_ran_out_meanwhile_has_run_out(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    claim = stand.claim()
    stand.clock.advance(1000)
    stand.reopen()
    with pytest.raises(Fenced):
        stand.ack(claim, {"events/a": 1})
    assert stand.claim().generation == 2


def test_a_lease_is_no_longer_than_it_was(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    stand.claim()
    stand.clock.advance(600)
    stand.reopen()
    stand.advance(399)
    assert len(stand.wakes()) == 1
    stand.advance(1)
    assert len(stand.wakes()) == 2


def test_a_wake_that_nobody_has_claimed_is_not_told_twice(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    stand.reopen()
    assert stand.wakes() == [["pull", "events/a", 1]]
    assert stand.claim().generation == 1


def test_what_was_written_while_nobody_looked_wakes(stand: Any) -> None:
    stand.pull(pattern="events/*", streams=("named",))
    stand.subscriptions.stop()
    stand.engine.create("events/a").wait().append(Batch([b"1"])).wait()
    stand.engine.create("named").wait().append(Batch([b"1"])).wait()
    stand.reopen()
    assert len(stand.wakes()) == 1
    assert {link.name for link in stand.claim().links} == {"events/a", "named"}


def test_a_log_that_was_replaced_meanwhile_begins_anew(stand: Any) -> None:
    stand.write("events/a", "1", "2")
    stand.write("named", "1", "2")
    stand.pull(pattern="events/*", streams=("named",))
    stand.subscriptions.stop()
    for name in ("events/a", "named"):
        stand.engine.log(name).drop()
        stand.engine.create(name).wait().append(Batch([b"1"])).wait()
    stand.reopen()
    assert stand.acked("pull") == {"events/a": 0, "named": 0}
    assert stand.ack(stand.claim(), {"events/a": 1, "named": 1}) is False
    stand.reopen()
    assert stand.acked("pull") == {"events/a": 1, "named": 1}


def test_a_webhook_that_was_not_delivered_is_sent_again_as_the_same_wake(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    before = stand.courier.sent[0]
    stand.reopen()
    [sent] = stand.courier.sent
    assert (sent.body["wake_id"], sent.body["generation"]) == (before.body["wake_id"], 1)
    assert stand.callback(before, {"events/a": 1}) is False, "the one that may have arrived counts as well"


def test_a_webhook_that_was_delivered_keeps_its_lease(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    before = stand.courier.sent[0]
    stand.answer(before, delivered=True)
    stand.reopen()
    stand.advance(999)
    assert stand.courier.sent == []
    stand.advance(1)
    assert stand.courier.sent[0].body["generation"] == 2


def test_the_address_of_the_server_is_where_it_was_last_put(stand: Any) -> None:
    subscription = stand.webhook(pattern="events/*")
    stand.subscriptions.put("hook", subscription.definition, "http://elsewhere")
    stand.reopen()
    stand.write("events/a", "1")
    assert stand.courier.sent[0].body["base_url"] == "http://elsewhere"


def test_events_are_kept_few(stand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "COMPACT_EVENTS", 20)
    stand.write("events/old", "1", "2", "3")
    stand.pull(pattern="events/*", streams=("named",))
    stand.webhook(pattern="nothing/*")
    for number in range(1, 101):
        stand.write("events/a", str(number))
        stand.ack(stand.claim(), {"events/a": number})
    log = stand.engine.log(NAME)
    assert log.state().count < 40 < log.head
    stand.reopen()
    assert stand.acked("pull") == {"events/old": 3, "events/a": 100, "named": 0}
    assert stand.get("pull").generation == 100
    assert stand.get("hook").is_webhook


def test_an_event_that_makes_no_sense_is_passed_over(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.engine.log(NAME).append(Batch([b"nonsense", b'["woken","nobody",1,"w"]', b'["unheard of","pull"]']))
    stand.reopen()
    stand.write("events/a", "1")
    assert stand.claim().generation == 1


_NAMES = st.sampled_from(["events/a", "events/b", "named"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _NAMES),
        st.tuples(st.just("drop"), _NAMES),
        st.tuples(st.just("claim")),
        st.tuples(st.just("ack"), _NAMES, st.integers(0, 3), st.booleans()),
        st.tuples(st.just("release")),
        st.tuples(st.just("unname"), st.just("named")),
        st.tuples(st.just("name"), st.just("named")),
        st.tuples(st.just("advance"), st.sampled_from([1, 500, 1000])),
        st.tuples(st.just("reopen")),
    ),
    max_size=30,
)


def _has_lapsed(stand: Any) -> bool:
    subscription = stand.get("pull")
    return 0 < subscription.until <= stand.clock.now()


def _known(stand: Any) -> tuple[Any, ...]:
    """A lease that has run out is as good as none. Its end is not written down: a restart finds it by the clock."""
    subscription = stand.get("pull")
    links = {(link.name, link.epoch, link.acked, link.explicit) for link in subscription.links}
    held = ("", 0, "") if _has_lapsed(stand) else (subscription.wake_id, subscription.until, subscription.holder)
    return subscription.generation, held, links


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_STEPS, st.sampled_from([0, 3, 1000]))
@example([("write", "events/a"), ("claim",), ("drop", "events/a"), ("advance", 1000)], 0)
def test_a_restart_changes_nothing_and_generations_only_grow(
    tmp_path_factory: pytest.TempPathFactory, stand: Any, steps: list[tuple[Any, ...]], compact_events: int
) -> None:
    before = store.COMPACT_EVENTS, store.COMPACT_RATIO
    store.COMPACT_EVENTS, store.COMPACT_RATIO = compact_events, 0
    path: Path = tmp_path_factory.mktemp("model") / "data"
    model = type(stand)(path)
    try:
        _walk(model, steps)
    finally:
        store.COMPACT_EVENTS, store.COMPACT_RATIO = before
        model.subscriptions.stop()
        model.engine.close()


def _walk(stand: Any, steps: list[tuple[Any, ...]]) -> None:
    subscription = stand.pull(pattern="events/*", streams=("named",))
    claims: list[Any] = []
    generation = 0
    for what, *arguments in steps:
        held = stand.get("pull").wake_id
        try:
            _step(stand, what, arguments, claims)
        except Fenced:
            assert claims[-1].wake_id != held or stand.get("pull").wake_id != held
        except (BadPosition, NothingPending, AlreadyClaimed):
            pass
        subscription = stand.get("pull")
        assert subscription.generation >= generation
        generation = subscription.generation
        for link in subscription.links:
            assert 0 <= link.acked <= link.tail
            assert (link in subscription.links.pending) == (link.tail > link.acked)
        if subscription.links.pending:
            assert subscription.wake_id, "whatever is pending has woken somebody"
    before, had_lapsed = _known(stand), _has_lapsed(stand)
    stand.reopen()
    after = _known(stand)
    assert after[2] == before[2]
    if not had_lapsed:  # else another wake may have begun
        assert after == before


def _step(stand: Any, what: str, arguments: list[Any], claims: list[Any]) -> None:
    if what == "write":
        stand.write(arguments[0], "x")
    elif what == "drop":
        log = stand.engine.find(arguments[0])
        if log is not None:
            log.drop()
        stand.settle()
    elif what == "claim":
        claims.append(stand.claim())
    elif what == "ack" and claims:
        stand.ack(claims[-1], {arguments[0]: arguments[1]}, done=arguments[2])
    elif what == "release" and claims:
        claim = claims[-1]
        stand.subscriptions.release("pull", WakeHolder(claim.token, claim.wake_id, claim.generation)).wait()
        stand.settle()
    elif what == "name":
        stand.subscriptions.name(stand.get("pull"), [arguments[0]])
        stand.settle()
    elif what == "unname":
        stand.subscriptions.unname(stand.get("pull"), arguments[0])
        stand.settle()
    elif what == "advance":
        stand.advance(arguments[0])
    elif what == "reopen":
        stand.reopen()


def test_the_secret_is_not_printed(stand: Any) -> None:
    seed = stand.subscriptions._keeping.seed
    stand.pull(pattern="events/*")
    stand.engine.flush()
    [journal] = (stand.path / "journal").iterdir()
    printed = "".join(f"{item}" for item in dump(journal))
    assert "secret_seed" in printed
    assert seed.hex() not in printed
    assert repr(seed) not in printed

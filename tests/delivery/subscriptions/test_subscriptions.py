from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from strandline.delivery.subscriptions import SubscriptionDefinition, WakeHolder, subscriptions
from strandline.delivery.subscriptions.errors import (
    AddressRejected,
    AlreadyClaimed,
    BadPosition,
    BadToken,
    Fenced,
    NothingPending,
    SubscriptionExists,
    TokenExpired,
    TooManySubscriptions,
    UnknownSubscription,
    WrongKind,
)
from strandline.delivery.subscriptions.webhook_signatures import TOKEN_MS


def _holder(claim: Any) -> WakeHolder:
    return WakeHolder(claim.token, claim.wake_id, claim.generation)


# --- as a whole ------------------------------------------------------------------------------------------------------


def test_putting_the_same_again_confirms_it_and_something_else_is_refused(stand: Any) -> None:
    first = stand.pull(pattern="events/*", description="one")
    assert stand.pull(pattern="events/*", description="one") is first
    with pytest.raises(SubscriptionExists):
        stand.pull(pattern="events/*", description="another")
    with pytest.raises(SubscriptionExists):
        stand.webhook("pull", pattern="events/*")


def test_an_unsafe_webhook_leaves_nothing_behind(stand: Any) -> None:
    definition = SubscriptionDefinition(type="webhook", pattern="a", webhook_url="http://10.0.0.1/", lease_ttl_ms=1000)
    with pytest.raises(AddressRejected):
        stand.subscriptions.put("hook", definition, "")
    assert stand.subscriptions.find("hook") is None


def test_there_is_a_limit(stand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 1)
    stand.pull("one", pattern="a")
    with pytest.raises(TooManySubscriptions):
        stand.pull("two", pattern="a")
    stand.pull("one", pattern="a")


def test_what_is_not_there_is_unknown(stand: Any) -> None:
    with pytest.raises(UnknownSubscription):
        stand.subscriptions.get("nothing")
    stand.subscriptions.remove("nothing")
    assert stand.engine.find("__subscriptions__") is None


# --- pulling ---------------------------------------------------------------------------------------------------------


def test_a_wake_is_claimed_acknowledged_and_done(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1", "2")
    assert stand.wakes() == [["pull", "events/a", 1]]
    claim = stand.claim()
    assert (claim.generation, [(link.name, link.acked, link.tail) for link in claim.links]) == (
        1,
        [("events/a", 0, 2)],
    )
    assert stand.ack(claim, {"events/a": 2}) is False
    assert stand.acked("pull") == {"events/a": 2}
    with pytest.raises(NothingPending):
        stand.claim()


def test_a_claim_right_after_an_append_finds_it(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1", settle=False)
    assert stand.claim().generation == 1
    assert stand.wakes() == [["pull", "events/a", 1]]


def test_only_one_worker_has_it(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    stand.claim(worker="first")
    with pytest.raises(AlreadyClaimed) as refused:
        stand.claim(worker="second")
    assert (refused.value.holder, refused.value.generation) == ("first", 1)


def test_one_wake_at_a_time(stand: Any) -> None:
    stand.pull(pattern="events/*")
    for number in range(5):
        stand.write(f"events/{number}", "1")
    assert len(stand.wakes()) == 1
    claim = stand.claim()
    assert len(claim.links) == 5
    stand.write("events/0", "2")
    assert len(stand.wakes()) == 1
    assert stand.ack(claim, {f"events/{number}": 1 for number in range(5)}) is True
    assert stand.wakes()[1:] == [["pull", "events/0", 2]]


def test_a_heartbeat_holds_the_lease(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1", "2")
    claim = stand.claim()
    for _ in range(5):
        stand.advance(900)
        assert stand.ack(claim, {}, done=False) is False
    assert stand.ack(claim, {"events/a": 1}, done=False) is False
    assert stand.ack(claim, {"events/a": 2}) is False


def test_a_lease_that_runs_out_fences_its_holder_and_wakes_again(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    claim = stand.claim()
    stand.advance(999)
    assert len(stand.wakes()) == 1
    stand.advance(1)
    assert stand.wakes()[1:] == [["pull", "events/a", 2]]
    with pytest.raises(Fenced):
        stand.ack(claim, {"events/a": 1})
    assert stand.acked("pull") == {"events/a": 0}
    assert stand.claim().generation == 2


def test_a_lease_has_run_out_even_if_nobody_has_looked_yet(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    claim = stand.claim(worker="first")
    stand.clock.advance(1000)
    with pytest.raises(Fenced):
        stand.ack(claim, {"events/a": 1})
    stand.clock.advance(1000)
    assert stand.claim(worker="second").generation == 2


def test_a_lease_that_runs_out_with_nothing_pending_ends_quietly(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    claim = stand.claim()
    stand.ack(claim, {"events/a": 1}, done=False)
    stand.advance(1000)
    assert len(stand.wakes()) == 1
    with pytest.raises(Fenced):
        stand.ack(claim, {})


def test_releasing_wakes_again(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    claim = stand.claim()
    stand.subscriptions.release("pull", _holder(claim)).wait()
    assert [wake[2] for wake in stand.wakes()] == [1, 2]
    with pytest.raises(Fenced):
        stand.subscriptions.release("pull", _holder(claim))


def test_token_wake_and_generation_must_all_match(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    claim = stand.claim()
    good = _holder(claim)
    for wrong in (good._replace(wake_id="w_0"), good._replace(generation=2), good._replace(generation=0)):
        with pytest.raises(Fenced):
            stand.subscriptions.acknowledge("pull", wrong, [], True)
    with pytest.raises(BadToken):
        stand.subscriptions.acknowledge("pull", good._replace(token="x"), [], True)
    with pytest.raises(BadToken):
        stand.subscriptions.acknowledge("other", good, [], True)
    assert stand.ack(claim, {"events/a": 1}) is False
    stand.clock.advance(TOKEN_MS + 1)
    with pytest.raises(TokenExpired):
        stand.ack(claim, {})


def test_a_token_is_worth_nothing_for_a_later_subscription_of_the_same_id(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    claim = stand.claim()
    stand.subscriptions.remove("pull")
    with pytest.raises(UnknownSubscription):
        stand.ack(claim, {})
    stand.pull(pattern="events/*")
    stand.write("events/a", "2")
    assert stand.claim().generation == claim.generation
    with pytest.raises(Fenced):
        stand.ack(claim, {})


@pytest.mark.parametrize(
    "acks",
    [{"events/a": 0}, {"events/a": 4}, {"events/b": 1}, {"events/a": None}, {"events/a": 3, "events/b": 1}],
)
def test_an_acknowledgement_goes_forward_and_not_beyond_the_end(stand: Any, acks: dict[str, int | None]) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1", "2", "3")
    claim = stand.claim()
    stand.ack(claim, {"events/a": 1}, done=False)
    with pytest.raises(BadPosition):
        stand.ack(claim, acks)
    assert stand.acked("pull") == {"events/a": 1}
    assert stand.ack(claim, {"events/a": 3}) is False


def test_webhooks_are_not_pulled_and_workers_do_not_call_back(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    with pytest.raises(WrongKind):
        stand.claim("hook")
    with pytest.raises(WrongKind):
        stand.subscriptions.acknowledge("hook", stand.courier.sent[0].holder, [], True)
    with pytest.raises(WrongKind):
        stand.subscriptions.release("hook", stand.courier.sent[0].holder)
    with pytest.raises(WrongKind):
        stand.subscriptions.callback("pull", _holder(stand.claim()), [], True)


def test_a_wake_whose_cause_is_gone_does_not_keep_the_next_one_from_being_told(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1").drop()
    stand.settle()
    with pytest.raises(NothingPending):
        stand.claim()
    stand.write("events/b", "1")
    assert stand.wakes() == [["pull", "events/a", 1], ["pull", "events/b", 2]]


def test_a_wake_stream_that_takes_nothing_does_not_keep_work_from_being_claimed(stand: Any) -> None:
    stand.write("wakes").note({"closed": True})
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    assert stand.claim().generation == 1
    assert stand.wakes() == []


def test_a_wake_stream_that_is_gone_is_made_again(stand: Any) -> None:
    stand.write("wakes").drop()
    stand.pull(pattern="**")
    stand.write("events/a", "1")
    assert stand.wakes() == [["pull", "events/a", 1]]
    assert stand.acked("pull") == {"events/a": 0}


def test_one_wake_tells_of_so_many_logs_and_the_next_of_the_rest(stand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_TOLD", 2)
    stand.pull(pattern="events/*")
    stand.write("events/idle")
    for number in range(3):
        stand.write(f"events/{number}", "1")
    told = set()
    for more in (True, False):
        claim = stand.claim()
        assert len(claim.links) == 2
        pending = {link.name: 1 for link in claim.links if link.tail > link.acked}
        told |= set(pending)
        assert stand.ack(claim, pending) is more
    assert told == {"events/0", "events/1", "events/2"}


# --- webhooks --------------------------------------------------------------------------------------------------------


def test_a_webhook_that_is_done_at_once_acknowledges_what_it_was_told(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.write("events/a", "1", "2")
    [sent] = stand.courier.sent
    assert sent.url == "https://hooks.example/one"
    assert sent.body["streams"] == {"events/a": [0, 2]}
    assert sent.headers["webhook-signature"] == stand.subscriptions.signer.sign(sent.raw, stand.clock.now())
    stand.write("events/a", "3")
    stand.answer(sent, delivered=True, done=True)
    assert stand.acked("hook") == {"events/a": 2}
    assert stand.courier.sent[1].body["generation"] == 2
    assert stand.courier.sent[1].body["streams"] == {"events/a": [2, 3]}


def test_a_webhook_calls_back(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    [sent] = stand.courier.sent
    stand.answer(sent, delivered=True)
    assert stand.callback(sent, {"events/a": 1}) is False
    assert stand.acked("hook") == {"events/a": 1}
    with pytest.raises(Fenced):
        stand.callback(sent, {"events/a": 1})


def test_a_webhook_may_call_back_before_it_answers(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    [sent] = stand.courier.sent
    stand.write("events/a", "2")
    assert stand.callback(sent, {"events/a": 1}) is True
    stand.answer(sent, delivered=True, done=True)
    assert stand.acked("hook") == {"events/a": 1}, "the answer is about a wake that has ended"
    assert len(stand.courier.sent) == 2


def test_a_webhook_that_does_not_call_back_in_time_is_told_again(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    [sent] = stand.courier.sent
    stand.advance(60_000)
    assert len(stand.courier.sent) == 1, "the lease begins when the webhook has been delivered"
    stand.answer(sent, delivered=True)
    stand.advance(999)
    assert len(stand.courier.sent) == 1
    stand.advance(1)
    assert stand.courier.sent[1].body["generation"] == 2
    with pytest.raises(Fenced):
        stand.callback(sent, {"events/a": 1})


def test_a_webhook_that_fails_is_tried_again_later_and_later(stand: Any) -> None:
    subscription = stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    for number, delay in enumerate((1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000), 1):
        assert len(stand.courier.sent) == number
        stand.answer(stand.courier.sent[-1], delivered=False)
        assert subscription.status == "failed"
        stand.advance(delay - 1)
        assert len(stand.courier.sent) == number
        stand.advance(1)
    assert {sent.body["generation"] for sent in stand.courier.sent} == {1}, "it is still the same wake"
    stand.answer(stand.courier.sent[-1], delivered=True, done=True)
    assert subscription.status == "active"
    assert stand.acked("hook") == {"events/a": 1}


def test_what_is_tried_again_tells_what_is_new_since(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    stand.answer(stand.courier.sent[0], delivered=False)
    stand.write("events/b", "1")
    stand.advance(1000)
    assert stand.courier.sent[1].body["streams"] == {"events/a": [0, 1], "events/b": [0, 1]}


def test_a_webhook_that_seemed_to_fail_may_call_back_all_the_same(stand: Any) -> None:
    subscription = stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    [sent] = stand.courier.sent
    stand.callback(sent, {}, done=False)
    stand.answer(sent, delivered=False)
    assert (subscription.status, subscription.retry_at) == ("active", 0)
    stand.advance(999)
    assert stand.callback(sent, {"events/a": 1}) is False
    stand.advance(60_000)
    assert len(stand.courier.sent) == 1


def test_a_webhook_whose_cause_is_gone_is_not_tried_again(stand: Any) -> None:
    subscription = stand.webhook(pattern="events/*")
    log = stand.write("events/a", "1")
    stand.answer(stand.courier.sent[0], delivered=False)
    log.drop()
    stand.settle()
    stand.advance(1000)
    assert (len(stand.courier.sent), subscription.wake_id) == (1, "")
    stand.write("events/b", "1")
    assert stand.courier.sent[1].body["generation"] == 2


def test_a_webhook_is_not_told_before_the_wake_is_durable(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    kept = stand.engine.log("__subscriptions__")
    durable = []
    deliver = stand.courier.deliver

    def look(*arguments: Any) -> None:
        durable.append(kept.head == kept.next_seq - 1)
        deliver(*arguments)

    stand.courier.deliver = look
    stand.write("events/a", "1")
    assert durable == [True]


def test_a_log_that_was_replaced_meanwhile_is_not_acknowledged(stand: Any) -> None:
    stand.webhook(streams=("named",))
    log = stand.write("named", "1", "2")
    [sent] = stand.courier.sent
    log.drop()
    stand.write("named", "1", "2", "3")
    stand.answer(sent, delivered=True, done=True)
    assert stand.acked("hook") == {"named": 0}
    assert stand.courier.sent[1].body["streams"] == {"named": [0, 3]}


def test_a_subscription_that_is_removed_is_not_tried_again(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    stand.answer(stand.courier.sent[0], delivered=False)
    stand.subscriptions.remove("hook")
    stand.advance(60_000)
    assert len(stand.courier.sent) == 1


def test_a_server_that_stops_sends_nothing_any_more(stand: Any) -> None:
    stand.webhook(pattern="events/*")
    stand.write("events/a", "1")
    stand.subscriptions.stop()
    assert stand.courier.stopped
    stand.answer(stand.courier.sent[0], delivered=False)
    stand.advance(60_000)
    assert len(stand.courier.sent) == 1


def test_an_unexpected_error_is_tried_again_later_and_later(stand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def broken(*_: object) -> None:
        tried.append(stand.clock.now())
        raise RuntimeError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr(stand.subscriptions, "_send", broken)
        patched.setattr(stand.subscriptions, "_wake", broken)
        stand.webhook(streams=["s"])
        stand.write("s", "1")
        for _ in range(300):
            stand.advance(500)
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps[0] == 1000
    assert gaps == sorted(gaps)
    assert gaps[-1] > 30_000
    for _ in range(120):
        stand.advance(500)
    assert len(stand.courier.sent) == 1


def test_a_search_for_new_logs_that_fails_is_repeated(stand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(stand.subscriptions._linking.watch, "look_for_new", lambda: 1 / 0)
        stand.loop.advance(3_000)
    assert [trouble.task for trouble in stand.hub.health.troubles()] == ["search for new streams"]
    stand.loop.advance(3_000)
    assert stand.hub.health.troubles() == []

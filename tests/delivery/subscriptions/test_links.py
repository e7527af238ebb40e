from __future__ import annotations

from typing import Any

from strandline.delivery.subscriptions import SubscriptionDefinition
from strandline.delivery.subscriptions.subscriptions import Subscriptions


def test_logs_that_are_there_are_linked_where_they_end(stand: Any) -> None:
    stand.write("events/a", "1", "2")
    stand.write("other", "1")
    stand.pull(pattern="events/*")
    assert stand.acked("pull") == {"events/a": 2}
    assert stand.get("pull").wake_id == ""


def test_logs_that_are_made_later_are_linked_from_their_beginning(stand: Any) -> None:
    stand.pull(pattern="events/*")
    stand.write("events/a", "1")
    stand.write("other/a", "1")
    assert stand.acked("pull") == {"events/a": 0}
    assert stand.wakes() == [["pull", "events/a", 1]]


def test_a_name_that_does_not_exist_yet_can_be_named(stand: Any) -> None:
    stand.pull(streams=("manual/a",))
    assert stand.acked("pull") == {"manual/a": 0}
    stand.write("manual/a", "1")
    assert stand.wakes() == [["pull", "manual/a", 1]]


def test_names_can_be_added_and_taken_back(stand: Any) -> None:
    stand.write("manual/b", "old")
    subscription = stand.pull(streams=("manual/a",))
    stand.subscriptions.name(subscription, ["manual/b", "manual/c"])
    assert stand.acked("pull") == {"manual/a": 0, "manual/b": 1, "manual/c": 0}
    stand.subscriptions.unname(subscription, "manual/b")
    stand.subscriptions.unname(subscription, "manual/c")
    stand.subscriptions.unname(subscription, "never named")
    stand.write("manual/b", "new")
    stand.write("manual/c", "new")
    assert stand.acked("pull") == {"manual/a": 0}
    assert subscription.wake_id == ""


def test_what_is_named_and_matches_stays_when_its_name_is_taken_back(stand: Any) -> None:
    stand.write("events/a", "1")
    subscription = stand.pull(pattern="events/*", streams=("events/a",))
    assert subscription.links.find("events/a").explicit
    stand.subscriptions.unname(subscription, "events/a")
    assert stand.acked("pull") == {"events/a": 1}
    stand.write("events/a", "2")
    assert len(stand.wakes()) == 1


def test_a_log_that_goes_takes_the_link_of_a_pattern_with_it(stand: Any) -> None:
    subscription = stand.pull(pattern="events/*")
    log = stand.write("events/a", "1")
    log.drop()
    stand.settle()
    assert stand.acked("pull") == {}
    assert not subscription.links.pending


def test_a_named_log_that_is_made_anew_begins_anew(stand: Any) -> None:
    log = stand.write("manual/a", "1", "2", "3")
    subscription = stand.pull(streams=("manual/a",))
    assert stand.acked("pull") == {"manual/a": 3}
    log.drop()
    stand.settle()
    assert stand.acked("pull") == {"manual/a": 0}
    stand.write("manual/a", "1")
    assert stand.wakes() == [["pull", "manual/a", 1]]
    assert subscription.links.find("manual/a").epoch > log.epoch


def test_a_log_that_is_dropped_and_made_again_in_one_go_is_linked_again(stand: Any) -> None:
    log = stand.write("events/a", "1", "2")
    stand.pull(pattern="events/*", streams=("named",))
    named = stand.write("named")
    log.drop()
    named.drop()
    stand.write("events/a", "1", settle=False)
    stand.write("named", "1", settle=False)
    stand.settle()
    assert stand.acked("pull") == {"events/a": 0, "named": 0}
    assert {link.name for link in stand.get("pull").links.pending} == {"events/a", "named"}


def test_a_log_that_is_hidden_is_gone(stand: Any) -> None:
    subscription = stand.pull(pattern="events/*", streams=("named",))
    stand.write("events/a", "1").note({"hidden": True})
    stand.write("named", "1").note({"hidden": True})
    stand.settle()
    assert stand.acked("pull") == {"named": 0}
    assert not subscription.links.pending


def test_the_servers_own_logs_match_nothing(stand: Any) -> None:
    stand.pull(pattern="**")
    stand.write("__own__", "1")
    assert stand.acked("pull") == {}


def test_a_subscription_to_everything_is_not_woken_by_wakes(stand: Any) -> None:
    stand.pull("one", pattern="**", wake_stream="wakes/one")
    stand.pull("two", pattern="**", wake_stream="wakes/two")
    stand.write("a", "1")
    for id in ("one", "two"):
        assert stand.acked(id) == {"a": 0}
        assert not stand.ack(stand.claim(id), {"a": 1}, id=id)
    assert len(stand.wakes("wakes/one")) == len(stand.wakes("wakes/two")) == 1


def test_a_log_that_wakes_are_no_longer_written_to_is_one_like_any_other(stand: Any) -> None:
    stand.pull("all", pattern="**", wake_stream="wakes/all")
    stand.pull("some", pattern="some/*", wake_stream="wakes/some")
    stand.write("some/a", "1")
    stand.ack(stand.claim("all"), {"some/a": 1}, id="all")
    stand.subscriptions.remove("some")
    assert stand.acked("all") == {"some/a": 1, "wakes/some": 1}
    stand.reopen()
    assert stand.acked("all") == {"some/a": 1, "wakes/some": 1}
    stand.write("wakes/some", "hello")
    assert stand.get("all").wake_id


def test_a_subscription_that_is_removed_is_told_nothing_any_more(stand: Any) -> None:
    stand.write("events/a", "1")
    subscription = stand.pull(pattern="events/*", streams=("named",))
    stand.subscriptions.remove("pull").wait()
    stand.write("events/a", "2")
    stand.write("events/b", "1")
    stand.write("named", "1")
    assert stand.subscriptions.find("pull") is None
    assert len(subscription.links) == 0
    assert stand.wakes() == [] if stand.engine.find("wakes") else True
    stand.reopen()
    assert len(stand.subscriptions) == 0


def test_a_making_that_was_interrupted_links_what_was_there_where_it_ends(stand: Any) -> None:
    for number in range(3):
        stand.write(f"events/{number}", "1", "2")
    definition = SubscriptionDefinition(type="pull-wake", pattern="events/*", wake_stream="wakes", lease_ttl_ms=1000)
    subscriptions: Subscriptions = stand.subscriptions
    subscriptions.put("pull", definition, "http://here")
    stand.write("events/new", "1")
    stand.reopen()
    assert stand.acked("pull") == {"events/0": 2, "events/1": 2, "events/2": 2, "events/new": 0}
    stand.write("events/0", "3")
    stand.reopen()
    assert stand.acked("pull") == {"events/0": 2, "events/1": 2, "events/2": 2, "events/new": 0}


def test_many_logs_are_linked_in_several_turns(stand: Any) -> None:
    for number in range(1200):
        stand.engine.create(f"many/{number:04}")
    stand.settle()
    subscription, new, _ = stand.subscriptions.put(
        "pull", SubscriptionDefinition(type="pull-wake", pattern="many/*", wake_stream="wakes", lease_ttl_ms=1000), ""
    )
    turns = sum(1 for _ in stand.subscriptions.link_existing(subscription))
    assert (new, turns, len(subscription.links)) == (True, 6, 1200)
    stand.write("many/1199", "1")
    assert stand.wakes() == [["pull", "many/1199", 1]]
    stand.reopen()
    subscription = stand.get("pull")
    assert len(subscription.links) == 1200
    stand.subscriptions.remove("pull")
    assert 0 < len(subscription.links) < 1200
    stand.write("many/0000", "1", settle=False)
    stand.settle()
    assert (len(subscription.links), len(stand.wakes())) == (0, 1)

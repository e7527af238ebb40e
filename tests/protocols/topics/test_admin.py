"""Topics as a whole over HTTP: create and configure, look at, list, remove."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import msgspec
import pytest
from support.server_process import StartServer
from support.topics_client import Client, eventually

DEFAULTS: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


# --- creating and configuring ----------------------------------------------------------------------------------


def test_a_topic_without_any_wishes_has_the_defaults(client: Client, topic: str) -> None:
    answer = client.put(topic, status=201)
    assert set(answer) == {"topic", "created", "config", "performance"}
    assert (answer["topic"], answer["created"]) == (topic, True)
    assert answer["config"] == DEFAULTS
    assert answer["performance"]["server_total_ms"] >= 0


def test_an_empty_body_is_no_wishes_and_needs_no_content_type(client: Client, topic: str) -> None:
    assert client.call("PUT", f"/v0/topics/{topic}", status=201)["config"] == DEFAULTS
    assert client.call("PUT", f"/v0/topics/{topic}", status=200)["created"] is False


WISHES: list[dict[str, Any]] = [
    {"type": "queue"},
    {"ttl_ms": 60_000},
    {"cap_records": 5},
    {"cap_bytes": 4096},
    {"discard": "reject"},
    {"compact": True},
    {"durability": "ephemeral"},
    {"durability": "memory"},
    {"durability": "disk"},
    {"priority": 10},
    {"priority": -5000},
    {"auto_priority": False},
    {"auto_create": False},
    {"idempotency_window_ms": 1},
    {"dedupe_node": False},
    {"lease_ms": 100},
    {"claim_jitter_ms": 5000},
    {"max_deliveries": 5},
    {"dead_letter": "jobs.dlq"},
    {"leases_durable": True},
    {"retry_delay_ms": 1000},
    {"retry_backoff": 1.5},
    {"retry_max_ms": 60_000},
    {"retry_jitter": 0.5},
]


@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: "-".join(map(str, next(iter(wish.items())))))
def test_every_field_is_kept_and_echoed(client: Client, topic: str, wish: dict[str, Any]) -> None:
    assert client.put(topic, **wish)["config"] == DEFAULTS | wish
    assert client.get(topic)["config"] == DEFAULTS | wish


def test_later_fields_are_left_out_of_the_echo_while_they_have_their_defaults(client: Client, topic: str) -> None:
    later = {"compact": False, "retry_delay_ms": 0, "retry_backoff": 2, "retry_max_ms": 300_000, "retry_jitter": 0}
    assert client.put(topic, **later)["config"] == DEFAULTS


def test_delays_of_retries_are_at_most_a_day(client: Client, topic: str) -> None:
    config = client.put(topic, type="queue", retry_delay_ms=1 << 40, retry_max_ms=1 << 40)["config"]
    assert (config["retry_delay_ms"], config["retry_max_ms"]) == (86_400_000, 86_400_000)


@pytest.mark.parametrize("wish", [{"retry_delay_ms": 300_001}, {"retry_delay_ms": 10, "retry_max_ms": 9}], ids=str)
def test_a_first_delay_that_would_be_cut_is_refused(client: Client, topic: str, wish: dict[str, Any]) -> None:
    error = client.refused("PUT", f"/v0/topics/{topic}", {"type": "queue", **wish}, status=400)
    assert "raise retry_max_ms" in error["message"]
    assert client.put(topic, type="queue", **wish | {"retry_max_ms": 300_001})


@pytest.mark.parametrize(
    "wish",
    [
        {"retry_backoff": 0.9},
        {"retry_backoff": 1001},
        {"retry_jitter": 1.1},
        {"retry_jitter": -0.1},
        {"retry_delay_ms": -1},
        {"retry_max_ms": "1"},
        {"retry_delay": 5},
    ],
    ids=str,
)
def test_a_retry_option_out_of_range_is_refused(client: Client, topic: str, wish: dict[str, Any]) -> None:
    client.refused("PUT", f"/v0/topics/{topic}", {"type": "queue", **wish}, status=400)
    assert client.refused("GET", f"/v0/topics/{topic}", status=404)


@pytest.mark.parametrize(
    ("wish", "durability"),
    [
        ({"durable": True}, "fsync"),
        ({"durable": False}, "disk"),
        ({"durability": "fsync"}, "fsync"),
        ({"durable": True, "durability": "memory"}, "memory"),
        ({"durable": False, "durability": "fsync"}, "fsync"),
    ],
)
def test_durable_is_another_word_for_fsync_and_the_class_wins(
    client: Client, topic: str, wish: dict[str, Any], durability: str
) -> None:
    config = client.put(topic, **wish)["config"]
    assert (config["durability"], config["durable"]) == (durability, durability == "fsync")


def test_leases_and_jitter_are_kept_within_their_bounds(client: Client, topic: str) -> None:
    config = client.put(topic, type="queue", lease_ms=1, claim_jitter_ms=60_000)["config"]
    assert (config["lease_ms"], config["claim_jitter_ms"]) == (100, 5000)
    assert client.put(topic, lease_ms=1 << 40)["config"]["lease_ms"] == 86_400_000


def test_an_unknown_field_is_refused_with_the_nearest_name(client: Client, topic: str) -> None:
    error = client.refused("PUT", f"/v0/topics/{topic}", {"durabilty": "fsync"}, status=400)
    assert "did you mean 'durability'?" in error["message"]
    client.refused("GET", f"/v0/topics/{topic}", status=404)


BAD_WISHES: list[dict[str, Any]] = [
    {"type": "stack"},
    {"ttl_ms": -1},
    {"ttl_ms": 1.5},
    {"ttl_ms": "60000"},
    {"cap_records": -1},
    {"cap_bytes": "many"},
    {"discard": "new"},
    {"durability": "tape"},
    {"durable": "yes"},
    {"priority": 1.5},
    {"priority": 1 << 31},
    {"auto_priority": 1},
    {"dedupe_node": "no"},
    {"lease_ms": -1},
    {"max_deliveries": -1},
    {"dead_letter": 7},
    {"dead_letter": "no name"},
    {"dead_letter": ""},
]


@pytest.mark.parametrize("wish", BAD_WISHES, ids=lambda wish: "-".join(map(str, next(iter(wish.items())))))
def test_what_cannot_be_is_refused_and_makes_nothing(client: Client, topic: str, wish: dict[str, Any]) -> None:
    assert client.refused("PUT", f"/v0/topics/{topic}", wish, status=400)["code"] == "invalid_request"
    client.refused("GET", f"/v0/topics/{topic}", status=404)


def test_a_log_accepts_the_options_of_queues(client: Client, topic: str) -> None:
    config = {"type": "log", "lease_ms": 1000, "max_deliveries": 3, "retry_delay_ms": 5}
    assert config.items() <= client.call("PUT", f"/v0/topics/{topic}", config, status=201)["config"].items()


def test_dead_letters_cannot_go_back_to_their_queue(client: Client, topic: str) -> None:
    error = client.refused("PUT", f"/v0/topics/{topic}", {"type": "queue", "dead_letter": topic}, status=400)
    assert error["detail"] == {"dead_letter": topic}


def test_dead_letters_cannot_go_back_to_their_queue_through_others(client: Client, topic: str) -> None:
    first, second, third = (f"/v0/topics/{topic}-{number}" for number in (1, 2, 3))
    client.call("PUT", first, {"type": "queue", "dead_letter": f"{topic}-2"}, status=201)
    client.call("PUT", second, {"type": "queue", "dead_letter": f"{topic}-3"}, status=201)
    back = {"type": "queue", "dead_letter": f"{topic}-1"}
    error = client.refused("PUT", third, back, status=400)
    assert error["detail"] == {"dead_letter": f"{topic}-1"}
    assert f"leads back to '{topic}-3'" in error["message"]
    client.refused("POST", third, {"records": [{"data": 1}], "config": back}, status=400)
    client.refused("GET", third, status=404)
    client.call("PUT", third, {"type": "queue"}, status=201)
    client.refused("PUT", third, back, status=400)
    # A log delivers nothing, so its dead_letter continues no chain.
    client.call("PUT", f"/v0/topics/{topic}-log", {"dead_letter": f"{topic}-3"}, status=201)
    client.call("PUT", third, {"type": "queue", "dead_letter": f"{topic}-log"})


@pytest.mark.parametrize("body", [b"{", b"[]", b"7", b"null", b'"text"', b"{'a':1}", b"\xff\xfe"])
def test_a_body_that_is_no_object_is_refused(client: Client, topic: str, body: bytes) -> None:
    assert client.refused("PUT", f"/v0/topics/{topic}", body, status=400)["code"] == "invalid_request"


GOOD_NAMES = ["a", "Z9", "0", "a.b_c:d-e", "x" * 255]
BAD_NAMES = ["-a", ".a", "_a", ":a", "a b", "a%2Fb", "a%00", "ä", "x" * 256, "a%0A", "a>b", "a@b", "%FF"]


@pytest.mark.parametrize("name", GOOD_NAMES, ids=lambda name: name[:12])
def test_a_name_starts_with_a_letter_or_digit(client: Client, name: str) -> None:
    assert client.put(name)["topic"] == name
    client.drop(name)


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: name[:12])
def test_other_names_cannot_be_made_and_are_not_found(client: Client, name: str) -> None:
    assert client.refused("PUT", f"/v0/topics/{name}", {}, status=400)["code"] == "invalid_request"
    body = {"records": [{"data": 1}]}
    assert client.refused("POST", f"/v0/topics/{name}", body, status=400)["code"] == "invalid_request"
    assert client.refused("GET", f"/v0/topics/{name}", status=404)["code"] == "topic_not_found"
    assert client.refused("POST", f"/v0/topics/{name}/diff", {}, status=404)["code"] == "topic_not_found"


def test_a_percent_encoded_name_is_the_same_name(client: Client, topic: str) -> None:
    client.put(topic + ":x")
    assert client.get(f"{topic}%3Ax")["topic"] == topic + ":x"


def test_names_are_case_sensitive(client: Client, topic: str) -> None:
    client.put(topic)
    client.refused("GET", f"/v0/topics/{topic.upper()}", status=404)


def test_putting_the_same_again_changes_nothing(client: Client, topic: str) -> None:
    first = client.put(topic, status=201, ttl_ms=5000, priority=3)
    again = client.put(topic, status=200, ttl_ms=5000, priority=3)
    assert (again["created"], again["config"]) == (False, first["config"])


def test_putting_something_else_replaces_everything_but_the_type(client: Client, topic: str) -> None:
    client.put(topic, type="queue", durability="fsync", priority=3, lease_ms=500)
    answer = client.put(topic, status=200, ttl_ms=5000)
    assert answer["config"] == DEFAULTS | {"type": "queue", "ttl_ms": 5000}
    assert client.put(topic, status=200)["config"] == DEFAULTS | {"type": "queue"}


@pytest.mark.parametrize(("existing", "requested"), [("log", "queue"), ("queue", "log")])
def test_the_type_of_a_topic_stays(client: Client, topic: str, existing: str, requested: str) -> None:
    client.put(topic, type=existing)
    error = client.refused("PUT", f"/v0/topics/{topic}", {"type": requested, "priority": 1}, status=409)
    assert error["code"] == "topic_exists_incompatible"
    assert error["detail"] == {"topic": topic, "existing_type": existing, "requested_type": requested}
    assert client.get(topic)["config"]["priority"] is None


def test_a_change_keeps_the_records_and_a_tighter_cap_evicts(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3, 4])
    client.put(topic, durability="fsync")
    assert client.get(topic)["count"] == 4
    client.put(topic, cap_records=2)
    state = client.get(topic)
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (2, 3, 4)
    assert client.diff(topic)["tombstone"]["reason"] == "cap"


def test_every_class_can_become_every_other_with_records_in_it(client: Client, topic: str) -> None:
    classes = ["disk", "ephemeral", "fsync", "memory", "ephemeral", "disk", "fsync", "disk"]
    for number, durability in enumerate(classes, 1):
        client.put(topic, durability=durability)
        client.write(topic, [number])
        assert [record["data"] for record in client.diff(topic)["records"]] == list(range(1, number + 1))


def test_configurations_outlive_a_restart_and_so_do_the_records_of_all_but_ephemeral_topics(
    start_server: StartServer,
) -> None:
    server = start_server()
    client = server.client()
    wishes = {
        "ephemeral": {"durability": "ephemeral"},
        "memory": {"durability": "memory"},
        "disk": {"ttl_ms": 60_000, "priority": -7, "auto_create": False},
        "fsync": {"durable": True, "dedupe_node": False},
        "queue": {"type": "queue", "max_deliveries": 3, "dead_letter": "dead"},
    }
    before = {}
    for name, wish in wishes.items():
        before[name] = client.put(name, **wish)["config"]
        client.write(name, [1, 2])
    server.stop()
    client = server.start().client()
    for name in wishes:
        state = client.get(name)
        assert state["config"] == before[name]
        assert state["count"] == (0 if name == "ephemeral" else 2)
        # No seq is given out twice, whatever was lost.
        assert client.write(name, [3])["first_seq"] >= 3


# --- looking at ------------------------------------------------------------------------------------------------


def test_the_state_of_an_empty_topic(client: Client, topic: str) -> None:
    client.put(topic)
    state = client.call("GET", f"/v0/topics/{topic}?touch=false")
    del state["performance"]
    assert state == {
        "topic": topic,
        "type": "log",
        "head_seq": 0,
        "earliest_seq": 1,
        "next_seq": 1,
        "count": 0,
        "bytes": 0,
        "config": DEFAULTS,
        "effective_priority": 0,
        "last_write_ts": None,
        "last_read_ts": None,
    }


def test_the_state_follows_what_is_written_and_deleted(client: Client, topic: str) -> None:
    client.write(topic, [1, "x", {"data": None, "meta": {"a": 1}}])
    state = client.get(topic)
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (3, 1, 4)
    assert (state["count"], state["bytes"]) == (3, 1 + 3 + 4 + len('{"a":1}'))
    assert state["last_write_ts"] == client.diff(topic)["records"][-1]["$ts"]
    client.delete(topic, before_seq=4)
    state = client.get(topic)
    assert (state["earliest_seq"], state["next_seq"], state["count"], state["bytes"]) == (4, 4, 0, 0)


def test_a_queue_tells_of_its_jobs(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2, 3])
    client.claim(topic)
    state = client.get(topic)
    assert state["type"] == "queue"
    assert {"ready": 2, "in_flight": 1, "dead_lettered": 0}.items() <= state["queue"].items()


def test_looking_at_a_topic_makes_it_more_urgent_unless_told_not_to(client: Client, topic: str) -> None:
    client.put(topic)
    for flag in ("false", "0"):
        state = client.call("GET", f"/v0/topics/{topic}?touch={flag}")
        assert (state["effective_priority"], state["last_read_ts"]) == (0, None)
    state = client.call("GET", f"/v0/topics/{topic}?touch=perhaps")
    assert state["effective_priority"] > 480
    assert state["last_read_ts"] is not None


def test_reading_makes_a_topic_more_urgent_and_listing_does_not_unless_told_to(client: Client, topic: str) -> None:
    client.put(topic)
    (row,) = client.call("GET", f"/v0/topics?prefix={topic}")["topics"]
    assert row["effective_priority"] == 0
    assert client.call("GET", f"/v0/topics/{topic}?touch=false")["last_read_ts"] is None
    client.call("GET", f"/v0/topics?prefix={topic}&touch=true")
    assert client.call("GET", f"/v0/topics/{topic}?touch=false")["last_read_ts"] is not None
    other = topic + ".read"
    client.put(other)
    client.diff(other)
    assert client.call("GET", f"/v0/topics/{other}?touch=false")["effective_priority"] > 480


def test_a_manual_priority_is_the_effective_one_within_its_bounds(client: Client, topic: str) -> None:
    for wish, effective in ((7, 7), (5000, 1000), (-5000, -1000), (0, 0)):
        client.put(topic, priority=wish)
        state = client.get(topic)
        assert (state["config"]["priority"], state["effective_priority"]) == (wish, effective)
    client.put(topic, auto_priority=False)
    assert client.get(topic)["effective_priority"] == 0


def test_the_state_of_a_topic_that_is_not_there(client: Client, topic: str) -> None:
    error = client.refused("GET", f"/v0/topics/{topic}", status=404)
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": topic})


# --- listing ---------------------------------------------------------------------------------------------------


def test_a_list_has_one_row_per_topic_in_the_order_of_the_names(client: Client, topic: str) -> None:
    for name in ("b", "B", "a", "10", "9", "a.b", "a-b"):
        client.write(f"{topic}.{name}", [1])
    client.put(f"{topic}.a", durable=True)
    answer = client.call("GET", f"/v0/topics?prefix={topic}.")
    names = [row["topic"] for row in answer["topics"]]
    assert names == sorted(names, key=str.encode)
    assert len(names) == 7
    assert "next_cursor" not in answer
    assert "performance" in answer
    row = answer["topics"][names.index(f"{topic}.a")]
    assert row == {
        "topic": f"{topic}.a",
        "type": "log",
        "head_seq": 1,
        "earliest_seq": 1,
        "count": 1,
        "bytes": 1,
        "durable": True,
        "effective_priority": 0,
    }


def pages(client: Client, prefix: str, size: int) -> list[list[str]]:
    found, cursor = [], ""
    while True:
        query = {"prefix": prefix, "page_size": str(size)} | ({"cursor": cursor} if cursor else {})
        answer = client.call("GET", "/v0/topics", params=query)
        found.append([row["topic"] for row in answer["topics"]])
        cursor = answer.get("next_cursor", "")
        if not cursor:
            return found


def test_pages_follow_each_other_without_gap_or_repetition(client: Client, topic: str) -> None:
    names = [f"{topic}.{number}" for number in range(7)]
    for name in names:
        client.put(name)
    assert pages(client, topic + ".", 3) == [names[:3], names[3:6], names[6:]]
    assert pages(client, topic + ".", 7) == [names]
    assert pages(client, topic + ".", 6) == [names[:6], names[6:]]


def test_a_cursor_is_base64_of_the_last_name(client: Client, topic: str) -> None:
    client.put(topic + ".a")
    client.put(topic + ".b")
    cursor = client.call("GET", f"/v0/topics?prefix={topic}.&page_size=1")["next_cursor"]
    assert msgspec.json.decode(b64decode(cursor)) == {"after": topic + ".a"}
    # The place is kept even if the topic itself goes.
    client.drop(topic + ".a")
    answer = client.call("GET", "/v0/topics", params={"prefix": topic + ".", "cursor": cursor})
    assert [row["topic"] for row in answer["topics"]] == [topic + ".b"]


def test_a_cursor_that_says_nothing_starts_over_and_a_broken_one_is_refused(client: Client, topic: str) -> None:
    client.put(topic)
    start_over = b64encode(b"{}").decode()
    answer = client.call("GET", "/v0/topics", params={"prefix": topic, "cursor": start_over})
    assert [row["topic"] for row in answer["topics"]] == [topic]
    for broken in ("!!!", "abc", b64encode(b"not json").decode(), b64encode(b"[1]").decode(), b64encode(b"7").decode()):
        error = client.refused("GET", "/v0/topics", status=400, params={"cursor": broken})
        assert error["code"] == "invalid_request"


@pytest.mark.parametrize(("asked", "given"), [("0", 1), ("-3", 1), ("2", 2), ("many", 100), ("", 100), ("5000", 101)])
def test_the_size_of_a_page_is_kept_within_its_bounds(client: Client, asked: str, given: int) -> None:
    for number in range(101):
        client.put(f"sized.{number:03d}")
    assert len(client.call("GET", f"/v0/topics?prefix=sized.&page_size={asked}")["topics"]) == given


def test_the_servers_own_logs_are_no_topics(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    client.claim(topic)
    client.call("PUT", f"/v0/routers/{topic}-router", {"source": topic, "dest": topic + ".copy"}, status=201)
    names = [name for page in pages(client, "", 1000) for name in page]
    assert not [name for name in names if name.startswith("_")]
    for name in (f"__leases__:{topic}", "__routers__"):
        client.refused("GET", f"/v0/topics/{name}", status=404)
        assert client.drop(name)["deleted"] is False
    assert client.get(topic)["queue"]["in_flight"] == 1


# --- removing --------------------------------------------------------------------------------------------------


def test_a_removed_topic_is_gone_with_its_records_keys_and_routers(client: Client, topic: str) -> None:
    client.write(topic, [1, 2], idempotency_key="k")
    for router, source, dest in (("b", topic, f"{topic}.b"), ("a", topic, f"{topic}.a"), ("c", f"{topic}.x", topic)):
        client.call("PUT", f"/v0/routers/{topic}.{router}", {"source": source, "dest": dest}, status=201)
    answer = client.drop(topic)
    assert answer["deleted"] is True
    assert answer["routers_removed"] == [f"{topic}.a", f"{topic}.b", f"{topic}.c"]
    assert "performance" in answer
    client.refused("GET", f"/v0/topics/{topic}", status=404)
    client.refused("GET", f"/v0/routers/{topic}.a", status=404)
    again = client.call("POST", f"/v0/topics/{topic}", {"records": [{"data": 3}], "idempotency_key": "k"}, status=201)
    assert (again["first_seq"], again["deduped"], again["created"]) == (1, False, True)


def test_removing_what_is_not_there_is_no_error(client: Client, topic: str) -> None:
    answer = client.drop(topic)
    assert (answer["topic"], answer["deleted"], answer["routers_removed"]) == (topic, False, [])


def test_if_empty_removes_only_an_empty_topic(client: Client, topic: str) -> None:
    client.write(topic, [1, 2])
    error = client.refused("DELETE", f"/v0/topics/{topic}?if_empty=true", status=409)
    assert (error["code"], error["detail"]) == ("topic_not_empty", {"topic": topic, "count": 2})
    assert client.get(topic)["count"] == 2
    client.delete(topic, before_seq=3)
    assert client.call("DELETE", f"/v0/topics/{topic}?if_empty=1")["deleted"] is True
    client.write(topic + ".full", [1])
    assert client.call("DELETE", f"/v0/topics/{topic}.full?if_empty=false")["deleted"] is True


def test_a_removed_queue_starts_anew(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2])
    client.claim(topic, max=2)
    client.drop(topic)
    client.queue(topic, [7])
    assert {"ready": 1, "in_flight": 0}.items() <= client.get(topic)["queue"].items()
    assert [job["data"] for job in client.claim(topic)] == [7]


def test_a_topic_can_be_another_type_after_it_was_removed(client: Client, topic: str) -> None:
    client.put(topic)
    client.drop(topic)
    assert client.put(topic, status=201, type="queue")["config"]["type"] == "queue"


def test_ttl_takes_records_and_the_state_shows_it(client: Client, topic: str) -> None:
    client.put(topic, ttl_ms=30)
    client.write(topic, [1, 2])
    state = eventually(lambda: (now := client.get(topic))["count"] == 0 and now)
    assert (state["earliest_seq"], state["head_seq"], state["bytes"]) == (3, 2, 0)

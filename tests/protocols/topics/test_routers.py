"""Routers over real HTTP."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest
from support.server_process import ServerProcess
from support.topics_client import Client, eventually

StartServer = Callable[..., ServerProcess]


def put(client: Client, name: str, source: str, dest: str, *, status: int = 201, **fields: Any) -> Any:
    return client.call("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest, **fields}, status=status)


def data(client: Client, topic: str, **fields: Any) -> list[Any]:
    return [record["data"] for record in client.diff(topic, **fields)["records"]]


# --- making, looking, removing -----------------------------------------------------------------------------


def test_a_router_is_made_with_its_topics_and_shown_whole(client: Client, topic: str) -> None:
    source, dest, name = topic + ".s", topic + ".d", f"{topic}.s->{topic}.d"
    whole = {
        "router": name,
        "source": source,
        "dest": dest,
        "preserve_node": True,
        "preserve_tag": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }
    made = put(client, name, source, dest)
    assert made.pop("performance")["server_total_ms"] >= 0
    assert made == {**whole, "created": True}
    assert client.get(source)["head_seq"] == client.get(dest)["head_seq"] == 0
    again = put(client, name, source, dest, status=200)
    assert again["created"] is False
    shown = client.call("GET", f"/v0/routers/{name}")
    assert shown.pop("performance")["server_total_ms"] >= 0
    assert shown == {**whole, "forwarded_total": 0, "lag": 0}


def test_everything_that_can_be_said_of_a_router_is_told_again(client: Client, topic: str) -> None:
    fields = {
        "preserve_node": False,
        "preserve_tag": False,
        "filter": ["tag", "Glob", "public:*"],
        "allow_cycle": True,
        "guarantee": "exactly_once",
    }
    put(client, topic, topic + ".s", topic + ".d", create_dest=True, **fields)
    shown = client.call("GET", f"/v0/routers/{topic}")
    assert {name: shown[name] for name in fields} == fields
    assert "create_dest" not in shown
    changed = put(client, topic, topic + ".s", topic + ".d", filter="exact", status=200)
    assert changed["filter"] == ["tag", "Eq", "exact"]
    assert changed["guarantee"] == "at_least_once"


def test_a_removed_router_is_gone_and_its_copies_stay(client: Client, topic: str) -> None:
    put(client, topic, topic + ".s", topic + ".d")
    client.write(topic + ".s", [1])
    assert data(client, topic + ".d") == [1]
    removed = client.call("DELETE", f"/v0/routers/{topic}")
    assert (removed["router"], removed["deleted"]) == (topic, True)
    assert client.call("DELETE", f"/v0/routers/{topic}")["deleted"] is False
    client.write(topic + ".s", [2])
    assert data(client, topic + ".d") == [1]
    error = client.refused("GET", f"/v0/routers/{topic}", status=404)
    assert (error["code"], error["detail"]) == ("router_not_found", {"router": topic})


def test_routers_are_listed_in_order_by_pages_and_ends(client: Client, topic: str) -> None:
    for number in (2, 0, 1):
        put(client, f"{topic}:{number}", topic + ".s", f"{topic}.d{number}")
    client.write(topic + ".s", [1])
    data(client, topic + ".d0")
    page = client.call("GET", "/v0/routers", params={"prefix": topic + ":", "page_size": 2})
    assert page["routers"] == [
        {
            "router": f"{topic}:{number}",
            "source": topic + ".s",
            "dest": f"{topic}.d{number}",
            "preserve_node": True,
            "preserve_tag": True,
            "filter": None,
            "allow_cycle": False,
            "guarantee": "at_least_once",
            "forwarded_total": 1,
        }
        for number in (0, 1)
    ]
    assert b64decode(page["next_cursor"]) == b'{"after":"%b:1"}' % topic.encode()
    rest = client.call("GET", "/v0/routers", params={"prefix": topic + ":", "cursor": page["next_cursor"]})
    assert [row["router"] for row in rest["routers"]] == [topic + ":2"]
    assert "next_cursor" not in rest
    by_source = client.call("GET", "/v0/routers", params={"source": topic + ".s"})
    assert len(by_source["routers"]) == 3
    by_dest = client.call("GET", "/v0/routers", params={"source": topic + ".s", "dest": topic + ".d1"})
    assert [row["router"] for row in by_dest["routers"]] == [topic + ":1"]
    assert client.refused("GET", "/v0/routers?cursor=no", status=400)["code"] == "invalid_request"


# --- forwarding --------------------------------------------------------------------------------------------


def test_whoever_wrote_to_the_source_reads_it_from_the_end_of_a_chain(client: Client, topic: str) -> None:
    put(client, topic + ":1", topic + ".a", topic + ".b")
    put(client, topic + ":2", topic + ".b", topic + ".c")
    for number in range(20):
        client.write(topic + ".a", [number])
        assert client.get(topic + ".c")["head_seq"] == number + 1
    assert data(client, topic + ".c") == list(range(20))
    assert client.call("GET", f"/v0/routers/{topic}:2")["forwarded_total"] == 20


def test_whoever_wrote_reads_it_from_a_chain_in_which_everything_waits_for_the_disk(client: Client, topic: str) -> None:
    for letter in "abc":
        client.put(f"{topic}.{letter}", durable=True)
    put(client, topic + ":1", topic + ".a", topic + ".b")
    put(client, topic + ":2", topic + ".b", topic + ".c")
    for number in range(1, 21):
        client.write(topic + ".a", [number])
        assert client.get(topic + ".c")["head_seq"] == number
        assert data(client, topic + ".b", from_seq=number - 1) == [number]


def test_copies_keep_what_they_are_to_keep(client: Client, topic: str) -> None:
    put(client, topic + ":kept", topic + ".s", topic + ".kept")
    put(client, topic + ":bare", topic + ".s", topic + ".bare", preserve_node=False, preserve_tag=False)
    client.write(topic + ".s", [{"data": {"x": 1}, "tag": "t", "node": "n", "meta": {"m": "1"}}])
    (kept,) = client.diff(topic + ".kept", include_tags=True)["records"]
    (bare,) = client.diff(topic + ".bare", include_tags=True)["records"]
    assert (kept["data"], kept["$tag"], kept["$node"], kept["meta"]) == ({"x": 1}, "t", "n", {"m": "1"})
    assert set(bare) == {"$seq", "$ts", "data", "meta"}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["tag", "Eq", "a:1"], [1]),
        (["tag", "Glob", "a:*"], [1, 2]),
        ("a:2", [2]),
        ("a:*", [1, 2]),
        (None, [1, 2, 3, 4]),
    ],
)
def test_filters_choose_by_tag(client: Client, topic: str, wanted: Any, expected: list[int]) -> None:
    put(client, topic, topic + ".s", topic + ".d", filter=wanted)
    client.write(
        topic + ".s", [{"data": 1, "tag": "a:1"}, {"data": 2, "tag": "a:2"}, {"data": 3, "tag": "b"}, {"data": 4}]
    )
    assert data(client, topic + ".d") == expected
    shown = client.call("GET", f"/v0/routers/{topic}")
    assert (shown["forwarded_total"], shown["lag"]) == (len(expected), 0)


def test_an_exactly_once_copy_names_its_original(client: Client, topic: str) -> None:
    put(client, topic, topic + ".s", topic + ".d", guarantee="exactly_once")
    client.write(topic + ".s", [{"data": 1}, {"data": 2, "meta": {"m": 1}}, {"data": 3, "meta": [1]}])
    metas = [record["meta"] for record in client.diff(topic + ".d")["records"]]
    stamps = [meta["_topics_router"] for meta in metas]
    assert [stamp["source_seq"] for stamp in stamps] == [1, 2, 3]
    assert {(stamp["router"], stamp["source_topic"]) for stamp in stamps} == {(topic, topic + ".s")}
    keys = [stamp["idempotency_key"] for stamp in stamps]
    assert keys[0] == f"router:{topic}:{stamps[0]['source_topic_id']}:{stamps[0]['source_epoch']}:1"
    assert len(set(keys)) == 3
    assert metas[1]["m"] == 1
    assert metas[2]["_topics_original_meta"] == [1]


def test_a_node_does_not_get_its_own_records_back(client: Client, topic: str) -> None:
    put(client, topic + ":1", topic + ".a", topic + ".b")
    put(client, topic + ":2", topic + ".b", topic + ".a", allow_cycle=True)
    client.write(topic + ".a", [1], node="A")
    client.write(topic + ".b", [2], node="B")
    eventually(lambda: client.call("GET", f"/v0/routers/{topic}:1")["lag"] == 0)
    eventually(lambda: client.call("GET", f"/v0/routers/{topic}:2")["lag"] == 0)
    assert set(data(client, topic + ".a", node="A")) == {2}
    assert set(data(client, topic + ".b", node="B")) == {1}
    assert client.get(topic + ".a")["head_seq"] + client.get(topic + ".b")["head_seq"] == 2 * 9


def test_a_full_destination_holds_the_router_back_until_there_is_room(client: Client, topic: str) -> None:
    client.put(topic + ".d", discard="reject", cap_records=2)
    put(client, topic, topic + ".s", topic + ".d")
    client.write(topic + ".s", [1, 2, 3])
    assert data(client, topic + ".d") == [1, 2]
    shown = client.call("GET", f"/v0/routers/{topic}")
    assert (shown["forwarded_total"], shown["lag"]) == (2, 1)
    client.delete(topic + ".d", before_seq=2)
    eventually(lambda: data(client, topic + ".d") == [2, 3])
    assert client.call("GET", f"/v0/routers/{topic}")["lag"] == 0


def test_jobs_can_come_by_a_router(client: Client, topic: str) -> None:
    client.put(topic + ".q", type="queue")
    put(client, topic, topic + ".s", topic + ".q")
    client.write(topic + ".s", ["job"])
    assert client.get(topic + ".q")["queue"]["ready"] == 1


def test_a_large_batch_arrives_whole(client: Client, topic: str) -> None:
    put(client, topic, topic + ".s", topic + ".d")
    client.write(topic + ".s", list(range(5000)))
    eventually(lambda: client.get(topic + ".d")["head_seq"] == 5000)
    assert data(client, topic + ".d", from_seq=4000, limit=1000) == list(range(4000, 5000))


# --- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"source": "a"},
        {"dest": "b"},
        {"source": "a", "dest": "a"},
        {"source": "_a", "dest": "b"},
        {"source": "a", "dest": "b c"},
        {"source": "a", "dest": "b", "filter": ["tag", "Like", "x"]},
        {"source": "a", "dest": "b", "filter": ["tag", "Glob", "x"]},
        {"source": "a", "dest": "b", "filter": 7},
        {"source": "a", "dest": "b", "guarantee": "twice"},
        {"source": "a", "dest": "b", "preserve_node": "yes"},
    ],
)
def test_a_router_that_makes_no_sense_is_refused(client: Client, topic: str, body: Any) -> None:
    renamed = {key: value + topic if key in ("source", "dest") else value for key, value in body.items()}
    assert client.refused("PUT", f"/v0/routers/{topic}", renamed, status=400)["code"] == "invalid_request"
    client.refused("GET", f"/v0/routers/{topic}", status=404)
    client.refused("GET", f"/v0/topics/a{topic}", status=404)


def test_a_bad_name_is_refused(client: Client, topic: str) -> None:
    body = {"source": topic + ".s", "dest": topic + ".d"}
    for name in (">" + topic, "a b", "a" * 256):
        assert client.refused("PUT", f"/v0/routers/{name}", body, status=400)["code"] == "invalid_request"


def test_a_missing_destination_is_not_made_when_it_must_not_be(client: Client, topic: str) -> None:
    body = {"source": topic + ".s", "dest": topic + ".d", "create_dest": False}
    error = client.refused("PUT", f"/v0/routers/{topic}", body, status=404)
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": topic + ".d"})
    client.refused("GET", f"/v0/topics/{topic}.s", status=404)
    client.put(topic + ".d")
    client.call("PUT", f"/v0/routers/{topic}", body, status=201)


def test_a_cycle_is_refused_with_the_way_around(client: Client, topic: str) -> None:
    a, b, c = (topic + end for end in (".a", ".b", ".c"))
    put(client, topic + ":1", a, b)
    put(client, topic + ":2", b, c)
    error = client.refused("PUT", f"/v0/routers/{topic}:3", {"source": c, "dest": a}, status=409)
    assert (error["code"], error["detail"]) == ("router_cycle", {"cycle": [c, a, b, c]})
    client.refused("GET", f"/v0/routers/{topic}:3", status=404)


def test_a_second_source_is_refused(client: Client, topic: str) -> None:
    put(client, topic, topic + ".s", topic + ".d")
    body = {"source": topic + ".other", "dest": topic + ".d"}
    error = client.refused("PUT", f"/v0/routers/{topic}:2", body, status=409)
    assert error["code"] == "topic_exists_incompatible"
    assert error["detail"] == {"topic": topic + ".d", "reason": "router_dest_fan_in"}
    client.refused("GET", f"/v0/topics/{topic}.other", status=404)


def test_a_router_cannot_be_pointed_elsewhere(client: Client, topic: str) -> None:
    put(client, topic, topic + ".s", topic + ".d")
    body = {"source": topic + ".s", "dest": topic + ".other"}
    error = client.refused("PUT", f"/v0/routers/{topic}", body, status=409)
    assert error["code"] == "topic_exists_incompatible"
    assert error["detail"] == {
        "router": topic,
        "reason": "router_repoint_forbidden",
        "existing_source": topic + ".s",
        "existing_dest": topic + ".d",
    }
    client.refused("GET", f"/v0/topics/{topic}.other", status=404)


def test_no_more_routers_than_allowed_and_no_topics_for_those_refused(start_server: StartServer) -> None:
    client = start_server(max_routers=1).client()
    put(client, "r1", "a", "b")
    response = client.request("PUT", "/v0/routers/r2", {"source": "c", "dest": "d"})
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert response.json()["error"]["code"] == "throttled"
    assert response.json()["error"]["detail"] == {"limit": "max_routers", "max": 1}
    client.refused("GET", "/v0/topics/c", status=404)
    put(client, "r1", "a", "b", preserve_tag=False, status=200)
    client.call("DELETE", "/v0/routers/r1")
    put(client, "r2", "c", "d")


def test_topics_for_a_router_count_as_topics(start_server: StartServer) -> None:
    client = start_server(max_topics=2).client()
    client.put("a")
    error = client.refused("PUT", "/v0/routers/r", {"source": "b", "dest": "c"}, status=429)
    assert error["detail"] == {"limit": "max_topics", "max": 2}
    client.refused("GET", "/v0/topics/b", status=404)
    put(client, "r", "a", "b")


def test_a_key_makes_routers_only_where_it_may(start_server: StartServer) -> None:
    server = start_server(keys="all,mine::mine:,reader:read")
    everything, mine, reader = server.client("all"), server.client("mine"), server.client("reader")
    put(mine, "mine:r", "mine:a", "mine:b")
    for source, dest in (("mine:a", "other"), ("other", "mine:c")):
        error = mine.refused("PUT", "/v0/routers/mine:2", {"source": source, "dest": dest}, status=403)
        assert (error["code"], error["detail"]) == ("forbidden", {"topic": "other"})
    everything.refused("GET", "/v0/topics/other", status=404)
    mine.refused("PUT", "/v0/routers/other", {"source": "mine:a", "dest": "mine:c"}, status=403)
    put(everything, "other", "x", "y")
    mine.refused("GET", "/v0/routers/other", status=403)
    assert [row["router"] for row in mine.call("GET", "/v0/routers")["routers"]] == ["mine:r"]
    assert [row["router"] for row in reader.call("GET", "/v0/routers")["routers"]] == ["mine:r", "other"]
    reader.refused("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}, status=403)
    reader.refused("DELETE", "/v0/routers/other", status=403)


def test_a_body_that_is_no_json_is_an_unsupported_media_type(client: Client, topic: str) -> None:
    assert client.request("PUT", f"/v0/routers/{topic}").status_code == 415
    assert client.refused("PUT", f"/v0/routers/{topic}", b"{", status=400)["code"] == "invalid_request"
    assert client.request("POST", f"/v0/routers/{topic}").status_code == 405


# --- with topics, and over restarts ------------------------------------------------------------------------


def test_with_a_topic_go_its_routers(client: Client, topic: str) -> None:
    put(client, topic + ":2", topic + ".a", topic + ".b")
    put(client, topic + ":1", topic + ".b", topic + ".c")
    assert client.drop(topic + ".b")["routers_removed"] == [topic + ":1", topic + ":2"]
    client.refused("GET", f"/v0/routers/{topic}:1", status=404)
    client.put(topic + ".b")
    client.write(topic + ".a", [1])
    client.write(topic + ".b", [2])
    assert (data(client, topic + ".b"), data(client, topic + ".c")) == ([2], [])


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_routers_go_on_after_a_restart_as_if_nothing_had_been(start_server: StartServer, how: str) -> None:
    server = start_server()
    client = server.client()
    client.put("a", durability="fsync")
    client.put("b", durability="fsync")
    put(client, "a->b", "a", "b", filter=["tag", "Glob", "x*"])
    put(client, "b->c", "b", "c", guarantee="exactly_once")
    put(client, "gone", "a", "d")
    client.call("DELETE", "/v0/routers/gone")
    for number in range(30):
        client.write("a", [{"data": number, "tag": "x" if number % 3 else "y"}])
    eventually(lambda: client.get("c")["head_seq"] == 20)
    before = [client.diff(topic)["records"] for topic in "abc"]
    listed = client.call("GET", "/v0/routers")["routers"]
    if how == "stop":
        server.stop()
    else:
        server.close_clients()
        server.kill()
    server.start()
    client = server.client()
    assert [client.diff(topic)["records"] for topic in "abc"] == before
    assert client.call("GET", "/v0/routers")["routers"] == listed
    client.write("a", [{"data": "more", "tag": "x"}])
    eventually(lambda: client.get("c")["head_seq"] == 21)
    assert client.diff("c", from_seq=20)["records"][0]["data"] == "more"
    assert data(client, "d") == []


def test_a_server_that_is_killed_while_it_forwards_has_every_copy_once(start_server: StartServer) -> None:
    server = start_server()
    client = server.client()
    put(client, "plain", "a", "b")
    put(client, "chained", "b", "c")
    put(client, "some", "a", "d", filter="x*")
    for number in range(60):
        client.write("a", [{"data": number, "tag": "xy"[number % 2]}] * 40)
    server.close_clients()
    server.kill()
    server.start()
    client = server.client()
    written = [number for number in range(60) for _ in range(40)]
    assert all_data(client, "a") == written
    eventually(lambda: client.get("c")["head_seq"] == len(written))
    eventually(lambda: client.call("GET", "/v0/routers/some")["lag"] == 0)
    assert all_data(client, "b") == all_data(client, "c") == written
    assert all_data(client, "d") == [number for number in written if number % 2 == 0]


def all_data(client: Client, topic: str) -> list[Any]:
    found: list[Any] = []
    page = client.diff(topic, limit=1000)
    while page["records"]:
        found += [record["data"] for record in page["records"]]
        page = client.diff(topic, page["next_from_seq"], limit=1000)
    return found

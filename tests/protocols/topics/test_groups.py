"""Consumer groups over HTTP: members report their shares, and get others."""

from __future__ import annotations

from typing import Any

from support.server_process import StartServer
from support.topics_client import Client, eventually

from strandline.key_share import share_of


def attend(client: Client, topic: str, node: str, *held: Any, group: str = "billing", **more: Any) -> Any:
    body = {
        "node": node,
        "held": [dict(zip(("share", "lease", "seq", "release"), each, strict=False)) for each in held],
    }
    answer = client.call("POST", f"/v0/topics/{topic}/groups/{group}", {**body, **more})
    del answer["performance"]
    return answer


def state(client: Client, topic: str, group: str = "billing") -> Any:
    return client.call("GET", f"/v0/topics/{topic}/groups/{group}")


def refused(client: Client, method: str, path: str, body: Any = None) -> Any:
    response = client.request(method, path, body)
    return response.status_code, response.json()["error"]["code"]


def test_the_first_member_creates_the_group_and_gets_all_shares(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    answer = attend(client, topic, "a", of=4)
    assert (answer["of"], answer["head_seq"], answer["lease_ms"]) == (4, 3, 10_000)
    assert [(each["share"], each["seq"]) for each in answer["shares"]] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert (answer["give_back"], answer["lost"]) == ([], [])
    consumers = client.call("GET", f"/v0/topics/{topic}/consumers")["consumers"]
    assert list(consumers) == [f"billing:{share}-of-4" for share in range(4)]
    assert [(each["node"], each["lag"]) for each in state(client, topic)["shares"]] == [("a", 3)] * 4


def test_a_group_has_16_shares_by_default_and_begins_where_asked(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    assert [each["seq"] for each in attend(client, topic, "a", at="end")["shares"]] == [3] * 16
    assert state(client, topic)["shares"][5]["consumer"] == "billing:05-of-16"


def test_shares_are_handed_over_when_their_owner_gives_them_back(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    shares = attend(client, topic, "a", of=2)["shares"]
    assert attend(client, topic, "b")["shares"] == []
    leases = [each["lease"] for each in shares]
    answer = attend(client, topic, "a", (0, leases[0], 1), (1, leases[1], 2))
    assert (len(answer["shares"]), answer["give_back"]) == (2, [1])
    answer = attend(client, topic, "a", (0, leases[0], 3), (1, leases[1], 3, True))
    assert [each["share"] for each in answer["shares"]] == [0]
    [given] = attend(client, topic, "b")["shares"]
    assert (given["share"], given["seq"]) == (1, 3)
    assert given["lease"] > leases[1]
    # The one that had it before can no longer commit it, nor can it give it back for the other.
    client.write(topic, [4])
    answer = attend(client, topic, "a", (0, leases[0], 4), (1, leases[1], 4, True))
    assert answer["lost"] == [1]
    assert [(each["node"], each["seq"]) for each in state(client, topic)["shares"]] == [("a", 4), ("b", 3)]


def test_a_late_repetition_does_not_move_a_share_back(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    lease = attend(client, topic, "a", of=1)["shares"][0]["lease"]
    attend(client, topic, "a", (0, lease, 3))
    assert attend(client, topic, "a", (0, lease, 1))["shares"][0]["seq"] == 3


def test_a_member_that_leaves_commits_and_frees_its_shares(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    lease = attend(client, topic, "a", of=1)["shares"][0]["lease"]
    assert attend(client, topic, "a", (0, lease, 2), leave=True)["shares"] == []
    assert state(client, topic)["members"] == []
    assert [each["seq"] for each in attend(client, topic, "b")["shares"]] == [2]
    # Repeating it is harmless.
    assert attend(client, topic, "a", (0, lease, 2), leave=True)["lost"] == [0]


def test_a_member_that_is_silent_loses_its_shares(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    lease = attend(client, topic, "a", of=1, lease_ms=100)["shares"][0]["lease"]
    eventually(lambda: attend(client, topic, "b")["shares"])
    assert attend(client, topic, "a", (0, lease, 3))["lost"] == [0]
    assert state(client, topic)["shares"][0]["seq"] == 0


def test_a_group_is_deleted_when_it_has_no_members(client: Client, topic: str) -> None:
    client.write(topic, [1])
    path = f"/v0/topics/{topic}/groups/billing"
    attend(client, topic, "a")
    assert refused(client, "DELETE", path) == (409, "group_has_members")
    attend(client, topic, "a", leave=True)
    assert client.call("DELETE", path)["deleted"] is True
    assert client.call("DELETE", path)["deleted"] is False
    assert client.call("GET", f"/v0/topics/{topic}/consumers")["consumers"] == {}
    assert refused(client, "GET", path) == (404, "group_not_found")
    assert refused(client, "POST", path, {"node": "a", "leave": True}) == (404, "group_not_found")


def test_a_topic_that_is_created_again_has_a_new_group(client: Client, topic: str) -> None:
    client.write(topic, [1, 2, 3])
    lease = attend(client, topic, "a", of=1)["shares"][0]["lease"]
    client.call("DELETE", f"/v0/topics/{topic}")
    client.write(topic, [1])
    answer = attend(client, topic, "a", (0, lease, 3))
    assert answer["lost"] == [0]
    assert [each["seq"] for each in answer["shares"]] == [0] * 16


def test_what_is_wrong_with_a_request_is_said(client: Client, topic: str) -> None:
    client.write(topic, [1])
    path = f"/v0/topics/{topic}/groups/billing"
    lease = attend(client, topic, "a", of=4)["shares"][0]["lease"]
    one = {"share": 0, "lease": lease, "seq": 1}
    for body in (
        {},
        {"node": ""},
        {"node": "a", "of": 8},
        {"node": "a", "of": 0},
        {"node": "a", "of": 257},
        {"node": "a", "nod": "b"},
        {"node": "a", "held": [one, one]},
        {"node": "a", "held": [{**one, "seq": 2}]},
    ):
        assert refused(client, "POST", path, body) == (400, "invalid_request"), body
    assert refused(client, "POST", f"/v0/topics/{topic}/groups/-x", {"node": "a"}) == (400, "invalid_request")
    assert refused(client, "POST", "/v0/topics/absent/groups/g", {"node": "a"}) == (404, "topic_not_found")
    assert state(client, topic)["shares"][0]["seq"] == 0


def test_the_number_of_members_is_limited(start_server: StartServer) -> None:
    client = start_server(max_group_members=2, max_consumers=3).client()
    client.write("log", [1])
    assert refused(client, "POST", "/v0/topics/log/groups/g", {"node": "a"}) == (429, "throttled")
    attend(client, "log", "a", of=3, group="g")
    attend(client, "log", "b", group="g")
    assert refused(client, "POST", "/v0/topics/log/groups/g", {"node": "c"}) == (429, "throttled")
    attend(client, "log", "b", group="g")


def test_members_keep_their_shares_over_a_restart(start_server: StartServer) -> None:
    server = start_server()
    client = server.client()
    client.put("log", durability="fsync")
    client.write("log", [1, 2, 3])
    leases = [each["lease"] for each in attend(client, "log", "a", of=2, lease_ms=60_000)["shares"]]
    attend(client, "log", "a", (0, leases[0], 2), (1, leases[1], 1), lease_ms=60_000)
    server.kill()
    client = server.start().client()
    # The members of before come first.
    assert attend(client, "log", "b", lease_ms=60_000)["shares"] == []
    answer = attend(client, "log", "a", (0, leases[0], 2), lease_ms=60_000)
    assert answer["shares"] == [{"share": 0, "lease": leases[0], "seq": 2}]
    assert [each["seq"] for each in state(client, "log")["shares"]] == [2, 1]
    # With a short lease, others do not have to wait long.
    attend(client, "log", "b", leave=True)
    assert [each["seq"] for each in eventually(lambda: attend(client, "log", "c", lease_ms=100)["shares"])] == [1]


def test_a_diff_of_shares_has_the_records_of_their_tags(client: Client, topic: str) -> None:
    records = [{"data": number, "tag": f"k{number % 7}"} if number % 3 else {"data": number} for number in range(1, 50)]
    client.call("POST", f"/v0/topics/{topic}", {"records": records}, status=201)
    expected = [
        seq
        for seq, record in enumerate(records, 1)
        if share_of(record.get("tag"), seq, 8) in (1, 6)  # type: ignore[arg-type]
    ]
    for more in ({}, {"limit": 3}, {"wait_ms": 1}):
        after, found = 0, []
        while True:
            page = client.diff(topic, after, shares={"of": 8, "only": [6, 1]}, **more)
            found += [record["$seq"] for record in page["records"]]
            after = page["next_from_seq"]
            if page["caught_up"]:
                break
        assert found == expected
    for shares in ({"of": 8, "only": [8]}, {"of": 8, "only": []}, {"of": 0, "only": [0]}, {"of": 8}):
        path = f"/v0/topics/{topic}/diff"
        assert refused(client, "POST", path, {"shares": shares}) == (400, "invalid_request")

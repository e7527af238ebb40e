"""POST /push: what is taken, what is refused, in which words and in which order."""

from __future__ import annotations

import json
import threading
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from support.collections_in_process import NOW, MakeStand, opened
from support.signed_calls import ALICE, BOB, READING, WRITING, device, member

from strandline.collections import Caller, Collection, FieldPermission, QueueEvents, RateLimit, Roles
from strandline.collections.config import AppendOnly, CollectionRateLimit
from strandline.engine import ManualClock, Options
from strandline.protocols.collections import push

#: Signed appends to documents below events/.
SIGNED = Collection(
    name="events",
    storage_path="events/{id}",
    read_roles=("cap:read:events", "cap:read:*"),
    write_roles=("cap:write:events", "cap:write:*"),
    append_only=AppendOnly(),
)


def test_an_element_is_taken_and_its_hash_is_that_of_the_log(stand: MakeStand) -> None:
    server = stand(opened())
    hashes = [server.push("events", {"msg": each}).json["hash"] for each in "abc"]
    # As the published servers have it: of the number of elements, and the last one.
    assert hashes[0] == "54f4b462312079b2d7e43d3bd990a7943e81f09e1967f1162276d2b6707210fe"
    assert hashes[2] == "11a49e6041821dc582689cffbe0b0d7fb87d166da42e4f59328e37aa1cd6bb86"
    assert server.pull("events").json["hash"] == hashes[2]
    assert server.push("events", {"msg": "a"}).json == {
        "hash": server.pull("events").json["hash"],
        "timestamp": NOW + 3,
    }


def test_times_are_given_by_the_server_and_always_rise(stand: MakeStand) -> None:
    server = stand(opened())
    assert server.pushed("events", {}, {}, {}) == [NOW, NOW + 1, NOW + 2]
    server.clock.advance(1000)
    assert server.pushed("events", {}) == [NOW + 1000]


def test_a_client_may_give_times_that_rise(stand: MakeStand) -> None:
    server = stand(opened())
    assert server.push("events", {"n": 1}, 0).json["timestamp"] == 0
    assert server.push("events", {"n": 2}, 0).error == (409, "non_monotonic_timestamp")
    assert server.push("events", {"n": 2}, 1000).status == 200
    refused = server.push("events", {"n": 3}, 1000)
    assert refused.error == (409, "non_monotonic_timestamp")
    assert refused.json == {"error": "non_monotonic_timestamp", "latest": 1000}
    assert server.push("events", {"n": 3}, NOW + 300_000).status == 200
    assert server.push("events", {"n": 4}, NOW + 300_001).error == (400, "ts is too far in the future")
    assert server.pushed("events", {"n": 4}) == [NOW + 300_001]
    assert [item["ts"] for item in server.pull("events").items] == [0, 1000, NOW + 300_000, NOW + 300_001]


@pytest.mark.parametrize("ts", [-1, 1.5, True, False, "7", [7], {}, 1e400])
def test_a_time_that_is_none_is_refused(stand: MakeStand, ts: Any) -> None:
    body = json.dumps({"data": {}, "ts": ts}).replace("Infinity", "1e400")
    answer = stand(opened()).ask("POST", "/push/events", body.encode())
    assert answer.error == (400, "ts must be a non-negative integer")


@pytest.mark.parametrize(("ts", "taken"), [("7.0", 7), ("7e2", 700), ("-0", 0), ("null", NOW)])
def test_a_time_is_whole_if_its_value_is(stand: MakeStand, ts: str, taken: int) -> None:
    answer = stand(opened()).ask("POST", "/push/events", b'{"data":{},"ts":%b}' % ts.encode())
    assert answer.json["timestamp"] == taken


NO_OBJECTS = [
    b"", b"[]", b"1", b"null", b'{"data":', b'{"data":{}}x', b'{"data":{"a":"\xff"}}', b'{"data":{"a":01}}',
    b'{"data":{"a":"\x01"}}', b'{"data":{},}', b"\xff",
]  # fmt: skip


@pytest.mark.parametrize("body", NO_OBJECTS)
def test_what_is_no_json_object_is_refused(stand: MakeStand, body: bytes) -> None:
    assert stand(opened()).ask("POST", "/push/events", body).error == (400, "Body must be a JSON object")


@pytest.mark.parametrize("data", [None, [], [{}], 1, "x", True])
def test_data_must_be_an_object(stand: MakeStand, data: Any) -> None:
    server = stand(opened())
    assert server.push("events", data).error == (400, "Missing or invalid data")
    assert server.ask("POST", "/push/events", {}).error == (400, "Missing or invalid data")


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_is_counted_from_the_body(stand: MakeStand, opening: bytes) -> None:
    server, closing = stand(opened()), b"]" if opening == b"[" else b"}"

    def nested(depth: int) -> bytes:
        # The body and the data are the first two.
        inner = opening * (depth - 2) + b"1" + closing * (depth - 2)
        return b'{"data":{"a":%b}}' % inner

    assert server.ask("POST", "/push/events", nested(64)).status == 200
    for depth in (65, 900, 9000):
        assert server.ask("POST", "/push/events", nested(depth)).error == (400, "Body nesting too deep"), depth
    assert server.push("events", {"a": "[" * 100, "b": '"{' * 100}).status == 200, "brackets in strings do not count"


def test_the_media_type_must_be_json(stand: MakeStand) -> None:
    server = stand(opened())
    for media_type in ("text/plain", ""):
        answer = server.ask("POST", "/push/events", {"data": {}}, content_type=media_type)
        assert answer.error == (415, "Content-Type must be application/json")
    for media_type in ("application/json; charset=utf-8", "Application/JSON"):
        assert server.ask("POST", "/push/events", {"data": {}}, content_type=media_type).status == 200


def test_a_body_may_be_as_large_as_the_collection_says(stand: MakeStand) -> None:
    server = stand(opened(max_body_bytes=40))
    fits = b'{"data":{"a":"%b"}}' % (b"x" * 23)
    assert len(fits) == 40
    assert server.ask("POST", "/push/events", fits).status == 200
    assert server.ask("POST", "/push/events", fits + b" ").error == (413, "Payload too large")
    assert server.ask("POST", "/push/events", b'{"data":{}}', content_length="41").error == (413, "Payload too large")
    assert server.ask("POST", "/push/events", b"{}", content_length="x").error == (400, "Invalid Content-Length")


def test_unknown_members_and_a_base_hash_are_ignored(stand: MakeStand) -> None:
    server = stand(opened())
    assert server.push("events", {"a": 1}, baseHash=7, more=[{"a": None}]).status == 200
    assert server.pull("events").items == [{"ts": NOW, "data": {"a": 1}}]


def test_bytes_in_are_bytes_out(stand: MakeStand) -> None:
    server = stand(opened())
    data = '{ "b":1.50, "a" : [ 1e2,"é\\u00e9" ] }'.encode()
    hash = server.ask("POST", "/push/events", b'{"ts":5, "data":%b}' % data).json["hash"]
    assert b'"items":[{"ts":5,"data":%b}]' % data in server.pull("events").body
    canonical = '{"last":{"a":[100,"éé"],"b":1.5},"n":1}'
    assert hash == sha256(canonical.encode()).hexdigest()


def test_members_that_are_dangerous_to_others_are_dropped(stand: MakeStand) -> None:
    server = stand(opened())
    data = {"__proto__": 1, "a": {"constructor": 1, "b": [{"prototype": 1}]}, "__dict__": {}, "c": {"__class__": 1}}
    clean = {"a": {"b": [{"prototype": 1}]}, "c": {}}
    assert server.push("events", data).json["hash"] == stand(opened()).push("events", clean).json["hash"]
    assert server.pull("events").items[0]["data"] == clean
    assert server.ask("POST", "/push/events", b'{"data":{"\\u005f_proto__":1,"d":2}}').status == 200
    assert server.pull("events", "last=1").items[0]["data"] == {"d": 2}


def test_a_path_must_be_that_of_a_document(stand: MakeStand) -> None:
    server = stand(opened(path="events/{date}"), opened("other", "x/{a}/y/{b}"))
    assert server.push("events/2024-01-15", {}).status == 200
    assert server.push("x/a/y/b@c:d", {}).status == 200
    for path in ("events", "nothing", "events/a/b", "events/", "", "events//", "x/a/z/b"):
        assert server.push(path, {}).status == 404, path
    for path in ("events/a%20b", "events/a%2Fb", "events/é", "events/%00", "events/a~b"):
        assert server.ask("POST", f"/push/{path}".encode().decode("latin-1"), {"data": {}}).error == (
            400,
            "Invalid path parameter",
        ), path
    for path in ("events/..", "events/a..b"):
        assert server.push(path, {}).error == (400, "Invalid path parameter")
    assert server.push("events/_secret", {}).status == 200, "only what begins with an underscore is the server's own"


def test_the_names_of_the_servers_own_logs_are_not_for_clients(stand: MakeStand) -> None:
    server = stand(opened(path="{name}"))
    assert server.push("__erasures__", {}).status in (400, 409)
    assert server.push("_mine", {}).error == (400, "Invalid path parameter")
    assert server.engine.find("_mine") is None


def test_a_log_of_another_protocol_is_no_document(stand: MakeStand) -> None:
    server = stand(opened(path="{name}"))
    server.engine.create("orders").wait()
    assert server.push("orders", {}).error == (409, "not_a_document")
    assert server.pull("orders").error == (409, "not_a_document")
    assert server.engine.log("orders").head == 0


# --- proofs of authors -----------------------------------------------------------------------------------------------


def test_an_element_keeps_the_proof_of_its_author(stand: MakeStand) -> None:
    server = stand(opened(require_author_signature=True))
    assert server.push("events", {"msg": "a"}, author=ALICE).status == 200
    item = server.pull("events").items[0]
    assert list(item) == ["ts", "data", "authorPubkey", "authorSignature"]
    assert item["authorPubkey"] == ALICE.public
    # As the published clients sign it.
    assert item["authorSignature"] == (
        "DznVv7t9UOBI3RauiwdqOcRw7VS+zohL3jSUQeQ5VmZR2ozQLrCB/7SJogKupX7ifqMr+oARNuWUxLTSosMSCw=="
    )


@pytest.mark.parametrize("missing", ["authorPubkey", "authorSignature"])
@pytest.mark.parametrize("instead", [None, 7, ""])
def test_a_proof_that_is_not_there_or_not_valid_is_refused(stand: MakeStand, missing: str, instead: Any) -> None:
    server = stand(opened(require_author_signature=True))
    answer = server.push("events", {"msg": "a"}, **{"authorPubkey": "x", "authorSignature": "y", missing: instead})
    if instead == "":
        assert answer.error == (403, "invalid append author signature")
    else:
        assert answer.error == (400, "append requires authorPubkey and authorSignature")


def test_a_proof_is_for_one_document_and_one_data(stand: MakeStand) -> None:
    server = stand(opened(path="events/{id}", require_author_signature=True))
    assert server.push("events/a", {"n": 1}, author=ALICE).status == 200
    proof = {name: value for name, value in server.pull("events/a").items[0].items() if name.startswith("author")}
    assert server.push("events/a", {"n": 1}, **proof).status == 200
    assert server.push("events/a", {"n": 2}, **proof).error == (403, "invalid append author signature")
    assert server.push("events/b", {"n": 1}, **proof).error == (403, "invalid append author signature")


def test_what_is_dropped_is_not_covered_by_a_proof(stand: MakeStand) -> None:
    server = stand(opened(require_author_signature=True))
    assert server.push("events", {"a": 1, "__proto__": 2}, author=ALICE).status == 403
    proof = stand(opened()).push  # signs what is sent; the signer left the member out
    assert proof("events", {"a": 1}, author=ALICE).status == 200


def test_without_the_need_for_proofs_they_are_kept_as_they_come(stand: MakeStand) -> None:
    server = stand(opened())
    server.push("events", {"n": 1}, authorPubkey="junk", authorSignature='more "junk"')
    server.push("events", {"n": 2}, authorPubkey="junk")
    server.push("events", {"n": 3}, authorPubkey=1, authorSignature="x")
    first, second, third = server.pull("events").items
    assert first == {"ts": NOW, "data": {"n": 1}, "authorPubkey": "junk", "authorSignature": 'more "junk"'}
    assert set(second) == set(third) == {"ts", "data"}


# --- who ---------------------------------------------------------------------------------------------------------


def test_a_signed_request_of_somebody_who_may(stand: MakeStand) -> None:
    server = stand(SIGNED)
    cap = (device(), ALICE)
    assert server.push("events/a", {"n": 1}, author=ALICE, cap=cap).status == 200
    assert server.pull("events/a", cap=cap).items[0]["authorPubkey"] == ALICE.public
    members = (member(ALICE, BOB, **WRITING), BOB)
    assert server.push("events/a", {"n": 2}, author=BOB, cap=members).status == 200
    assert server.pull("events/a", cap=members).error == (403, "Forbidden")


def test_the_author_must_be_who_signed_the_request(stand: MakeStand) -> None:
    server = stand(SIGNED)
    answer = server.push("events/a", {"n": 1}, author=BOB, cap=(device(), ALICE))
    assert answer.error == (403, "append author must be the request presenter")


def test_strangers_and_those_who_may_not_are_turned_away(stand: MakeStand) -> None:
    server = stand(SIGNED)
    assert server.push("events/a", {}, author=ALICE).error == (403, "Forbidden")
    answer = server.push("events/a", {}, author=BOB, cap=(device(), BOB))
    assert answer.error == (401, "Unauthorized")
    readers = (device(ALICE, ALICE, **READING), ALICE)
    assert server.push("events/a", {}, author=ALICE, cap=readers).error == (403, "Forbidden")
    assert server.engine.find("events/a") is None


# --- rules of the collection -------------------------------------------------------------------------------------


def test_fields_that_only_others_may_send_are_refused(stand: MakeStand) -> None:
    permissions = {
        "admin": FieldPermission(write_roles=("device:root",)),
        "all": FieldPermission(write_roles=("public",)),
    }
    server = stand(opened(field_permissions=permissions))
    assert server.push("events", {"all": 1, "other": 2}).status == 200
    assert server.push("events", {"admin": 1}).error == (403, "Field 'admin' is not writable with your roles")


def test_the_schema_is_held_against_data_as_it_came(stand: MakeStand) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}, "__proto__": False}}
    server = stand(opened(object_schema=schema))
    assert server.push("events", {"n": 1}).status == 200
    refused = server.push("events", {"n": "x"})
    assert refused.json == {
        "error": 'Schema validation failed: "x" is not of type "integer"', "path": ["n"], "validator": "type"
    }  # fmt: skip
    assert refused.status == 400
    assert server.push("events", {"n": 1, "__proto__": 1}).status == 400
    assert server.push("events", []).error == (400, "Missing or invalid data")
    assert server.ask("POST", "/push/events", b'{"data":{"n":1,"s":"\\ud800"}}').status == 200


def test_a_document_takes_as_many_elements_as_it_may_have(stand: MakeStand) -> None:
    server = stand(opened(path="events/{id}", max_items=2))
    server.pushed("events/a", {"n": 1}, {"n": 2})
    refused = server.push("events/a", {"n": 3}, 0)
    assert (refused.status, refused.json) == (409, {"error": "append_limit_exceeded", "limit": 2})
    assert server.push("events/b", {}).status == 200
    assert len(server.pull("events/a").items) == 2


def test_one_push_too_many_is_told_when_to_come_again(stand: MakeStand) -> None:
    limits = CollectionRateLimit(window_ms=60_000, max_requests=2)
    server = stand(opened(rate_limit=limits), rate_limit=RateLimit(window_ms=1000, max_requests=100))
    server.pushed("events", {}, {})
    refused = server.push("events", {})
    assert (refused.error, refused.headers["retry-after"]) == ((429, "Rate limit exceeded"), "60")
    assert server.pull("events", "last=1").status == 200
    server.clock.advance(60_000)
    assert server.push("events", {}).status == 200


def test_the_first_thing_that_is_wrong_is_what_is_told(stand: MakeStand) -> None:
    """The order of the protocol, from the path to the last element."""
    limits = CollectionRateLimit(window_ms=60_000, max_requests=1000)
    server = stand(
        opened(
            path="events/{id}",
            max_body_bytes=1000,
            rate_limit=limits,
            max_items=1,
            require_author_signature=True,
            object_schema={"properties": {"n": {"type": "integer"}}},
            field_permissions={"adm": FieldPermission(write_roles=("admin",))},
        )
    )
    server.pushed("events/a", {}, author=ALICE)
    large, text = b'{"data":1,"x":"%b"}' % (b"x" * 1000), {"content_type": "text/plain"}
    deep = b'{"data":{"adm":1,"a":' + b"[" * 70 + b"]" * 70 + b"}}"
    wrong: list[tuple[str, bytes, dict[str, str], str]] = [
        ("a%20b", large, text, "Invalid path parameter"),
        ("a", large, text, "Payload too large"),
        ("a", b"[", text, "Content-Type must be application/json"),
        ("a", b"[", {}, "Body must be a JSON object"),
        ("a", deep, {}, "Body nesting too deep"),
        ("a", b'{"data":{"adm":1,"n":"x"},"ts":-1}', {}, "Field 'adm' is not writable with your roles"),
        ("a", b'{"data":{"n":"x"},"ts":-1}', {}, 'Schema validation failed: "x" is not of type "integer"'),
        ("a", b'{"data":[],"ts":-1}', {}, "Missing or invalid data"),
        ("a", b'{"data":{},"ts":-1}', {}, "append requires authorPubkey and authorSignature"),
        ("a", b'{"data":{},"ts":-1,"authorPubkey":"a","authorSignature":"b"}', {}, "invalid append author signature"),
    ]
    for id, body, headers, error in wrong:
        assert server.ask("POST", f"/push/events/{id}", body, **headers).json["error"] == error
    assert server.push("events/a", {}, -1, author=ALICE).json["error"] == "ts must be a non-negative integer"
    assert server.push("events/a", {}, NOW * 2, author=ALICE).json["error"] == "ts is too far in the future"
    assert server.push("events/a", {}, 0, author=ALICE).json["error"] == "append_limit_exceeded"


def test_what_is_not_kept_is_not_kept(stand: MakeStand) -> None:
    server = stand(opened(persist=False, ttl_ms=5))
    answer = server.push("events", {"b": 1, "a": {"__proto__": 1}}, 7)
    assert answer.json == {"hash": sha256(b'{"a":{},"b":1}').hexdigest(), "timestamp": 7}
    assert server.push("events", {}, 7).json["timestamp"] == 7, "there is nothing that times could rise from"
    assert server.push("events", {}).json["timestamp"] == NOW
    assert server.engine.find("events") is None
    for query in ("", "full=true", "last=x"):
        assert server.pull("events", query).json == {"data": {}, "hash": "", "timestamp": NOW}


def test_a_push_only_collection_cannot_be_pulled(stand: MakeStand) -> None:
    server = stand(opened(push_only=True))
    assert server.push("events", {}).status == 200
    assert server.pull("events").status == 404


def test_elements_are_as_durable_as_the_collection_says_by_now(stand: MakeStand, tmp_path: Any) -> None:
    server = stand(opened(durability="disk"), path=tmp_path / "same")
    server.pushed("events", {"n": 1})
    assert server.engine.log("events").config.durability == "disk"
    server.engine.close()
    server = stand(opened(), path=tmp_path / "same", clock=ManualClock(NOW + 10))
    server.pushed("events", {"n": 2})
    assert server.engine.log("events").config.durability == "fsync"
    assert [item["data"]["n"] for item in server.pull("events").items] == [1, 2]


def test_a_name_that_no_log_can_have_is_refused(stand: MakeStand) -> None:
    server = stand(opened(path="events/{id}"))
    assert server.push("events/" + "x" * 600, {}).error == (400, "Invalid path parameter")
    assert server.pull("events/" + "x" * 600).items == []


def test_roles_of_an_application_are_asked_for_before_anything_is_kept(stand: MakeStand) -> None:
    async def enrich(caller: Caller, params: Any) -> list[str]:
        return ["guest"] if params["id"] == "a" else []

    collection = opened(path="events/{id}", write_roles=("guest",), listable=True)
    server = stand(collection, roles=Roles(enricher=enrich))
    assert server.push("events/a", {}).status == 200
    assert server.push("events/b", {}).error == (403, "Forbidden")
    assert server.get("/list/events").json["items"] == ["a"]


def test_a_server_that_is_too_busy_says_when_to_come_again(stand: MakeStand) -> None:
    server = stand(opened())
    for _ in range(100):
        server.topics.kernel.pressure.note(10_000)
    answer = server.push("events", {})
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert server.engine.find("events") is None
    assert server.pull("events").status == 200


def test_there_may_be_no_more_logs_and_no_more_bytes(stand: MakeStand) -> None:
    server = stand(opened(path="events/{id}"), options=Options(max_logs=1, max_total_bytes=100))
    assert server.push("events/a", {"a": "x" * 50}).status == 200
    assert server.push("events/b", {}).status == 429
    assert server.push("events/a", {"a": "x" * 50}).status == 429
    assert server.push("events/a", {}).status == 200


def test_a_member_of_a_bundle_may_only_announce_its_elements(stand: MakeStand) -> None:
    """They are signed under its own path, and nothing of them is stored."""
    told = opened(
        "told",
        "users/{id}",
        persist=False,
        require_author_signature=True,
        bundle="all",
        queue=QueueEvents(topic="news", include_body=True),
    )
    settings = Collection(
        name="settings", storage_path="users/{id}", bundle="all", read_roles=("public",), write_roles=("public",)
    )
    server = stand(told, settings)
    assert server.push("users/7/told", {"n": 1}, author=ALICE).status == 200
    assert server.push("users/7", {"n": 2}, author=ALICE).status == 404
    assert server.push("users/7/settings", {"dark": True}).status == 200
    assert [event["body"] for event in server.records("news")] == [{"n": 1}]
    shown = server.pull("users/7", "").json["collections"]
    assert (shown["told"], shown["settings"]["data"]) == ({"data": {}, "hash": ""}, {"dark": True})


@pytest.mark.parametrize("rules", [AppendOnly(require_author_signature=False), None])
def test_a_large_push_is_read_on_another_thread(
    stand: MakeStand, monkeypatch: pytest.MonkeyPatch, rules: AppendOnly | None
) -> None:
    """Other requests do not wait until it is parsed and hashed."""
    threads = []

    def noted(body: bytes) -> push.PushBody:
        threads.append(threading.current_thread())
        return read_body(body)

    read_body = push.read_body
    monkeypatch.setattr(push, "read_body", noted)
    server = stand(msgspec.structs.replace(opened(), append_only=rules))
    first = server.push("events", {"n": 1})
    large = {"text": "x" * push.PREPARED_AT_ONCE}
    assert server.push("events", large, baseHash=first.json["hash"]).status == 200
    assert server.records("events") == [{"n": 1}, large]
    assert server.ask("POST", "/push/events", b'{"data":' + b"[" * push.PREPARED_AT_ONCE).status == 400
    here = threading.current_thread()
    assert [thread is here for thread in threads] == [True, False, False]

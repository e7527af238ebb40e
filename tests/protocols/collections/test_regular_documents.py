"""Regular documents: replaced as a whole if they are still the version that the client has seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.collections_in_process import Answered, MakeStand, Stand, opened
from support.signed_calls import ALICE, BOB, NOW, READING, device, headers_of
from support.strict_answers import decode_strictly

from strandline.collections import Caller, Collection, FieldPermission, RateLimit, Roles
from strandline.collections.config import CollectionRateLimit, QueueEvents, RateRule
from strandline.collections.regular_documents import prepare_push
from strandline.engine import ManualClock
from strandline.protocols.collections.wire import BatchAnswer, BundleAnswer, CollectionErrorAnswer, DocumentAnswer
from strandline.signing.author_proofs import DOCUMENT_DOMAIN, sign
from strandline.signing.canonical_json import digest


def regular(name: str = "members", path: str = "members/{id}", **options: Any) -> Collection:
    """A collection of regular documents that everybody may read and write."""
    roles = {"read_roles": ("public",), "write_roles": ("public",)}
    return Collection(**{**roles, **options, "name": name, "storage_path": path})


def replace(server: Stand, path: str, data: Any, base: Any = None, **more: Any) -> Answered:
    cap = more.pop("cap", None)
    return server.ask("POST", f"/push/{path}", {"data": data, "baseHash": base, **more}, cap=cap)


def versions(server: Stand, key: str) -> list[Any]:
    return [json.loads(record.data) for record in server.engine.log(key).read()]


# --- versions and conflicts ----------------------------------------------------------------------------------------


def test_a_document_that_does_not_exist_is_empty(stand: MakeStand) -> None:
    server = stand(regular())
    answer = server.pull("members/a", "")
    assert (answer.status, answer.json) == (200, {"data": {}, "hash": "", "timestamp": NOW})
    assert "etag" not in answer.headers
    assert server.engine.find("members/a") is None


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_document_is_created_and_replaced(stand: MakeStand, nothing: Any) -> None:
    server = stand(regular())
    first = replace(server, "members/a", {"n": 1}, nothing)
    assert (first.status, first.json) == (200, {"hash": digest({"n": 1}), "timestamp": NOW})
    server.clock.advance(5)
    second = replace(server, "members/a", {"n": 2}, first.json["hash"])
    assert second.json == {"hash": digest({"n": 2}), "timestamp": NOW + 5}
    server.clock.advance(5)
    for query in ("", "checkpoint=5", "checkpoint=x", "last=1", "full=true"):
        answer = server.pull("members/a", query)
        assert answer.json == {"data": {"n": 2}, "hash": second.json["hash"], "timestamp": NOW + 10}
        assert answer.headers["etag"] == f'"{second.json["hash"]}"'
        decode_strictly(answer.body, DocumentAnswer)
    assert versions(server, "members/a") == [{"n": 1}, {"n": 2}]


def test_the_base_hash_may_be_absent_for_a_new_document(stand: MakeStand) -> None:
    server = stand(regular())
    assert server.ask("POST", "/push/members/a", {"data": {}}).json["hash"] == digest({})


def test_a_push_that_is_based_on_another_version_is_refused(stand: MakeStand) -> None:
    server = stand(regular())
    hash = replace(server, "members/a", {"n": 1}).json["hash"]
    for base in (None, "", "0" * 64, hash.upper(), f'"{hash}"'):
        answer = replace(server, "members/a", {"n": 2}, base)
        assert (answer.status, answer.json) == (409, {"error": "hash_mismatch", "currentHash": hash})
        decode_strictly(answer.body, CollectionErrorAnswer)
    assert replace(server, "members/b", {"n": 2}, hash).json == {"error": "hash_mismatch", "currentHash": ""}
    assert server.engine.find("members/b") is None
    assert versions(server, "members/a") == [{"n": 1}]


@pytest.mark.parametrize("base", [1, True, ["x"], {}])
def test_the_base_hash_is_a_string_or_null(stand: MakeStand, base: Any) -> None:
    assert replace(stand(regular()), "members/a", {}, base).error == (400, "baseHash must be a string or null")


@pytest.mark.parametrize("data", [None, [1], "x", 1])
def test_a_document_is_an_object(stand: MakeStand, data: Any) -> None:
    assert replace(stand(regular()), "members/a", data).error == (400, "Missing or invalid data")


def test_dropped_members_are_not_part_of_the_hash(stand: MakeStand) -> None:
    server = stand(regular())
    answer = replace(server, "members/a", {"n": 1, "__proto__": 2, "in": {"constructor": 3}})
    assert answer.json["hash"] == digest({"n": 1, "in": {}})
    assert server.pull("members/a", "").json["data"] == {"n": 1, "in": {}}


def test_the_same_data_again_is_a_version(stand: MakeStand) -> None:
    server = stand(regular())
    hash = replace(server, "members/a", {"n": 1}).json["hash"]
    assert replace(server, "members/a", {"n": 1}, hash).json["hash"] == hash
    assert len(versions(server, "members/a")) == 2


def test_so_many_versions_are_kept(stand: MakeStand, tmp_path: Path) -> None:
    place, clock = tmp_path / "kept", ManualClock(NOW)
    with Stand(place, regular(max_versions=2), clock=clock) as server:
        hash = None
        for n in range(5):
            hash = replace(server, "members/a", {"n": n}, hash).json["hash"]
        assert versions(server, "members/a") == [{"n": 3}, {"n": 4}]
    server = stand(regular(max_versions=3), path=place, clock=clock)
    for n in range(5, 8):
        hash = replace(server, "members/a", {"n": n}, hash).json["hash"]
    assert versions(server, "members/a") == [{"n": 5}, {"n": 6}, {"n": 7}]


def test_the_current_version_may_be_on_the_disk_only(stand: MakeStand, tmp_path: Path) -> None:
    place, clock = tmp_path / "sealed", ManualClock(NOW)
    with Stand(place, regular(), clock=clock) as server:
        hash = replace(server, "members/a", {"n": 1}).json["hash"]
        server.engine.seal()
    server = stand(regular(), path=place, clock=clock)
    assert replace(server, "members/a", {"n": 2}).json == {"error": "hash_mismatch", "currentHash": hash}
    assert replace(server, "members/a", {"n": 2}, hash).json["hash"] == digest({"n": 2})
    server = stand(regular(), path=tmp_path / "other", clock=clock)
    replace(server, "members/a", {"n": 1})
    server.engine.seal()
    assert server.pull("members/a", "").json["data"] == {"n": 1}


def test_a_large_document_is_hashed_on_another_thread(stand: MakeStand, tmp_path: Path) -> None:
    place, clock = tmp_path / "large", ManualClock(NOW)
    collection = regular()
    data = {"text": "x" * 10_000}
    with Stand(place, collection, clock=clock) as server:
        hash = replace(server, "members/a", data).json["hash"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.collections.regular_documents.AT_ONCE_BYTES", 1 << 10)
        server = stand(collection, path=place, clock=clock)
        document = server.context.regular_documents.find("members/a")
        assert document is not None
        assert document.version() is None
        assert replace(server, "members/a", {}).json["currentHash"] == hash
        assert server.pull("members/a", "").json["hash"] == hash
        assert document.version() is not None, "its hash is known"


def test_a_head_has_the_etag(stand: MakeStand) -> None:
    server = stand(regular())
    hash = replace(server, "members/a", {"n": 1}).json["hash"]
    answer = server.ask("HEAD", "/pull/members/a")
    assert (answer.status, answer.headers["etag"]) == (200, f'"{hash}"')


def test_a_conflict_is_answered_when_the_other_version_is_durable(stand: MakeStand) -> None:
    """Otherwise a client that pulls at once would see the version before it, and conflict again."""
    server = stand(regular())
    documents = server.context.regular_documents
    path = server.context.collections.namespaces[""].resolve("members/a", "write")
    first = documents.push(prepare_push(path, {"n": 1}, b'{"n": 1}', (None, None), None, None), NOW)
    second = documents.push(prepare_push(path, {"n": 2}, b'{"n": 2}', (None, None), None, None), NOW)
    assert first is not None
    assert second is not None
    assert not first.commit.done
    assert not second.commit.done
    assert server.pull("members/a", "").json["hash"] == ""
    with pytest.raises(Exception, match="not based on the current version"):
        second.wait()
    assert server.pull("members/a", "").json["data"] == {"n": 1}


# --- what else a collection declares -------------------------------------------------------------------------------


def test_an_etag_saves_the_body(stand: MakeStand) -> None:
    server = stand(regular(cache_duration_ms=5000))
    hash = replace(server, "members/a", {"n": 1}).json["hash"]
    assert server.pull("members/a", "").headers["cache-control"] == "max-age=5"
    answer = server.pull("members/a", "", if_none_match=f'"{hash}"')
    assert (answer.status, answer.body) == (304, b"")
    assert server.pull("members/a", "", if_none_match='"x"').status == 200


def test_schema_fields_size_and_media_type(stand: MakeStand) -> None:
    fields = {"secret": FieldPermission(read_roles=("admin",), write_roles=("admin",))}
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    server = stand(regular(object_schema=schema, field_permissions=fields, max_body_bytes=200))
    wrong = replace(server, "members/a", {"n": "x"})
    assert (wrong.status, wrong.json["path"], wrong.json["validator"]) == (400, ["n"], "type")
    denied = (403, "Field 'secret' is not writable with your roles")
    assert replace(server, "members/a", {"secret": 1}).error == denied
    assert replace(server, "members/a", {"s": "x" * 200}).error == (413, "Payload too large")
    plain = server.ask("POST", "/push/members/a", b"{}", content_type="text/plain")
    assert plain.error == (415, "Content-Type must be application/json")
    everything = server.context.collections.push("members/a", {"n": 1, "secret": 2}).wait()
    assert server.pull("members/a", "").json["data"] == {"n": 1}
    assert server.pull("members/a", "").json["hash"] == everything.hash == digest({"n": 1, "secret": 2})


def test_a_document_expires_and_can_be_created_again(stand: MakeStand) -> None:
    server = stand(regular(ttl_ms=1000))
    hash = replace(server, "members/a", {"n": 1}).json["hash"]
    server.clock.advance(1000)
    assert server.pull("members/a", "").json["hash"] == hash
    server.clock.advance(1)
    answer = server.pull("members/a", "")
    assert answer.json == {"data": {}, "hash": "", "timestamp": NOW + 1001}
    assert "etag" not in answer.headers
    assert replace(server, "members/a", {"n": 2}).status == 200, "readers see no version"
    server.clock.advance(2000)
    assert replace(server, "members/a", {"n": 3}, digest({"n": 2})).status == 200, "a client may still know it"


def test_rate_limits_and_one_way_collections(stand: MakeStand) -> None:
    limits = CollectionRateLimit(push=RateRule(), pull=RateRule())
    limited = regular("limited", "limited/{id}", rate_limit=limits)
    inward, outward = regular("in", "way/{id}", push_only=True), regular("out", "way/{id}", pull_only=True)
    server = stand(limited, inward, outward, rate_limit=RateLimit(window_ms=1000, max_requests=1))
    assert replace(server, "limited/a", {}).status == 200
    assert replace(server, "limited/a", {}).error == (429, "Rate limit exceeded")
    assert server.pull("limited/a", "").status == 200
    assert server.pull("limited/a", "").error == (429, "Rate limit exceeded")
    replace(server, "way/a", {"n": 1})
    assert server.pull("way/a", "").json["data"] == {"n": 1}


def test_every_version_has_its_event(stand: MakeStand) -> None:
    server = stand(regular(queue=QueueEvents(topic="news", include_params=True, include_body=True)))
    hash = replace(server, "members/a", {"n": 1, "__proto__": 2}).json["hash"]
    replace(server, "members/a", {"n": 2})
    body = {"n": 1, "__proto__": 2}
    event = {"collection": "members", "hash": hash, "timestamp": NOW, "params": {"id": "a"}, "body": body}
    assert server.records("news") == [event], "a refused push has none"


def test_documents_are_listed_by_the_collection_that_they_belong_to(stand: MakeStand) -> None:
    server = stand(regular("keyring", "rooms/_keyring"), opened("rooms", "rooms/{id}", listable=True))
    replace(server, "rooms/_keyring", {"v": 1})
    server.pushed("rooms/a", {"n": 1})
    assert server.get("/list/rooms").json == {"items": ["a"], "hasMore": False}
    listed = stand(regular(listable=True))
    for id in "abc":
        replace(listed, f"members/{id}", {})
    assert listed.get("/list/members?limit=2").json == {"items": ["a", "b"], "hasMore": True}


def test_a_batch_has_regular_documents(stand: MakeStand) -> None:
    server = stand(regular(), regular("keyring", "secret/_keyring"), regular("old", "old", ttl_ms=10))
    hash = replace(server, "members/a", {"n": 1}).json["hash"]
    replace(server, "secret/_keyring", {"v": 1})
    old = replace(server, "old", {"n": 1}).json["hash"]
    server.clock.advance(11)
    params = '{"members":[{"id":"a"},{"id":"b"}]}'
    answer = server.get(f"/batch/pull?collections=members,keyring,old&params={params}")
    decode_strictly(answer.body, BatchAnswer)
    now = NOW + 11
    assert answer.json["collections"] == {
        "members": [
            {"data": {"n": 1}, "hash": hash, "timestamp": now},
            {"data": {}, "hash": "", "timestamp": now},
        ],
        "keyring": [{"error": "Forbidden"}],
        "old": [{"data": {}, "hash": old, "timestamp": now}],
    }


def test_a_document_stays_what_it_is(stand: MakeStand, tmp_path: Path) -> None:
    place, clock = tmp_path / "changed", ManualClock(NOW)
    with Stand(place, regular("a", "a"), opened("b", "b"), clock=clock) as server:
        replace(server, "a", {"n": 1})
        server.push("b", {"n": 1})
    server = stand(opened("a", "a"), regular("b", "b"), path=place, clock=clock)
    for answer in (server.push("a", {}), server.pull("a"), replace(server, "b", {}), server.pull("b", "")):
        assert answer.error == (409, "not_a_document")
    message = "the document 'a' was created by a collection of regular documents; it cannot become append-only"
    assert server.pull("a").json["message"] == message


def test_other_protocols_read_versions_and_do_not_write_them(stand: MakeStand) -> None:
    server = stand(regular("keyring", "keyring"))
    replace(server, "keyring", {"n": 1})
    replace(server, "keyring", {"n": 2}, digest({"n": 1}))
    shown = server.ask("POST", "/v0/topics/keyring/diff", {}).json
    assert [record["data"] for record in shown["records"]] == [{"n": 1}, {"n": 2}]
    refused = server.ask("POST", "/v0/topics/keyring", {"records": [{"data": {"n": 3}}]})
    assert refused.status == 409
    assert "document of a collection" in refused.json["error"]["message"]


# --- who ------------------------------------------------------------------------------------------------------------


def test_a_document_may_have_the_proof_of_its_author(stand: MakeStand) -> None:
    server = stand(regular("signed", "signed/{id}", read_roles=("public",), write_roles=("cap:write:*",)))
    alice = (device(), ALICE)

    def proven(data: Any, signer: Any = ALICE, key: str = "signed/a", domain: bytes = DOCUMENT_DOMAIN) -> Any:
        proof = sign(signer, key, data, domain)
        return {"authorPubkey": proof.public_key, "authorSignature": proof.signature}

    data = {"n": 1}
    wrong = [
        ({"authorPubkey": ALICE.public}, (400, "author proof requires authorPubkey and authorSignature")),
        ({"authorSignature": 5}, (400, "author proof requires authorPubkey and authorSignature")),
        (proven(data, BOB), (403, "document author must be the request presenter")),
        (proven({"n": 2}), (403, "invalid document author signature")),
        (proven(data, key="signed/b"), (403, "invalid document author signature")),
        (proven(data, domain=b"starfish-append-author-v1\n"), (403, "invalid document author signature")),
    ]
    for more, error in wrong:
        assert replace(server, "signed/a", data, cap=alice, **more).error == error
    assert replace(server, "signed/a", data).error == (403, "Forbidden")
    assert replace(server, "signed/a", data, cap=alice, **proven(data)).status == 200
    shown = server.pull("signed/a", "").json
    assert {name: shown[name] for name in proven(data)} == proven(data)
    absent = {"authorPubkey": None, "authorSignature": None}
    assert replace(server, "signed/a", {"n": 2}, shown["hash"], cap=alice, **absent).status == 200
    assert "authorPubkey" not in server.pull("signed/a", "").json


def test_a_signed_request_that_took_effect_gets_its_first_answer_again(stand: MakeStand, tmp_path: Path) -> None:
    """Also after a restart: the server has forgotten its nonces, and the log remembers the request."""
    place, clock = tmp_path / "again", ManualClock(NOW)
    collection = regular("own", "own", write_roles=("cap:write:*",))
    body = json.dumps({"data": {"n": 1}, "baseHash": None}).encode()
    headers = {
        name.replace("-", "_"): value for name, value in headers_of(device(), ALICE, "POST", "/push/own", body).items()
    }
    with Stand(place, collection, clock=clock) as server:
        first = server.ask("POST", "/push/own", body, **headers)
        assert first.status == 200
        assert server.ask("POST", "/push/own", body, **headers).json == first.json
        replace(server, "own", {"n": 2}, first.json["hash"], cap=(device(), ALICE))
        assert server.ask("POST", "/push/own", body, **headers).json == first.json
    clock.advance(1000)
    server = stand(collection, path=place, clock=clock)
    assert server.ask("POST", "/push/own", body, **headers).json == first.json
    assert versions(server, "own") == [{"n": 1}, {"n": 2}]


# --- keyrings -------------------------------------------------------------------------------------------------------

KEYRING = {"v": 1, "currentEpoch": 1, "epochs": {}}


def test_a_pull_brings_the_keyring(stand: MakeStand) -> None:
    server = stand(regular("notes", "notes/{id}"), regular("keyring", "notes/{id}/_keyring"))
    assert server.pull("notes/a", "withKeyring=1").json["keyring"] is None
    hash = replace(server, "notes/a/_keyring", KEYRING).json["hash"]
    replace(server, "notes/a", {"n": 1})
    for value in ("1", "true", "True"):
        answer = server.pull("notes/a", f"withKeyring={value}")
        decode_strictly(answer.body, DocumentAnswer)
        assert answer.json["keyring"] == {"data": KEYRING, "hash": hash, "timestamp": NOW}
        assert answer.json["data"] == {"n": 1}
    for query in ("withKeyring=0", "withKeyring=yes", ""):
        assert "keyring" not in server.pull("notes/a", query).json
    etag = answer.headers["etag"]
    assert server.pull("notes/a", "", if_none_match=etag).status == 304
    assert server.pull("notes/a", "withKeyring=1", if_none_match=etag).status == 200, "the keyring may have changed"


def test_a_keyring_is_shown_to_those_who_may_read_it(stand: MakeStand) -> None:
    notes = regular("notes", "notes/{id}", read_roles=("cap:read:notes",))
    for strict, shown in ((True, False), (False, True)):
        keyring = regular("keyring", "notes/{id}/_keyring", read_roles=("cap:read:keyring",), strict=strict)
        server = stand(notes, keyring)
        replace(server, "notes/a/_keyring", KEYRING)
        scopes: list[tuple[list[str], list[str], bool]] = [
            (["notes", "keyring"], ["notes/**"], True),
            (["notes", "keyring"], ["notes/**", "!notes/a/_keyring"], False),
            (["notes"], ["notes/**"], shown),
        ]
        for collections, paths, expected in scopes:
            cap = device(**{**READING, "collections": collections, "paths": paths})
            answer = server.pull("notes/a", "withKeyring=1", cap=(cap, ALICE))
            assert ("keyring" in answer.json) is expected, (strict, collections, paths)


def test_a_keyring_is_shown_to_those_to_whom_a_program_gives_a_role(stand: MakeStand) -> None:
    def roles_of(caller: Caller, params: dict[str, str]) -> list[str]:
        return ["guest"] if params["id"] == "a" else []

    keyring = regular("keyring", "notes/{id}/_keyring", read_roles=("guest",))
    server = stand(regular("notes", "notes/{id}"), keyring, roles=Roles(enricher=roles_of))
    for id in "ab":
        replace(server, f"notes/{id}/_keyring", KEYRING)
    assert "keyring" in server.pull("notes/a", "withKeyring=1").json
    assert "keyring" not in server.pull("notes/b", "withKeyring=1").json


# --- bundles --------------------------------------------------------------------------------------------------------


def test_a_bundle_is_pulled_at_once_and_pushed_one_by_one(stand: MakeStand) -> None:
    fields = {"hidden": FieldPermission(read_roles=("nobody",))}
    shared = {"path": "users/{id}", "bundle": "profile"}
    server = stand(
        regular("name", **shared, field_permissions=fields),
        regular("mail", **shared, read_roles=("cap:read:mail",)),
        regular("old", **shared, ttl_ms=10),
        regular("drop", **shared, push_only=True),
    )
    name = replace(server, "users/u/name", {"n": 1, "hidden": 2}).json["hash"]
    mail = replace(server, "users/u/mail", {"m": 1}).json["hash"]
    replace(server, "users/u/old", {"o": 1})
    replace(server, "users/u/drop", {"d": 1})
    server.clock.advance(11)
    everybody = server.pull("users/u", "")
    decode_strictly(everybody.body, BundleAnswer)
    shown = {"name": {"data": {"n": 1}, "hash": name}, "old": {"data": {}, "hash": ""}}
    assert everybody.json == {"collections": shown, "timestamp": NOW + 11}
    cap = device(ops=["read"], collections=["mail"], paths=["users/**"])
    reader = server.pull("users/u", "", cap=(cap, ALICE)).json["collections"]
    assert reader == {**shown, "mail": {"data": {"m": 1}, "hash": mail}}
    assert server.pull("users/v", "", cap=(cap, ALICE)).json["collections"]["mail"] == {"data": {}, "hash": ""}
    assert server.pull("users/sp%20ce", "").error == (400, "Invalid path parameter")
    assert server.pull("users/..", "").error == (400, "Invalid path parameter")
    assert replace(server, "users/u", {}).status == 404
    batch = server.get('/batch/pull?collections=name&params={"name":[{"id":"u"}]}').json["collections"]["name"]
    assert batch == [{"data": {"n": 1}, "hash": name, "timestamp": NOW + 11}]


def test_a_bundle_of_ones_own(stand: MakeStand) -> None:
    own = {"path": "users/{identity}", "bundle": "own", "read_roles": ("self",), "write_roles": ("self",)}
    server = stand(regular("a", **own))
    mine, other = f"users/{ALICE.user_id}", f"users/{BOB.user_id}"
    alice = (device(), ALICE)
    assert replace(server, f"{mine}/a", {"n": 1}, cap=alice).status == 200
    assert server.pull(mine, "", cap=alice).json["collections"]["a"]["data"] == {"n": 1}
    assert server.pull(other, "", cap=alice).error == (403, "Forbidden")
    assert server.pull(mine, "").json["collections"] == {}

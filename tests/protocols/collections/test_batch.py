"""GET /batch/pull: many documents in one answer."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from support.collections_in_process import NOW, Answered, Cap, MakeStand, Stand, opened
from support.signed_calls import ALICE, BOB, device, member

from strandline.collections import Caller, Collection, FieldPermission, Roles
from strandline.collections.config import AppendOnly
from strandline.protocols.collections import batch as batch_module

ROOMS = opened("rooms", "rooms/{room}")
OWN = opened("own", "users/{identity}/log", read_roles=("self",))


def batch(
    server: Stand, names: str, params: Any = None, bounds: Any = None, mount: str = "", cap: Cap | None = None
) -> Answered:
    query = {"collections": names}
    if params is not None:
        query["params"] = params if isinstance(params, str) else json.dumps(params)
    if bounds is not None:
        query["appendParams"] = bounds if isinstance(bounds, str) else json.dumps(bounds)
    return server.get(f"{mount}/batch/pull?{urlencode(query)}", cap=cap)


def numbers(entry: Any) -> list[int]:
    return [item["data"]["n"] for item in entry["data"]["items"]]


@pytest.fixture
def rooms(stand: MakeStand) -> Stand:
    """Two rooms with the elements 0, 1, 2 at the times 1000, 1010, 1020."""
    server = stand(ROOMS, opened("plain", "plain"), OWN)
    for room in ("a", "b"):
        for n in range(3):
            server.push(f"rooms/{room}", {"n": n}, 1000 + 10 * n)
    return server


def test_every_document_has_its_own_bounds(rooms: Stand) -> None:
    sets = [{"room": "a"}, {"room": "b"}, {"room": "a"}, {"room": "none"}]
    bounds = [{"last": 1}, {"since": 1000}, {"since": 1000, "limit": 1}, {"last": 5}]
    answer = batch(rooms, "rooms, plain,,rooms", {"rooms": sets}, {"rooms": bounds, "plain": [{"since": 0}]})
    shown = answer.json["collections"]
    assert list(shown) == ["rooms", "plain"]
    assert [numbers(entry) for entry in shown["rooms"]] == [[2], [1, 2], [2], []]
    assert shown["rooms"][0]["hash"] == rooms.pull("rooms/a").json["hash"]
    assert shown["rooms"][3] == {"data": {"items": []}, "hash": "", "timestamp": NOW}
    assert shown["plain"] == [{"data": {"items": []}, "hash": "", "timestamp": NOW}]


@pytest.mark.parametrize(
    ("names", "params", "bounds", "error"),
    [
        ("", None, None, "Missing collections parameter"),
        (",".join(f"c{n}" for n in range(101)), None, None, "Too many collections"),
        ("rooms", "[", None, "Invalid params parameter"),
        ("rooms", "[]", None, "Invalid params parameter"),
        ("rooms", {"rooms": {}}, None, "Invalid params parameter"),
        ("rooms", {"rooms": [1]}, None, "Invalid params parameter"),
        ("rooms", {"rooms": [None]}, None, "Invalid params parameter"),
        ("rooms", None, "{", "Invalid appendParams parameter"),
        ("rooms", None, {"rooms": {}}, "Invalid appendParams parameter"),
        ("rooms", None, {"rooms": [1]}, "Invalid appendParams parameter"),
        ("rooms", None, {"rooms": [{"last": -1}]}, "Invalid appendParams parameter"),
        ("rooms", None, {"rooms": [{"since": 1.5}]}, "Invalid appendParams parameter"),
        ("rooms", None, {"rooms": [{"limit": "x"}]}, "Invalid appendParams parameter"),
        ("rooms", None, {"rooms": [{"limit": True}]}, "Invalid appendParams parameter"),
        *(
            ("rooms", None, {"rooms": [{"full": full}]}, 'appendParams["rooms"]: full is not allowed in batch pull')
            for full in (True, 1, "true", "1")
        ),
        ("rooms", {"rooms": [{}]}, {"rooms": [{}, {}]},
         "append_params_length_mismatch"),
        ("rooms", {"rooms": [{}] * 101}, None, "Too many collections"),
        ("rooms,plain", {"rooms": [{}] * 100}, None, "Too many collections"),
        ("rooms", None, {"rooms": [{"last": 10_001}]}, "batch_append_limit_exceeded"),
        ("rooms", {"rooms": [{}] * 11}, {"rooms": [{"last": 1000}] * 11}, "batch_append_limit_exceeded"),
        ("rooms", {"rooms": [{}] * 11}, {"rooms": [{"since": 0}] * 11}, "batch_append_limit_exceeded"),
        ("rooms", None, {"rooms": [{"last": 1}] * 2}, "append_params_length_mismatch"),
        ("rooms", None, {"rooms": []}, "append_params_length_mismatch"),
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused_as_a_whole(
    rooms: Stand, names: str, params: Any, bounds: Any, error: str
) -> None:
    assert batch(rooms, names, params, bounds).error == (400, error)


def test_bounds_may_be_written_as_text_and_as_whole_numbers_of_any_form(rooms: Stand) -> None:
    bounds = [{"last": "1"}, {"since": 1000.0, "last": None, "full": False}]
    shown = batch(rooms, "rooms", {"rooms": [{"room": "a"}] * 2}, {"rooms": bounds}).json["collections"]["rooms"]
    assert [numbers(entry) for entry in shown] == [[2], [1, 2]]


def test_what_is_wrong_with_one_entry_is_told_in_its_place(stand: MakeStand) -> None:
    regular = Collection(name="regular", storage_path="regular", read_roles=("public",))
    server = stand(
        ROOMS, regular, opened("gone", "gone", persist=False), opened("closed", "closed", read_roles=("admin",)),
        opened("aged", "aged", max_checkpoint_age_ms=5),
    )  # fmt: skip
    sets = [{"room": "a"}, {}, {"room": "a/b"}, {"room": ".."}, {"room": "_keyring"}, {"room": 7}, {"room": True}]
    names = "nothing,rooms,regular,gone,closed,aged"
    bounds = {
        "rooms": [{}, *({"last": 1} for _ in sets[1:])], "regular": [{"last": 1}], "gone": [{"last": 1}],
        "aged": [{"since": 0}], "closed": [{"last": 1}],
    }  # fmt: skip
    shown = batch(server, names, {"rooms": sets, "nothing": [{}, {}]}, bounds).json["collections"]
    errors = {name: [entry.get("error") for entry in entries] for name, entries in shown.items()}
    assert errors == {
        "nothing": ["Collection not found", "Collection not found"],
        "rooms": [
            "pull_bound_required", "Missing required path parameter", "Invalid path parameter",
            "Invalid path parameter", "Forbidden", None, "Missing required path parameter",
        ],
        "regular": ["append_params_not_supported"],
        "gone": ["append_params_not_supported"],
        "closed": ["Forbidden"],
        "aged": ["checkpoint_too_old"],
    }  # fmt: skip
    shown = batch(server, "regular,gone", {"gone": []}).json["collections"]
    assert shown["regular"] == [{"data": {}, "hash": "", "timestamp": NOW}]
    assert shown["gone"] == []
    assert batch(server, "gone").json["collections"]["gone"] == [{"data": {}, "hash": "", "timestamp": NOW}]


def test_a_caller_whose_certificate_is_no_good_sees_what_everybody_sees(rooms: Stand) -> None:
    bounds = {"rooms": [{"last": 1}], "own": [{"last": 1}]}
    for cap in (None, (device(), BOB)):
        shown = batch(rooms, "rooms,own", {"rooms": [{"room": "a"}]}, bounds, cap=cap).json["collections"]
        assert numbers(shown["rooms"][0]) == [2]
        assert shown["own"] == [{"error": "Missing required path parameter"}]


def test_the_identity_is_that_of_the_caller_unless_another_is_given(rooms: Stand) -> None:
    rooms.push(f"users/{ALICE.user_id}/log", {"n": 7})
    sets = [{}, {"identity": ALICE.user_id}, {"identity": BOB.user_id}]
    answer = batch(rooms, "own", {"own": sets}, {"own": [{"last": 1}] * 3}, cap=(device(), ALICE))
    mine, also_mine, foreign = answer.json["collections"]["own"]
    assert numbers(mine) == numbers(also_mine) == [7]
    assert foreign == {"error": "Forbidden"}


def test_every_document_is_held_against_the_paths_of_the_certificate(stand: MakeStand) -> None:
    events = opened("events", "events/{id}", read_roles=("cap:read:events",))
    server = stand(events, namespaces={"team": (events,)})
    server.pushed("events/a", {"n": 1})
    server.pushed("events/b", {"n": 2})
    scope = {"ops": ["read"], "collections": ["events"], "paths": ["events/a"]}
    cap = (member(ALICE, BOB, **scope), BOB)
    for mount in ("", "/team", "/v1/team"):
        answer = batch(
            server, "events", {"events": [{"id": "a"}, {"id": "b"}]}, {"events": [{"last": 1}] * 2}, mount, cap
        )
        first, second = answer.json["collections"]["events"]
        assert numbers(first) == [1]
        assert second == {"error": "Forbidden"}


def test_roles_may_be_given_by_the_application(stand: MakeStand) -> None:
    def enrich(caller: Caller, params: Any) -> list[str]:
        if params.get("room") == "broken":
            raise RuntimeError("no database")
        return ["guest"] if params.get("room") == "a" else []

    server = stand(opened("rooms", "rooms/{room}", read_roles=("guest",)), roles=Roles(enricher=enrich))
    server.pushed("rooms/a", {"n": 1})
    sets = [{"room": "a"}, {"room": "b"}, {"room": "broken"}]
    entries = batch(server, "rooms", {"rooms": sets}, {"rooms": [{"last": 1}] * 3}).json["collections"]["rooms"]
    assert numbers(entries[0]) == [1]
    assert [entry["error"] for entry in entries[1:]] == ["Forbidden", "Authorization error"]
    assert server.pull("rooms/a").items == [{"ts": NOW, "data": {"n": 1}}]
    assert server.pull("rooms/b").error == (403, "Forbidden")
    assert server.pull("rooms/broken").error == (500, "Authorization error")


def test_hidden_fields_and_old_documents_are_so_in_a_batch_too(stand: MakeStand) -> None:
    permissions = {"secret": FieldPermission(read_roles=("admin",))}
    server = stand(opened(field_permissions=permissions, ttl_ms=1000))
    hash = server.push("events", {"n": 1, "secret": 2}).json["hash"]
    bounds = {"events": [{"last": 1}]}
    entry = batch(server, "events", None, bounds).json["collections"]["events"][0]
    assert entry["data"]["items"][0]["data"] == {"n": 1}
    server.clock.advance(1001)
    expired = batch(server, "events", None, bounds).json["collections"]["events"][0]
    assert expired == {"data": {"items": []}, "hash": hash, "timestamp": NOW + 1001}


def test_a_batch_ends_at_its_size(rooms: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    sets, bounds = [{"room": "a"}, {"room": "b"}, {"room": "a"}], [{"last": 1}] * 3
    whole = batch(rooms, "rooms,plain", {"rooms": sets}, {"rooms": bounds, "plain": [{"since": 0}]})
    first = len(json.dumps(whole.json["collections"]["rooms"][0], separators=(",", ":")))
    monkeypatch.setattr(batch_module, "MAX_ANSWER_BYTES", first * 3 // 2)
    cut = batch(rooms, "rooms,plain", {"rooms": sets}, {"rooms": bounds, "plain": [{"since": 0}]})
    shown = cut.json["collections"]
    assert shown["rooms"][:2] == whole.json["collections"]["rooms"][:2]
    left = [entry["error"] for entry in (*shown["rooms"][2:], *shown["plain"])]
    assert left == ["batch_too_large", "batch_too_large"]


def test_limits_of_batches_are_settings(stand: MakeStand) -> None:
    server = stand(
        opened("a", "a"), opened("b", "b"), opened("_x", "x/{id}"), max_collections_per_batch=1,
        max_batch_append_elements=10, batch_key_deny_suffixes=("secret",),
    )  # fmt: skip
    assert batch(server, "a,b").error == (400, "Too many collections")
    assert batch(server, "a", None, {"a": [{"last": 11}]}).error == (400, "batch_append_limit_exceeded")
    assert batch(server, "a", None, {"a": [{"last": 10}]}).status == 200
    for id, shown in (("secret", False), ("_keyring", True)):
        entry = batch(server, "_x", {"_x": [{"id": id}]}, {"_x": [{"last": 1}]}).json["collections"]["_x"][0]
        assert ("data" in entry) == shown


def test_signed_appends_can_be_batched_by_those_who_may_read(stand: MakeStand) -> None:
    server = stand(
        Collection(name="e", storage_path="e", read_roles=("cap:read:*",), write_roles=("cap:write:*",),
                   append_only=AppendOnly())
    )  # fmt: skip
    cap = (device(), ALICE)
    server.pushed("e", {"n": 1}, author=ALICE, cap=cap)
    entry = batch(server, "e", None, {"e": [{"last": 1}]}, cap=cap).json["collections"]["e"][0]
    assert entry["data"]["items"][0]["authorPubkey"] == ALICE.public

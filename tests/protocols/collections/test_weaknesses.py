"""What is weak in the published servers, and is not here. Where mending it changes what clients see, a collection that
is not strict still behaves as published."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from support.collections_in_process import NOW, MakeStand, Stand, opened
from support.server_process import ServerProcess
from support.signed_calls import ALICE, BOB, READING, device

from strandline.collections import Collection, FieldPermission
from strandline.collections.config import AppendOnly
from strandline.signing.author_proofs import Proof, holds, sign
from strandline.signing.canonical_json import canonical, parse


def entries(server: Stand, bounds: Any = None, name: str = "events") -> Any:
    query = f"collections={name}"
    if bounds is not None:
        query += f"&appendParams={quote(json.dumps({name: bounds}))}"
    answer = server.get(f"/batch/pull?{query}")
    return answer.json["collections"][name] if answer.status == 200 else answer.error


def filled(server: Stand, count: int) -> list[int]:
    return server.pushed("events", *({"n": n} for n in range(count)))


def numbers(elements: list[Any]) -> list[int]:
    return [element["data"]["n"] for element in elements]


# --- unbounded batch pulls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [None, [None]])
def test_a_batch_does_not_give_a_whole_log_for_want_of_a_bound(stand: MakeStand, bounds: Any) -> None:
    server = stand(opened(allow_full=False, max_pull_limit=2, max_checkpoint_age_ms=1))
    filled(server, 5)
    assert entries(server, bounds) == [{"error": "pull_bound_required"}]
    published = stand(opened(allow_full=False, max_pull_limit=2, strict=False))
    assert entries(published, bounds) == [{"data": {}, "hash": "", "timestamp": NOW}]
    filled(published, 5)
    (entry,) = entries(published, bounds)
    assert numbers(entry["data"]["items"]) == [0, 1, 2, 3, 4]
    assert entry["hash"] == published.pull("events", "last=1").json["hash"]


def test_a_batch_gives_a_page_behind_a_time_and_says_that_there_is_more(stand: MakeStand) -> None:
    server = stand(opened(max_pull_limit=2))
    times = filled(server, 5)
    seen, since = [], 0
    while True:
        (entry,) = entries(server, [{"since": since}])
        seen += numbers(entry["data"]["items"])
        if not entry.get("more"):
            break
        since = entry["data"]["items"][-1]["ts"]
    assert seen == [0, 1, 2, 3, 4]
    published = stand(opened(max_pull_limit=2, strict=False))
    filled(published, 5)
    (entry,) = entries(published, [{"since": times[0]}])
    assert numbers(entry["data"]["items"]) == [1, 2, 3, 4]
    assert "more" not in entry


def test_a_batch_is_budgeted_as_it_is_served(stand: MakeStand) -> None:
    """A limit comes before ``last`` when elements are given, so it does so when they are counted."""
    both = [{"last": 1, "limit": 1000}]
    server = stand(opened(), max_batch_append_elements=10)
    filled(server, 20)
    assert entries(server, both) == (400, "batch_append_limit_exceeded")
    assert entries(server, [{"last": 1000, "limit": 5}])[0]["data"]["items"][0]["data"] == {"n": 15}
    published = stand(opened(strict=False), max_batch_append_elements=10)
    filled(published, 20)
    assert len(entries(published, both)[0]["data"]["items"]) == 20


def test_a_batch_gives_no_longer_tail_than_it_was_counted_with(stand: MakeStand) -> None:
    server, published = stand(opened()), stand(opened(strict=False))
    for each in (server, published):
        filled(each, 1005)
    for each in (server, published):
        (entry,) = entries(each, [{"last": 2000}])
        assert (len(entry["data"]["items"]), "more" in entry) == (1005, False)
    assert entries(server, [{"last": 10_001}]) == (400, "batch_append_limit_exceeded")
    assert len(entries(published, [{"last": 10_001}])[0]["data"]["items"]) == 1005, "counted as 1000"


@pytest.mark.parametrize("name", ["last", "limit"])
@pytest.mark.parametrize(
    ("since", "asked", "shown", "more"),
    [(None, 9, [2, 3, 4], True), (None, 3, [2, 3, 4], False), (0, 4, [2, 3, 4], True), (1, 9, [2, 3, 4], False),
     (0.5, 9, [2, 3, 4], True), (3, 9, [4], False)],
)  # fmt: skip
def test_an_answer_says_that_a_limit_cut_the_tail(
    stand: MakeStand, name: str, since: float | None, asked: int, shown: list[int], more: bool
) -> None:
    """The elements 0 to 4 have the times 1000 to 5000; the collection shows the newest three of a tail."""
    server = stand(opened(max_pull_limit=3))
    for number in range(5):
        assert server.push("events", {"n": number}, (number + 1) * 1000).status == 200
    checkpoint = None if since is None else int((since + 1) * 1000) if since else 0
    bounds = {name: asked} if checkpoint is None else {name: asked, "since": checkpoint}
    (entry,) = entries(server, [bounds])
    assert (numbers(entry["data"]["items"]), entry.get("more", False)) == (shown, more)
    query = f"{name}={asked}" if checkpoint is None else f"{name}={asked}&checkpoint={checkpoint}"
    pulled = server.pull("events", query).json
    assert (numbers(pulled["data"]["items"]), pulled.get("more", False)) == (shown, more)


def test_a_batch_does_not_read_what_can_only_be_pushed(stand: MakeStand) -> None:
    server = stand(opened(push_only=True))
    filled(server, 1)
    assert entries(server, [{"last": 1}]) == [{"error": "Collection not found"}]
    published = stand(opened(push_only=True, strict=False))
    filled(published, 1)
    assert numbers(entries(published, [{"last": 1}])[0]["data"]["items"]) == [0]


# --- checkpoint=0 that dodges allowFull ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"max_pull_limit": 3}, {"max_pull_limit": 3, "allow_full": False}])
def test_a_checkpoint_of_0_does_not_give_what_full_would_not(stand: MakeStand, options: dict[str, Any]) -> None:
    server = stand(opened(**options))
    filled(server, 7)
    answer = server.pull("events", "checkpoint=0").json
    assert numbers(answer["data"]["items"]) == [0, 1, 2], "the oldest, so that whoever goes on from there loses nothing"
    assert answer["more"] is True
    published = stand(opened(**options, strict=False))
    filled(published, 7)
    answer = published.pull("events", "checkpoint=0").json
    assert numbers(answer["data"]["items"]) == list(range(7))
    assert "more" not in answer


def test_without_a_limit_of_its_own_a_page_has_a_thousand(stand: MakeStand) -> None:
    server = stand(opened(allow_full=False))
    times = filled(server, 1001)
    first = server.pull("events", "checkpoint=0").json
    assert (len(first["data"]["items"]), first["more"]) == (1000, True)
    rest = server.pull("events", f"checkpoint={times[999]}").json
    assert (numbers(rest["data"]["items"]), "more" in rest) == ([1000], False)
    assert "more" not in server.pull("events", f"checkpoint={times[0]}").json, "there are no more than those"


def test_a_cursor_that_starts_from_nothing_gets_everything_page_by_page(stand: MakeStand) -> None:
    """What is appended meanwhile included."""
    server = stand(opened(allow_full=False, max_pull_limit=4))
    filled(server, 10)
    seen: list[int] = []
    checkpoint = 0
    for turn in range(20):
        answer = server.pull("events", f"checkpoint={checkpoint}").json
        items = answer["data"]["items"]
        seen += numbers(items)
        checkpoint = items[-1]["ts"] if items else checkpoint
        if turn < 3:
            server.pushed("events", {"n": 10 + turn})
        elif "more" not in answer:
            break
    assert seen == list(range(13))


def test_a_collection_without_limits_gives_everything_behind_a_checkpoint(stand: MakeStand) -> None:
    """As published, strict or not: nobody has asked for pages."""
    server = stand(opened())
    filled(server, 1200)
    answer = server.pull("events", "checkpoint=0").json
    assert (len(answer["data"]["items"]), "more" in answer) == (1200, False)


# --- the 4097th request ------------------------------------------------------------------------------------------


def test_the_4097th_signed_request_of_a_key_is_taken_as_the_first_was(stand: MakeStand) -> None:
    server = stand(opened(read_roles=("cap:read:*",)))
    cap = (device(), ALICE)
    for _ in range(4097):
        assert server.pull("events", "last=0", cap=cap).status == 200


# --- bodies --------------------------------------------------------------------------------------------------------


def test_uploads_in_chunks_are_not_larger_than_others(served: ServerProcess, name: str) -> None:
    """Nobody need say how large a body is; it is counted."""
    body = b'{"data":{"a":"%b"}}' % (b"x" * 1000)
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        headers = {"content-type": "application/json"}
        for content in (body, iter([body]), iter([body[:100], body[100:]]), iter([b"x" * (1 << 20)] * 3)):
            response = client.post(f"/push/small/{name}", content=content, headers=headers)
            assert (response.status_code, response.json()) == (413, {"error": "Payload too large"})
        response = client.post(f"/push/small/{name}", content=iter([b'{"data":', b'{"n":1}}']), headers=headers)
        assert response.status_code == 200
        items = client.get(f"/pull/small/{name}?full=true").json()["data"]["items"]
        assert [item["data"] for item in items] == [{"n": 1}]


def test_what_is_compressed_is_not_larger_either(served: ServerProcess, name: str) -> None:
    from gzip import compress

    body = compress(b'{"data":{"a":"%b"}}' % (b"x" * 1000))
    assert len(body) < 200
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = httpx.post(f"{served.url}/push/small/{name}", content=body, headers=headers, trust_env=False)
    assert (response.status_code, response.json()) == (413, {"error": "Payload too large"})


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_what_is_no_number_is_refused(stand: MakeStand, number: bytes) -> None:
    server = stand(opened())
    for body in (b'{"data":{"n":%b}}', b'{"data":{},"x":%b}', b'{"data":{},"ts":%b}', b"%b"):
        assert server.ask("POST", "/push/events", body % number).error == (400, "Body must be a JSON object")
    assert server.pull("events").items == []


def test_a_number_too_large_for_a_double_is_kept_as_null(stand: MakeStand) -> None:
    """As the published JavaScript server does: the hash and the signature are those of null."""
    server = stand(opened(require_author_signature=True))
    proof = sign(ALICE, "events", {"n": None, "m": [None]})
    members = b'"authorPubkey":"%b","authorSignature":"%b"' % (proof.public_key.encode(), proof.signature.encode())
    answer = server.ask("POST", "/push/events", b'{"data":{"n":1e400,"m":[-1e999]},%b}' % members)
    assert answer.status == 200
    assert server.pull("events").items[0]["data"] == {"n": None, "m": [None]}
    msgspec.json.decode(server.pull("events").body)


@pytest.mark.parametrize("text", ["\\ud800", "a\\udfffb", "\\udc00\\ud800", "\\ud83d\\ude00 \\ud83d"])
def test_halves_of_surrogate_pairs_come_back_as_they_were(stand: MakeStand, text: str) -> None:
    server = stand(opened(require_author_signature=True))
    data = {"s": json.loads(f'"{text}"'), json.loads(f'"{text}"'): 1}
    proof = sign(ALICE, "events", data)
    body = {"data": data, "authorPubkey": proof.public_key, "authorSignature": proof.signature}
    answer = server.ask("POST", "/push/events", json.dumps(body).encode())
    assert answer.status == 200
    pulled = parse(server.pull("events").body)
    item = pulled["data"]["items"][0]
    assert item["data"] == data
    assert holds(Proof(item["authorPubkey"], item["authorSignature"]), "events", canonical(item["data"]))
    assert answer.json["hash"] == pulled["hash"]
    server.pushed("events", {"n": 1}, author=BOB)
    assert parse(server.pull("events").body)["data"]["items"][0]["data"] == data


def test_the_hash_of_half_a_pair_is_the_published_one(stand: MakeStand) -> None:
    from hashlib import sha256

    server = stand(opened(persist=False))
    answer = server.ask("POST", "/push/events", b'{"data":{"lone":"\\ud800"}}')
    assert answer.json["hash"] == "dfde59801b80547e9ca56bd2fa7199b73366ccdaee9b5bcbb935a057e9fe80c2"
    assert answer.json["hash"] == sha256(b'{"lone":"\\ud800"}').hexdigest()


def test_a_whole_number_may_have_a_point_in_it(stand: MakeStand) -> None:
    server = stand(opened())
    assert server.ask("POST", "/push/events", b'{"data":{},"ts":7.0}').json["timestamp"] == 7
    assert server.pull("events").items == [{"ts": 7, "data": {}}]


# --- who may do what ---------------------------------------------------------------------------------------------


def test_a_device_that_may_only_read_does_not_write_to_what_is_its_own(stand: MakeStand) -> None:
    own = {"name": "own", "storage_path": "users/{identity}", "read_roles": ("self",), "write_roles": ("self",),
           "append_only": AppendOnly()}  # fmt: skip
    path = f"users/{ALICE.user_id}"
    scope = {"ops": ["read"], "collections": ["own"], "paths": ["users/**"]}
    readers = (device(ALICE, BOB, **scope), BOB)
    server = stand(Collection(**own))
    assert server.push(path, {"n": 1}, author=BOB, cap=readers).error == (403, "Forbidden")
    assert server.pull(path, cap=readers).status == 200
    assert server.push(path, {"n": 1}, author=ALICE, cap=(device(), ALICE)).status == 200
    published = stand(Collection(**own, strict=False))
    assert published.push(path, {"n": 1}, author=BOB, cap=readers).status == 200


@pytest.mark.parametrize("strict", [True, False])
def test_a_batch_and_a_bundle_do_not_read_what_a_pull_would_ask_another_collection_for(
    stand: MakeStand, strict: bool
) -> None:
    """The path of the document is also one of the collection that is named, but an earlier collection has it."""
    public = {"read_roles": ("public",), "write_roles": ("public",)}
    closed = {"read_roles": ("cap:read:vip",), "write_roles": ("public",)}
    server = stand(
        Collection(name="vip", storage_path="rooms/vip", **closed),
        Collection(name="rooms", storage_path="rooms/{id}", **public, strict=strict),
        opened("vips", "logs/vip", **closed),
        opened("logs", "logs/{id}", strict=strict),
        Collection(name="card", storage_path="cards/vip/name", **closed),
        Collection(name="name", storage_path="cards/{id}", bundle="cards", **public, strict=strict),
    )
    for path in ("rooms/vip", "rooms/a", "logs/vip", "logs/a", "cards/vip/name", "cards/a/name"):
        assert server.push(path, {"in": path}).status == 200
    assert [server.pull(path).status for path in ("rooms/vip", "logs/vip", "cards/vip/name")] == [403] * 3
    sets = quote(json.dumps({name: [{"id": "a"}, {"id": "vip"}] for name in ("rooms", "logs", "name")}))
    bounds = quote(json.dumps({"logs": [{"last": 1}, {"last": 1}]}))
    batch = server.get(f"/batch/pull?collections=rooms,logs,name&params={sets}&appendParams={bounds}")
    for a, vip in batch.json["collections"].values():
        assert "data" in a
        assert vip == {"error": "Forbidden"} if strict else "data" in vip
    assert server.pull("cards/a", "").json["collections"].keys() == {"name"}
    assert server.pull("cards/vip", "").json["collections"].keys() == (set() if strict else {"name"})


@pytest.mark.parametrize("strict", [True, False])
def test_a_bundle_does_not_show_what_the_certificate_does_not_cover(stand: MakeStand, strict: bool) -> None:
    shared: dict[str, Any] = {"storage_path": "cards/{id}", "bundle": "cards", "write_roles": ("public",)}
    server = stand(
        Collection(name="name", read_roles=("cap:read:name",), strict=strict, **shared),
        Collection(name="mail", read_roles=("cap:read:mail",), strict=strict, **shared),
        Collection(name="page", read_roles=("public",), strict=strict, **shared),
    )
    for name in ("name", "mail", "page"):
        assert server.push(f"cards/a/{name}", {"n": 1}).status == 200
    scope = {"ops": ["read"], "collections": ["name", "mail"], "paths": ["cards/**", "!cards/*/mail", "!cards/*/page"]}
    cap = (device(ALICE, BOB, **scope), BOB)
    assert server.pull("cards/a/mail", "", cap=cap).error == (403, "Forbidden")
    assert server.pull("cards/a/page", "", cap=cap).status == 200, "public"
    shown = server.pull("cards/a", "", cap=cap).json["collections"].keys()
    assert shown == ({"name", "page"} if strict else {"name", "mail", "page"})


def test_a_pull_leaves_hidden_fields_out_of_elements(stand: MakeStand) -> None:
    permissions = {"secret": FieldPermission(read_roles=("admin",))}
    for strict in (True, False):
        server = stand(opened(field_permissions=permissions, strict=strict))
        server.pushed("events", {"n": 1, "secret": 2})
        for query in ("full=true", "checkpoint=0", "last=1"):
            assert server.pull("events", query).items[0]["data"] == {"n": 1}
        assert entries(server, [{"last": 1}])[0]["data"]["items"][0]["data"] == {"n": 1}
    assert entries(server)[0]["data"]["items"][0]["data"] == {"n": 1}


def test_what_is_listed_is_documents_and_nothing_of_how_they_are_stored(stand: MakeStand) -> None:
    server = stand(opened(path="events/{id}", chunk_size=2, listable=True))
    for n in range(7):
        server.pushed("events/d1", {"n": n})
    assert server.get("/list/events").json == {"items": ["d1"], "hasMore": False}


def test_reading_does_not_need_more_than_the_certificate_says(stand: MakeStand) -> None:
    server = stand(opened(path="events/{id}", read_roles=("cap:read:events",), write_roles=("cap:write:events",)))
    readers = (device(ALICE, BOB, **READING), BOB)
    assert server.pull("events/a", cap=readers).status == 200
    assert server.push("events/a", {}, cap=readers).error == (403, "Forbidden")

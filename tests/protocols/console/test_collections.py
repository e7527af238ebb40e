"""Collections: what is configured, the documents of a collection, and the elements of a document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from support.console_in_process import ConsoleStand

from strandline.collections import AppendOnly, Collection, FieldPermission, Namespace, QueueEvents
from strandline.signing import author_proofs
from strandline.signing.keys import Signer

OPEN = AppendOnly(require_author_signature=False)
PUBLIC = {"read_roles": ["public"], "write_roles": ["public"]}

events = Collection(name="events", storage_path="events/{date}", append_only=OPEN, ttl_ms=60_000, **PUBLIC)
members = Collection(name="members", storage_path="rooms/{room}/members", max_versions=2, **PUBLIC)
chat = Collection(
    name="chat",
    storage_path="rooms/{room}",
    read_roles=["public"],
    write_roles=["cap:write:chat"],
    encryption="delegated",
    append_only=AppendOnly(),
    field_permissions={"verdict": FieldPermission(read_roles=["cap:read:moderation"])},
)
pings = Collection(
    name="pings", storage_path="pings", append_only=AppendOnly(persist=False), queue=QueueEvents(), **PUBLIC
)
team = Namespace(
    name="team", collections=[Collection(name="talk", storage_path="rooms/{id}", append_only=OPEN, **PUBLIC)]
)
DECLARED = [events, members, chat, pings, team]


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[ConsoleStand]:
    with ConsoleStand(tmp_path / "data", collections=DECLARED) as stand:
        fill(stand)
        yield stand


def fill(stand: ConsoleStand) -> None:
    collections, signer = stand.collections, Signer.generate()
    for day in (14, 15):
        for at in range(day - 13):
            collections.append(f"events/2026-11-{day}", {"type": "click", "at": at}).wait()
    for data in ({"_encrypted": "AAAAAAAA", "_epoch": 3}, {"text": "hello"}):
        proof = author_proofs.sign(signer, "rooms/lobby", data)
        collections.append("rooms/lobby", data, proof=proof).wait()
    hash = None
    for names in (["ann"], ["ann", "ben"], ["ben"]):
        hash = collections.push("rooms/lobby/members", {"names": names}, base_hash=hash).wait().hash
    stand.log("events/by-hand/1", {"type": "other"})


def documents(stand: ConsoleStand, name: str, **query: object) -> list[str]:
    words = "&".join(f"{key}={quote(str(value))}" for key, value in {"name": name, **query}.items())
    return [each["path"] for each in stand.get(f"/documents?{words}")["documents"]]


def test_collections_are_listed_with_their_sizes(rooms: ConsoleStand) -> None:
    found = rooms.get("/collections")["collections"]
    assert [(each["namespace"], each["name"], each["kind"], each["documents"], each["records"]) for each in found] == [
        ("", "events", "append-only", 2, 3),
        ("", "members", "regular", 1, 2),
        ("", "chat", "append-only", 1, 2),
        ("", "pings", "events", 0, 0),
        # The same path as chat: they share their documents.
        ("team", "talk", "append-only", 1, 2),
    ]
    assert (found[2]["path"], found[2]["encryption"]) == ("rooms/{room}", "delegated")
    assert found[2]["write_roles"] == ["cap:write:chat"]
    assert rooms.get("/session")["collections"] is True


def test_a_collection_has_its_configuration(rooms: ConsoleStand) -> None:
    chat = rooms.get("/collection?name=chat")
    assert chat["permissions"] == [{"field": "verdict", "read_roles": ["cap:read:moderation"], "write_roles": []}]
    assert chat["config"]["appendOnly"] == {}
    assert chat["events"] is None
    assert rooms.get("/collection?name=pings")["events"] == "pings"
    assert rooms.get("/collection?name=talk&namespace=team")["path"] == "rooms/{id}"
    for query in ("name=nothing", "name=talk", "name=chat&namespace=team", "name=chat&namespace=no"):
        assert rooms.refused(f"/collection?{query}") == (404, "not_found"), query


def test_documents_are_paged_and_found_by_their_beginning(rooms: ConsoleStand) -> None:
    assert documents(rooms, "events") == ["events/2026-11-14", "events/2026-11-15"]
    assert documents(rooms, "events", prefix="events/2026-11-15") == ["events/2026-11-15"]
    assert documents(rooms, "events", prefix="eve") == ["events/2026-11-14", "events/2026-11-15"]
    assert documents(rooms, "events", prefix="rooms") == []
    assert documents(rooms, "chat") == ["rooms/lobby"]
    assert documents(rooms, "talk", namespace="team") == ["rooms/lobby"]
    assert documents(rooms, "members") == ["rooms/lobby/members"]
    first = rooms.get("/documents?name=events&limit=1")
    assert (first["next"], first["documents"][0]["records"]) == ("events/2026-11-14", 1)
    assert documents(rooms, "events", after=first["next"]) == ["events/2026-11-15"]
    assert rooms.get("/documents?name=events&after=events/2026-11-15") == {"documents": [], "next": None}


def test_a_request_looks_at_a_bounded_number_of_names(rooms: ConsoleStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.protocols.console.collections.MAX_EXAMINED", 1)
    first = rooms.get("/documents?name=members")
    assert first == {"documents": [], "next": "rooms/lobby"}
    assert documents(rooms, "members", after=first["next"]) == ["rooms/lobby/members"]


def test_elements_have_authors_and_ciphertext(rooms: ConsoleStand) -> None:
    document = rooms.get("/document/rooms/lobby")
    clear, sealed = rooms.get("/document/rooms/lobby/elements")["elements"]
    pulled = rooms.collections.pull("rooms/lobby", last=1)
    assert document["hash"] == pulled.hash
    assert (document["checkpoint"], document["kind"], document["collection"]) == (clear["ts"], "append-only", "chat")
    assert {each["name"] for each in document["served_by"]} == {"chat", "talk"}
    assert (clear["seq"], clear["data"], clear["signature"]) == (2, {"text": "hello"}, "valid")
    assert pulled.elements[0].proof is not None
    assert clear["author"] == sealed["author"] == pulled.elements[0].proof.public_key
    assert (sealed["encrypted_bytes"], sealed["epoch"]) == (6, 3)
    assert "epoch" not in clear


def test_a_signature_for_other_data_is_told_apart(rooms: ConsoleStand) -> None:
    proof = author_proofs.sign(Signer.generate(), "events/2026-11-14", {"another": True})
    rooms.collections.append("events/2026-11-14", {"a": 1}, proof=proof).wait()
    last, first = rooms.get("/document/events/2026-11-14/elements")["elements"]
    assert (last["signature"], first["signature"]) == ("invalid", "none")
    assert "author" not in first


def test_versions_of_a_regular_document(rooms: ConsoleStand) -> None:
    document = rooms.get("/document/rooms/lobby/members")
    assert (document["kind"], document["checkpoint"], document["records"]) == ("regular", None, 2)
    assert document["hash"] == rooms.collections.read("rooms/lobby/members").hash
    page = rooms.get("/document/rooms/lobby/members/elements?limit=1")
    assert [each["data"]["names"] for each in page["elements"]] == [["ben"]]
    rest = rooms.get(f"/document/rooms/lobby/members/elements?before={page['next']}")
    assert ([each["data"]["names"] for each in rest["elements"]], rest["next"]) == ([["ann", "ben"]], None)


def test_an_old_document_is_expired(rooms: ConsoleStand) -> None:
    assert rooms.get("/document/events/2026-11-14")["expired"] is False
    rooms.clock.advance(60_001)
    assert rooms.get("/document/events/2026-11-14")["expired"] is True


def test_what_is_not_a_document_is_refused(rooms: ConsoleStand) -> None:
    assert rooms.refused("/document/events/by-hand/1") == (404, "not_found")
    assert rooms.refused("/document/rooms/cellar") == (404, "log_not_found")
    assert rooms.refused("/document/rooms/lobby/elements?limit=201") == (400, "invalid_request")
    assert rooms.refused("/documents?name=nothing") == (404, "not_found")


def test_an_api_key_sees_the_documents_of_its_prefixes(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path / "data", "root,day:r:events/2026-11-15,none:r:orders", collections=DECLARED) as stand:
        fill(stand)
        (only,) = stand.get("/collections", key="day")["collections"]
        assert (only["name"], only["documents"], only["records"]) == ("events", 1, 2)
        found = stand.get("/documents?name=events", key="day")["documents"]
        assert [each["path"] for each in found] == ["events/2026-11-15"]
        assert stand.refused("/documents?name=chat", key="day") == (404, "not_found")
        assert stand.refused("/document/events/2026-11-14", key="day") == (403, "forbidden")
        assert stand.refused("/document/events/2026-11-14/elements", key="day") == (403, "forbidden")
        assert len(stand.get("/document/events/2026-11-15/elements", key="day")["elements"]) == 2
        assert stand.get("/collections", key="none") == {"collections": []}
        shown = [stand.get("/session", key=key)["collections"] for key in ("root", "day", "none", "")]
        assert shown == [True, True, False, False]

"""Regular documents as they are replaced: the current version, and every version after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.collections_in_process import MakeStand, Stand, Tail
from support.server_process import ServerProcess
from support.signed_calls import ALICE, BOB, NOW, device
from support.topics_client import PATIENCE_SECONDS, EventStream

from strandline.collections import Collection, FieldPermission
from strandline.engine import Batch, Config, ManualClock
from strandline.signing.author_proofs import DOCUMENT_DOMAIN, sign
from strandline.signing.canonical_json import digest
from strandline.signing.revocations import signed_list

CAP = (device(), ALICE)
ONE, TWO = digest({"n": 1}), digest({"n": 2})


def regular(name: str = "members", path: str = "members/{id}", **options: Any) -> Collection:
    """A collection of regular documents that everybody may read and write."""
    roles = {"read_roles": ("public",), "write_roles": ("public",)}
    return Collection(**{**roles, **options, "name": name, "storage_path": path})


def replaced(server: Stand, path: str, *documents: Any, base: str | None = None, **options: Any) -> str:
    """Push versions one after the other; returns the hash of the last one."""
    hash = base
    for data in documents:
        answer = server.ask("POST", f"/push/{path}", {"data": data, "baseHash": hash}, **options)
        assert answer.status == 200, answer
        hash = answer.json["hash"]
    assert hash is not None
    return hash


def shown(tail: Tail) -> list[Any]:
    """The data of the versions since the last look."""
    events = tail.events()
    assert all((event.event, event.id) == ("document", event.json["hash"]) for event in events), events
    return [event.json["data"] for event in events]


def test_the_current_version_is_sent_and_then_every_version_as_a_pull_shows_it(stand: MakeStand) -> None:
    server = stand(regular())
    first = replaced(server, "members/a", {"n": 0}, {"n": 1})
    tail = server.live("members/a")
    (event,) = tail.events()
    assert (event.event, event.id, event.json) == ("document", ONE, {"data": {"n": 1}, "hash": ONE, "timestamp": NOW})
    server.clock.advance(5)
    replaced(server, "members/a", {"n": 2}, base=first)
    (event,) = tail.events()
    assert event.json == server.pull("members/a", "").json == {"data": {"n": 2}, "hash": TWO, "timestamp": NOW + 5}
    replaced(server, "members/a", {"n": 3}, {"n": 3}, base=TWO)
    assert shown(tail) == [{"n": 3}, {"n": 3}]


def test_the_proof_of_the_author_is_shown(stand: MakeStand) -> None:
    server = stand(regular())
    proof = sign(ALICE, "members/a", {"n": 1}, DOCUMENT_DOMAIN)
    body = {"data": {"n": 1}, "authorPubkey": proof.public_key, "authorSignature": proof.signature}
    assert server.ask("POST", "/push/members/a", body).status == 200
    tail = server.live("members/a")
    (event,) = tail.events()
    assert event.json == server.pull("members/a", "").json
    assert event.json["authorSignature"] == proof.signature


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("query", "headers", "first"),
    [
        ("", {}, [{"n": 2}]),
        ("baseHash=", {}, [{"n": 2}]),
        (f"baseHash={ONE}", {}, [{"n": 2}]),
        (f"baseHash={TWO}", {}, []),
        ("", {"last_event_id": ONE}, [{"n": 2}]),
        (f"baseHash={ONE}", {"last_event_id": TWO}, []),
    ],
)
def test_a_version_that_the_reader_has_is_not_sent_again(
    stand: MakeStand, tmp_path: Path, query: str, headers: dict[str, str], first: list[Any], sealed: bool
) -> None:
    place, clock = tmp_path / "data", ManualClock(NOW)
    with Stand(place, regular(), clock=clock) as server:
        replaced(server, "members/a", {"n": 1}, {"n": 2})
        if sealed:
            server.engine.seal()
    server = stand(regular(), path=place, clock=clock)
    tail = server.live("members/a", query, **headers)
    assert shown(tail) == first
    replaced(server, "members/a", {"n": 3}, base=TWO)
    assert shown(tail) == [{"n": 3}]


def test_a_large_version_is_hashed_on_another_thread(stand: MakeStand, tmp_path: Path) -> None:
    place, clock, data = tmp_path / "large", ManualClock(NOW), {"text": "x" * 10_000}
    with Stand(place, regular(), clock=clock) as server:
        hash = replaced(server, "members/a", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.protocols.collections.live_versions.AT_ONCE_BYTES", 1 << 10)
        server = stand(regular(), path=place, clock=clock)
        assert shown(server.live("members/a", f"baseHash={hash}")) == []
        assert shown(server.live("members/a", f"baseHash={ONE}")) == [data]


def test_a_document_need_not_exist(stand: MakeStand) -> None:
    server = stand(regular())
    tails = [server.live("members/a"), server.live("members/a", f"baseHash={TWO}")]
    assert [shown(tail) for tail in tails] == [[], []]
    replaced(server, "members/a", {"n": 1}, {"n": 2})
    assert [shown(tail) for tail in tails] == [[{"n": 1}, {"n": 2}]] * 2


def test_fields_that_the_caller_may_not_see_are_left_out(stand: MakeStand) -> None:
    fields = {"secret": FieldPermission(read_roles=("cap:read:*",))}
    server = stand(regular(read_roles=("cap:read:*", "cap:read:members"), field_permissions=fields))
    reader = (device(ALICE, BOB, ops=["read"], collections=["members"], paths=["**"]), BOB)
    tails = [server.live("members/a", cap=CAP), server.live("members/a", cap=reader)]
    hash = replaced(server, "members/a", {"n": 1, "secret": 2})
    (whole,), (partial,) = (tail.events() for tail in tails)
    assert (whole.json["data"], partial.json["data"]) == ({"n": 1, "secret": 2}, {"n": 1})
    assert whole.json["hash"] == partial.json["hash"] == hash
    assert server.get("/live/members/a").error == (403, "Forbidden")


def test_a_version_that_has_expired_is_not_shown(stand: MakeStand) -> None:
    server = stand(regular(ttl_ms=1000))
    early = server.live("members/a")
    replaced(server, "members/a", {"n": 1})
    assert shown(early) == [{"n": 1}]
    server.clock.advance(1001)
    late = server.live("members/a")
    assert shown(late) == []
    replaced(server, "members/a", {"n": 2})
    assert shown(early) == shown(late) == [{"n": 2}]


def test_a_reader_that_falls_behind_gets_the_versions_that_are_kept(stand: MakeStand) -> None:
    server = stand(regular(max_versions=2))
    hash = replaced(server, "members/a", {"n": 0})
    tail = server.live("members/a")
    assert shown(tail) == [{"n": 0}]
    tail.sink.full = True
    hash = replaced(server, "members/a", {"n": 1}, base=hash)
    assert shown(tail) == [{"n": 1}]
    replaced(server, "members/a", *({"n": n} for n in range(2, 6)), base=hash)
    assert shown(tail) == [], "it has not read the last one"
    tail.sink.full = False
    tail.stream.resumed()
    assert shown(tail) == [{"n": 4}, {"n": 5}]


def test_a_document_that_is_removed_and_made_again_is_followed(stand: MakeStand) -> None:
    """A document is removed if its first push fails."""
    server = stand(regular())
    replaced(server, "members/a", {"n": 1}, {"n": 2})
    tail = server.live("members/a", f"baseHash={TWO}")
    server.engine.log("members/a").drop().wait()
    assert shown(tail) == []
    replaced(server, "members/a", {"n": 3})
    assert shown(tail) == [{"n": 3}]


def test_a_response_ends_when_the_certificate_is_revoked(stand: MakeStand, tmp_path: Path) -> None:
    path = tmp_path / "revoked.json"
    path.write_text(json.dumps(signed_list(ALICE, 1, [])))
    server = stand(regular(read_roles=("cap:read:*",)), revocations=(str(path),))
    certificate = device(ALICE, BOB)
    tail, of_alice = server.live("members/a", cap=(certificate, BOB)), server.live("members/a", cap=CAP)
    revoked = [{"sub": certificate["sub"], "nonce": certificate["nonce"], "exp": certificate["exp"]}]
    path.write_text(json.dumps(signed_list(ALICE, 2, revoked)))
    server.watch_revocations()
    server.face._tails.check()
    (event,) = tail.events()
    assert (event.event, event.json) == ("end", {"error": "Unauthorized"})
    replaced(server, "members/a", {"n": 1})
    assert (shown(of_alice), tail.events()) == ([{"n": 1}], [])


@pytest.mark.parametrize(
    ("target", "headers", "error"),
    [
        ("/live/members/a?baseHash=x", {}, (400, "Invalid baseHash")),
        (f"/live/members/a?baseHash={ONE.upper()}", {}, (400, "Invalid baseHash")),
        ("/live/members/a", {"last_event_id": "17"}, (400, "Invalid Last-Event-ID")),
        ("/live/members/a?checkpoint=0", {},
         (400, "unknown parameter 'checkpoint'; expected 'baseHash', or none to start with the current version")),
        ("/live/inbox/a", {}, (404, "Not Found")),
        ("/live/members/taken", {}, (409, "not_a_document")),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused(
    stand: MakeStand, target: str, headers: dict[str, str], error: tuple[int, str]
) -> None:
    server = stand(regular(), regular("inbox", "inbox/{id}", push_only=True))
    server.engine.create("members/taken", Config(), batch=Batch.of(b"1")).wait()
    assert server.get(target, **headers).error == error
    assert len(server.responses) == 0


@pytest.mark.both_lanes
def test_versions_come_over_http_and_a_reader_goes_on_where_it_was(lane: str, tmp_path: Path) -> None:
    config = tmp_path / "strandline.toml"
    roles = 'read_roles = ["public"]\nwrite_roles = ["public"]\n'
    config.write_text(f'[[collections.collection]]\nname = "members"\nstorage_path = "members/{{id}}"\n{roles}')
    server = ServerProcess(tmp_path / "data", fast_lane=lane == "fast", config=config).start()
    try:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE_SECONDS) as http:

            def push(n: int, base: str | None) -> str:
                pushed = http.post("/push/members/a", json={"data": {"n": n}, "baseHash": base}).raise_for_status()
                return str(pushed.json()["hash"])

            first = push(1, None)
            with http.stream("GET", "/live/members/a") as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                events = EventStream(response)
                assert events.next().json["data"] == {"n": 1}
                second = push(2, first)
                event = events.next()
                assert (event.event, event.id, event.json["data"]) == ("document", second, {"n": 2})
            with http.stream("GET", "/live/members/a", headers={"last-event-id": second}) as response:
                third = push(3, second)
                assert EventStream(response).next().id == third
    finally:
        server.end()

"""Who may do what, from the request to the answer."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping
from itertools import chain, repeat
from pathlib import Path

import msgspec
import pytest
from support.collections_in_process import Answered, MakeStand, Stand, opened
from support.signed_calls import ALICE, BOB, CAROL, NOW, audience, device, headers_of, member

from strandline.collections import (
    AppendOnly,
    Caller,
    Collection,
    CollectionRateLimit,
    FieldPermission,
    QueueEvents,
    RateRule,
    RoleRequest,
    Roles,
)
from strandline.collections.settings import SKEW_MS
from strandline.engine import ManualClock
from strandline.signing import certificates
from strandline.signing.author_proofs import sign
from strandline.signing.revocations import signed_list

EVENTS = Collection(
    name="events",
    storage_path="events/{day}",
    read_roles=("cap:read:events", "cap:read:*"),
    write_roles=("cap:write:events", "cap:write:*"),
    append_only=AppendOnly(),
)
OWN = Collection(
    name="own",
    storage_path="users/{identity}/log",
    read_roles=("self",),
    write_roles=("self",),
    append_only=AppendOnly(),
)
UNAUTHORIZED, FORBIDDEN = (401, "Unauthorized"), (403, "Forbidden")
WRITER = certificates.writer("events")
READER = device(ALICE, BOB, ops=["read"], collections=["*"], paths=["**"])


def test_the_holder_of_a_certificate_appends_and_pulls(stand: MakeStand) -> None:
    server = stand(EVENTS)
    for cert, signer in ((device(), ALICE), (member(**WRITER), BOB), (audience(**WRITER), CAROL)):
        cap = (cert, signer)
        assert server.push("events/d1", {"by": signer.user_id}, author=signer, cap=cap).status == 200
        assert server.pull("events/d1", "last=1", cap=cap).items[0]["authorPubkey"] == signer.public


def test_whoever_has_none_does_not(stand: MakeStand) -> None:
    server = stand(EVENTS)
    assert server.push("events/d1", {}, author=ALICE).error == FORBIDDEN
    assert server.pull("events/d1").error == FORBIDDEN
    closed = stand(EVENTS, anonymous=False)
    assert closed.pull("events/d1").error == UNAUTHORIZED


def test_a_certificate_that_may_only_read_cannot_write(stand: MakeStand) -> None:
    server = stand(EVENTS, OWN)
    own = f"users/{ALICE.user_id}/log"
    assert server.push(own, {}, author=ALICE, cap=(device(), ALICE)).status == 200
    for path in ("events/d1", own):
        assert server.push(path, {}, author=BOB, cap=(READER, BOB)).error == FORBIDDEN
        assert server.pull(path, cap=(READER, BOB)).status == 200


def test_unless_a_collection_is_told_not_to_be_strict(stand: MakeStand) -> None:
    loose = Collection(
        name="own", storage_path="users/{identity}/log", read_roles=("self",), write_roles=("self",),
        append_only=AppendOnly(), strict=False,
    )  # fmt: skip
    server = stand(loose)
    assert server.push(f"users/{ALICE.user_id}/log", {}, author=BOB, cap=(READER, BOB)).status == 200


def test_nobody_writes_into_the_documents_of_others(stand: MakeStand) -> None:
    server = stand(OWN)
    assert server.push(f"users/{BOB.user_id}/log", {}, author=ALICE, cap=(device(), ALICE)).error == FORBIDDEN


def test_the_author_of_an_element_is_who_has_signed_the_request(stand: MakeStand) -> None:
    server = stand(EVENTS)
    answer = server.push("events/d1", {}, author=BOB, cap=(device(), ALICE))
    assert answer.error == (403, "append author must be the request presenter")


def test_a_root_only_collection_takes_no_other_device(stand: MakeStand) -> None:
    rooted = Collection(
        name="events", storage_path="events", read_roles=("cap:read:*",), write_roles=("cap:write:*",),
        append_only=AppendOnly(), root_only=True,
    )  # fmt: skip
    server = stand(rooted)
    assert server.push("events", {}, author=ALICE, cap=(device(), ALICE)).status == 200
    assert server.push("events", {}, author=BOB, cap=(device(ALICE, BOB), BOB)).error == FORBIDDEN


def test_thousands_of_requests_of_one_key_are_taken(stand: MakeStand) -> None:
    server = stand(EVENTS)
    taken = server.context.authorizer.capabilities._nonces
    for number in range(4096):
        # Signing them all would take long, and is not what this is about.
        assert taken.take(ALICE.public, str(number), NOW, NOW)
    assert server.push("events/d1", {}, author=ALICE, cap=(device(), ALICE)).status == 200


def test_when_too_many_are_under_way_one_is_told_to_come_again(stand: MakeStand) -> None:
    server = stand(EVENTS, max_nonces=2)
    answers = [server.pull("events/d1", cap=(device(), ALICE)) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 503]
    seconds = int(answers[2].headers["retry-after"])
    server.clock.advance(seconds * 1000)
    assert server.pull("events/d1", cap=(device(), ALICE)).status == 200


def test_what_is_revoked_while_the_server_runs_is_refused(stand: MakeStand, tmp_path: Path) -> None:
    cert, other, lists = device(), device(), tmp_path / "revoked.json"
    lists.write_text(json.dumps(signed_list(ALICE, 1)))
    server = stand(EVENTS, revocations=(str(lists),))
    assert server.pull("events/d1", cap=(cert, ALICE)).status == 200
    lists.write_text(json.dumps(signed_list(ALICE, 2, [cert])))
    server.watch_revocations()
    assert server.pull("events/d1", cap=(cert, ALICE)).error == UNAUTHORIZED
    assert server.pull("events/d1", cap=(other, ALICE)).status == 200


def test_a_list_of_a_lower_generation_is_ignored_and_logged(
    stand: MakeStand, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, lists = device(), tmp_path / "revoked.json"
    lists.write_text(json.dumps(signed_list(ALICE, 5, [cert])))
    server = stand(EVENTS, revocations=(str(lists),))
    lists.write_text(json.dumps(signed_list(ALICE, 5, [cert]), indent=1))
    server.watch_revocations()
    assert not caplog.records, "the list in force was written again"
    lists.write_text(json.dumps(signed_list(ALICE, 4)))
    server.watch_revocations()
    (record,) = caplog.records
    assert "generation 4, and generation 5 of the same issuer is in force" in record.getMessage()
    assert server.pull("events/d1", cap=(cert, ALICE)).error == UNAUTHORIZED


@pytest.mark.parametrize("told", [False, True])
def test_a_repeated_append_gets_the_first_answer_also_after_a_restart(
    stand: MakeStand, tmp_path: Path, told: bool
) -> None:
    """The request is stored in the frame of its append, so one is never there without the other."""
    collection = msgspec.structs.replace(EVENTS, queue=QueueEvents(topic="told") if told else None)
    proof = sign(ALICE, "events/d1", {"n": 1})
    body = {"data": {"n": 1}, "authorPubkey": proof.public_key, "authorSignature": proof.signature}
    content = json.dumps(body).encode()
    server = stand(collection, path=tmp_path / "data")
    headers = headers_of(device(), ALICE, "POST", "/push/events/d1", content, server.clock.now())
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    before = server.push("events/d1", {"n": 0}, author=ALICE, cap=(device(), ALICE))
    first = server.ask("POST", "/push/events/d1", content, **sent)
    assert first.status == 200
    server.clock.advance(5)
    assert server.ask("POST", "/push/events/d1", content, **sent).json == first.json
    after = server.push("events/d1", {"n": 2}, author=ALICE, cap=(device(), ALICE))
    assert server.ask("POST", "/push/events/d1", content, **sent).json == first.json, "not that of the last element"
    server.engine.close()
    again = stand(collection, path=tmp_path / "data", clock=ManualClock(NOW + SKEW_MS))
    for _ in range(2):
        assert again.ask("POST", "/push/events/d1", content, **sent).json == first.json
    times = [answer.json["timestamp"] for answer in (before, first, after)]
    assert [item["ts"] for item in again.pull("events/d1", "last=10", cap=(device(), ALICE)).items] == times
    assert len(again.records("told")) == (3 if told else 0)
    assert again.push("events/d1", {"n": 1}, author=ALICE, cap=(device(), ALICE)).status == 200, "signed again"
    again.clock.advance(1)
    assert again.ask("POST", "/push/events/d1", content, **sent).error == UNAUTHORIZED, "the signature is too old"
    assert len(again.pull("events/d1", "last=10", cap=(device(), ALICE)).items) == 4


def test_a_nonce_is_good_for_one_request_only(stand: MakeStand) -> None:
    server = stand(EVENTS)

    def sent(path: str, n: int, method: str = "POST", at: int = 0) -> Answered:
        proof = sign(ALICE, path, {"n": n})
        body = {"data": {"n": n}, "authorPubkey": proof.public_key, "authorSignature": proof.signature}
        content = json.dumps(body).encode() if method == "POST" else None
        target = f"/push/{path}" if method == "POST" else f"/pull/{path}?last=1"
        headers = headers_of(device(), ALICE, method, target, content or b"", NOW + at, nonce="n")
        return server.ask(method, target, content, **{name.replace("-", "_"): value for name, value in headers.items()})

    first = sent("events/d1", 1)
    assert first.status == 200
    assert sent("events/d1", 2).error == UNAUTHORIZED, "another body"
    assert sent("events/d2", 1).error == UNAUTHORIZED, "another document"
    assert sent("events/d1", 1, at=1).error == UNAUTHORIZED, "another time"
    assert sent("events/d1", 1, "GET").error == UNAUTHORIZED, "another method"
    assert sent("events/d1", 1).json == first.json
    assert len(server.pull("events/d1", "last=10", cap=(device(), ALICE)).items) == 1
    assert server.engine.find("events/d2") is None


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("slow", ["body", "enricher"])
def test_a_push_that_is_repeated_while_it_is_underway_gets_the_first_answer(
    stand: MakeStand, slow: str, regular: bool
) -> None:
    """Large bodies are read on another thread, and roles from a program take their time."""
    delays = chain([0.02], repeat(0))

    async def staff(caller: Caller, params: Mapping[str, str]) -> list[str]:
        await asyncio.sleep(next(delays))
        return []

    rules = None if regular else AppendOnly(require_author_signature=False)
    collection = msgspec.structs.replace(EVENTS, append_only=rules)
    server = stand(collection, roles=Roles(enricher=staff) if slow == "enricher" else None)
    body = {"data": {"text": "x" * (40_000 if slow == "body" else 1)}}
    first, *others = server.ask_at_once(4, "POST", "/push/events/d1", body, cap=(device(), ALICE))
    assert first.status == 200, first
    assert [other.json for other in others] == [first.json] * 3
    log = server.engine.find("events/d1")
    assert log is not None
    assert log.head == 1
    refused = server.ask_at_once(3, "POST", "/push/events/d1", {"data": ["x" * 40_000]}, cap=(device(), ALICE))
    assert [answer.status for answer in refused] == [400, 401, 401]


def test_a_signed_push_that_everybody_may_make_can_be_repeated_too(stand: MakeStand) -> None:
    """Its signature is not checked, so the id of the request is made of all that was sent."""
    document = Collection(name="page", storage_path="pages/{id}", read_roles=("public",), write_roles=("public",))
    server = stand(opened(), document)

    def sent(path: str, body: bytes, nonce: str = "n") -> Answered:
        # Signed for another body.
        headers = headers_of(device(), ALICE, "POST", path, b"", NOW, nonce=nonce)
        return server.ask("POST", path, body, **{name.replace("-", "_"): value for name, value in headers.items()})

    first = sent("/push/events", b'{"data":{"n":1}}')
    server.clock.advance(5)
    assert sent("/push/events", b'{"data":{"n":1}}').json == first.json
    sent("/push/events", b'{"data":{"n":2}}')
    sent("/push/events", b'{"data":{"n":1}}', nonce="o")
    for _ in range(2):
        assert server.push("events", {"n": 1}).status == 200, "nothing tells requests apart that are not signed"
    assert [item["data"]["n"] for item in server.pull("events").items] == [1, 2, 1, 1, 1]
    made = sent("/push/pages/a", b'{"data":{"n":1}}')
    assert sent("/push/pages/b", b'{"data":{"n":1}}').status == 200
    assert sent("/push/pages/a", b'{"data":{"n":1}}').json == made.json
    assert sent("/push/pages/a", b'{"data":{"n":1}}', nonce="o").error == (409, "hash_mismatch")


def test_a_push_that_was_refused_is_not_repeated(stand: MakeStand) -> None:
    """Its sender was told that nothing is stored, and may have signed another request since."""
    collection = msgspec.structs.replace(
        EVENTS, object_schema={"required": ["n"]}, append_only=AppendOnly(require_author_signature=False)
    )
    server = stand(collection)
    headers = headers_of(device(), ALICE, "POST", "/push/events/d1", b'{"data":{}}', NOW)
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    assert server.ask("POST", "/push/events/d1", b'{"data":{}}', **sent).status == 400
    assert server.ask("POST", "/push/events/d1", b'{"data":{}}', **sent).error == UNAUTHORIZED


def test_whoever_may_no_longer_append_gets_no_answer_again(stand: MakeStand, tmp_path: Path) -> None:
    certificate, path = device(), tmp_path / "revoked.json"
    path.write_text(json.dumps(signed_list(ALICE, 1, [])))
    collection = msgspec.structs.replace(EVENTS, append_only=AppendOnly(require_author_signature=False))
    server = stand(collection, revocations=(str(path),))
    headers = headers_of(certificate, ALICE, "POST", "/push/events/d1", b'{"data":{}}', NOW)
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    assert server.ask("POST", "/push/events/d1", b'{"data":{}}', **sent).status == 200
    assert server.ask("POST", "/push/events/d1", b'{"data":{}}', **sent).status == 200
    revoked = [{"sub": certificate["sub"], "nonce": certificate["nonce"], "exp": certificate["exp"]}]
    path.write_text(json.dumps(signed_list(ALICE, 2, revoked)))
    server.watch_revocations()
    assert server.ask("POST", "/push/events/d1", b'{"data":{}}', **sent).error == UNAUTHORIZED


def test_the_last_element_of_a_full_document_can_be_repeated(stand: MakeStand) -> None:
    rules = AppendOnly(require_author_signature=False, max_items=1)
    server = stand(msgspec.structs.replace(EVENTS, append_only=rules))
    headers = headers_of(device(), ALICE, "POST", "/push/events/d1", b'{"data":{},"ts":7}', NOW)
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    first = server.ask("POST", "/push/events/d1", b'{"data":{},"ts":7}', **sent)
    assert (first.status, first.json["timestamp"]) == (200, 7)
    assert server.ask("POST", "/push/events/d1", b'{"data":{},"ts":7}', **sent).json == first.json
    assert server.push("events/d1", {}, 8, cap=(device(), ALICE)).error == (409, "append_limit_exceeded")


@pytest.mark.parametrize("ts", [b"", b',"ts":7'])
def test_a_repeated_request_makes_no_second_event_of_an_element_that_is_not_kept(
    stand: MakeStand, tmp_path: Path, ts: bytes
) -> None:
    collection = msgspec.structs.replace(
        EVENTS, queue=QueueEvents(topic="told"), append_only=AppendOnly(persist=False, require_author_signature=False)
    )
    content = b'{"data":{"n":1}%b}' % ts
    server = stand(collection, path=tmp_path / "data")
    headers = headers_of(device(), ALICE, "POST", "/push/events/d1", content, server.clock.now())
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    first = server.ask("POST", "/push/events/d1", content, **sent)
    assert first.status == 200
    server.clock.advance(5)
    assert server.ask("POST", "/push/events/d1", content, **sent).json == first.json
    server.engine.close()
    again = stand(collection, path=tmp_path / "data", clock=ManualClock(NOW + SKEW_MS))
    assert again.ask("POST", "/push/events/d1", content, **sent).json == first.json
    assert [event["timestamp"] for event in again.records("told")] == [first.json["timestamp"]]


@pytest.mark.parametrize(
    "content_type",
    ["text/plain; application/json", "application/jsonp", "application/json-patch+json", "x/application/json"],
)
def test_a_body_of_an_odd_content_type_must_be_signed(stand: MakeStand, content_type: str) -> None:
    """A proxy that replaces the body cannot get it accepted by changing the content type."""
    server = stand(opened(write_roles=("cap:write:*",), read_roles=("public",)))
    headers = headers_of(device(), ALICE, "POST", "/push/events", b"", server.clock.now())
    headers |= {"Content-Type": content_type, "Content-Length": "19"}
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    answer = server.ask("POST", "/push/events", b'{"data":{"new":1}}\n', **sent)
    assert answer.error == UNAUTHORIZED
    assert server.ask("GET", "/pull/events?last=1").items == []


def test_a_body_that_is_not_json_is_refused_whatever_was_signed(stand: MakeStand) -> None:
    server = stand(opened(write_roles=("cap:write:*",)))
    headers = headers_of(device(), ALICE, "POST", "/push/events", b"", server.clock.now())
    headers |= {"Content-Type": "application/octet-stream", "Content-Length": "18"}
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    assert server.ask("POST", "/push/events", b'{"data":{"n":"1"}}', **sent).status == 415


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"data":{"n":1},"data":{"n":2}}', "data"),
        (b'{"data":{"n":1,"n":2}}', "n"),
        (b'{"data":{"a":[{"n":1,"\\u006e":2}]}}', "n"),
        (b'{"data":{"n" :1,"x":"\\u003a","n" :2}}', "n"),
        (b'{"data":{"a":"\\ud800","n":1,"n":2}}', "n"),
    ],
)
def test_a_body_that_repeats_a_member_is_refused(stand: MakeStand, body: bytes, name: str) -> None:
    server = stand(opened())
    answer = server.ask("POST", "/push/events", body)
    assert answer.error == (400, f"Body repeats the member {name!r}: send each name once per object")
    assert server.ask("POST", "/push/events", b'{"data":{"n":1,"a":{"n":[{"n":"n:n"}]}}}').status == 200


def test_a_certificate_that_repeats_a_member_is_refused(stand: MakeStand) -> None:
    server = stand(EVENTS)
    cert = device()
    text = json.dumps(cert)[:-1] + f', "exp": {cert["exp"]}}}'
    authorization = "Cap " + b64encode(text.encode()).decode()
    answer = server.ask("GET", "/pull/events/d1?last=1", cap=(cert, ALICE), authorization=authorization)
    assert answer.error == UNAUTHORIZED


def test_a_program_gives_roles(stand: MakeStand) -> None:
    def staff(caller: Caller, params: Mapping[str, str]) -> list[str]:
        return ["staff"] if caller.identity == ALICE.user_id and params["day"] != "sunday" else []

    rota = Collection(
        name="rota", storage_path="rota/{day}", read_roles=("staff",), write_roles=("staff",), append_only=AppendOnly()
    )
    server = stand(rota, roles=Roles(enricher=staff))
    assert server.push("rota/monday", {}, author=ALICE, cap=(device(), ALICE)).status == 200
    assert server.push("rota/sunday", {}, author=ALICE, cap=(device(), ALICE)).error == FORBIDDEN
    assert server.pull("rota/monday", cap=(device(BOB, BOB), BOB)).error == FORBIDDEN
    batch = "/batch/pull?collections=rota&" + (
        'params={"rota":[{"day":"monday"},{"day":"sunday"}]}&appendParams={"rota":[{"last":1},{"last":1}]}'
    )
    first, second = server.get(batch, cap=(device(), ALICE)).json["collections"]["rota"]
    assert len(first["data"]["items"]) == 1
    assert second == {"error": "Forbidden"}


def test_a_program_says_who_asks(stand: MakeStand) -> None:
    async def session(request: RoleRequest) -> Caller | None:
        user = request.headers.get("x-session")
        return None if user is None else Caller(identity=user)

    server = stand(OWN, roles=Roles(resolver=session))
    answer = server.ask("POST", "/push/users/u1/log", {"data": {}}, x_session="u1")
    assert answer.error == (400, "append requires authorPubkey and authorSignature"), "that far it gets"
    assert server.ask("POST", "/push/users/u2/log", {"data": {}}, x_session="u1").error == FORBIDDEN


def test_fields_are_for_some(stand: MakeStand) -> None:
    fields = {"secret": FieldPermission(read_roles=("device:root",), write_roles=("device:root",))}
    server = stand(
        Collection(
            name="events", storage_path="events", read_roles=("cap:read:*",), write_roles=("cap:write:*",),
            append_only=AppendOnly(), field_permissions=fields,
        )
    )  # fmt: skip
    root, other = (device(), ALICE), (device(ALICE, BOB), BOB)
    assert server.push("events", {"secret": 1, "a": 2}, author=ALICE, cap=root).status == 200
    assert server.pull("events", cap=root).items[0]["data"] == {"secret": 1, "a": 2}
    assert server.pull("events", cap=other).items[0]["data"] == {"a": 2}
    answer = server.push("events", {"secret": 1}, author=BOB, cap=other)
    assert answer.error == (403, "Field 'secret' is not writable with your roles")


def limited(**limits: object) -> Collection:
    return Collection(
        name="open", storage_path="open", read_roles=("public",), write_roles=("public",),
        append_only=AppendOnly(require_author_signature=False), rate_limit=CollectionRateLimit(**limits),  # type: ignore[arg-type]
    )  # fmt: skip


def pushes(server: Stand, peer: str = "", **headers: str) -> int:
    return server.ask("POST", "/push/open", {"data": {}}, peer=peer, **headers).status


def test_who_pushes_too_often_is_told_when_to_come_again(stand: MakeStand) -> None:
    server = stand(limited(window_ms=1500, max_requests=2))
    assert [pushes(server, "1.1.1.1") for _ in range(3)] == [200, 200, 429]
    assert pushes(server, "2.2.2.2") == 200
    answer = server.ask("POST", "/push/open", {"data": {}}, peer="1.1.1.1")
    assert (answer.error, answer.headers["retry-after"]) == ((429, "Rate limit exceeded"), "2")
    server.clock.advance(1500)
    assert pushes(server, "1.1.1.1") == 200


@pytest.mark.parametrize("restarted", [False, True])
def test_replays_do_not_use_up_the_rate_limit_of_an_author(stand: MakeStand, tmp_path: Path, restarted: bool) -> None:
    rule = RateRule(window_ms=1000, max_requests=3)
    rules = AppendOnly(require_author_signature=False)
    limited = msgspec.structs.replace(EVENTS, append_only=rules, rate_limit=CollectionRateLimit(push=rule))
    server = stand(limited, path=tmp_path / "data")
    headers = headers_of(device(), ALICE, "POST", "/push/events/d1", b'{"data":{}}', NOW)
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    assert server.ask("POST", "/push/events/d1", b'{"data":{}}', **sent, peer="1.1.1.1").status == 200
    if restarted:
        server.engine.close()
        server = stand(limited, path=tmp_path / "data")
    replays = [server.ask("POST", "/push/events/d1", b'{"data":{}}', **sent, peer="6.6.6.6") for _ in range(5)]
    assert [answer.status for answer in replays] == [200, 200, 200, 429, 429]
    again = server.ask("POST", "/push/events/d1", {"data": {}}, cap=(device(), ALICE), peer="1.1.1.1")
    assert again.status == 200


def test_what_a_client_says_of_its_address_does_not_count(stand: MakeStand) -> None:
    server = stand(limited(window_ms=1000, max_requests=1))
    assert pushes(server, "1.1.1.1", x_forwarded_for="3.3.3.3") == 200
    assert pushes(server, "1.1.1.1", x_forwarded_for="4.4.4.4") == 429


def test_what_a_trusted_proxy_says_does(stand: MakeStand) -> None:
    server = stand(limited(window_ms=1000, max_requests=1), trusted_proxy_hops=1)
    assert pushes(server, "9.9.9.9", x_forwarded_for="3.3.3.3") == 200
    assert pushes(server, "9.9.9.9", x_forwarded_for="4.4.4.4") == 200
    assert pushes(server, "9.9.9.9", x_forwarded_for="5.5.5.5, 4.4.4.4") == 429


@pytest.mark.parametrize("target", ["/pull/open?last=1", "/batch/pull?collections=open"])
def test_pulls_have_limits_of_their_own_and_batches_none(stand: MakeStand, target: str) -> None:
    server = stand(limited(pull=RateRule(window_ms=1000, max_requests=1)))
    statuses = [server.get(target).status for _ in range(3)]
    assert statuses == ([200, 429, 429] if target.startswith("/pull") else [200, 200, 200])

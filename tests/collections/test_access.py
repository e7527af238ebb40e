"""Who may do what, from the request to the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from collections_stand import MakeStand, Stand
from signed_calls import ALICE, BOB, CAROL, NOW, audience, device, member

from strandline.faces.collections import (
    AppendOnly,
    Caller,
    Collection,
    CollectionRateLimit,
    FieldPermission,
    RateRule,
    Request,
    Roles,
)
from strandline.faces.collections.revoking import LOOK_MS
from strandline.signing import minting
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
WRITER = minting.writer("events")
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
    taken = server.context.admission.callers._nonces
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
    server.clock.advance(LOOK_MS)
    server.pull("events/d1", cap=(other, ALICE))
    server._loop.run_until_complete(server._loop.shutdown_default_executor())  # where the file is looked at
    assert server.pull("events/d1", cap=(cert, ALICE)).error == UNAUTHORIZED
    assert server.pull("events/d1", cap=(other, ALICE)).status == 200


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
    async def session(request: Request) -> Caller | None:
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

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from support.signed_calls import ALICE, BOB, NOW, READING, device, plain, signed

from strandline.collections.capabilities import Capabilities
from strandline.collections.config import READ, WRITE, AppendOnly, Collection
from strandline.collections.errors import CollectionError
from strandline.collections.paths import BoundCollection
from strandline.collections.permissions import ANONYMOUS, UNIDENTIFIED, Caller, Scope
from strandline.collections.roles import RoleRequest, Roles, combine
from strandline.collections.settings import CollectionsSettings
from strandline.protocols.collections.authorization import Authorizer
from strandline.protocols.collections.errors import CollectionRefusal, collection_refused
from strandline.service.http import Call


def entry(read: str = "team", write: str = "self", path: str = "events/{identity}", **options: Any) -> BoundCollection:
    collection = Collection(
        name="events", storage_path=path, read_roles=tuple(read.split()), write_roles=tuple(write.split()),
        append_only=AppendOnly(), **options,
    )  # fmt: skip
    return BoundCollection(collection)


def admission(resolver: Any = None, enricher: Any = None, timeout_ms: int = 5000) -> Authorizer:
    return Authorizer(
        Capabilities(CollectionsSettings()), asyncio.to_thread, Roles(resolver=resolver, enricher=enricher), timeout_ms
    )


def admit(door: Authorizer, call: Call, place: BoundCollection, op: str = READ, **params: str) -> Caller:
    async def wait() -> Caller:
        found = door.authorize(call, place, op, params, NOW)
        return found if isinstance(found, Caller) else await found

    try:
        return asyncio.run(wait())
    except CollectionError as error:
        raise collection_refused(error) from None


def refused(door: Authorizer, call: Call, place: BoundCollection, op: str = READ, **params: str) -> tuple[int, str]:
    with pytest.raises(CollectionRefusal) as caught:
        admit(door, call, place, op, **params)
    return caught.value.status, caught.value.answer.error


def test_without_functions_of_an_application_the_answer_is_there_at_once() -> None:
    found = admission().authorize(signed(device(), ALICE), entry(read="cap:read:*"), READ, {}, NOW)
    assert isinstance(found, Caller)


def test_at_what_is_public_nobody_is_asked() -> None:
    door, call = admission(), signed(device(), BOB)  # whose signature is wrong
    assert admit(door, call, entry(read="public")) is UNIDENTIFIED
    call = signed(device(), ALICE)
    caller = admit(door, call, entry(write="public"), WRITE)
    assert msgspec.structs.replace(caller, request_id=None) == UNIDENTIFIED
    assert admit(door, call, entry(write="public"), WRITE) == caller, "the same request is recognised"
    assert admit(door, plain("POST", "/push/events/a"), entry(write="public"), WRITE) is UNIDENTIFIED
    assert admit(door, call, entry(read="cap:read:*")).presenter == ALICE.public, "it was not used up"


def test_what_is_for_roots_is_never_public() -> None:
    assert refused(admission(), plain("GET", "/pull/events/a"), entry(read="public", root_only=True)) == (
        403,
        "Forbidden",
    )


def test_who_owns_a_document_may_write_it() -> None:
    target = f"/push/events/{ALICE.user_id}"
    call = signed(device(), ALICE, "POST", target, b"{}")
    caller = admit(admission(), call, entry(), WRITE, identity=ALICE.user_id)
    assert "self" in caller.roles
    call = signed(device(**READING), ALICE, "POST", target, b"{}")
    assert refused(admission(), call, entry(), WRITE, identity=ALICE.user_id) == (403, "Forbidden")


def test_the_body_may_be_as_large_as_the_collection_allows() -> None:
    body = b" " * 100_000
    call = signed(device(), ALICE, "POST", "/push/events/a", body)
    assert refused(admission(), call, entry(write="cap:write:*"), WRITE) == (413, "request body too large")
    assert admit(admission(), call, entry(write="cap:write:*", max_body_bytes=100_000), WRITE)


# --- enrichers ---------------------------------------------------------------------------------------------------


def team(caller: Caller, params: Mapping[str, str]) -> Iterable[str]:
    return ["team"] if caller.identity == params["identity"] else []


async def staff(caller: Caller, params: Mapping[str, str]) -> list[str]:
    await asyncio.sleep(0)
    return ["staff"]


@pytest.mark.parametrize("enricher", [team, combine(staff, team)])
def test_an_enricher_gives_roles(enricher: Any) -> None:
    door = admission(enricher=enricher)
    caller = admit(door, signed(device(), ALICE), entry(), identity=ALICE.user_id)
    assert {"team", "self", "cap:read:*"} <= caller.roles
    assert refused(door, plain("GET", "/pull/events/a"), entry(), identity="x") == (403, "Forbidden")


def test_the_roles_of_an_enricher_do_not_widen_a_certificate() -> None:
    door = admission(enricher=combine(staff))
    narrow = device(ops=["read"], collections=["notes"], paths=["**"])
    assert refused(door, signed(narrow, ALICE), entry(read="staff")) == (403, "Forbidden")
    assert admit(door, signed(narrow, ALICE), entry(read="staff", strict=False)).identity == ALICE.user_id


def test_an_enricher_that_fails_is_an_error_of_the_server() -> None:
    def broken(caller: Caller, params: Mapping[str, str]) -> list[str]:
        raise LookupError("the database is gone")

    door = admission(enricher=broken)
    assert refused(door, signed(device(), ALICE), entry()) == (500, "Authorization error")


def test_an_enricher_may_wait() -> None:
    def slow(caller: Caller, params: Mapping[str, str]) -> list[str]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # it has a thread of its own
        return ["team"]

    assert "team" in admit(admission(enricher=slow), signed(device(), ALICE), entry()).roles


# --- resolvers ---------------------------------------------------------------------------------------------------


def by_header(request: RoleRequest) -> Caller | None:
    name = request.headers.get("x-user")
    return None if name is None else Caller(identity=name, roles=frozenset(("team",)))


def test_a_resolver_says_who_asks() -> None:
    call = plain("GET", "/pull/events/u1?last=1", headers={"X-User": "u1"})
    caller = admit(admission(by_header), call, entry(), identity="u1")
    assert (caller.identity, caller.presenter, caller.roles) == ("u1", None, {"team", "self"})


def test_a_resolver_that_does_not_know_leaves_it_to_the_certificate() -> None:
    door = admission(by_header)
    assert admit(door, signed(device(), ALICE), entry(read="cap:read:*")).presenter == ALICE.public


def test_the_scope_that_a_resolver_gives_is_kept_to() -> None:
    scope = Scope(ops=frozenset(("read",)), collections=frozenset("*"), paths=("events/mine",))
    door = admission(lambda request: Caller(identity="u1", roles=frozenset(("team",)), scope=scope))
    assert admit(door, plain("GET", "/pull/events/mine"), entry(path="events/{day}")).identity == "u1"
    assert refused(door, plain("GET", "/pull/events/other"), entry(path="events/{day}")) == (403, "Forbidden")


def test_a_resolver_sees_the_whole_request() -> None:
    seen: list[RoleRequest] = []

    async def look(request: RoleRequest) -> Caller:
        seen.append(request)
        return ANONYMOUS

    call = plain("POST", "/push/a%40?b=c", b"body", {"X-One": "1"})
    refused(admission(look), call, entry(), WRITE)
    assert seen == [RoleRequest(method="POST", path="/push/a%40", query="b=c", headers={"x-one": "1"}, body=b"body")]


class Rejected(Exception):
    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Rejected(403, "no"), (403, "Forbidden")),
        (Rejected(413, "much too much"), (413, "much too much")),
        (Rejected(413), (413, "Payload too large")),
        (Rejected(402), (401, "Unauthorized")),
        (LookupError("gone"), (401, "Unauthorized")),
    ],
)
def test_what_a_resolver_raises_is_answered(error: Exception, answer: tuple[int, str]) -> None:
    def broken(request: RoleRequest) -> Caller:
        raise error

    assert refused(admission(broken), plain("GET", "/pull/events/a"), entry()) == answer


def test_a_resolver_that_takes_too_long_is_not_waited_for() -> None:
    async def slow(request: RoleRequest) -> Caller:
        await asyncio.Event().wait()
        raise AssertionError

    door = admission(slow, timeout_ms=1)
    assert refused(door, plain("GET", "/pull/events/a"), entry()) == (503, "Unauthorized")


def test_a_resolver_that_answers_something_else_is_not_believed() -> None:
    door = admission(lambda request: "root")
    assert refused(door, plain("GET", "/pull/events/a"), entry()) == (401, "Unauthorized")


# --- several documents -------------------------------------------------------------------------------------------


def test_for_several_documents_one_is_identified_once_and_enriched_for_each() -> None:
    async def ask() -> None:
        door = admission(enricher=team)
        caller = door.identify(signed(device(), ALICE, target="/batch/pull?collections=events"), NOW)
        assert isinstance(caller, Caller)
        own = door.enrich(caller, entry(), {"identity": ALICE.user_id})
        others = door.enrich(caller, entry(), {"identity": BOB.user_id})
        assert not isinstance(own, Caller)
        assert not isinstance(others, Caller)
        assert {"self", "team"} <= (await own).roles
        assert not {"self", "team"} & (await others).roles

    asyncio.run(ask())


def test_without_an_enricher_only_self_is_added() -> None:
    door, caller = admission(), Caller(identity="u1")
    assert door.enrich(caller, entry(), {"identity": "u1"}) == Caller(identity="u1", roles=frozenset(("self",)))


def test_a_resolver_is_asked_for_several_documents_too() -> None:
    async def ask() -> Caller:
        found = admission(by_header).identify(plain("GET", "/batch/pull", headers={"X-User": "u1"}), NOW)
        assert not isinstance(found, Caller)
        return await found

    assert asyncio.run(ask()).identity == "u1"


def test_an_enricher_that_takes_too_long_is_not_waited_for() -> None:
    async def never(caller: Caller, params: Mapping[str, str]) -> Iterable[str]:
        await asyncio.Event().wait()
        return ()

    door = admission(enricher=never, timeout_ms=1)
    assert refused(door, signed(device(), ALICE), entry())[0] == 503

from __future__ import annotations

from typing import Any

import pytest

from strandline.collections.config import LIST, READ, WRITE, AppendOnly, Collection, FieldPermission
from strandline.collections.errors import CollectionError
from strandline.collections.paths import StoragePath
from strandline.collections.permissions import (
    ANONYMOUS,
    UNIDENTIFIED,
    Caller,
    Scope,
    check_access,
    check_fields_writable,
    hidden_fields,
    may,
    with_self,
)


def collection(read: list[str], write: list[str], **options: Any) -> Collection:
    return Collection(
        name="events", storage_path="events/{identity}", read_roles=tuple(read), write_roles=tuple(write),
        append_only=AppendOnly(), **options,
    )  # fmt: skip


def holder(*roles: str, ops: str = "read", collections: str = "events") -> Caller:
    """Somebody with a certificate."""
    scope = Scope(ops=frozenset(ops.split()), collections=frozenset(collections.split()))
    return Caller(identity="alice", roles=frozenset(roles), presenter="key", scope=scope)


def test_one_of_the_roles_is_enough() -> None:
    events = collection(["a", "b"], ["c"])
    assert may(events, READ, Caller(roles=frozenset(("b", "x"))))
    assert not may(events, WRITE, Caller(roles=frozenset(("b", "x"))))
    assert may(events, LIST, Caller(roles=frozenset("a")))


def test_without_any_role_nobody_may() -> None:
    assert not may(collection(["a"], []), WRITE, Caller(roles=frozenset(("a", "public", ""))))


def test_what_is_public_is_for_everybody() -> None:
    events = collection(["public"], ["a"])
    assert may(events, READ, UNIDENTIFIED)
    assert may(events, READ, ANONYMOUS)
    assert not may(events, WRITE, ANONYMOUS)


def test_roles_are_compared_as_they_are() -> None:
    assert may(collection(["cap:read:*"], []), READ, holder("cap:read:*", collections="*"))
    assert not may(collection(["cap:read:events"], []), READ, holder("cap:read:*", collections="*"))


def test_who_may_not_is_forbidden() -> None:
    with pytest.raises(CollectionError) as caught:
        check_access(collection(["a"], ["a"]), READ, ANONYMOUS)
    assert caught.value.code == "forbidden"


def test_a_collection_for_roots_takes_no_other_device() -> None:
    events = collection(["a"], ["a"], root_only=True)
    assert not may(events, READ, Caller(roles=frozenset("a")))
    assert may(events, READ, Caller(roles=frozenset(("a", "device:root"))))
    assert not may(events, READ, Caller(roles=frozenset(("device:root",)))), "the roles are needed as well"


def test_self_is_who_the_document_is_named_after() -> None:
    template = StoragePath("events/{identity}")
    assert "self" in with_self(holder(), template, {"identity": "alice"}).roles
    assert "self" not in with_self(holder(), template, {"identity": "bob"}).roles
    assert "self" not in with_self(holder(), StoragePath("events/{owner}"), {"owner": "alice"}).roles
    assert "self" not in with_self(ANONYMOUS, template, {"identity": ""}).roles


def test_a_certificate_that_may_only_read_does_not_write_its_own_documents() -> None:
    events = collection(["self"], ["self"])
    reader = holder("cap:read:events", "self", ops="read")
    assert may(events, READ, reader)
    assert not may(events, WRITE, reader)
    assert may(events, WRITE, holder("self", ops="write"))
    assert not may(events, LIST, reader)
    assert may(events, LIST, holder("self", ops="list"))


def test_a_certificate_for_another_collection_does_not_open_this_one() -> None:
    events = collection(["self", "team"], ["self"])
    assert not may(events, READ, holder("self", ops="read", collections="notes"))
    assert not may(events, READ, holder("team", ops="read", collections="notes"))
    assert may(events, READ, holder("team", ops="read", collections="*"))


def test_a_collection_that_is_not_strict_goes_by_roles_alone() -> None:
    events = collection(["self"], ["self"], strict=False)
    assert may(events, WRITE, holder("self", ops="read", collections="notes"))


def test_a_role_that_names_a_certificate_of_another_collection_is_meant() -> None:
    shared = collection(["cap:read:notes"], [])
    assert may(shared, READ, holder("cap:read:notes", collections="notes"))


def test_without_a_certificate_there_is_no_scope_to_keep_to() -> None:
    assert may(collection(["self"], ["self"]), WRITE, Caller(identity="alice", roles=frozenset(("self",))))


def test_a_scope_covers_what_its_patterns_say() -> None:
    scope = Scope(ops=frozenset(), collections=frozenset(), paths=("users/{identity}/**", "!users/{identity}/secret"))
    assert scope.covers("users/alice/a", "alice")
    assert not scope.covers("users/alice/a", "bob")
    assert not scope.covers("users/alice/secret/x", "alice")
    assert Scope(ops=frozenset(), collections=frozenset()).covers("anything", "alice")


PERMISSIONS = {
    "adm": FieldPermission(write_roles=("admin",), read_roles=("admin",)),
    "open": FieldPermission(write_roles=("public",), read_roles=("public", "admin")),
    "free": FieldPermission(),
}


def test_a_field_that_others_may_send_is_refused() -> None:
    events = collection(["a"], ["a"], field_permissions=PERMISSIONS)
    check_fields_writable(events, frozenset(), ["open", "free", "unknown"])
    check_fields_writable(events, frozenset(("admin",)), ["adm"])
    with pytest.raises(CollectionError) as caught:
        check_fields_writable(events, frozenset(("user",)), ["free", "adm"])
    assert (caught.value.code, str(caught.value)) == (
        "field_not_writable",
        "Field 'adm' is not writable with your roles",
    )


def test_a_field_that_others_may_see_is_hidden() -> None:
    events = collection(["a"], ["a"], field_permissions=PERMISSIONS)
    assert hidden_fields(events, frozenset()) == {"adm"}
    assert hidden_fields(events, frozenset(("admin",))) == set()
    assert hidden_fields(collection(["a"], ["a"]), frozenset()) == set()

from __future__ import annotations

from typing import Any

import pytest

from strandline.collections import AppendOnly, Collection, Declared, Namespace, RateLimit, Revocations, Roles
from strandline.collections.errors import BadCollections


def collection(name: str, **options: Any) -> Collection:
    chosen: dict[str, Any] = {"storage_path": name, "read_roles": ["public"], "append_only": AppendOnly(), **options}
    return Collection(name=name, **chosen)


def test_what_a_module_declares_is_found_among_its_values() -> None:
    events, chat = collection("events"), collection("chat")
    roles, revocations = Roles(enricher=lambda caller, params: []), Revocations()
    values = [1, "x", events, Namespace(name="acme", collections=[chat]), events, roles, revocations, Collection]
    declared = Declared.of([*values, RateLimit(window_ms=1, max_requests=1)])
    assert declared.roles is roles
    assert declared.revocations is revocations
    config = declared.config()
    assert [one.name for one in config.collections] == ["events"]
    assert [one.name for one in config.namespaces["acme"]] == ["chat"]
    assert config.rate_limit == RateLimit(window_ms=1, max_requests=1)


def test_a_collection_of_a_namespace_is_not_served_outside_of_it() -> None:
    chat = collection("chat")
    config = Declared.of([chat, Namespace(name="acme", collections=[chat])]).config()
    assert config.collections == ()


def test_lists_become_what_they_are_meant_to_be() -> None:
    (read,) = Declared.of([collection("events")]).config().collections
    assert read.read_roles == ("public",)


def test_what_is_wrong_with_declared_collections_is_told() -> None:
    with pytest.raises(BadCollections) as caught:
        Declared.of([collection("a", read_roles="public"), collection("b", object_schema={"x": object()})]).config()
    first, second = caught.value.errors
    assert first == "declared in Python: collection \"a\": read_roles is 'public'; expected a list of roles"
    assert second.startswith('declared in Python: collection "b": ')


def test_there_can_be_one_of_what_goes_for_all() -> None:
    with pytest.raises(BadCollections, match="found 2 Roles objects"):
        Declared.of([Roles(), Roles(resolver=lambda request: None)])

from __future__ import annotations

from typing import Any

from strandline.collections.config import READ, WRITE, AppendOnly, Collection
from strandline.collections.paths import PathIndex


def collection(name: str, path: str, **options: Any) -> Collection:
    return Collection(name=name, storage_path=path, read_roles=("public",), append_only=AppendOnly(), **options)


def found(catalogue: PathIndex, path: str, op: str = READ) -> tuple[str, dict[str, str]] | None:
    place = catalogue.find(path.split("/"), op)
    return None if place is None else (place.bound.collection.name, place.params)


def test_a_path_leads_to_the_collection_that_was_declared_first() -> None:
    catalogue = PathIndex([collection("special", "rooms/lobby"), collection("any", "rooms/{room}")])
    assert found(catalogue, "rooms/lobby") == ("special", {})
    assert found(catalogue, "rooms/other") == ("any", {"room": "other"})
    assert found(catalogue, "rooms") is None
    turned = PathIndex([collection("any", "rooms/{room}"), collection("special", "rooms/lobby")])
    assert found(turned, "rooms/lobby") == ("any", {"room": "lobby"})


def test_a_collection_without_a_route_is_passed_over() -> None:
    catalogue = PathIndex([collection("in", "a/{b}", push_only=True), collection("out", "a/{b}", pull_only=True)])
    assert found(catalogue, "a/1", WRITE) == ("in", {"b": "1"})
    assert found(catalogue, "a/1", READ) == ("out", {"b": "1"})


def test_only_listable_collections_are_listed() -> None:
    catalogue = PathIndex([collection("no", "a/{b}"), collection("yes", "rooms/{room}/{day}", listable=True)])
    place = catalogue.find_list(["rooms", "r1"])
    assert place is not None
    assert (place.bound.collection.name, place.params) == ("yes", {"room": "r1"})
    assert catalogue.find_list(["a"]) is None


def test_members_of_a_bundle_are_found_together_and_each_by_its_own_name() -> None:
    members = [
        Collection(name=name, storage_path="users/{identity}", read_roles=("self",), bundle="b") for name in "ab"
    ]
    catalogue = PathIndex([*members, collection("others", "users/{id}/{name}")])
    assert found(catalogue, "users/u1/a") == ("a", {"identity": "u1"})
    assert found(catalogue, "users/u1/c") == ("others", {"id": "u1", "name": "c"})
    assert found(catalogue, "users/u1") is None
    bundle = catalogue.resolve_bundle("users/u1")
    assert bundle is not None
    assert ([bound.collection.name for bound in bundle.members], bundle.params) == (["a", "b"], {"identity": "u1"})
    assert catalogue.resolve_bundle("users/u1/a") is None

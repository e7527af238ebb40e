"""GET /list: the documents of a collection. GET /config: the collections of the server."""

from __future__ import annotations

import pytest
from support.collections_in_process import MakeStand, Stand, opened
from support.signed_calls import ALICE, BOB, device

from strandline.collections import Collection, RateLimit
from strandline.collections.config import CollectionRateLimit, RateRule


def listed(server: Stand, target: str) -> tuple[list[str], bool]:
    answer = server.get(target)
    assert answer.status == 200, answer
    return answer.json["items"], answer.json["hasMore"]


def test_documents_are_listed_in_order_and_in_pages(stand: MakeStand) -> None:
    server = stand(opened(path="events/{id}", listable=True))
    assert listed(server, "/list/events") == ([], False)
    for id in ("b", "a", "c", "a.b", "Z"):
        server.pushed(f"events/{id}", {})
    everything = ["Z", "a", "a.b", "b", "c"]
    assert listed(server, "/list/events") == (everything, False)
    assert listed(server, "/list/events?limit=2") == (["Z", "a"], True)
    assert listed(server, "/list/events?limit=2&after=a") == (["a.b", "b"], True)
    assert listed(server, "/list/events?limit=5") == (everything, False)
    assert listed(server, "/list/events?after=c") == ([], False)


def test_what_belongs_to_others_is_not_listed(stand: MakeStand) -> None:
    server = stand(
        opened(path="events/{id}", listable=True),
        opened("deep", "events/{id}/more/{n}"),
        opened("next", "events2/{id}"),
    )
    server.pushed("events/a", {})
    server.pushed("events/m", {})
    server.pushed("events2/x", {})
    for n in range(5):
        server.pushed(f"events/b/more/{n}", {})
    server.engine.create("events/log").wait()
    assert listed(server, "/list/events") == (["a", "m"], False)
    assert listed(server, "/list/events?limit=1") == (["a"], True)


def test_placeholders_before_the_last_are_in_the_path(stand: MakeStand) -> None:
    server = stand(opened(path="{team}/rooms/{room}", listable=True))
    for path in ("x/rooms/1", "x/rooms/2", "y/rooms/3"):
        server.pushed(path, {})
    assert listed(server, "/list/x/rooms") == (["1", "2"], False)
    assert listed(server, "/list/y/rooms") == (["3"], False)
    assert server.get("/list/x").status == 404
    assert server.get("/list/a%20b/rooms").error == (400, "Invalid path parameter")


@pytest.mark.parametrize("limit", ["0", "-1", "x", "", "01", "1.5"])
def test_a_limit_that_is_none_is_refused(stand: MakeStand, limit: str) -> None:
    server = stand(opened(path="events/{id}", listable=True))
    assert server.get(f"/list/events?limit={limit}").error == (400, "Invalid limit parameter")


def test_a_page_has_no_more_than_a_thousand(stand: MakeStand) -> None:
    server = stand(opened(path="events/{id}", listable=True, durability="memory"))
    for n in range(1002):
        server.pushed(f"events/{n:04}", {})
    items, more = listed(server, "/list/events?limit=100000")
    assert (len(items), more) == (1000, True)
    assert listed(server, "/list/events?after=0999") == (["1000", "1001"], False)
    assert len(listed(server, "/list/events")[0]) == 100


def test_only_what_is_listable_is_listed_and_only_to_those_who_may(stand: MakeStand) -> None:
    server = stand(
        opened("open", "open/{id}"),
        opened("closed", "closed/{id}", listable=True, read_roles=("cap:list:*",)),
    )
    server.pushed("closed/a", {})
    assert server.get("/list/open").status == 404
    assert server.get("/list/closed").error == (403, "Forbidden")
    assert server.get("/list/closed", cap=(device(), ALICE)).json == {"items": ["a"], "hasMore": False}


def test_one_list_too_many_is_refused(stand: MakeStand) -> None:
    limits = CollectionRateLimit(list=RateRule(max_requests=1))
    collection = opened(path="e/{id}", listable=True, rate_limit=limits)
    server = stand(collection, rate_limit=RateLimit(window_ms=1000, max_requests=100))
    assert server.get("/list/e").status == 200
    assert server.get("/list/e").error == (429, "Rate limit exceeded")


# --- GET /config -----------------------------------------------------------------------------------------------------

OPEN = opened("open", "open", max_items=5, field="entries", ttl_ms=7, push_only=True)
CLOSED = opened("closed", "closed", read_roles=("cap:read:*",), write_roles=("admin",), encryption="delegated")
REGULAR = Collection(name="regular", storage_path="r", read_roles=("x",), pull_only=True)


def test_it_is_not_there_unless_it_is_wanted(stand: MakeStand) -> None:
    assert stand(OPEN).get("/config").status == 404


def test_everybody_may_be_told_everything(stand: MakeStand) -> None:
    server = stand(OPEN, CLOSED, REGULAR, namespaces={"ns": (OPEN,)}, config_endpoint="public")
    told = server.get("/config").json
    first, second, third = told["collections"]
    assert first == {
        "name": "open", "maxBodyBytes": 65536, "encryption": "none", "allowedMimeTypes": ["application/json"],
        "pushOnly": True, "ttlMs": 7,
        "appendOnly": {"type": "by_timestamp", "field": "entries", "maxItems": 5, "requireAuthorSignature": False},
    }  # fmt: skip
    assert second["encryption"] == "delegated"
    assert (third["pullOnly"], "appendOnly" in third) == (True, False)
    assert told["namespaces"] == {"ns": {"collections": [first]}}


def test_or_everybody_what_concerns_them(stand: MakeStand) -> None:
    server = stand(OPEN, CLOSED, config_endpoint="role-filtered")
    assert [one["name"] for one in server.get("/config").json["collections"]] == ["open"]
    assert [one["name"] for one in server.get("/config", cap=(device(), ALICE)).json["collections"]] == ["closed"]
    assert server.get("/config", cap=(device(), BOB)).json == {"collections": []}, "nobody is told why"

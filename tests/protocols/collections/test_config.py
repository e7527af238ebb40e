"""GET /config: which collections there are."""

from __future__ import annotations

from support.collections_in_process import MakeStand, opened
from support.signed_calls import ALICE, BOB, device

from strandline.collections import Collection

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

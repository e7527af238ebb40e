"""Routers: from where to where, how much goes through, and how far they are behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.console_in_process import ConsoleStand


def router(stand: ConsoleStand, name: str, source: str, destination: str, **more: Any) -> None:
    key = {"key": more.pop("key")} if "key" in more else {}
    made = stand.ask("PUT", f"/v0/routers/{name}", {"source": source, "dest": destination, **more}, **key)
    assert made.status == 201, made


def test_the_graph_has_routers_and_the_logs_they_connect(stand: ConsoleStand) -> None:
    router(stand, "copies", "orders", "copies", filter=["tag", "Glob", "vip-*"], guarantee="exactly_once")
    router(stand, "audit", "orders", "audit")
    found = stand.get("/routers")
    assert found["logs"] == ["audit", "copies", "orders"]
    audit, copies = found["routers"]
    assert audit == {
        "name": "audit",
        "source": "orders",
        "destination": "audit",
        "filter": None,
        "lag": 0,
        "forwarded": 0,
        "rate": None,
        "paused": False,
        "guarantee": "at_least_once",
        "allow_cycle": False,
    }
    assert (copies["filter"], copies["guarantee"]) == ({"prefix": "vip-"}, "exactly_once")


def test_it_is_measured_how_much_goes_through(stand: ConsoleStand) -> None:
    router(stand, "audit", "orders", "audit")
    stand.sample()
    stand.log("orders", 1, 2, 3, 4)
    stand.settle()
    stand.sample(2_000)
    (audit,) = stand.get("/routers")["routers"]
    assert (audit["lag"], audit["forwarded"], audit["rate"]) == (0, 4, 2.0)


def test_a_key_sees_only_routers_between_logs_it_may_touch(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, "all,limited:read:app-") as stand:
        router(stand, "app-in", "app-1", "app-2", key="all")
        router(stand, "app-out", "app-1", "other", key="all")
        router(stand, "other", "app-2", "app-3", key="all")
        found = stand.get("/routers", key="limited")
        assert ([each["name"] for each in found["routers"]], found["logs"]) == (["app-in"], ["app-1", "app-2"])
        assert len(stand.get("/routers", key="all")["routers"]) == 3


def test_without_routers_there_is_no_graph(stand: ConsoleStand) -> None:
    assert stand.get("/routers") == {"routers": [], "logs": []}

"""The fields that can be asked for."""

from __future__ import annotations

from typing import Any

from support.console_in_process import ConsoleStand

from strandline.engine import Batch
from strandline.query.inference import SAMPLE_RECORDS


def fields(stand: ConsoleStand, name: str) -> list[tuple[Any, ...]]:
    return [(each["name"], each["type"], each["from"]) for each in stand.get(f"/fields/{name}")["fields"]]


def test_records_show_what_fields_there_are(stand: ConsoleStand) -> None:
    stand.log(
        "orders", {"id": 1, "price": 2, "who": {"name": "a", "tags": []}, "none": None}, {"id": "x", "price": 2.5}
    )
    assert fields(stand, "orders") == [
        ("id", "mixed", "records"),
        ("price", "float", "records"),
        ("who.name", "string", "records"),
        ("who.tags", "array", "records"),
    ]


def test_declared_fields_come_first(stand: ConsoleStand) -> None:
    stand.stream("shaped", "application/json")
    search = {
        "primaryTimestampField": "at",
        "fields": {
            "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "exact": True, "column": True},
            "level": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/level"}], "exact": True},
        },
        "aliases": {"severity": "level"},
    }
    body = {"schema": {"type": "object"}, "search": search}
    shaped = stand.ask("POST", "/v1/stream/shaped/_schema", body)
    assert shaped.status == 200, shaped
    stand.log("shaped", {"level": "info", "text": "hello"})
    assert fields(stand, "shaped") == [
        ("at", "date", "configuration"),
        ("level", "keyword", "configuration"),
        ("severity", "keyword", "configuration"),
        ("text", "string", "records"),
    ]


def test_what_is_no_object_has_no_fields(stand: ConsoleStand) -> None:
    stand.log("numbers", 1, [2], "three")
    stand.stream("pictures", "image/png", b"\x00")
    assert fields(stand, "numbers") == fields(stand, "pictures") == []


def test_a_search_configuration_is_proposed(stand: ConsoleStand) -> None:
    stand.log("orders", {"at": "2026-11-15T10:00:00Z", "item": "book", "price": {"net": 12.5}}, {"item": "pen"}, 7)
    found = stand.get("/log/orders/inference")
    assert found["records"] == 2
    assert [(field["name"], field["kind"], field["json_pointer"], field["records"]) for field in found["fields"]] == [
        ("at", "date", "/at", 1),
        ("item", "keyword", "/item", 2),
        ("price.net", "float", "/price/net", 1),
    ]
    installed = stand.ask("PUT", "/v0/topics/orders", {"search": found["search"]})
    assert installed.status == 200, installed
    assert installed.json["config"]["search"] == found["search"]
    assert [name for name, _, _ in fields(stand, "orders")][:3] == ["at", "item", "price.net"]


def test_nothing_is_proposed_without_objects(stand: ConsoleStand) -> None:
    stand.log("numbers", 1, [2], "three")
    stand.log("nothing")
    stand.stream("pictures", "image/png", b'{"a":1}')
    for name in ("numbers", "nothing", "pictures"):
        assert stand.get(f"/log/{name}/inference") == {"records": 0, "fields": [], "search": None}


def test_only_the_last_records_are_inspected(stand: ConsoleStand) -> None:
    log = stand.log("many", {"old": 1})
    log.append(Batch([b'{"new":1}'] * SAMPLE_RECORDS)).wait()
    found = stand.get("/log/many/inference")
    assert (found["records"], [field["name"] for field in found["fields"]]) == (SAMPLE_RECORDS, ["new"])

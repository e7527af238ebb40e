"""The fields that can be asked for."""

from __future__ import annotations

from typing import Any

from support.console_in_process import ConsoleStand


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

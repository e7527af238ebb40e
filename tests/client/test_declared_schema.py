"""Schemas of logs from Python types."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from support.either_client import Run

from strandline.client import BadRequest, Search, log_schema


class Method(enum.Enum):
    GET = "get"
    POST = "post"


class Place(msgspec.Struct, rename="camel"):
    zip_code: Annotated[str, Search()]
    note: str = ""


class Visit(msgspec.Struct):
    at: Annotated[datetime, Search()]
    page: Annotated[str, Search(prefix=True, lowercase=True)]
    ms: Annotated[int, Search()]
    place: Place | None = None
    words: Annotated[str | None, Search(text=True)] = None
    tags: list[Annotated[str, Search(name="tag")]] = []
    method: Annotated[Method, Search()] = Method.GET
    hidden: str = ""


@dataclass
class Sale:
    known: ClassVar[int] = 1
    price: Annotated[float, Search()]
    paid: Annotated[bool, Search()]
    by: Annotated[Literal["card", "cash"], Search()]


def fields_of(update: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        name: (field["kind"], field["bindings"][0]["jsonPointer"]) for name, field in update["search"]["fields"].items()
    }


def test_the_kind_of_a_field_follows_from_its_type() -> None:
    update = log_schema(Visit, timestamp="at", default_fields=["words"])
    assert fields_of(update) == {
        "at": ("date", "/at"),
        "page": ("keyword", "/page"),
        "ms": ("integer", "/ms"),
        "place.zipCode": ("keyword", "/place/zipCode"),
        "words": ("text", "/words"),
        "tag": ("keyword", "/tags"),
        "method": ("keyword", "/method"),
    }
    assert update["search"]["primaryTimestampField"] == "at"
    assert update["schema"]["type"] == "object"
    assert update["schema"]["required"] == ["at", "page", "ms"]
    assert update["schema"]["properties"]["method"] == {
        "title": "Method",
        "enum": ["get", "post"],
        "default": "get",
    }
    assert fields_of(log_schema(Sale)) == {
        "price": ("float", "/price"),
        "paid": ("bool", "/paid"),
        "by": ("keyword", "/by"),
    }


class Plain(msgspec.Struct):
    n: int


class Tree(msgspec.Struct):
    name: Annotated[str, Search()]
    left: Tree | None = None


def test_a_type_without_marks_has_no_search_configuration() -> None:
    assert log_schema(Plain) == {
        "schema": {"title": "Plain", "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    }


class Wrong(msgspec.Struct):
    n: Annotated[int, Search(text=True)]


class Unsearchable(msgspec.Struct):
    n: Annotated[dict[str, int], Search()]


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(TypeError, match="'n' cannot be searched like that"):
        log_schema(Wrong)
    with pytest.raises(TypeError, match="'n' cannot be searched: its type is dict"):
        log_schema(Unsearchable)
    with pytest.raises(TypeError, match="Tree cannot be the schema of a log: Tree refers to itself"):
        log_schema(Tree)
    with pytest.raises(TypeError, match="expected a msgspec Struct or a dataclass, got <class 'int'>"):
        log_schema(int)
    with pytest.raises(ValueError, match="'hidden' is not a field of Visit that is marked with Search"):
        log_schema(Visit, default_fields=["hidden"])
    with pytest.raises(ValueError, match="rollups need fields"):
        log_schema(Plain, rollups={"n": {}})


def test_a_stream_takes_the_schema_and_searches_by_it(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name, Visit)
        await stream.create()
        rollups = {"time": {"intervals": ["1h"], "measures": {"ms": {"kind": "summary", "field": "ms"}}}}
        update = log_schema(Visit, timestamp="at", default_fields=["words"], rollups=rollups)
        await stream.set_schema(update)
        at = datetime(2026, 11, 15, 10, tzinfo=UTC)
        visits = [
            Visit(at, "/Pay", 250, Place("1010"), "paid by card", ["new", "eu"]),
            Visit(at, "/", 12, method=Method.POST),
        ]
        await stream.append_many(visits)
        for query, found in (
            ("page:/pa*", [0]),
            ("card", [0]),
            ('words:"by card"', [0]),
            ("tag:eu", [0]),
            ("place.zipCode:1010", [0]),
            ("ms:<100", [1]),
            ("method:post", [1]),
        ):
            assert [hit.source async for hit in stream.hits(query)] == [visits[each] for each in found], query
        assert [hit.source.ms async for hit in stream.hits("has:ms", sort=["ms:asc"])] == [12, 250]
        summed = await stream.aggregate("time", start=at, end=datetime(2026, 11, 15, 11, tzinfo=UTC), interval="1h")
        assert summed.buckets[0].groups[0].measures["ms"].sum == 262
        with pytest.raises(BadRequest):
            await client.stream(name).append({"page": "/"})

    run(scenario)

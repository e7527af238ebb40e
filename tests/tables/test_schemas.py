from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from strandline.tables import BadDeclaration, TableError
from strandline.tables.schemas import Schema, schema_of

Short = Annotated[str, msgspec.Meta(min_length=1, max_length=5)]


class Kind(Enum):
    A = "a"
    B = "b"


class AsStruct(msgspec.Struct):
    name: Short
    size: int
    kind: Kind | None = None
    at: datetime | None = None
    tags: list[str] = []

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("thirteen is not wanted")


@dataclass
class AsDataclass:
    name: Short
    size: int
    kind: Kind | None = None
    at: datetime | None = None
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("thirteen is not wanted")


class AsModel(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1, max_length=5)
    size: int
    kind: Kind | None = None
    at: datetime | None = None
    tags: list[str] = []

    @pydantic.model_validator(mode="after")
    def check(self) -> AsModel:
        if self.size == 13:
            raise ValueError("thirteen is not wanted")
        return self


AS_JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "size": {"type": "integer"},
        "kind": {"enum": ["a", "b", None]},
        "at": {"type": ["string", "null"], "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "size"],
    "not": {"properties": {"size": {"const": 13}}},
    "additionalProperties": False,
}
DECLARED: list[Any] = [AsStruct, AsDataclass, AsModel, AS_JSON_SCHEMA]
NAMES = ["struct", "dataclass", "pydantic", "json schema"]

every = pytest.mark.parametrize("declared", DECLARED, ids=NAMES)


def errors(schema: Schema, payload: object) -> dict[str, str]:
    with pytest.raises(TableError) as error:
        schema.validate(payload)
    assert error.value.code == "VALIDATION_FAILED"
    assert error.value.fields == list(error.value.field_errors)
    return error.value.field_errors


@every
def test_a_valid_payload_is_taken_as_json(declared: Any) -> None:
    schema = schema_of(declared)
    payload = {"name": "n", "size": 1, "kind": "a", "at": "2024-01-02T03:04:05Z", "tags": ["t"]}
    assert schema.validate(payload) == payload
    assert schema.fields == ("name", "size", "kind", "at", "tags")


@every
def test_every_field_that_is_wrong_is_named(declared: Any) -> None:
    found = errors(schema_of(declared), {"name": "too long", "size": "x", "tags": [1], "kind": "c"})
    assert sorted(found) == ["kind", "name", "size", "tags"]
    assert all(found.values())


@every
def test_a_field_that_is_missing_is_named(declared: Any) -> None:
    with pytest.raises(TableError, match=r"Invalid: name$") as error:
        schema_of(declared).validate({"size": 1})
    assert error.value.fields == ["name"]


@every
def test_a_payload_that_is_wrong_as_a_whole_says_why(declared: Any) -> None:
    with pytest.raises(TableError) as error:
        schema_of(declared).validate({"name": "n", "size": 13})
    assert error.value.code == "VALIDATION_FAILED"
    assert error.value.fields == []
    assert len(error.value.message) > len("Invalid: ")


@every
@pytest.mark.parametrize("payload", [None, 1, "text", [1], [("name", "n")]])
def test_a_payload_must_be_an_object(declared: Any, payload: object) -> None:
    assert list(errors(schema_of(declared), payload)) == ["payload"]


@every
def test_a_patch_is_checked_with_the_rest_of_the_payload(declared: Any) -> None:
    schema = schema_of(declared)
    payload = schema.validate({"name": "n", "size": 1})
    assert schema.patch(payload, {"size": 2}) == {"size": 2}
    for patch, wrong in (
        ({"size": "x"}, ["size"]),
        ({"size": 13}, []),
        ({"name": None, "size": "x"}, ["name", "size"]),
    ):
        with pytest.raises(TableError) as error:
            schema.patch(payload, patch)
        assert sorted(error.value.fields) == wrong


@every
def test_a_patch_with_unknown_fields_is_refused(declared: Any) -> None:
    schema = schema_of(declared)
    with pytest.raises(TableError) as error:
        schema.patch({"name": "n", "size": 1}, {"sise": 2})
    assert error.value.fields == ["sise"]


@pytest.mark.parametrize("declared", [AsStruct, AsDataclass, AsModel], ids=NAMES[:3])
def test_defaults_are_filled_in_and_what_is_unknown_is_left_out(declared: Any) -> None:
    assert schema_of(declared).validate({"name": "n", "size": 1, "other": 2}) == {
        "name": "n", "size": 1, "kind": None, "at": None, "tags": [],
    }  # fmt: skip


def test_a_patch_may_set_a_field_to_a_default_that_is_left_out() -> None:
    class Sparse(msgspec.Struct, omit_defaults=True):
        name: str = ""
        size: int = 0

    schema = schema_of(Sparse)
    assert schema.validate({"name": "n", "size": 0}) == {"name": "n"}
    assert schema.patch({"name": "n"}, {"name": "", "size": 1}) == {"name": "", "size": 1}


def test_a_payload_can_be_an_instance() -> None:
    assert schema_of(AsStruct).validate(AsStruct("n", 1, Kind.A))["kind"] == "a"
    assert schema_of(AsDataclass).validate(AsDataclass("n", 1, Kind.A))["kind"] == "a"
    assert schema_of(AsModel).validate(AsModel(name="n", size=1, kind=Kind.A))["kind"] == "a"


def test_names_in_json_are_those_that_the_schema_says() -> None:
    class Renamed(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
        option_index: int

    class Aliased(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        option_index: int = pydantic.Field(alias="optionIndex")

    for schema in (schema_of(Renamed), schema_of(Aliased)):
        assert schema.validate({"optionIndex": 1}) == {"optionIndex": 1}
        assert sorted(errors(schema, {"option_index": 1})) == ["optionIndex", "option_index"]


def test_an_open_schema_takes_fields_it_does_not_know_but_none_that_rows_have() -> None:
    class Anything(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")

    for schema in (schema_of({"type": "object"}), schema_of(Anything)):
        assert schema.fields is None
        assert schema.validate({"any": [1]}) == {"any": [1]}
        assert list(errors(schema, {"seq": 1, "any": 1, "$x": 2})) == ["seq", "$x"]


@pytest.mark.parametrize("name", ["id", "seq", "parent", "userId", "createdAt", "own", "or", "author", "$x"])
def test_a_schema_cannot_have_fields_that_rows_have(name: str) -> None:
    struct = msgspec.defstruct("Bad", [("field", int, msgspec.field(name=name))])
    for declared in (struct, {"type": "object", "properties": {name: {}}}):
        with pytest.raises(BadDeclaration, match=name.replace("$", "[$]")):
            schema_of(declared)


@pytest.mark.parametrize(
    "declared",
    [
        int,
        "schema",
        None,
        AsStruct("n", 1),
        {"type": "array"},
        {"type": "nonsense"},
        {"$ref": "https://example.org/schema.json"},
        msgspec.defstruct("Listed", [("x", int)], array_like=True),
        msgspec.defstruct("Odd", [("x", complex)]),
    ],
    ids=str,
)
def test_what_cannot_be_a_schema_is_refused(declared: object) -> None:
    with pytest.raises(BadDeclaration):
        schema_of(declared)


def test_text_fields_are_those_with_free_text() -> None:
    class Mixed(msgspec.Struct):
        text: str
        maybe: str | None
        kind: Literal["a", "b"]
        at: datetime
        count: int
        raw: bytes

    assert schema_of(Mixed).text_fields == ("text", "maybe")
    assert schema_of(AsModel).text_fields == ("name",)
    assert schema_of(AS_JSON_SCHEMA).text_fields == ("name",)


def test_a_json_schema_is_not_changed_by_whoever_changes_the_dict() -> None:
    document: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema = schema_of(document)
    document["properties"]["x"]["type"] = "string"
    assert schema.validate({"x": 1}) == {"x": 1}
    assert schema.document["properties"]["x"] == {"type": "integer"}


def test_references_within_a_json_schema_work() -> None:
    schema = schema_of(
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}}
    )
    assert schema.text_fields == ("x",)
    assert list(errors(schema, {"x": 1})) == ["x"]


@pytest.mark.parametrize("reference", ["#/$defs/a%20box", "#/anyOf/0"])
def test_defaults_behind_references_are_filled_in(reference: str) -> None:
    box = {"type": "object", "properties": {"size": {"default": 1}}}
    document = {"type": "object", "properties": {"x": {"$ref": reference}}, "$defs": {"a box": box}, "anyOf": [box, {}]}
    assert schema_of(document).validate({"x": {}})["x"] == {"size": 1}


@every
def test_what_is_no_json_is_refused(declared: Any) -> None:
    for value in (object(), {1: 2}, 1 << 70):
        with pytest.raises(TableError):
            schema_of(declared).validate({"name": value, "size": 1})


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"type": "integer", "default": "s"}, 'the default of \'x\' is invalid: "s" is not of type "integer"'),
        ({"type": "object", "default": {}, "required": ["y"]}, "the default of 'x' is invalid: \"y\" is a required"),
    ],
)
def test_a_default_that_its_field_refuses_cannot_be_declared(field: dict[str, Any], message: str) -> None:
    others = {"always": {"type": "string"}, "sometimes": {"type": "integer", "default": 3}}
    document = {"type": "object", "properties": others, "required": ["always"]}
    assert schema_of(document).validate({"always": "a"}) == {"always": "a", "sometimes": 3}
    with pytest.raises(BadDeclaration, match=re.escape(message)):
        schema_of({**document, "properties": {**others, "x": field}})

from __future__ import annotations

from typing import Any

import pytest

from strandline.schema.errors import SchemaError
from strandline.schema.validation import MAX_DEPTH, MAX_MESSAGES, Validation


def refusal(schema: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        Validation(schema)
    assert caught.value.status == 400
    return str(caught.value)


def complaint(schema: Any, *documents: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        Validation(schema).check(documents)
    return str(caught.value)


def test_documents_that_conform_pass() -> None:
    Validation({"type": "object", "required": ["a"]}).check([{"a": 1}, {"a": None, "b": 2}])
    Validation(True).check([1, "x", None])


def test_all_messages_about_a_document_are_joined() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}
    message = complaint(schema, {"a": 1})
    assert message.count("; ") == 1
    assert '/a value is not of type "string"' in message
    assert '"b" is a required property' in message


def test_the_first_failing_element_is_named() -> None:
    assert complaint({"type": "string"}, "a", 1, 2).startswith("element 1: ")
    assert not complaint({"type": "string"}, 1).startswith("element")


def test_messages_are_bounded_and_do_not_repeat_the_document() -> None:
    message = complaint({"items": {"type": "string"}}, [10**6] * 1000)
    assert message.count("; ") == MAX_MESSAGES
    assert message.endswith("and more")
    assert "1000000" not in message


def test_union_types_and_unknown_keywords_are_fine() -> None:
    validation = Validation({"type": ["string", "null"], "x-color": {"deep": [1]}, "strict": 7})
    assert validation.accepts(None)
    assert validation.accepts("a")
    assert not validation.accepts(1)


@pytest.mark.parametrize(
    "annotations",
    [
        {"title": 5},
        {"description": None},
        {"$id": "not a uri %"},
        {"examples": "x"},
        {"definitions": 5},
        {"$schema": "https://nowhere.invalid/schema"},
        {"$comment": []},
        {"contentEncoding": "base64"},
        {"required": ["a", "a"]},
    ],
)
def test_what_asserts_nothing_can_be_anything(annotations: dict[str, Any]) -> None:
    assert Validation({"properties": {"b": annotations}, **annotations}).accepts({"a": 1, "b": {"a": "%"}})


@pytest.mark.parametrize(
    "schema",
    [
        5,
        None,
        [],
        "string",
        {"type": "nonsense"},
        {"type": []},
        {"required": True},
        {"pattern": "("},
        {"properties": {"a": 5}},
        {"properties": []},
        {"minimum": "3"},
        {"multipleOf": 0},
        {"anyOf": {}},
    ],
)
def test_a_schema_that_cannot_be_compiled_is_refused(schema: Any) -> None:
    assert refusal(schema).startswith("schema")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/a", "definitions": {"a": {}}},
        {"properties": {"a": {"$ref": "https://example.invalid/schema"}}},
        {"allOf": [{"items": [{"$ref": "#"}]}]},
        {"$dynamicRef": "#a"},
        {"unknown": {"$ref": "file:///etc/hostname"}},
    ],
)
def test_every_reference_is_refused(schema: Any) -> None:
    assert refusal(schema) == "external $ref is not supported"


@pytest.mark.parametrize(
    "text", ["2026-03-01T10:20:30Z", "2026-03-01T10:20:30.123456789Z", "2026-03-01T10:20:30+01:00"]
)
def test_a_date_time_has_the_stated_form(text: str) -> None:
    assert Validation({"format": "date-time"}).accepts(text)


@pytest.mark.parametrize(
    "text", ["2026-03-01", "2026-03-01 10:20:30Z", "2026-03-01T10:20:30", "2026-03-01T10:20:30.1234567890Z", "x", ""]
)
def test_other_texts_are_no_date_time(text: str) -> None:
    assert not Validation({"properties": {"at": {"type": "string", "format": "date-time"}}}).accepts({"at": text})


@pytest.mark.parametrize("name", ["email", "uuid", "date", "ipv4", "uri", "whatever"])
def test_other_formats_are_ignored(name: str) -> None:
    assert Validation({"type": "string", "format": name}).accepts("?")


def test_integers_of_any_size_stay_exact() -> None:
    assert Validation({"enum": [10**30 + 1]}).accepts(10**30 + 1)
    assert not Validation({"enum": [10**30 + 1]}).accepts(10**30)
    assert not Validation({"maximum": 2**63}).accepts(2**63 + 1)


def test_a_schema_may_name_a_newer_dialect() -> None:
    schema = {"prefixItems": [{"type": "string"}]}
    assert Validation(schema).accepts([1])
    assert not Validation({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}).accepts([1])


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MAX_DEPTH):
        schema = {"not": schema}
    assert refusal(schema) == "schema is nested too deeply"


def test_a_document_that_is_nested_too_deeply_is_no_crash() -> None:
    document: list[Any] = []
    for _ in range(900):
        document = [document]
    assert "limit" in complaint({"type": "string"}, document)
    assert "limit" in complaint({"const": 1}, 1, document)


def test_a_pattern_cannot_take_forever() -> None:
    assert not Validation({"pattern": "^(?=a)(a+)+$"}).accepts("a" * 200 + "!")

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.schema_builders import INTEGER, STRING, body, lens_document, object_of, op

from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry
from strandline.schema.updates import API_VERSION, MAX_PARTS, MAX_SEQUENCE, MAX_UPDATE_BYTES
from strandline.schema.validation import MAX_DEPTH

KEY = {"jsonPointer": "/a", "required": True}
SEARCH = {"fields": {"a": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/a"}], "exact": True}}}
EMPTY = Registry.empty("orders")
FIRST = EMPTY.update(body(schema=object_of(a=STRING)), next_sequence=0)
RENAME = op("rename", from_="/a", to="/b")
SECOND = {"schema": object_of(b=STRING), "lens": lens_document(RENAME)}


def refusal(registry: Registry, update: bytes, next_sequence: int = 0, status: int = 400) -> str:
    with pytest.raises(SchemaError) as caught:
        registry.update(update, next_sequence=next_sequence)
    assert caught.value.status == status
    return str(caught.value)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (b"{", "schema update must be valid JSON"),
        (b"", "schema update must be valid JSON"),
        (b"\xff", "schema update must be valid JSON"),
        (b"[" * 100_000, "schema update must be valid JSON"),
        (b"[]", "schema update must be a JSON object"),
        (b"null", "schema update must be a JSON object"),
        (b"{}", "schema update must include schema, routingKey, or search"),
        (body(apiVersion=API_VERSION), "schema update must include schema, routingKey, or search"),
        (body(apiVersion="v2", schema={}), "invalid schema apiVersion"),
        (body(apiVersion=None, schema={}), "invalid schema apiVersion"),
        (body(lens={}), "schema update lens requires schema"),
        (body(lens={}, search=None), "schema update lens requires schema"),
        (body(routingKey=KEY, search=SEARCH), "missing schema"),
        (body(schema={}, routingKey=None), "schema update routingKey must be an object when schema is provided"),
        (body(schema={"$ref": "#"}), "external $ref is not supported"),
        (body(schema=None), "schema must be an object or a boolean"),
        (body(schema={}, routingKey={"jsonPointer": "a", "required": True}), "invalid json pointer"),
        (body(routingKey=5), "routingKey must be an object or null"),
        (body(search={"fields": {}}), "search.fields must be a non-empty object"),
        (body(schema={}, search={"fields": {}}), "search.fields must be a non-empty object"),
        (body(schema={}, lens={"ops": []}), "invalid lens: lens.apiVersion is required"),
    ],
)
def test_a_bad_update_says_why(update: bytes, message: str) -> None:
    assert refusal(EMPTY, update) == message


@pytest.mark.parametrize(
    "key",
    [
        "schemas",
        "lenses",
        "boundaries",
        "currentVersion",
        "routing_key",
        "routingKeyPointer",
        "indexes",
        "profile",
        "touch",
    ],
)
def test_other_keys_are_refused(key: str) -> None:
    assert refusal(EMPTY, body(schema={}, **{key: {}})).startswith(f"schemaUpdate.{key} is not supported")


def test_an_update_that_is_too_large_or_too_deep_is_refused() -> None:
    assert "larger than" in refusal(EMPTY, b" " * (MAX_UPDATE_BYTES + 1))
    assert "more than" in refusal(EMPTY, body(schema={"enum": [[]] * MAX_PARTS}))
    assert refusal(EMPTY, b'{"search":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}") == "schema is nested too deeply"


def test_the_first_schema_counts_from_the_first_record() -> None:
    assert FIRST.current_version == 1
    assert FIRST.boundaries == ((0, 1),)
    assert FIRST.schemas == {1: object_of(a=STRING)}
    assert FIRST.lenses == {}


def test_the_first_schema_needs_an_empty_stream() -> None:
    assert refusal(EMPTY, body(schema={}), 1) == "first schema requires empty stream"


def test_a_lens_to_the_first_version_is_checked_and_not_kept() -> None:
    lens = lens_document(op("add", path="/a", schema=STRING, default=""), source=0)
    assert EMPTY.update(body(schema={}, lens=lens), next_sequence=0).lenses == {}
    assert refusal(EMPTY, body(schema={}, lens=lens_document(RENAME)), status=409) == "lens version mismatch"
    assert refusal(EMPTY, body(schema={}, lens=lens | {"schema": "x"})) == "lens schema mismatch"


def test_the_first_schema_replaces_the_routing_key() -> None:
    keyed = EMPTY.update(body(routingKey=KEY), next_sequence=0)
    assert keyed.update(body(schema={}), next_sequence=0).routing_key is None
    replaced = keyed.update(body(schema={}, routingKey=KEY | {"required": False}), next_sequence=0)
    assert replaced.routing_key is not None
    assert not replaced.routing_key.required


def test_a_routing_key_by_itself_can_be_set_and_cleared_at_any_time() -> None:
    keyed = EMPTY.update(body(routingKey=KEY, apiVersion=API_VERSION), next_sequence=7)
    assert keyed.routing_key is not None
    assert msgspec.to_builtins(keyed.routing_key) == KEY
    assert keyed.current_version == 0
    assert keyed.update(body(routingKey=None), next_sequence=9) == EMPTY


def test_a_search_configuration_by_itself_can_be_set_and_cleared() -> None:
    searchable = FIRST.update(body(search=SEARCH), next_sequence=7)
    assert searchable.search is not None
    assert searchable.document().search == SEARCH
    assert searchable.boundaries == FIRST.boundaries
    assert searchable.update(body(search=None), next_sequence=7) == FIRST


def test_a_log_without_a_schema_can_be_searched_at_any_time() -> None:
    searchable = EMPTY.update(body(search=SEARCH), next_sequence=7)
    assert searchable.document().search == SEARCH
    assert (searchable.current_version, searchable.boundaries) == (0, ())
    assert refusal(searchable, body(schema={}), next_sequence=7) == "first schema requires empty stream"
    assert searchable.update(body(search=None), next_sequence=7) == EMPTY


def test_a_first_schema_keeps_the_search_configuration() -> None:
    first = EMPTY.update(body(search=SEARCH), next_sequence=0).update(body(schema={}), next_sequence=0)
    assert first.document().search == SEARCH
    assert first.current_version == 1


def test_a_later_schema_has_a_boundary_and_a_lens() -> None:
    registry = FIRST.update(body(**SECOND), next_sequence=412)
    assert registry.current_version == 2
    assert registry.boundaries == ((0, 1), (412, 2))
    assert registry.lenses[1].document == SECOND["lens"]
    assert list(registry.schemas) == [1, 2]


@pytest.mark.parametrize(
    ("change", "message", "status"),
    [
        ({"lens": None}, "lens required", 400),
        ({"lens": []}, "invalid lens: lens must be an object", 400),
        ({"lens": lens_document(RENAME, source=2)}, "lens version mismatch", 409),
        ({"lens": lens_document(RENAME, to=3)}, "lens version mismatch", 409),
        ({"lens": lens_document(RENAME, schema="other")}, "lens schema mismatch", 400),
        ({"schema": object_of(c=STRING)}, "rename dest missing in new schema", 400),
        ({"search": []}, "search must be an object", 400),
    ],
)
def test_a_bad_later_schema_says_why(change: dict[str, Any], message: str, status: int) -> None:
    assert refusal(FIRST, body(**SECOND | change), 5, status) == message


def test_a_later_schema_needs_a_lens() -> None:
    assert refusal(FIRST, body(schema=object_of(b=STRING))) == "lens required"


def test_a_registry_that_has_lost_its_schema_says_so() -> None:
    lost = Registry("orders", 1, boundaries=((0, 1),))
    assert refusal(lost, body(**SECOND)) == "missing current schema"


def test_boundaries_stay_within_what_clients_can_count() -> None:
    assert FIRST.update(body(**SECOND), next_sequence=MAX_SEQUENCE).boundaries[-1] == (MAX_SEQUENCE, 2)
    assert refusal(FIRST, body(**SECOND), MAX_SEQUENCE + 1) == "offset exceeds MAX_SAFE_INTEGER"


def test_a_later_schema_keeps_what_it_does_not_mention() -> None:
    first = EMPTY.update(body(schema=object_of(a=STRING), routingKey=KEY, search=SEARCH), next_sequence=0)
    kept = first.update(body(**SECOND), next_sequence=3)
    assert kept.routing_key == first.routing_key
    assert kept.search == first.search
    changed = first.update(
        body(**SECOND, search=None, routingKey={"jsonPointer": "/b", "required": False}), next_sequence=3
    )
    assert changed.search is None
    assert changed.routing_key is not None
    assert changed.routing_key.pointer == "/b"


def test_an_update_changes_nothing_by_itself() -> None:
    before = FIRST.document()
    FIRST.update(body(**SECOND), next_sequence=5)
    assert FIRST.document() == before


def test_a_lens_that_older_records_could_not_follow_is_refused() -> None:
    """The second schema asks for a field that the first lens does not provide. A lens that relies on it would make the
    oldest records unreadable."""
    second = body(schema=object_of(b=STRING, c=INTEGER), lens=lens_document(RENAME))
    third = body(schema=object_of(b=STRING, d=INTEGER), lens=lens_document(op("rename", from_="/c", to="/d"), source=2))
    with_history = FIRST.update(second, next_sequence=5)
    assert refusal(with_history, third, 9) == "rename source not required in records of version 1"
    without_history = FIRST.update(second, next_sequence=0)
    assert without_history.update(third, next_sequence=9).current_version == 3

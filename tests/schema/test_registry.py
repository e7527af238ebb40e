from __future__ import annotations

import msgspec
import pytest
from support.schema_builders import INTEGER, STRING, body, lens_document, object_of, op

from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry
from strandline.schema.routing import RoutingKey

KEY = {"jsonPointer": "/a", "required": True}
SEARCH = {"fields": {"a": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/a"}], "exact": True}}}
EMPTY = Registry.empty("orders")
FIRST = EMPTY.update(body(schema=object_of(a=STRING)), next_sequence=0)
SECOND = FIRST.update(
    body(schema=object_of(b=STRING), lens=lens_document(op("rename", from_="/a", to="/b"))), next_sequence=2
)
ADD = op("add", path="/n", schema=INTEGER, default=0)
THIRD = SECOND.update(body(schema=object_of(b=STRING, n=INTEGER), lens=lens_document(ADD, source=2)), next_sequence=3)


def test_a_stream_without_a_registry_shows_a_default_one() -> None:
    assert msgspec.to_builtins(EMPTY.document()) == {
        "apiVersion": "durable.streams/schema-registry/v1",
        "schema": "orders",
        "currentVersion": 0,
        "boundaries": [],
        "schemas": {},
        "lenses": {},
    }


def test_a_registry_shows_everything_it_has() -> None:
    registry = THIRD.update(body(routingKey=KEY), next_sequence=9).update(body(search=SEARCH), next_sequence=9)
    assert msgspec.to_builtins(registry.document()) == {
        "apiVersion": "durable.streams/schema-registry/v1",
        "schema": "orders",
        "currentVersion": 3,
        "routingKey": KEY,
        "search": SEARCH,
        "boundaries": [{"offset": 0, "version": 1}, {"offset": 2, "version": 2}, {"offset": 3, "version": 3}],
        "schemas": {"1": object_of(a=STRING), "2": object_of(b=STRING), "3": object_of(b=STRING, n=INTEGER)},
        "lenses": {"1": lens_document(op("rename", from_="/a", to="/b")), "2": lens_document(ADD, source=2)},
    }


def test_what_is_stored_is_loaded_again() -> None:
    registry = EMPTY.update(
        body(schema={"enum": [10**40, "é"]}, routingKey=KEY, search=SEARCH), next_sequence=0
    )  # no number is too large
    for each in (EMPTY, FIRST, THIRD, registry):
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(each.stored()))
        assert Registry.load(stored) == each
        assert Registry.load(stored).document() == each.document()


def test_a_registry_can_be_made_with_a_first_schema() -> None:
    assert Registry.installed("orders", object_of(a=STRING)) == FIRST
    keyed = Registry.installed("orders", {}, routing_key=RoutingKey("/a", False))
    assert keyed.document().routing_key == RoutingKey("/a", False)


def test_versions_begin_at_their_boundaries() -> None:
    assert [THIRD.version_at(seq) for seq in (1, 2, 3, 4, 100)] == [1, 1, 2, 3, 3]
    assert THIRD.versions == [(1, 1), (3, 2), (4, 3)]
    assert EMPTY.version_at(1) == 0
    assert EMPTY.versions == []
    assert Registry("orders", 1, boundaries=((5, 1),), schemas={1: {}}).version_at(5) == 0


def test_a_version_without_records_has_no_place() -> None:
    lens = lens_document(op("rename", from_="/a", to="/b"))
    registry = FIRST.update(body(schema=object_of(b=STRING), lens=lens), next_sequence=0)
    assert registry.boundaries == ((0, 1), (0, 2))
    assert registry.versions == [(1, 2)]
    assert registry.version_at(1) == 2
    assert not registry.promotes
    assert registry.promote_rows([1], [b'{"b":""}']) == [b'{"b":""}']


def test_documents_are_held_against_the_current_schema() -> None:
    EMPTY.check([1, None])
    FIRST.check([{"a": "x"}])
    THIRD.check([{"b": "x", "n": 1}])
    with pytest.raises(SchemaError, match="element 1: "):
        THIRD.check([{"b": "x", "n": 1}, {"a": "x"}])


def test_keys_come_from_the_header_unless_a_pointer_is_configured() -> None:
    assert EMPTY.keys_of([1, 2], None) is None
    assert EMPTY.keys_of([1, 2], "k") == ["k", "k"]
    keyed = EMPTY.update(body(routingKey=KEY), next_sequence=0)
    assert keyed.keys_of([{"a": "x"}, {"a": "y"}], None) == ["x", "y"]
    with pytest.raises(SchemaError, match="Stream-Key not allowed when routingKey is configured"):
        keyed.keys_of([{"a": "x"}], "k")
    with pytest.raises(SchemaError, match="routing key missing"):
        keyed.keys_of([{"a": "x"}, {}], None)


def test_old_documents_go_through_all_lenses() -> None:
    assert THIRD.promotes
    assert THIRD.promote(1, {"a": "x"}) == {"b": "x", "n": 0}
    assert THIRD.promote(3, {"b": "x"}) == {"b": "x", "n": 0}
    assert THIRD.promote(4, {"b": "x", "n": 5}) == {"b": "x", "n": 5}


def test_the_document_that_is_promoted_stays_as_it_is() -> None:
    document = {"a": "x"}
    THIRD.promote(1, document)
    assert document == {"a": "x"}


def test_rows_of_the_current_version_are_not_touched() -> None:
    rows = [b'{"a":"x", "z": 123456789012345678901234567890}', b'{ "b": "y" }', b'{ "b":"z" , "n":1 }', b"not JSON"]
    assert THIRD.promote_rows([2, 3, 4, 9], rows) == [
        b'{"z":123456789012345678901234567890,"b":"x","n":0}',
        b'{"b":"y","n":0}',
        b'{ "b":"z" , "n":1 }',
        b"not JSON",
    ]
    assert THIRD.promote_rows([], []) == []


def test_without_history_nothing_is_promoted() -> None:
    assert not EMPTY.promotes
    assert not FIRST.promotes
    assert FIRST.promote_rows([1], [b"?"]) == [b"?"]
    assert FIRST.promote(1, {"a": 1}) == {"a": 1}


def test_records_before_the_first_version_are_read_as_they_are() -> None:
    late = Registry("orders", 1, boundaries=((5, 1),), schemas={1: {}})
    assert late.promote_rows([1, 9], [b"1", b"2"]) == [b"1", b"2"]
    assert late.promote(1, "x") == "x"


@pytest.mark.parametrize("row", [b"{", b"{}", b'"\xff"', b"5"])
def test_a_record_that_does_not_fit_the_lens_is_an_error_of_the_request(row: bytes) -> None:
    with pytest.raises(SchemaError, match="lens failed") as caught:
        THIRD.promote_rows([1], [row])
    assert caught.value.status == 400


def test_a_lens_is_not_remembered_by_its_name() -> None:
    """A stream that is made anew has the same names and versions, and other lenses."""
    assert SECOND.promote(1, {"a": "x"}) == {"b": "x"}
    again = Registry.empty("orders").update(body(schema=object_of(a=STRING)), next_sequence=0)
    lens = lens_document(op("rename", from_="/a", to="/c"))
    again = again.update(body(schema=object_of(c=STRING), lens=lens), next_sequence=2)
    assert again.promote(1, {"a": "x"}) == {"c": "x"}


@pytest.mark.parametrize("default", [None, 0, False, ""])
def test_a_falsy_default_reaches_old_records(default: object) -> None:
    lens = lens_document(op("add", path="/n", schema={}, default=default))
    registry = FIRST.update(body(schema=object_of(a=STRING, n={}), lens=lens), next_sequence=1)
    assert registry.promote(1, {"a": "x"}) == {"a": "x", "n": default}


def test_a_boundary_can_be_moved_to_where_the_stream_is_now() -> None:
    assert SECOND.moved(FIRST, 7).boundaries == ((0, 1), (7, 2))
    keyed = SECOND.update(body(routingKey=KEY), next_sequence=0)
    assert keyed.moved(SECOND, 7) == keyed
    assert FIRST.moved(EMPTY, 0) == FIRST
    with pytest.raises(SchemaError, match="first schema requires empty stream"):
        FIRST.moved(EMPTY, 1)


def test_what_leaves_a_stream_early_has_the_current_version_from_there() -> None:
    left = THIRD.cut(1)
    assert left.boundaries == ((0, 1), (1, 2), (1, 3))
    assert [left.version_at(seq) for seq in (1, 2, 3)] == [1, 3, 3]
    assert THIRD.cut(100) == THIRD

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from strandline.query.config import Binding, DefaultField, Field, Measure
from strandline.query.config_parser import parse_search_config
from strandline.query.errors import BadSearchConfig
from strandline.query.language import parse


def bindings(pointer: str) -> list[dict[str, Any]]:
    return [{"version": 1, "jsonPointer": pointer}]


ORDERS: dict[str, Any] = {
    "primaryTimestampField": "at",
    "aliases": {"ord": "orderId"},
    "defaultFields": [{"field": "note", "boost": 3}, {"field": "shop"}],
    "containsDefaultFields": ["note"],
    "fields": {
        "at": {"kind": "date", "bindings": bindings("/at"), "column": True, "sortable": True},
        "orderId": {"kind": "keyword", "bindings": bindings("/id"), "exact": True},
        "shop": {"kind": "keyword", "bindings": bindings("/shop"), "normalizer": "lowercase_v1", "prefix": True},
        "note": {"kind": "text", "bindings": bindings("/note"), "analyzer": "unicode_word_v1", "positions": True},
        "price": {"kind": "float", "bindings": bindings("/price"), "aggregatable": True},
        "paid": {"kind": "bool", "bindings": bindings("/paid"), "exact": True},
    },
    "rollups": {
        "sales": {
            "include": "paid:true",
            "dimensions": ["orderId"],
            "intervals": ["500ms", "10s", "5m", "1h", "1d"],
            "measures": {
                "orders": {"kind": "count", "include": "ord:a OR declined"},
                "price": {"kind": "summary", "field": "price", "histogram": "log2_v1"},
                "parts": {
                    "kind": "summary_parts",
                    "countJsonPointer": "/c",
                    "sumJsonPointer": "/s",
                    "minJsonPointer": "/min",
                    "maxJsonPointer": "/max",
                },
            },
        }
    },
}


def orders(place: str = "", value: object = None) -> dict[str, Any]:
    """The configuration above with ``value`` at a place like "fields/at/kind"; an Ellipsis takes away what is there."""
    document = deepcopy(ORDERS)
    *parents, last = place.split("/")
    holder: Any = document
    for parent in parents:
        holder = holder[int(parent)] if isinstance(holder, list) else holder[parent]
    if value is ...:
        del holder[last]
    elif place:
        holder[int(last) if isinstance(holder, list) else last] = value
    return document


def test_a_whole_configuration_is_read() -> None:
    config = parse_search_config(orders())
    assert config.primary_timestamp == "at"
    assert config.aliases == {"ord": "orderId"}
    assert config.default_fields == (DefaultField("note", 3.0), DefaultField("shop", 1.0))
    assert config.contains_default_fields == ("note",)
    assert config.fields["shop"] == Field(
        "shop", "keyword", (Binding(1, "/shop"),), normalizer="lowercase_v1", prefix=True
    )
    sales = config.rollups["sales"]
    assert sales.timestamp_field == "at"
    assert sales.include == parse("paid:true")
    assert sales.dimensions == ("orderId",)
    assert sales.intervals == {"500ms": 500, "10s": 10_000, "5m": 300_000, "1h": 3_600_000, "1d": 86_400_000}
    assert sales.measures == {
        "orders": Measure("orders", "count", include=parse("ord:a OR declined")),
        "price": Measure("price", "summary", field="price", histogram=True),
        "parts": Measure("parts", "summary_parts", pointers=("/c", "/s", "/min", "/max")),
    }


def test_what_is_shown_is_what_was_declared() -> None:
    assert parse_search_config(orders()).document() == ORDERS


def test_what_is_stored_reads_the_same() -> None:
    config = parse_search_config(orders())
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(config.document()))
    assert parse_search_config(stored) == config


def test_a_smallest_configuration_shows_nothing_that_was_not_declared() -> None:
    document = {"fields": {"id": {"kind": "keyword", "bindings": bindings("/id")}}}
    assert parse_search_config(document).document() == document


def test_flags_that_are_not_true_are_dropped() -> None:
    document = orders("fields/orderId/prefix", False)
    document["fields"]["note"]["column"] = False
    assert parse_search_config(document).document() == ORDERS


def test_names_and_references_are_trimmed() -> None:
    document = orders()
    document["fields"][" note "] = document["fields"].pop("note")
    document["fields"]["price "] = document["fields"].pop("price")
    document["aliases"] = {" ord": " orderId "}
    document["defaultFields"][0]["field"] = " note"
    document["containsDefaultFields"] = ["note "]
    document["primaryTimestampField"] = " at "
    sales = document["rollups"].pop("sales")
    document["rollups"][" sales "] = sales
    sales["dimensions"] = [" orderId"]
    sales["measures"]["price "] = {**sales["measures"].pop("price"), "field": " price"}
    config = parse_search_config(document)
    assert config.document() == ORDERS
    assert config.rollups["sales"].measures["price"].field == "price"


def test_bindings_may_come_in_any_order() -> None:
    later_first = [{"version": 3, "jsonPointer": "/b"}, {"version": 1, "jsonPointer": "/a"}]
    config = parse_search_config(orders("fields/orderId/bindings", later_first))
    assert config.fields["orderId"].bindings == (Binding(1, "/a"), Binding(3, "/b"))
    assert config.document()["fields"]["orderId"]["bindings"] == later_first


def test_a_rollup_may_have_a_timestamp_of_its_own() -> None:
    document = orders("primaryTimestampField", ...)
    document["rollups"]["sales"]["timestampField"] = "at"
    assert parse_search_config(document).rollups["sales"].timestamp_field == "at"


def test_a_histogram_is_the_fifth_part() -> None:
    document = orders("rollups/sales/measures/parts/histogramJsonPointer", "/h")
    measure = parse_search_config(document).rollups["sales"].measures["parts"]
    assert measure.pointers == ("/c", "/s", "/min", "/max", "/h")


def test_messages_begin_with_the_path_they_are_given() -> None:
    with pytest.raises(BadSearchConfig, match=r"^profile\.search must be an object$"):
        parse_search_config([], "profile.search")


FIELD = "fields/orderId"
NOTE = "fields/note"
PRICE = "fields/price"
SALES = "rollups/sales"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("extra", 1, ".extra is not supported"),
        ("profile", "", ".profile must be a non-empty string"),
        ("profile", 5, ".profile must be a non-empty string"),
        ("fields", {}, ".fields must be a non-empty object"),
        ("fields", ..., ".fields must be a non-empty object"),
        ("fields", [], ".fields must be a non-empty object"),
        ("fields", {f"f{at}": {} for at in range(501)}, ".fields has 501 fields; at most 500 are allowed"),
        ("fields/-x", {}, ".fields.-x must be named with"),
        ("fields/a b", {}, ".fields.a b must be named with"),
        ("fields/" + "x" * 65, {}, "must be named with"),
        ("fields/ note", {}, ".fields.note must be declared only once"),
        (FIELD, 5, ".fields.orderId must be an object"),
        (f"{FIELD}/extra", True, ".fields.orderId.extra is not supported"),
        (f"{FIELD}/kind", "number", ".fields.orderId.kind must be keyword, text, integer, float, date, or bool"),
        (f"{FIELD}/kind", ["keyword"], ".kind must be keyword"),
        (f"{FIELD}/exact", "yes", ".fields.orderId.exact must be boolean"),
        (f"{FIELD}/exact", None, ".fields.orderId.exact must be boolean"),
        (f"{FIELD}/normalizer", "upper", ".fields.orderId.normalizer must be identity_v1 or lowercase_v1"),
        (f"{FIELD}/normalizer", None, ".normalizer must be identity_v1 or lowercase_v1"),
        (f"{NOTE}/normalizer", "lowercase_v1", ".fields.note.normalizer is only supported for keyword fields"),
        (f"{PRICE}/normalizer", "lowercase_v1", ".normalizer is only supported for keyword fields"),
        (f"{NOTE}/analyzer", ..., ".fields.note.analyzer is required for text fields"),
        (f"{NOTE}/analyzer", "english", ".fields.note.analyzer must be unicode_word_v1"),
        (f"{FIELD}/analyzer", "unicode_word_v1", ".fields.orderId.analyzer is only supported for text fields"),
        (f"{NOTE}/column", True, ".fields.note.column is not supported for text fields"),
        (f"{NOTE}/sortable", True, ".fields.note.sortable is not supported for text fields"),
        (f"{NOTE}/aggregatable", True, ".fields.note.aggregatable is not supported for text fields"),
        (f"{FIELD}/positions", True, ".fields.orderId.positions is only supported for text fields"),
        (f"{PRICE}/positions", True, ".fields.price.positions is only supported for text fields"),
        (f"{PRICE}/prefix", True, ".fields.price.prefix is not supported for typed fields"),
        (f"{PRICE}/contains", True, ".fields.price.contains is not supported for typed fields"),
        (f"{FIELD}/bindings", ..., ".fields.orderId.bindings must be a non-empty array"),
        (f"{FIELD}/bindings", [], ".fields.orderId.bindings must be a non-empty array"),
        (f"{FIELD}/bindings/0", "/id", ".fields.orderId.bindings[0] must be an object"),
        (f"{FIELD}/bindings/0/extra", 1, ".bindings[0].extra is not supported"),
        (f"{FIELD}/bindings/0/version", 0, ".bindings[0].version must be a positive integer"),
        (f"{FIELD}/bindings/0/version", True, ".bindings[0].version must be a positive integer"),
        (f"{FIELD}/bindings/0/version", "1", ".bindings[0].version must be a positive integer"),
        (f"{FIELD}/bindings/0/version", 2**64, ".bindings[0].version must be a positive integer"),
        (f"{FIELD}/bindings/0/jsonPointer", None, ".bindings[0].jsonPointer must be a string"),
        (f"{FIELD}/bindings/0/jsonPointer", "id", ".bindings[0].jsonPointer must be a valid JSON pointer"),
        (f"{FIELD}/bindings", bindings("/a") + bindings("/b"), ".bindings[1].version duplicates 1"),
        ("aliases", [], ".aliases must be an object"),
        ("aliases/o", "nothing", ".aliases.o must reference a declared field"),
        ("aliases/o", 5, ".aliases.o must reference a declared field"),
        ("aliases/o o", "orderId", ".aliases.o o must be named with"),
        ("aliases/note", "orderId", ".aliases.note must not be the name of a declared field"),
        ("defaultFields", {}, ".defaultFields must be an array"),
        ("defaultFields/0", "note", ".defaultFields[0] must be an object"),
        ("defaultFields/0/weight", 1, ".defaultFields[0].weight is not supported"),
        ("defaultFields/0/field", "nothing", ".defaultFields[0].field must reference a declared field"),
        ("defaultFields/1/field", "note", ".defaultFields[1].field duplicates note"),
        ("defaultFields/0/boost", 0, ".defaultFields[0].boost must be a positive number"),
        ("defaultFields/0/boost", -1.5, ".defaultFields[0].boost must be a positive number"),
        ("defaultFields/0/boost", True, ".defaultFields[0].boost must be a positive number"),
        ("defaultFields/0/boost", "2", ".defaultFields[0].boost must be a positive number"),
        ("defaultFields/0/boost", 10**30, ".defaultFields[0].boost must be a positive number"),
        ("containsDefaultFields", "note", ".containsDefaultFields must be an array of field names"),
        ("containsDefaultFields", ["nothing"], ".containsDefaultFields[0] must reference a declared field"),
        ("containsDefaultFields", ["note", "note"], ".containsDefaultFields[1] duplicates note"),
        ("primaryTimestampField", "nothing", ".primaryTimestampField must reference a declared field"),
        ("primaryTimestampField", None, ".primaryTimestampField must reference a declared field"),
        ("primaryTimestampField", "price", ".primaryTimestampField must reference a date field"),
        ("primaryTimestampField", ..., ".rollups.sales.timestampField must be set where there is no primary"),
        ("rollups", [], ".rollups must be an object"),
        ("rollups/a b", {}, ".rollups.a b must be named with"),
        (SALES, [], ".rollups.sales must be an object"),
        (f"{SALES}/extra", 1, ".rollups.sales.extra is not supported"),
        (f"{SALES}/timestampField", "price", ".rollups.sales.timestampField must reference a date field"),
        (f"{SALES}/include", 5, ".rollups.sales.include must be a query string"),
        (f"{SALES}/include", "", ".rollups.sales.include must be a valid query: query must not be empty"),
        (f"{SALES}/include", "paid:", ".rollups.sales.include must be a valid query: expected a value"),
        (f"{SALES}/include", "paid:perhaps", ".include must be a valid query: invalid value for search field paid"),
        (f"{SALES}/include", "nothing:1", ".include must be a valid query: unknown search field nothing"),
        (f"{SALES}/dimensions", "orderId", ".rollups.sales.dimensions must be an array of field names"),
        (f"{SALES}/dimensions", ["nothing"], ".dimensions[0] must reference a declared field"),
        (f"{SALES}/dimensions", ["orderId", "shop"], ".dimensions[1] must reference an exact-capable field"),
        (f"{SALES}/dimensions", ["orderId", "orderId"], ".dimensions[1] duplicates orderId"),
        (f"{SALES}/intervals", ..., ".rollups.sales.intervals must be a non-empty array"),
        (f"{SALES}/intervals", [], ".rollups.sales.intervals must be a non-empty array"),
        (f"{SALES}/intervals/0", "0s", ".intervals[0] must be a positive duration string"),
        (f"{SALES}/intervals/0", "soon", ".intervals[0] must be a positive duration string"),
        (f"{SALES}/intervals/0", 60, ".intervals[0] must be a positive duration string"),
        (f"{SALES}/intervals/0", "999999999999d", ".intervals[0] must be a positive duration string"),
        (f"{SALES}/intervals/0", "10s", ".intervals[1] duplicates 10s"),
        (f"{SALES}/measures", {}, ".rollups.sales.measures must be a non-empty object"),
        (f"{SALES}/measures/x", 5, ".measures.x must be an object"),
        (f"{SALES}/measures/x x", {}, ".measures.x x must be named with"),
        (f"{SALES}/measures/orders/kind", "avg", ".measures.orders.kind must be count, summary, or summary_parts"),
        (f"{SALES}/measures/orders/field", "price", ".measures.orders.field is not supported"),
        (f"{SALES}/measures/orders/include", "-", ".measures.orders.include must be a valid query"),
        (f"{SALES}/measures/price/field", "at", ".measures.price.field must reference an aggregatable search field"),
        (f"{SALES}/measures/price/field", "orderId", ".field must reference an aggregatable search field"),
        (f"{SALES}/measures/price/field", ..., ".field must reference an aggregatable search field"),
        (f"{SALES}/measures/price/histogram", True, ".measures.price.histogram must be log2_v1"),
        (f"{SALES}/measures/parts/sumJsonPointer", ..., ".measures.parts.sumJsonPointer must be a string"),
        (f"{SALES}/measures/parts/sumJsonPointer", "s", ".sumJsonPointer must be a valid JSON pointer"),
        (f"{SALES}/measures/parts/histogramJsonPointer", 5, ".histogramJsonPointer must be a string"),
    ],
)
def test_a_broken_rule_is_named_with_its_place(place: str, value: object, message: str) -> None:
    with pytest.raises(BadSearchConfig) as caught:
        parse_search_config(orders(place, value))
    assert str(caught.value).startswith("search.")
    assert message in str(caught.value)


def test_a_text_is_no_dimension_even_if_it_is_called_exact() -> None:
    document = orders("fields/note/exact", True)
    document["rollups"]["sales"]["dimensions"] = ["note"]
    with pytest.raises(BadSearchConfig, match="exact-capable"):
        parse_search_config(document)

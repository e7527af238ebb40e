"""The declarations of the demo: a table, a collection, and the schema of the orders."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from strandline.collections import AppendOnly, Collection
from strandline.tables import make_log


class Review(msgspec.Struct, forbid_unknown_fields=True):
    stars: Annotated[int, msgspec.Meta(ge=1, le=5)]
    text: str = ""


review = make_log("review", parent="product", schema=Review, pub=True, search="text")

#: Every courier has one document, and can write to no other.
deliveries = Collection(
    name="deliveries",
    storage_path="deliveries/{identity}",
    read_roles=("public",),
    write_roles=("self",),
    append_only=AppendOnly(),
)

#: The schema and search configuration of the stream of orders.
ORDERS: dict[str, Any] = {
    "schema": {
        "type": "object",
        "required": ["order", "session", "at", "customer", "city", "items", "cents"],
        "properties": {
            "order": {"type": "string"},
            "session": {"type": "string"},
            "at": {"type": "integer"},
            "customer": {"type": "string"},
            "city": {"type": "string"},
            "items": {"type": "string"},
            "cents": {"type": "integer", "minimum": 1},
        },
    },
    "routingKey": {"jsonPointer": "/customer", "required": True},
    "search": {
        "primaryTimestampField": "at",
        "defaultFields": [{"field": "items"}],
        "fields": {
            name: {"kind": kind, **flags, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}]}
            for name, kind, flags in (
                ("at", "date", {"column": True, "sortable": True}),
                ("customer", "keyword", {"exact": True}),
                ("city", "keyword", {"exact": True}),
                ("items", "text", {"analyzer": "unicode_word_v1", "positions": True}),
                ("cents", "integer", {"column": True, "sortable": True, "aggregatable": True}),
            )
        },
        "rollups": {
            "takings": {
                "dimensions": ["city"],
                "intervals": ["1h", "1d"],
                "measures": {"orders": {"kind": "count"}, "cents": {"kind": "summary", "field": "cents"}},
            }
        },
    },
}

"""What the records of a stream must be like: its schema registry and its profile."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi import profiles
from strandline.protocols.streams.openapi.answers import Number
from strandline.protocols.streams.openapi.parameters import NAME, ONE, Operations
from strandline.query.config import Kind
from strandline.service.openapi import JSON, Answer, Operation

_Version = Annotated[int, Meta(ge=1)]


class RoutingKeyDeclaration(msgspec.Struct, forbid_unknown_fields=True):
    json_pointer: str = field(name="jsonPointer")
    required: bool


class BindingDeclaration(msgspec.Struct, forbid_unknown_fields=True):
    version: _Version
    json_pointer: str = field(name="jsonPointer")


class FieldDeclaration(msgspec.Struct, forbid_unknown_fields=True):
    kind: Kind
    bindings: Annotated[list[BindingDeclaration], Meta(min_length=1)]
    normalizer: Literal["identity_v1", "lowercase_v1"] | UnsetType = UNSET
    analyzer: Literal["unicode_word_v1"] | UnsetType = UNSET
    exact: bool | UnsetType = UNSET
    prefix: bool | UnsetType = UNSET
    column: bool | UnsetType = UNSET
    exists: bool | UnsetType = UNSET
    sortable: bool | UnsetType = UNSET
    aggregatable: bool | UnsetType = UNSET
    contains: bool | UnsetType = UNSET
    positions: bool | UnsetType = UNSET


class DefaultFieldDeclaration(msgspec.Struct, forbid_unknown_fields=True):
    field: str
    boost: Annotated[float, Meta(gt=0)] | UnsetType = UNSET


class CountMeasure(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="count"):
    include: str | UnsetType = UNSET


class SummaryMeasure(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="summary"):
    field: str
    histogram: Literal["log2_v1"] | UnsetType = UNSET


class SummaryPartsMeasure(
    msgspec.Struct, forbid_unknown_fields=True, rename="camel", tag_field="kind", tag="summary_parts"
):
    count_json_pointer: str
    sum_json_pointer: str
    min_json_pointer: str
    max_json_pointer: str
    histogram_json_pointer: str | UnsetType = UNSET


class RollupDeclaration(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    timestamp_field: str | UnsetType = UNSET
    include: str | UnsetType = UNSET
    dimensions: list[str] | UnsetType = UNSET
    intervals: Annotated[list[str], Meta(min_length=1)]
    measures: Annotated[dict[str, CountMeasure | SummaryMeasure | SummaryPartsMeasure], Meta(min_length=1)]


class SearchDeclaration(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    profile: str | UnsetType = UNSET
    primary_timestamp_field: str | UnsetType = UNSET
    aliases: dict[str, str] | UnsetType = UNSET
    default_fields: list[DefaultFieldDeclaration] | UnsetType = UNSET
    contains_default_fields: list[str] | UnsetType = UNSET
    fields: Annotated[dict[str, FieldDeclaration], Meta(min_length=1)]
    rollups: dict[str, RollupDeclaration] | UnsetType = UNSET


class LensOperation(msgspec.Struct):
    """What else it has depends on ``op``; paths are JSON pointers."""

    op: Literal["rename", "copy", "add", "remove", "hoist", "plunge", "wrap", "head", "convert", "in", "map"]


class LensDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    api_version: Literal["durable.lens/v1"] = field(name="apiVersion")
    schema: str
    source: Number = field(name="from")
    target: Number = field(name="to")
    description: str | UnsetType = UNSET
    ops: Annotated[list[LensOperation], Meta(min_length=1)]


_ApiVersion = Literal["durable.streams/schema-registry/v1"]


class SchemaUpdate(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    api_version: _ApiVersion | UnsetType = field(name="apiVersion", default=UNSET)
    schema: dict[str, Any] | bool | UnsetType = UNSET
    lens: LensDocument | UnsetType | None = UNSET
    routing_key: RoutingKeyDeclaration | UnsetType | None = field(name="routingKey", default=UNSET)
    search: SearchDeclaration | UnsetType | None = UNSET


class SchemaBoundary(msgspec.Struct):
    offset: Number
    version: Number


class RegistryAnswer(msgspec.Struct, kw_only=True):
    api_version: _ApiVersion = field(name="apiVersion")
    schema: str
    current_version: Number = field(name="currentVersion")
    routing_key: RoutingKeyDeclaration | UnsetType = field(name="routingKey", default=UNSET)
    search: SearchDeclaration | UnsetType = UNSET
    boundaries: list[SchemaBoundary]
    schemas: dict[str, Any]
    lenses: dict[str, LensDocument]


DESCRIPTIONS: dict[str, dict[str, str]] = {
    "SchemaUpdate": {
        "schema": "A JSON schema, of the next version. It stands for itself: no references to elsewhere.",
        "lens": "How records of the current version become ones of the new one. Needed unless it is the first.",
        "routingKey": "Where records have their routing key; null: nowhere.",
        "search": "Which fields can be asked for, and how; null: none.",
    },
    "RegistryAnswer": {
        "schema": "The name of what the schemas describe: the stream's.",
        "boundaries": "From which record on which version counts.",
        "schemas": "By version.",
        "lenses": "By the version that they lead from.",
    },
    "SchemaBoundary": {"offset": "The number of the first record of the version; 0 is that of the first record."},
    "RoutingKeyDeclaration": {"required": "Whether a record without a key is refused."},
    "LensDocument": {
        "schema": "The name of what the schemas describe: the stream's.",
        "from": "The current version.",
        "to": "The next one.",
    },
    "FieldDeclaration": {
        "bindings": "Where the field is in records of a version and of later ones.",
        "exact": "Can be compared with a value.",
        "prefix": "Can be compared with how a value begins.",
        "column": "Has an order, for ranges.",
        "exists": "Can be asked whether there is a value.",
        "positions": "Remembers where words are, for phrases.",
    },
    "SearchDeclaration": {
        "primaryTimestampField": "The time that hits are sorted by behind their score.",
        "aliases": "Other names of fields.",
        "defaultFields": "Where words without a field are looked for.",
        "rollups": "What `_aggregate` can add up, by name.",
    },
    "RollupDeclaration": {
        "include": "Only records that match this query.",
        "dimensions": "Fields to group by.",
        "intervals": "Such as `1m` or `1h`.",
    },
    **profiles.DESCRIPTIONS,
}

_GROUP = "schemas"


def _shown(form: Any) -> tuple[Answer, ...]:
    return (Answer(200, "The whole document.", {JSON: form}, (p.NO_STORE,)),)


SHAPING: Operations = {
    ("GET", ONE + "/_schema"): Operation(
        group=_GROUP,
        summary="Show the schemas of a stream",
        description="With all versions, the lenses between them, the routing key and what can be searched.",
        answers=_shown(RegistryAnswer),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone"),
    ),
    ("POST", ONE + "/_schema"): Operation(
        group=_GROUP,
        summary="Change the schema of a stream",
        description=(
            "A schema (with a lens, a routing key and a search configuration), or one of the latter two alone. The "
            "first schema needs an empty stream. What a lens could make unreadable is refused."
        ),
        body={JSON: SchemaUpdate},
        needs_body=True,
        answers=_shown(RegistryAnswer),
        parameters=(NAME,),
        errors=("not_found", "conflict", "gone", "read_only", "disk_full"),
    ),
    ("GET", ONE + "/_profile"): Operation(
        group=_GROUP,
        summary="Show the profile of a stream",
        answers=_shown(profiles.ProfileAnswer),
        parameters=(NAME,),
        errors=("bad_request", "not_found", "gone"),
    ),
    ("POST", ONE + "/_profile"): Operation(
        group=_GROUP,
        summary="Set the profile of a stream",
        description="And the schema and search configuration that come with it. Some need an empty stream.",
        body={JSON: profiles.ProfileUpdate},
        answers=_shown(profiles.ProfileAnswer),
        parameters=(NAME,),
        errors=("not_found", "gone", "read_only", "disk_full"),
    ),
}

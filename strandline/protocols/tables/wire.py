"""The bodies and answers of tables. Handlers decode and encode these structs, and OpenAPI is generated from them.

The schemas of payloads, patches and rows differ by table. Here they are references, which
:mod:`strandline.protocols.tables.schemas` resolves for each table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Raw, Struct, UnsetType

from strandline.engine.record import MAX_KEY_BYTES
from strandline.tables import (
    AppendBulkResult,
    AppendResult,
    Counts,
    Edit,
    PurgeResult,
    RateLimit,
    RestoreResult,
    RmBulkResult,
    RmResult,
)
from strandline.tables.names import MAX_PARENT_BYTES
from strandline.tables.rows import Seq, Time
from strandline.tables.table import MAX_BULK

#: The prefix of references to components of the OpenAPI document.
REFERENCE = "#/components/schemas/{name}"


def _of_table(part: str) -> Meta:
    return Meta(extra_json_schema={"$ref": REFERENCE.format(name=part)})


Payload = Annotated[Any, _of_table("payload")]
Patch = Annotated[Any, _of_table("patch")]
RowJson = Annotated[Any, _of_table("row")]

# The tables check these members, with better messages than a decoder has.
Parent = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_PARENT_BYTES, "pattern": "^[^/]+$"})]
Id = Annotated[
    str, Meta(extra_json_schema={"pattern": "^.+:[1-9][0-9]*$"}, description="The parent, a colon, the seq.")
]
Key = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_KEY_BYTES})]
_BULK = Meta(extra_json_schema={"minItems": 1, "maxItems": MAX_BULK})

encode = msgspec.json.Encoder().encode


# --- bodies ---------------------------------------------------------------------------------------------------------


class _Body(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class AppendBody(_Body, frozen=True):
    parent: Parent
    payload: Payload
    idempotency_key: Key | None = None


class AppendItem(_Body, frozen=True):
    payload: Payload
    idempotency_key: Key | None = None


#: Either a payload with an optional ``idempotencyKey`` beside its fields, or an AppendItem.
BulkItem = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={"anyOf": [{"$ref": REFERENCE.format(name=part)} for part in ("item", "AppendItem")]}),
]


class AppendBulkBody(_Body, frozen=True):
    parent: Parent
    items: Annotated[list[BulkItem], _BULK]


class UpdateBody(_Body, frozen=True):
    id: Id
    patch: Patch
    expected_updated_at: Annotated[int, Meta(extra_json_schema={"minimum": 0})] | None = None


class RmBody(_Body, frozen=True):
    id: Id
    hard: bool = False


class RmBulkBody(_Body, frozen=True):
    ids: Annotated[list[Id], _BULK]
    hard: bool = False


class PurgeBody(_Body, frozen=True):
    parent: Parent
    hard: bool = False


class ParentBody(_Body, frozen=True):
    parent: Parent


class IdBody(_Body, frozen=True):
    id: Id


class PaginationOptions(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The page of a list: its number of rows, and the ``continueCursor`` of the previous page."""

    num_items: Annotated[int, Meta(ge=1)]
    cursor: str | None = None


#: The bodies by operation.
BODIES: dict[str, type[Struct]] = {
    "append": AppendBody,
    "appendBulk": AppendBulkBody,
    "update": UpdateBody,
    "rm": RmBody,
    "rmBulk": RmBulkBody,
    "purgeByParent": PurgeBody,
    "restoreByParent": ParentBody,
    "restore": IdBody,
}


# --- answers --------------------------------------------------------------------------------------------------------


class PageAnswer(Struct, rename="camel"):
    page: list[RowJson]
    is_done: bool
    continue_cursor: str | None


class FeedAnswer(Struct, rename="camel"):
    page: list[RowJson]
    is_done: bool
    continue_cursor: str | None
    live_cursor: str


class HistoryAnswer(Struct):
    edits: list[Edit]


class VersionAnswer(Struct):
    """``lens`` says how rows of the version before become rows of this one; null if they only get defaults."""

    version: Seq
    at: Time
    schema: dict[str, Any]
    lens: dict[str, Any] | None


class SchemaAnswer(Struct):
    """``version`` is the declared one. A table that was rolled back also has later ones."""

    table: str
    version: Seq
    versions: list[VersionAnswer]


class ParentDescription(Struct):
    """What the rows of a table belong to: rows of another table, or a label."""

    name: str
    kind: Literal["table", "label"]


class TableOptions(Struct, rename="camel", kw_only=True):
    """The options of a declaration."""

    soft_delete: bool
    pub: Annotated[
        bool | str, Meta(description="Whether reads are public, or the field of the parent's row that says so.")
    ]
    search: Annotated[list[str], Meta(description="The fields that can be searched.")]
    rate_limit: Annotated[RateLimit | None, Meta(description="Rows per user in a window of milliseconds.")]
    with_author: Annotated[bool, Meta(description="Whether rows have an author.")]
    moderators: Annotated[list[str], Meta(description="The roles that act as the owner of every parent.")]
    feed: Annotated[bool, Meta(description="Whether the rows of all parents can be read together.")]
    durability: str


class TableOperationPath(Struct):
    """An operation of a table, such as ``append`` or ``auth.list``."""

    name: str
    method: Literal["GET", "POST"]
    path: str


class TableDescription(Struct, kw_only=True):
    """A declared table."""

    name: str
    parent: ParentDescription
    fields: Annotated[list[str], Meta(description="The fields of payloads that the schema names.")]
    schema: Annotated[dict[str, Any], Meta(description="The JSON Schema of payloads.")]
    options: TableOptions
    operations: list[TableOperationPath]


class TablesAnswer(Struct):
    tables: list[TableDescription]


#: The answers by operation.
ANSWERS: dict[str, Any] = {
    "append": AppendResult,
    "appendBulk": AppendBulkResult,
    "update": RowJson,
    "rm": RmResult,
    "rmBulk": RmBulkResult,
    "purgeByParent": PurgeResult,
    "restoreByParent": RestoreResult,
    "restore": RowJson,
    "list": PageAnswer,
    "listAfter": list[RowJson],
    "read": RowJson | None,
    "search": list[RowJson],
    "indexed": dict[str, list[RowJson]],
    "counts": Counts,
    "history": HistoryAnswer,
    "trash": PageAnswer,
    "feed": FeedAnswer,
    "schema": SchemaAnswer,
}


#: The headers beside the rows of ``listAfter`` and ``search``.
HEAD, HAS_MORE, LAST = "Strandline-Head", "Strandline-Has-More", "Strandline-Last"
COMPLETE = "Strandline-Complete"


def headers_of(values: Mapping[str, int | bool]) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of an answer, with their values in JSON."""
    return tuple((name.lower().encode(), encode(value)) for name, value in values.items())


def stored(rows: bytes) -> list[Any]:
    """Rows, joined by commas, as a part of an answer. Their payloads are the stored bytes."""
    return cast(list[Any], Raw(b"[%b]" % rows))


# --- events of live responses ---------------------------------------------------------------------------------------


class RmEvent(Struct):
    id: str
    seq: int | None
    soft: bool


class PurgeEvent(Struct):
    #: Missing in a feed whose reader does not see all rows of the parent.
    parent: str | UnsetType
    soft: bool


class RestoreAllEvent(Struct):
    #: As in PurgeEvent.
    parent: str | UnsetType


class ReadyEvent(Struct):
    cursor: str


# --- errors ---------------------------------------------------------------------------------------------------------


class TableErrorLimit(Struct, frozen=True):
    max: int
    remaining: int
    window: int


class TableErrorBody(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """An error: ``code`` is for programs, ``message`` for people."""

    code: str
    message: str
    table: str | None = None
    op: str | None = None
    fields: list[str] | None = None
    field_errors: dict[str, str] | None = None
    #: In milliseconds.
    retry_after: int | None = None
    limit: TableErrorLimit | None = None
    #: The position of the wrong item of a bulk.
    index: int | None = None
    #: When the row was changed by another request.
    updated_at: int | None = None
    #: The hook that failed.
    hook: str | None = None
    #: Further facts about the error.
    detail: dict[str, Any] | None = None


class TableErrorAnswer(Struct, frozen=True):
    error: TableErrorBody

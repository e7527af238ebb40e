"""The bodies and answers of tables. Handlers decode and encode these structs, and OpenAPI is generated from them.

The schemas of payloads, patches and rows differ by table. Here they are references, which
:mod:`strandline.protocols.tables.schemas` resolves for each table.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Raw, Struct

from strandline.tables import (
    AppendBulkResult,
    AppendResult,
    Counts,
    Edit,
    PurgeResult,
    RestoreResult,
    RmBulkResult,
    RmResult,
)
from strandline.tables.names import MAX_KEY_BYTES, MAX_PARENT_BYTES
from strandline.tables.rows import Count
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


class AppendBulkBody(_Body, frozen=True):
    parent: Parent
    items: Annotated[list[AppendItem], _BULK]


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


class RowsAfterAnswer(Struct, rename="camel"):
    rows: list[RowJson]
    head: Count
    has_more: bool
    last: Count


class FoundAnswer(Struct):
    rows: list[RowJson]
    complete: bool


class HistoryAnswer(Struct):
    edits: list[Edit]


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
    "listAfter": RowsAfterAnswer,
    "read": RowJson | None,
    "search": FoundAnswer,
    "indexed": dict[str, list[RowJson]],
    "counts": Counts,
    "history": HistoryAnswer,
}


def stored(rows: bytes) -> list[Any]:
    """Rows, joined by commas, as a member of an answer. Their payloads are the stored bytes."""
    return cast(list[Any], Raw(b"[%b]" % rows))


# --- events of live responses ---------------------------------------------------------------------------------------


class RmEvent(Struct):
    id: str
    seq: int | None
    soft: bool


class PurgeEvent(Struct):
    parent: str
    soft: bool


class RestoreAllEvent(Struct):
    parent: str


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
    #: Further facts about the error.
    detail: dict[str, Any] | None = None


class TableErrorAnswer(Struct, frozen=True):
    error: TableErrorBody

"""The answers of the console about collections and their documents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strandline.engine.record import Durability

Number = Annotated[int, Meta(ge=0)]
DocumentKind = Literal["append-only", "regular", "events"]
Signature = Literal["valid", "invalid", "none"]


class CollectionRow(msgspec.Struct, kw_only=True):
    name: str
    namespace: str
    path: str
    kind: DocumentKind
    encryption: Literal["none", "delegated"]
    read_roles: list[str]
    write_roles: list[str]
    durability: Durability
    documents: Number
    records: Number
    bytes: Number
    last_ts: Number | None


class ConsoleCollectionsAnswer(msgspec.Struct, kw_only=True):
    collections: list[CollectionRow]


class FieldPermissionRow(msgspec.Struct, kw_only=True):
    field: str
    read_roles: list[str]
    write_roles: list[str]


class ConsoleCollectionAnswer(CollectionRow, kw_only=True):
    config: Annotated[dict[str, Any], Meta(description="The options that differ from their defaults.")]
    permissions: list[FieldPermissionRow]
    events: str | None


class DocumentRow(msgspec.Struct, kw_only=True):
    path: str
    records: Number
    bytes: Number
    last_ts: Number | None


class DocumentsAnswer(msgspec.Struct, kw_only=True):
    documents: list[DocumentRow]
    next: str | None


class ServedBy(msgspec.Struct, kw_only=True):
    namespace: str
    name: str


class ConsoleDocumentAnswer(DocumentRow, kw_only=True):
    collection: str
    kind: Literal["append-only", "regular"]
    hash: str
    checkpoint: Number | None
    expired: bool
    head: Number
    served_by: list[ServedBy]


class ElementRow(msgspec.Struct, kw_only=True):
    seq: Number
    ts: Number
    data: Any
    author: str | UnsetType = UNSET
    signature: Signature
    encrypted_bytes: Number | UnsetType = UNSET
    epoch: Number | UnsetType = UNSET


class ElementsAnswer(msgspec.Struct, kw_only=True):
    elements: list[ElementRow]
    next: Number | None

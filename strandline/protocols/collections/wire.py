"""What bodies and answers of the protocol look like. Handlers write answers as bytes: these types describe them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

Time = Annotated[int, Meta(ge=0)]
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
#: The same, or nothing of a document without elements.
HashOrNone = Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")]


class PushRequest(msgspec.Struct, rename="camel"):
    data: dict[str, Any]
    ts: Time | None = None
    author_pubkey: str | None = None
    author_signature: str | None = None


class PushAnswer(msgspec.Struct):
    hash: Hash
    timestamp: Time


class ElementAnswer(msgspec.Struct, rename="camel"):
    ts: Time
    data: dict[str, Any]
    author_pubkey: str | UnsetType = UNSET
    author_signature: str | UnsetType = UNSET


class PullAnswer(msgspec.Struct):
    data: dict[str, list[ElementAnswer]]
    hash: HashOrNone
    timestamp: Time
    more: bool | UnsetType = UNSET


class EntryAnswer(msgspec.Struct):
    """One document of a batch: a pull, or what is wrong with it."""

    data: dict[str, list[ElementAnswer]] | UnsetType = UNSET
    hash: HashOrNone | UnsetType = UNSET
    timestamp: Time | UnsetType = UNSET
    more: bool | UnsetType = UNSET
    error: str | UnsetType = UNSET
    message: str | UnsetType = UNSET


class BatchAnswer(msgspec.Struct):
    collections: dict[str, list[EntryAnswer]]


class ListAnswer(msgspec.Struct, rename="camel"):
    items: list[str]
    has_more: bool


class CollectionInfo(msgspec.Struct, rename="camel"):
    name: str
    max_body_bytes: int
    encryption: str
    allowed_mime_types: list[str]
    pull_only: bool | UnsetType = UNSET
    push_only: bool | UnsetType = UNSET
    append_only: dict[str, Any] | UnsetType = UNSET
    ttl_ms: int | UnsetType = UNSET


class NamespaceInfo(msgspec.Struct):
    collections: list[CollectionInfo]


class ConfigAnswer(msgspec.Struct):
    collections: list[CollectionInfo]
    namespaces: dict[str, NamespaceInfo] | UnsetType = UNSET


class CollectionErrorAnswer(msgspec.Struct):
    """What is wrong is said by ``error``; the other members are of some errors."""

    error: str
    message: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    path: list[str | int] | UnsetType = UNSET
    validator: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


DESCRIPTIONS: dict[str, dict[str, str]] = {
    "PushRequest": {
        "data": "The element.",
        "ts": "Its time in milliseconds, later than that of the last element; without it, the server's.",
        "authorPubkey": "The key of the author: 64 hexadecimal digits.",
        "authorSignature": "Its signature over the data and the path of the document, in base64.",
    },
    "PushAnswer": {
        "hash": "That of the document with this element as its last.",
        "timestamp": "The time of the element.",
    },
    "ElementAnswer": {"ts": "The time of the element, and what to ask for the next ones with."},
    "PullAnswer": {
        "data": "The elements, under the name that the collection has for them.",
        "hash": "That of the document; empty if it has no elements.",
        "timestamp": "The time of the answer.",
        "more": "There are more elements: pull again, with the time of the last one as the checkpoint.",
    },
    "ListAnswer": {"items": "The last segments of the paths of documents."},
    "CollectionErrorAnswer": {
        "error": "What is wrong, in words that do not change.",
        "message": "The same in more words.",
        "limit": "How many elements a document may have.",
        "path": "Where in the data something is wrong.",
        "validator": "The keyword of the schema that is violated.",
    },
}

"""The bodies and answers of the protocol. Handlers decode and encode these structs, and OpenAPI is generated from
them."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from strandline.collections.config import AppendOnly, Collection, Encryption

Time = Annotated[int, Meta(ge=0)]
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
#: A hash; empty for a document without elements.
HashOrNone = Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")]
#: A member of any type: what it must be is checked later, in the order of the protocol.
_ObjectLater = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
_TimeLater = Annotated[Any, Meta(extra_json_schema={"type": ["integer", "null"], "minimum": 0})]
_TextLater = Annotated[Any, Meta(extra_json_schema={"type": ["string", "null"]})]

encode = msgspec.json.Encoder().encode


class PushRequest(msgspec.Struct, rename="camel", gc=False):
    """The protocol requires servers to ignore other members."""

    data: _ObjectLater
    ts: _TimeLater = None
    author_pubkey: _TextLater = None
    author_signature: _TextLater = None


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


def stored(elements: bytes) -> list[ElementAnswer]:
    """Elements, joined by commas, as a member of an answer. They are the stored bytes."""
    return cast(list[ElementAnswer], Raw(b"[%b]" % elements))


class BoundsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The requested elements of one document in a batch. Numbers may be text."""

    since: Any = None
    last: Any = None
    limit: Any = None
    full: Any = None


class CollectionErrorAnswer(msgspec.Struct):
    """``error`` says what is wrong; only some errors have the other members."""

    error: str
    message: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    path: list[str | int] | UnsetType = UNSET
    validator: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    file: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


class EntryAnswer(msgspec.Struct):
    """One document of a batch: its elements, or its error."""

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


class AppendOnlyInfo(AppendOnly, frozen=True, kw_only=True, tag_field="type", tag="by_timestamp"):
    pass


class CollectionInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    max_body_bytes: int
    encryption: Encryption
    allowed_mime_types: tuple[str, ...]
    pull_only: bool = False
    push_only: bool = False
    append_only: AppendOnlyInfo | UnsetType = UNSET
    ttl_ms: int | UnsetType = UNSET

    @classmethod
    def of(cls, collection: Collection) -> CollectionInfo:
        rules, ttl = collection.append_only, collection.ttl_ms
        return cls(
            collection.name,
            collection.max_body_bytes,
            collection.encryption,
            collection.allowed_mime_types,
            collection.pull_only,
            collection.push_only,
            UNSET if rules is None else AppendOnlyInfo(**msgspec.structs.asdict(rules)),
            UNSET if ttl is None else ttl,
        )


class NamespaceInfo(msgspec.Struct):
    collections: list[CollectionInfo]


class ConfigAnswer(msgspec.Struct):
    collections: list[CollectionInfo]
    namespaces: dict[str, NamespaceInfo] | UnsetType = UNSET


DESCRIPTIONS: dict[str, dict[str, str]] = {
    "PushRequest": {
        "data": "The element.",
        "ts": "Its time in milliseconds, later than that of the last element; default: the time of the server.",
        "authorPubkey": "The public key of the author: 64 hexadecimal digits.",
        "authorSignature": "The author's signature over the data and the path of the document, in base64.",
    },
    "PushAnswer": {
        "hash": "The hash of the document with this element as its last.",
        "timestamp": "The time of the element.",
    },
    "ElementAnswer": {"ts": "The time of the element. As a checkpoint, it selects the elements after this one."},
    "PullAnswer": {
        "data": "The elements, under the name that the collection configures.",
        "hash": "The hash of the document; empty if it has no elements.",
        "timestamp": "The time of the answer.",
        "more": "Whether there are more elements: pull again, with the time of the last one as the checkpoint.",
    },
    "ListAnswer": {"items": "The last segments of the paths of documents."},
    "CollectionErrorAnswer": {
        "error": "What is wrong, in words that do not change.",
        "message": "A longer description of the error.",
        "limit": "The maximum number of elements of a document.",
        "path": "The place in the data that violates the schema.",
        "validator": "The keyword of the schema that is violated.",
        "file": "The file that is damaged or missing.",
        "retry_after_ms": "How long to wait before retrying.",
    },
}

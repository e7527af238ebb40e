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
    base_hash: _TextLater = None
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


class KeyringAnswer(msgspec.Struct):
    data: dict[str, Any]
    hash: Hash
    timestamp: Time


class DocumentAnswer(msgspec.Struct, rename="camel"):
    """A regular document. Only a pull that asks for the keyring has a ``keyring``."""

    data: dict[str, Any]
    hash: HashOrNone
    timestamp: Time
    author_pubkey: str | UnsetType = UNSET
    author_signature: str | UnsetType = UNSET
    keyring: KeyringAnswer | UnsetType | None = UNSET


class MemberAnswer(msgspec.Struct):
    data: dict[str, Any]
    hash: HashOrNone


class BundleAnswer(msgspec.Struct):
    collections: dict[str, MemberAnswer]
    timestamp: Time


def stored_object(data: bytes) -> dict[str, Any]:
    """A stored document as a member of an answer."""
    return cast(dict[str, Any], Raw(data))


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
    latest: Time | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    current_hash: HashOrNone | UnsetType = msgspec.field(default=UNSET, name="currentHash")
    path: list[str | int] | UnsetType = UNSET
    validator: str | UnsetType = UNSET
    file: str | UnsetType = UNSET
    document: str | UnsetType = UNSET
    leader: str | UnsetType = UNSET
    waited_ms: int | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


class EntryAnswer(msgspec.Struct):
    """One document of a batch: its elements or its data, or its error."""

    data: dict[str, Any] | UnsetType = UNSET
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


_MORE = (
    "Whether a limit left out elements that you requested. After a checkpoint they follow the last element: pull again "
    "with its time as the checkpoint. With `last` or `limit` they precede the first element."
)

DESCRIPTIONS: dict[str, dict[str, str]] = {
    "PushRequest": {
        "data": "The element, or the new version of a regular document.",
        "ts": "The time of the element in milliseconds, later than that of the last element; default: the time of the "
        "server.",
        "baseHash": "Regular documents: the hash of the version to replace; null if the document must not exist.",
        "authorPubkey": "The public key of the author: 64 hexadecimal digits.",
        "authorSignature": "The author's signature over the data and the path of the document, in base64.",
    },
    "PushAnswer": {
        "hash": "The hash of the document with this element as its last, or of the new version.",
        "timestamp": "The time of the element or the version.",
    },
    "ElementAnswer": {"ts": "The time of the element. As a checkpoint, it selects the elements after this one."},
    "PullAnswer": {
        "data": "The elements, under the name that the collection configures.",
        "hash": "The hash of the document; empty if it has no elements.",
        "timestamp": "The time of the answer.",
        "more": _MORE,
    },
    "DocumentAnswer": {
        "data": "The document; empty if it does not exist.",
        "hash": "The hash of the document, which the next push names as its base; empty if it does not exist.",
        "timestamp": "The time of the answer.",
        "keyring": "The document at the path followed by `/_keyring`; null if it does not exist.",
    },
    "BundleAnswer": {"collections": "The documents of the bundle that the caller may read, by collection."},
    "EntryAnswer": {
        "data": "The elements, under the name that the collection configures, or the regular document.",
        "more": _MORE,
    },
    "ListAnswer": {"items": "The last segments of the paths of documents."},
    "CollectionErrorAnswer": {
        "error": "What is wrong, in words that do not change.",
        "message": "A longer description of the error.",
        "latest": "The time of the last element.",
        "limit": "The maximum number of elements of a document.",
        "currentHash": "The hash of the current version of a regular document; empty if it does not exist.",
        "path": "The place in the data that violates the schema.",
        "validator": "The keyword of the schema that is violated.",
        "file": "The file that is damaged or missing.",
        "retry_after_ms": "How long to wait before retrying.",
    },
}

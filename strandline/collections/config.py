"""The configuration of collections: what can be declared about each collection.

:mod:`strandline.collections.config_sources` reads configurations, :mod:`strandline.collections.config_check` finds
contradictions in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from strandline.collections.settings import CollectionsSettings

#: The role that every caller has, with or without a certificate.
PUBLIC = "public"
#: The role of the caller whose identity is the ``{identity}`` in the path of the document.
SELF = "self"
#: The role of a device whose certificate is signed by its own key.
ROOT_DEVICE = "device:root"

READ, WRITE, LIST = "read", "write", "list"

#: The default number of versions of a regular document: enough to see how it came about, and bounded, because every
#: version is a whole document.
MAX_VERSIONS = 100

Positive = Annotated[int, Meta(ge=1, lt=1 << 62, description="a whole number, 1 or more")]
Text = Annotated[str, Meta(min_length=1, description="text")]
Flag = Annotated[bool, Meta(description="true or false")]
Roles = Annotated[tuple[str, ...], Meta(description="a list of roles")]
Bucket = Annotated[Literal["identity", "ip", "identity+ip"], Meta(description="identity, ip or identity+ip")]
Encryption = Annotated[Literal["none", "delegated"], Meta(description="none or delegated")]
Durability = Annotated[
    Literal["ephemeral", "memory", "disk", "fsync", "replicated"],
    Meta(description="ephemeral, memory, disk, fsync or replicated"),
]
Fields = Annotated[tuple[Text, ...], Meta(description="a list of fields")]
MimeTypes = Annotated[tuple[str, ...], Meta(description="a list of media types")]
Schema = Annotated[Mapping[str, Any], Meta(description="a JSON Schema")]


class AppendOnly(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How elements are appended and pulled."""

    #: The name of the array in which elements are shown.
    field: Text = "items"
    #: Whether elements are stored. If not, an append only writes its queue event.
    persist: Flag = True
    #: The maximum number of elements of a document; further appends are refused.
    max_items: Positive | None = None
    #: Accepted from existing configurations, without effect: a log is not rewritten as it grows.
    chunk_size: Positive | None = None
    #: Whether every element needs a valid signature by its author.
    require_author_signature: Flag = True
    #: Whether all elements may be pulled at once, with `full=true`.
    allow_full: Flag = True
    #: The maximum number of elements of a pull with `last` or `limit`; in a strict collection also of a pull with a
    #: checkpoint.
    max_pull_limit: Positive | None = None
    #: The maximum age of a checkpoint.
    max_checkpoint_age_ms: Positive | None = None


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A number of requests per window."""

    window_ms: Positive
    max_requests: Positive


class RateDimension(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One of two counters of a rule: per identity, or per address."""

    window_ms: Positive | None = None
    max_requests: Positive | None = None


class RateRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The limit of one action: a counter per ``bucket``, or separate counters per identity and per address."""

    #: The length of a window. It starts with the first request.
    window_ms: Positive | None = None
    #: The maximum number of requests in a window.
    max_requests: Positive | None = None
    #: Which requests are counted together: those of one `identity` (or address, without an identity), `ip` or
    #: `identity+ip`.
    bucket: Bucket | None = None
    #: A limit per identity, instead of `bucket`: a table with `window_ms` and `max_requests`.
    identity: RateDimension | None = None
    #: A limit per address, alone or in addition to the one per identity.
    ip: RateDimension | None = None


class CollectionRateLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The limits of a collection. Numbers that a rule omits are taken from here, and then from the limit for all
    collections. Without a rule for pushes, the numbers here limit pushes."""

    window_ms: Positive | None = None
    max_requests: Positive | None = None
    bucket: Bucket | None = None
    push: RateRule | None = None
    pull: RateRule | None = None
    list: RateRule | None = None


class FieldPermission(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The roles that may read, and the roles that may send, one field of the data. An empty list allows all."""

    read_roles: Roles = ()
    write_roles: Roles = ()


class QueueEvents(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Every accepted push becomes a record in a log of this server."""

    #: The topic; by default the name of the collection. It is created when it does not exist.
    topic: Text | None = None
    #: Whether the event has the parameters of the path.
    include_params: Flag = False
    #: Whether the event has the data, as it was sent.
    include_body: Flag = False
    #: Whether the event has the identity of the caller, if it is known.
    include_identity: Flag = False
    #: The placeholder whose value is appended to the name of the topic, after a dot.
    subject_param: Text | None = None
    #: The regular expression that the value must match to be appended.
    subject_id_pattern: Text = "^[a-zA-Z0-9_-]+$"


class Collection(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A kind of documents: their paths, who may read and write them, and how."""

    #: The name, in batch pulls, certificates and roles. It is unique in its namespace.
    name: Text
    #: The path of its documents: segments, and placeholders in braces, each of which stands for one segment.
    storage_path: Text
    #: The roles that may pull and list; a caller needs one of them. It may be empty only with `pull_only`.
    read_roles: Roles = ()
    #: The roles that may push; a caller needs one of them. Without roles, all pushes are refused.
    write_roles: Roles = ()
    #: `none`, or `delegated` if the clients encrypt. The server does not encrypt, and treats both alike.
    encryption: Encryption = "none"
    #: The maximum size of the body of a push in bytes, as it arrives.
    max_body_bytes: Positive = 64 << 10
    #: The number of requests a caller may make; `true` limits pushes to the rate for all collections.
    rate_limit: CollectionRateLimit | None = None
    #: The time that caches may keep an answer to a pull.
    cache_duration_ms: Positive | None = None
    #: The JSON Schema that the data of every element, or every version of a regular document, must match.
    object_schema: Schema | None = None
    #: `application/json` must be among them: documents are JSON.
    allowed_mime_types: MimeTypes = ("application/json",)
    #: Disables pushes; for regular documents that another collection with the same path writes.
    pull_only: Flag = False
    #: Disables pulls.
    push_only: Flag = False
    #: How elements are appended and pulled; `true` stands for the defaults. Without it, the collection holds regular
    #: documents, which every push replaces as a whole.
    append_only: AppendOnly | None = None
    #: Regular documents only: how many versions of a document to keep, including the current one.
    max_versions: Positive = MAX_VERSIONS
    #: Regular documents only: whether a version beyond `max_versions` is kept until the lake has it.
    retain_until_in_lake: Flag = False
    #: A document whose last element or version is older than this is shown as empty.
    ttl_ms: Positive | None = None
    #: For each field of the data, the `read_roles` that see it and the `write_roles` that may send it. An empty or
    #: missing list allows all roles.
    field_permissions: Mapping[str, FieldPermission] = {}
    #: Whether `GET /list/…` lists the documents. The last segment of the path must be a placeholder.
    listable: Flag = False
    #: Whether only devices whose certificate is signed by their own key have access, whatever the roles.
    root_only: Flag = False
    #: The fields of elements that can be searched, with `_search` of streams and `strandline search`.
    search: Fields = ()
    #: The bundle that a collection of regular documents belongs to.
    bundle: Text | None = None
    #: Writes a record to a topic for every push; `true` stands for the topic with the name of the collection.
    queue: QueueEvents | None = None
    #: What an acknowledged push survives: `ephemeral`, `memory`, `disk`, `fsync` (a loss of power) or
    #: `replicated` (the loss of the machine).
    durability: Durability = "fsync"
    #: Closes security gaps of the published servers, also where clients can notice it.
    strict: Flag = True

    @property
    def is_binary(self) -> bool:
        """Whether none of its media types is JSON."""
        return "application/json" not in [allowed.lower() for allowed in self.allowed_mime_types]

    @property
    def is_stored(self) -> bool:
        """Whether its documents are logs. If not, an append only writes its queue event."""
        return self.append_only is None or self.append_only.persist

    def roles_for(self, op: str) -> tuple[str, ...]:
        """The roles that allow ``op``: a caller needs one of them."""
        return self.write_roles if op == WRITE else self.read_roles

    def is_open(self, op: str) -> bool:
        """Whether every caller may do ``op``, so that callers are not identified."""
        return PUBLIC in self.roles_for(op) and not self.root_only


class CollectionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All collections, in the order in which their paths are matched, and the settings for all of them."""

    collections: tuple[Collection, ...] = ()
    namespaces: Mapping[str, tuple[Collection, ...]] = {}
    rate_limit: RateLimit | None = None
    settings: CollectionsSettings = CollectionsSettings()
    #: Options that have no effect, and options that are likely a mistake.
    warnings: tuple[str, ...] = ()

    def scopes(self) -> list[tuple[str, tuple[Collection, ...]]]:
        """The collections of every namespace with its name; those without a namespace have the empty name."""
        return [("", self.collections), *self.namespaces.items()]

"""What there is to say about a collection, as Python has it. Where it is read from is in
:mod:`strandline.protocols.collections.config_sources`, what does not go together in
:mod:`strandline.protocols.collections.config_check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from strandline.protocols.collections.settings import CollectionsSettings
from strandline.protocols.collections.template import Template

#: Everybody, with a certificate or without.
PUBLIC = "public"
#: Whoever the ``{identity}`` in the path of the document is.
SELF = "self"
#: A device whose certificate is signed by its own key.
ROOT_DEVICE = "device:root"

READ, WRITE, LIST = "read", "write", "list"

Positive = Annotated[int, Meta(ge=1, lt=1 << 62, description="a whole number, 1 or more")]
Text = Annotated[str, Meta(min_length=1, description="text")]
Flag = Annotated[bool, Meta(description="true or false")]
Roles = Annotated[tuple[str, ...], Meta(description="a list of roles")]
Bucket = Annotated[Literal["identity", "ip", "identity+ip"], Meta(description="identity, ip or identity+ip")]
Encryption = Annotated[Literal["none", "delegated"], Meta(description="none or delegated")]
Durability = Annotated[
    Literal["ephemeral", "memory", "disk", "fsync"], Meta(description="ephemeral, memory, disk or fsync")
]
MimeTypes = Annotated[tuple[str, ...], Meta(description="a list of media types")]
Schema = Annotated[Mapping[str, Any], Meta(description="a JSON Schema")]


class AppendOnly(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How elements are appended and pulled."""

    #: The name of the array in which elements are shown.
    field: Text = "items"
    #: Whether elements are kept; if not, an append is nothing but its queue event.
    persist: Flag = True
    #: An append is refused once a document has so many elements.
    max_items: Positive | None = None
    #: Accepted for the sake of existing configurations. It means nothing: a log is never rewritten as it grows.
    chunk_size: Positive | None = None
    #: Whether every element needs a valid signature of its author.
    require_author_signature: Flag = True
    #: Whether all elements may be pulled at once, with `full=true`.
    allow_full: Flag = True
    #: How many elements a pull gives at the most, where it is bounded by a number; of a strict collection also where
    #: it is bounded by a checkpoint.
    max_pull_limit: Positive | None = None
    #: How old a checkpoint may be.
    max_checkpoint_age_ms: Positive | None = None


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """So many requests in so many milliseconds."""

    window_ms: Positive
    max_requests: Positive


class RateDimension(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One counter of a rule that has one per identity and one per address."""

    window_ms: Positive | None = None
    max_requests: Positive | None = None


class RateRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The limit of one action: a counter per ``bucket``, or counters of their own per identity and per address."""

    #: How long a window is. It begins with the first request.
    window_ms: Positive | None = None
    #: How many requests there may be in a window.
    max_requests: Positive | None = None
    #: Who is counted together: `identity` (of those who have none, the address), `ip` or `identity+ip`.
    bucket: Bucket | None = None
    #: A limit per identity, in place of `bucket`: a table with `window_ms` and `max_requests`.
    identity: RateDimension | None = None
    #: A limit per address, beside that per identity or alone.
    ip: RateDimension | None = None


class CollectionRateLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The limits of a collection. What a rule leaves open is here, and what is left open here is in the limit for all
    collections. Without a rule for pushes, these very numbers are one."""

    window_ms: Positive | None = None
    max_requests: Positive | None = None
    bucket: Bucket | None = None
    push: RateRule | None = None
    pull: RateRule | None = None
    list: RateRule | None = None


class FieldPermission(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who may see, and who may send, one field of an element. An empty list does not restrict anybody."""

    read_roles: Roles = ()
    write_roles: Roles = ()


class QueueEvents(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Every accepted append becomes a record in a log of this server."""

    #: The topic; without it that of the name of the collection. It is made when it is not there.
    topic: Text | None = None
    #: Whether the event tells the parameters of the path.
    include_params: Flag = False
    #: Whether it tells the data, as it came.
    include_body: Flag = False
    #: Whether it tells who has appended, if that is known.
    include_identity: Flag = False
    #: The placeholder whose value is added to the name of the topic, after a dot.
    subject_param: Text | None = None
    #: What that value must look like to be added.
    subject_id_pattern: Text = "^[a-zA-Z0-9_-]+$"


class Collection(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One kind of documents: where they are, who may do what with them, and how."""

    #: What it is called: in batch pulls, in certificates, in roles. No two of a namespace are called the same.
    name: Text
    #: Where its documents are: segments, and placeholders in braces, each of which stands for one segment.
    storage_path: Text
    #: Who may pull and list: one of these roles is needed. Only with `pull_only` it may be empty.
    read_roles: Roles = ()
    #: Who may push: one of these roles is needed. Empty: nobody.
    write_roles: Roles = ()
    #: `none` or `delegated`, where the clients encrypt. The server never does, and treats both alike.
    encryption: Encryption = "none"
    #: The largest body of a push, counted in bytes as they arrive.
    max_body_bytes: Positive = 64 << 10
    #: How often somebody may push, pull and list; `true`: push, as often as the limit for all collections says.
    rate_limit: CollectionRateLimit | None = None
    #: How long caches may keep an answer to a pull.
    cache_duration_ms: Positive | None = None
    #: What the data of every element must look like: a JSON Schema.
    object_schema: Schema | None = None
    #: `application/json` must be among them: elements are JSON.
    allowed_mime_types: MimeTypes = ("application/json",)
    #: Whether there is no way to push. Nothing could ever be appended, so append-only collections cannot have it.
    pull_only: Flag = False
    #: Whether there is no way to pull.
    push_only: Flag = False
    #: How elements are appended and pulled; `true`: as it is by default. Without it, the collection is one of regular
    #: documents, and every request for it is answered with 501.
    append_only: AppendOnly | None = None
    #: A document whose last element is older than this is shown as an empty one.
    ttl_ms: Positive | None = None
    #: By field of the data of elements: `read_roles` that see it, and `write_roles` that may send it. A list that is
    #: empty or not there restricts nobody.
    field_permissions: Mapping[str, FieldPermission] = {}
    #: Whether `GET /list/…` tells which documents there are. The last segment of the path must be a placeholder.
    listable: Flag = False
    #: Whether only devices whose certificate is signed by their own key may do anything, roles or not.
    root_only: Flag = False
    #: The bundle that a collection of regular documents belongs to.
    bundle: Text | None = None
    #: Where appends are told, as records of a topic; `true`: in the topic of the collection's own name.
    queue: QueueEvents | None = None
    #: What an acknowledged append is worth: `ephemeral`, `memory`, `disk` or `fsync`, which is on the disk.
    durability: Durability = "fsync"
    #: Whether the holes of the published servers are closed, also where their clients would notice.
    strict: Flag = True

    @property
    def template(self) -> Template:
        return Template(self.storage_path)

    @property
    def is_binary(self) -> bool:
        """Whether no media type of it is JSON."""
        return "application/json" not in [allowed.lower() for allowed in self.allowed_mime_types]

    def roles_for(self, op: str) -> tuple[str, ...]:
        """Of which roles one is needed."""
        return self.write_roles if op == WRITE else self.read_roles

    def is_open(self, op: str) -> bool:
        """Whether nobody is asked who they are."""
        return PUBLIC in self.roles_for(op) and not self.root_only


class CollectionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All collections, in the order in which their paths are tried, and what goes for all of them."""

    collections: tuple[Collection, ...] = ()
    namespaces: Mapping[str, tuple[Collection, ...]] = {}
    rate_limit: RateLimit | None = None
    settings: CollectionsSettings = CollectionsSettings()
    #: What was asked for and has no effect, and what is likely not meant.
    warnings: tuple[str, ...] = ()

    def scopes(self) -> list[tuple[str, tuple[Collection, ...]]]:
        """The collections of every namespace, by its name; those of none under the empty name."""
        return [("", self.collections), *self.namespaces.items()]

"""Collections: append-only documents that consist of elements, and regular documents that are replaced as a whole, as
in the Starfish protocol.

This package is synchronous Python, independent of HTTP. Declare collections with :class:`Collection`, and serve them or
bind them to an engine with :class:`Collections`::

    from strandline.collections import AppendOnly, Collection, Collections
    from strandline.engine import Engine

    events = Collection(
        name="events",
        storage_path="events/{date}",
        read_roles=["cap:read:events"],
        write_roles=["cap:write:events"],
        append_only=AppendOnly(require_author_signature=False),
    )
    with Engine.open("data") as engine:
        collections = Collections(engine, [events])
        collections.append("events/2026-11-15", {"type": "click"}).wait()
        print(collections.pull("events/2026-11-15", last=10).elements)
"""

from strandline.collections.collections import Collections, Element, PullResult, ReadDocument
from strandline.collections.config import (
    AppendOnly,
    Collection,
    CollectionRateLimit,
    FieldPermission,
    QueueEvents,
    RateDimension,
    RateLimit,
    RateRule,
)
from strandline.collections.declaration import DeclaredCollections, Namespace
from strandline.collections.documents import ElementAppended
from strandline.collections.errors import BadCollections, CollectionError
from strandline.collections.permissions import Caller, Scope
from strandline.collections.regular_documents import VersionPushed
from strandline.collections.roles import RoleRequest, Roles, combine
from strandline.signing.revocations import Revocations

__all__ = [
    "AppendOnly",
    "BadCollections",
    "Caller",
    "Collection",
    "CollectionError",
    "CollectionRateLimit",
    "Collections",
    "DeclaredCollections",
    "Element",
    "ElementAppended",
    "FieldPermission",
    "Namespace",
    "PullResult",
    "QueueEvents",
    "RateDimension",
    "RateLimit",
    "RateRule",
    "ReadDocument",
    "Revocations",
    "RoleRequest",
    "Roles",
    "Scope",
    "VersionPushed",
    "combine",
]

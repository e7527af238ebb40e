"""Collections: signed elements appended to documents, as the Starfish protocol has them.

What a Python program needs for declaring them is here::

    from strandline.collections import AppendOnly, Collection

    events = Collection(
        name="events",
        storage_path="events/{date}",
        read_roles=["cap:read:events"],
        write_roles=["cap:write:events"],
        append_only=AppendOnly(max_pull_limit=1000),
    )
"""

from strandline.protocols.collections.config import (
    AppendOnly,
    Collection,
    CollectionRateLimit,
    FieldPermission,
    QueueEvents,
    RateDimension,
    RateLimit,
    RateRule,
)
from strandline.protocols.collections.declaration import Declared, Namespace
from strandline.protocols.collections.permissions import Caller, Scope
from strandline.protocols.collections.roles import Request, Roles, combine
from strandline.signing.revocations import Revocations

__all__ = [
    "AppendOnly",
    "Caller",
    "Collection",
    "CollectionRateLimit",
    "Declared",
    "FieldPermission",
    "Namespace",
    "QueueEvents",
    "RateDimension",
    "RateLimit",
    "RateRule",
    "Request",
    "Revocations",
    "Roles",
    "Scope",
    "combine",
]

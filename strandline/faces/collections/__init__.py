"""Collections: signed elements appended to documents, as the Starfish protocol has them.

What a Python program needs for declaring them is here.
"""

from strandline.faces.collections.config import (
    AppendOnly,
    Collection,
    CollectionRateLimit,
    FieldPermission,
    QueueEvents,
    RateDimension,
    RateLimit,
    RateRule,
)

__all__ = [
    "AppendOnly",
    "Collection",
    "CollectionRateLimit",
    "FieldPermission",
    "QueueEvents",
    "RateDimension",
    "RateLimit",
    "RateRule",
]

"""Where the protocol is: at the root, and once more for every namespace."""

from __future__ import annotations

PUSH = "/push/{path}"
PULL = "/pull/{path}"
LIST = "/list/{path}"
BATCH = "/batch/pull"
CONFIG = "/config"


def mounts_of(namespace: str) -> tuple[str, str]:
    """What the paths of a namespace begin with. Clients that know of namespaces put a version in front of them."""
    return f"/v1/{namespace}", f"/{namespace}"

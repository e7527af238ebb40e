"""Tables and collections for the console to show."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from strandline.collections import AppendOnly, Collection, FieldPermission, QueueEvents
from strandline.tables import Hooks, RateLimit, make_log


class Poll(msgspec.Struct):
    title: str
    isPublic: bool = True  # noqa: N815


class Vote(msgspec.Struct):
    option: Annotated[int, msgspec.Meta(ge=0, le=9, description="The index of the option.")]
    comment: str = ""
    mood: Literal["happy", "calm"] = "calm"
    weight: float | None = None
    tags: list[str] = []


def stamp(ctx: Any, *, payload: dict[str, Any]) -> dict[str, Any]:
    return payload


async def notify(ctx: Any, *, row: Any) -> None:
    return None


poll = make_log("poll", parent="site", schema=Poll, pub=True)
vote = make_log(
    "vote",
    parent=poll,
    schema=Vote,
    soft_delete=True,
    pub="isPublic",
    search="comment",
    feed=True,
    rate_limit=RateLimit(100_000),
    hooks=Hooks(before_append=stamp, after_append=notify),
    moderators=("moderator",),
)
#: Any payload, and removals are permanent.
ledger = make_log("ledger", parent="book", schema={"type": "object"})

chat = Collection(
    name="chat",
    storage_path="rooms/{room}",
    read_roles=["public"],
    write_roles=["public"],
    encryption="delegated",
    append_only=AppendOnly(require_author_signature=False),
    field_permissions={"verdict": FieldPermission(read_roles=["cap:read:moderation"])},
)
members = Collection(
    name="members",
    storage_path="rooms/{room}/members",
    read_roles=["self", "device:root"],
    write_roles=["public", "cap:write:members"],
)
pings = Collection(
    name="pings",
    storage_path="pings",
    read_roles=["public"],
    write_roles=["public"],
    append_only=AppendOnly(persist=False, require_author_signature=False),
    queue=QueueEvents(topic="ping-events"),
)

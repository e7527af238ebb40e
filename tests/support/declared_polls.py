"""The tables that the tests of this face declare: what a server is started with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from strandline.tables import Hooks, RateLimit, TableError, make_log


class Poll(msgspec.Struct):
    title: str
    isPublic: bool = True  # noqa: N815


VOTE = {
    "type": "object",
    "properties": {
        "optionIdx": {"type": "integer", "minimum": 0, "maximum": 9},
        "voter": {"type": "string", "maxLength": 40},
        "comment": {"type": "string"},
    },
    "required": ["optionIdx"],
    "additionalProperties": False,
}


def somebody(user: str) -> Mapping[str, Any] | None:
    return None if user == "nobody" else {"name": user.title()}


def stamp(ctx: Any, *, parent: str, payload: dict[str, Any]) -> dict[str, Any]:
    if payload["content"] == "forbidden words":
        raise TableError("FORBIDDEN", "not here")
    if payload["content"] == "unheard of":
        raise TableError("TOO_LATE", "the chat has ended")  # type: ignore[arg-type]
    if payload["content"] == "broken":
        raise RuntimeError("the hook is broken")
    return {**payload, "stamped": True}


def audit(ctx: Any, *, row: Any) -> None:
    if row.payload["content"] == "not audited":
        ctx.append("audit", "messages", {"what": 7})
    ctx.append("audit", "messages", {"what": row.id})


async def report(ctx: Any, *, row: Any) -> None:
    """Runs when the row is durable, outside its write."""
    if row.payload.get("any") == "broken":
        raise RuntimeError("the report is broken")
    write = ctx.tables["audit"].append("reports", {"what": f"{row.id} by {ctx.user}"})
    await asyncio.to_thread(write.wait)


class Message(msgspec.Struct):
    content: str
    stamped: bool = False


class Audit(msgspec.Struct):
    what: str


poll = make_log("poll", parent="site", schema=Poll, pub=True)
vote = make_log(
    "vote",
    parent=poll,
    schema=VOTE,
    soft_delete=True,
    pub="isPublic",
    search="comment",
    with_author=somebody,
    feed=True,
)
#: Without public reads, and its removals are for good.
note = make_log("note", parent="desk", schema={"type": "object"})
#: Three rows an hour.
limited = make_log(
    "limited",
    parent="desk",
    schema={"type": "object", "properties": {"at": {"type": "integer"}, "any": {}}, "additionalProperties": False},
    rate_limit=RateLimit(3, 3_600_000),
    pub=True,
    hooks=Hooks(after_append=report),
)
message = make_log(
    "message", parent="chat", schema=Message, pub=True, hooks=Hooks(before_append=stamp, after_append=audit)
)
audits = make_log("audit", parent="subject", schema=Audit, pub=True, feed=True)

"""Polls and votes: the tables that ``strandline serve --declare examples/poll/polls.py`` serves.

A poll belongs to the user who created it: only they can clear its votes and restore them. A vote belongs to the user
who cast it: they and the owner of the poll can change or remove it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from strandline.tables import HookContext, Hooks, TableError, make_log

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=120)]


class Poll(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    question: Text
    options: Annotated[list[Text], msgspec.Meta(min_length=2, max_length=8)]
    #: Whether everyone may vote and see the votes, or only the owner.
    is_public: bool = True


class Vote(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    option_idx: Annotated[int, msgspec.Meta(ge=0)]
    #: Set by the server, whatever a page sends.
    voter: str = ""


def stamp_voter(ctx: HookContext, *, parent: str, payload: dict[str, Any]) -> dict[str, Any]:
    check_option(ctx, parent, payload["optionIdx"])
    return {**payload, "voter": ctx.user or ""}


def keep_voter(ctx: HookContext, *, id: str, patch: dict[str, Any]) -> None:
    if "voter" in patch:
        raise TableError("VALIDATION_FAILED", "the voter of a vote cannot be changed", fields=["voter"])
    check_option(ctx, id.rpartition(":")[0], patch["optionIdx"])


def check_option(ctx: HookContext, poll_id: str, option: int) -> None:
    asked = ctx.read("poll", poll_id)
    if asked is not None and option >= len(asked.payload["options"]):
        raise TableError("VALIDATION_FAILED", f"the poll has no option {option}", fields=["optionIdx"])


poll = make_log("poll", parent="site", schema=Poll, soft_delete=True, rate_limit=20, pub=True)
vote = make_log(
    "vote",
    parent=poll,
    schema=Vote,
    soft_delete=True,
    rate_limit=30,
    pub="isPublic",
    hooks=Hooks(before_append=stamp_voter, before_update=keep_voter),
)

"""The tables that the tests of the client use: what a server is started with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from strandline.tables import RateLimit, make_log


class Poll(msgspec.Struct):
    title: str


class Vote(msgspec.Struct):
    optionIdx: int  # noqa: N815
    comment: str = ""


def somebody(user: str) -> Mapping[str, Any] | None:
    return {"name": user.title()}


ANYTHING = {"type": "object"}

poll = make_log("poll", parent="site", schema=Poll, pub=True)
vote = make_log(
    "vote", parent=poll, schema=Vote, soft_delete=True, pub=True, search="comment", with_author=somebody, feed=True
)
#: Without public reads, and its removals are for good.
note = make_log("note", parent="desk", schema=ANYTHING)
#: Three rows an hour.
limited = make_log("limited", parent="desk", schema=ANYTHING, rate_limit=RateLimit(3, 3_600_000))

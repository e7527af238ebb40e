"""The route of the audit log: its entries, newest first."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated

import msgspec
from msgspec import Meta

from strandline.engine import Engine
from strandline.service.access import Access
from strandline.service.audit import AUDIT_LOG, AuditEntry
from strandline.service.http import Call, Reply, Route, json_reply
from strandline.service.problems import invalid, may_not_touch
from strandline.service.workers import Workers

PAGE = 100
MAX_PAGE = 1000

_decoder = msgspec.json.Decoder(AuditEntry)


class AuditRow(AuditEntry, frozen=True, kw_only=True):
    """One administrative request."""

    #: The sequence number of the entry in `__audit__`.
    seq: Annotated[int, Meta(ge=1)]
    #: The time of the answer, in milliseconds since 1970.
    time: Annotated[int, Meta(ge=0)]


class AuditPage(msgspec.Struct):
    #: Newest first.
    entries: list[AuditRow]
    #: The `before` of the next page; null: there are no older entries.
    next_before: int | None


class AuditRoutes:
    def __init__(self, engine: Engine, workers: Workers) -> None:
        self._engine = engine
        self._workers = workers

    def routes(self) -> list[Route]:
        return [Route(method="GET", path="/v0/audit", handler=self.list, scopes=("admin",))]

    def list(self, call: Call) -> Awaitable[Reply]:
        """GET /v0/audit"""
        _check(call.access)
        before = _number(call, "before", 0, 1 << 62) or None
        limit = _number(call, "limit", PAGE, MAX_PAGE)
        return self._workers.normal.run(self._page, before, limit)

    def _page(self, before: int | None, limit: int) -> Reply:
        found = self._engine.find(AUDIT_LOG)
        if found is None:
            return json_reply(AuditPage([], None))
        page = found.read_back(before, limit)
        rows = [
            AuditRow(seq=record.seq, time=record.ts, **msgspec.structs.asdict(_decoder.decode(record.data)))
            for record in page
        ]
        older = None if page.caught_up or not rows else rows[0].seq
        return json_reply(AuditPage(rows[::-1], older))


def _check(access: Access) -> None:
    """Entries can name any log, so a key with prefixes may not read them, unless one covers the log of entries."""
    if not access.may_touch(AUDIT_LOG):
        raise may_not_touch(AUDIT_LOG)


def _number(call: Call, name: str, default: int, most: int) -> int:
    text = call.query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:20]) <= most:
        raise invalid(f"{name} is {text[:40]!r}; expected a whole number from 1 to {most}")
    return int(text)

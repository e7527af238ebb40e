"""The audit log: who changed the configuration of the server and its logs, when, and with which outcome.

The entries are records of the internal log ``__audit__``, which keys with the scope ``admin`` can read. The key of a
record is the first name in the path, usually that of a log, and its node is the id of the API key. The gate writes an
entry for every audited request that it answers, in all protocols; see :func:`is_audited`.

Use this module on the event loop's thread.
"""

from __future__ import annotations

import logging
from typing import Literal

import msgspec

from strandline.engine import Batch, Config, Engine
from strandline.engine.errors import EngineError
from strandline.service.frequent_warning import FrequentWarning
from strandline.service.http import Head, Route

log = logging.getLogger(__name__)
_lost = FrequentWarning(log, "%d entries could not be written to the audit log: %s")

AUDIT_LOG = "__audit__"
#: Clients choose paths and headers, and an entry stays small.
MAX_TEXT = 1000

Outcome = Literal["done", "refused", "failed"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request. The time of the record is the time of its answer."""

    #: The id of the API key; left out if the server has no API keys.
    api_key: str = ""
    #: The address of the client, or of the proxy in front of it.
    peer: str = ""
    #: The X-Forwarded-For header of a trusted proxy.
    forwarded_for: str = ""
    method: str
    #: The route, as in the reference of the HTTP API, and the path of the request.
    route: str
    path: str
    status: int
    #: `refused`: the status is below 500, and nothing was changed.
    outcome: Outcome


_encode = msgspec.json.Encoder().encode


def is_audited(route: Route) -> bool:
    """Whether requests for the route are administrative: they change something and need the scope `admin`, remove
    something as a whole, or are declared as such."""
    if route.method in ("GET", "HEAD", "OPTIONS"):
        return False
    return route.audited or "admin" in route.scopes or (route.method == "DELETE" and "delete" in route.scopes)


class Audit:
    """``max_bytes`` bounds the log: the oldest entries are removed. The first entry creates it."""

    def __init__(self, engine: Engine, max_bytes: int) -> None:
        self._engine = engine
        self._config = Config(durability="disk", cap_bytes=max_bytes)

    def prepare(self) -> None:
        """Give an existing log the bound. May wait for the disk."""
        found = self._engine.find(AUDIT_LOG)
        if found is not None and found.config != self._config and self._engine.writable:
            found.configure(self._config).wait()

    def note(self, head: Head, status: int, peer: str) -> None:
        """Append an entry. It is in the journal when this returns. An error is logged: the request is answered."""
        route, access = head.route, head.access
        assert route is not None
        if access is None:
            return  # a caller without a key changes nothing, and could fill the log
        entry = AuditEntry(
            api_key=access.id,
            peer=peer,
            forwarded_for=head.headers.get(b"x-forwarded-for", b"").decode("latin-1")[:MAX_TEXT],
            method=head.method,
            route=route.path,
            path=head.path[:MAX_TEXT],
            status=status,
            outcome="done" if status < 400 else "refused" if status < 500 else "failed",
        )
        name = next(iter(head.params.values()), "")[:MAX_TEXT]
        batch = Batch.of(_encode(entry), name or None, access.id or None)
        try:
            if self._engine.find(AUDIT_LOG) is None:
                self._engine.create(AUDIT_LOG, self._config)
            self._engine.log(AUDIT_LOG).append(batch)
        except EngineError as error:
            _lost(error)

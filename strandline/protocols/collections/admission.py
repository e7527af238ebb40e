"""Admission as a server needs it: with the lists of what is revoked, and what a program has declared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping

from strandline.protocols.collections.callers import Callers, check_scope
from strandline.protocols.collections.catalogue import Entry
from strandline.protocols.collections.config import CollectionsConfig
from strandline.protocols.collections.declaration import Declared
from strandline.protocols.collections.permissions import UNASKED, Caller, check_access, with_self
from strandline.protocols.collections.problems import Refused, forbidden, unauthorized
from strandline.protocols.collections.revocation_files import RevocationFiles
from strandline.protocols.collections.roles import Request, Roles, called
from strandline.protocols.http import Call


def open_admission(config: CollectionsConfig, declared: Declared) -> Admission:
    """Raises BadRevocationFile."""
    settings = config.settings
    files = RevocationFiles(settings.revocations, declared.revocations)
    files.load()
    return Admission(Callers(settings, files), declared.roles, settings.role_resolver_timeout_ms)


# --- Everything that is between a request and a document: who asks, with which roles, and whether that is enough ----

log = logging.getLogger(__name__)


class Admission:
    """Answers at once, unless the application has functions of its own to be asked: then later."""

    def __init__(self, callers: Callers, roles: Roles | None = None, timeout_ms: int = 5000) -> None:
        self.callers = callers
        self._roles = Roles() if roles is None else roles
        self._timeout = timeout_ms / 1000

    def admit(
        self, call: Call, entry: Entry, op: str, params: Mapping[str, str], now: int
    ) -> Caller | Awaitable[Caller]:
        """The caller with all of its roles, if it may do ``op`` (read, write or list). Raises :class:`Refused`."""
        if entry.collection.is_open(op):
            # Nobody is asked: a certificate that comes along is neither looked at nor used up.
            return UNASKED
        if self._roles.resolver is not None or self._roles.enricher is not None:
            return self._admit_later(call, entry, op, params, now)
        limit = entry.collection.max_body_bytes
        caller = self.callers.identify(call, now, params=params, max_body_bytes=limit)
        caller = with_self(caller, entry.template, params)
        check_access(entry.collection, op, caller)
        return caller

    async def _admit_later(self, call: Call, entry: Entry, op: str, params: Mapping[str, str], now: int) -> Caller:
        limit = entry.collection.max_body_bytes
        caller = await self._resolved(call, now, params, limit)
        caller = await self.enriched(caller, entry, params)
        check_access(entry.collection, op, caller)
        return caller

    def identify(self, call: Call, now: int) -> Caller | Awaitable[Caller]:
        """Who asks for several documents at once, or for none: what it may do with each is a question of its own.
        Raises :class:`Refused`."""
        if self._roles.resolver is not None:
            return self._resolved(call, now, {}, 0)
        return self.callers.identify(call, now, params={})

    def enrich(self, caller: Caller, entry: Entry, params: Mapping[str, str]) -> Caller | Awaitable[Caller]:
        """The caller with the roles it has for one document. Raises :class:`Refused`."""
        if self._roles.enricher is not None:
            return self.enriched(caller, entry, params)
        return with_self(caller, entry.template, params)

    async def enriched(self, caller: Caller, entry: Entry, params: Mapping[str, str]) -> Caller:
        caller = with_self(caller, entry.template, params)
        if self._roles.enricher is None:
            return caller
        try:
            return caller.with_roles(await called(self._roles.enricher, caller, params))
        except Exception:
            log.exception("the role enricher failed")
            raise Refused(500, "Authorization error") from None

    async def _resolved(self, call: Call, now: int, params: Mapping[str, str], limit: int) -> Caller:
        caller = None
        if self._roles.resolver is not None:
            caller = await self._ask(Request.of(call))
        if caller is None:
            return self.callers.identify(call, now, params=params, max_body_bytes=limit)
        if caller.scope is not None:
            check_scope(call.head, caller.scope, caller.identity)
        return caller

    async def _ask(self, request: Request) -> Caller | None:
        try:
            caller = await asyncio.wait_for(called(self._roles.resolver, request), self._timeout)  # type: ignore[arg-type]
        except TimeoutError:
            raise Refused(503, "Unauthorized") from None
        except Exception as error:
            raise _as_refusal(error) from None
        if caller is not None and not isinstance(caller, Caller):
            log.error("the role resolver answered %r, which is no Caller", type(caller))
            raise unauthorized()
        return caller


def _as_refusal(error: Exception) -> Refused:
    status = getattr(error, "status", None)
    if status == 403:
        return forbidden()
    if status == 413:
        return Refused(413, str(error) or "Payload too large")
    log.error("the role resolver failed", exc_info=error)
    return unauthorized()

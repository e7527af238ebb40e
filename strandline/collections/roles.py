"""Roles from an application: its functions identify the sender of a request and assign roles to callers.

Both are plain functions or coroutine functions. A plain function is called on a thread, so it may block, for example on
a database. A coroutine function is awaited on the event loop, which it must not block.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import chain
from typing import Any, TypeVar

import msgspec

from strandline.collections.errors import CollectionError, forbidden, unauthorized
from strandline.collections.permissions import Caller

log = logging.getLogger(__name__)

T = TypeVar("T")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The request that is passed to a resolver. ``path`` and ``query`` are not decoded; header names are in lower
    case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


#: Returns the sender of a request, or None to use the certificate. An exception whose ``status`` is 403 or 413 is
#: answered with that status, any other exception with 401.
Resolver = Callable[[Request], "Caller | Awaitable[Caller | None] | None"]
#: Returns additional roles of a caller for the document with these parameters. It may be called several times for one
#: request, so it must not have side effects.
Enricher = Callable[[Caller, Mapping[str, str]], "Iterable[str] | Awaitable[Iterable[str]]"]
#: Calls a function with its arguments on a thread.
Run = Callable[..., Awaitable[Any]]


class Roles(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of an application."""

    resolver: Resolver | None = None
    enricher: Enricher | None = None


class CombinedEnricher:
    """Returns the roles of all its enrichers."""

    def __init__(self, enrichers: tuple[Enricher, ...]) -> None:
        self.enrichers = enrichers

    async def __call__(self, caller: Caller, params: Mapping[str, str]) -> list[str]:
        try:
            return await self.roles(caller, params, run=asyncio.to_thread)
        except _Failed as failed:
            raise failed.error from None

    async def roles(self, caller: Caller, params: Mapping[str, str], *, run: Run) -> list[str]:
        found = await asyncio.gather(*(_call(run, enricher, caller, params) for enricher in self.enrichers))
        return _guarded(list, chain.from_iterable(found))


def combine(*enrichers: Enricher) -> Enricher:
    """Combine enrichers into one that returns the roles of all of them."""
    return CombinedEnricher(enrichers)


class RoleFunctions:
    """Calls the functions of an application. ``run`` calls a plain function on a thread; its own exceptions are passed
    on. Each call may take at most ``timeout_ms``."""

    def __init__(self, roles: Roles, run: Run, timeout_ms: int = 5000) -> None:
        self._roles = roles
        self._run = run
        self._timeout = timeout_ms / 1000
        self.resolves = roles.resolver is not None
        self.enriches = roles.enricher is not None

    async def resolve(self, request: Request) -> Caller | None:
        """Return the sender of the request according to the resolver, or None to use the certificate. Raises
        :class:`CollectionError`."""
        resolver = self._roles.resolver
        if resolver is None:
            return None
        try:
            caller = await asyncio.wait_for(_call(self._run, resolver, request), self._timeout)
        except TimeoutError:
            message = f"the role resolver did not return within {self._timeout:g} s"
            raise CollectionError("role_resolver_timeout", message) from None
        except _Failed as failed:
            raise _as_refusal(failed.error) from None
        if caller is not None and not isinstance(caller, Caller):
            log.error("the role resolver returned %r; expected a Caller or None", type(caller))
            raise unauthorized()
        return caller

    async def enrich(self, caller: Caller, params: Mapping[str, str]) -> Caller:
        """Add the roles of the enricher to the caller. Raises :class:`CollectionError`."""
        enricher = self._roles.enricher
        if enricher is None:
            return caller
        try:
            roles = await asyncio.wait_for(_call(self._run, enricher, caller, params), self._timeout)
            return _guarded(caller.with_roles, roles)
        except TimeoutError:
            message = f"the role enricher did not return within {self._timeout:g} s"
            raise CollectionError("role_enricher_timeout", message) from None
        except _Failed as failed:
            log.error("the role enricher failed", exc_info=failed.error)
            raise CollectionError("role_enricher_failed", "the role enricher failed") from None


class _Failed(Exception):
    """A function of the application raised ``error``. Errors of ``run`` itself, such as a full pool, are passed on
    unchanged."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


async def _call(run: Run, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of either kind. Raises :class:`_Failed` with the function's exception."""
    if isinstance(function, CombinedEnricher):
        return await function.roles(*arguments, run=run)
    if inspect.iscoroutinefunction(function):
        return await _awaited(function(*arguments))
    answer = await run(_guarded, function, *arguments)
    return await _awaited(answer) if inspect.isawaitable(answer) else answer


def _guarded(function: Callable[..., T], *arguments: Any) -> T:
    try:
        return function(*arguments)
    except Exception as error:
        raise _Failed(error) from None


async def _awaited(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except Exception as error:
        raise _Failed(error) from None


def _as_refusal(error: Exception) -> CollectionError:
    status = getattr(error, "status", None)
    if status == 403:
        return forbidden()
    if status == 413:
        return CollectionError("too_large", str(error) or "Payload too large")
    if isinstance(error, TimeoutError):
        return CollectionError("role_resolver_timeout", f"the role resolver timed out: {error}")
    log.error("the role resolver failed", exc_info=error)
    return unauthorized()

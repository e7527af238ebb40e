"""Roles that a program gives: an application can say by itself who asks, and what roles somebody has.

Both are plain functions or coroutine functions. A plain one is called on a thread of its own, so it may wait for a
database; a coroutine function is awaited on the event loop, which it must not block.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from strandline.protocols.collections.permissions import Caller
from strandline.protocols.http import Call

#: Functions that wait for something must not take the threads from those who wait for the disk. No thread is there
#: before it is needed.
_threads = ThreadPoolExecutor(16, thread_name_prefix="strandline-roles")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a resolver gets to see. ``path`` and ``query`` are as they came; names of headers are in small letters."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, call: Call) -> Request:
        head = call.head
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers.items()}
        return cls(method=head.method, path=head.path, query=head.query_string, headers=headers, body=call.body)


#: Who asks; None: whoever the certificate says. An exception whose ``status`` is 403 or 413 is answered with that one,
#: any other with 401.
Resolver = Callable[[Request], "Caller | Awaitable[Caller | None] | None"]
#: Further roles of a caller, for the document with these parameters. It may be called several times for one request,
#: and must not do anything else.
Enricher = Callable[[Caller, Mapping[str, str]], "Iterable[str] | Awaitable[Iterable[str]]"]


class Roles(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of an application."""

    resolver: Resolver | None = None
    enricher: Enricher | None = None


def combine(*enrichers: Enricher) -> Enricher:
    """All roles that any of them gives."""

    async def combined(caller: Caller, params: Mapping[str, str]) -> list[str]:
        found = await asyncio.gather(*(called(enricher, caller, params) for enricher in enrichers))
        return [role for roles in found for role in roles]

    return combined


async def called(function: Callable[..., Any], *arguments: object) -> Any:
    """What a function of either kind says."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    answer = await asyncio.get_running_loop().run_in_executor(_threads, function, *arguments)
    return await answer if inspect.isawaitable(answer) else answer

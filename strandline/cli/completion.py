"""Completion of names in the shell, as far as a server tells them quickly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice

import httpx

from strandline.cli.connection import DEFAULT_URL
from strandline.client import Client, StrandlineError

#: Somebody has pressed a key and is waiting.
SECONDS = 0.5
MAX_NAMES = 50


def complete_log(incomplete: str) -> list[str]:
    """Names of logs that begin like this."""
    return _first(lambda client: (row.name for row in client.streams(incomplete)))


def complete_queue(incomplete: str) -> list[str]:
    return _first(lambda client: (row.topic for row in client.topics(incomplete) if row.type == "queue"))


def complete_router(incomplete: str) -> list[str]:
    return _first(lambda client: (row.router for row in client.routers(incomplete)))


def _first(names: Callable[[Client], Iterable[str]]) -> list[str]:
    """None is offered where nobody answers: a shell has no place for errors."""
    url, key = os.environ.get("STRANDLINE_URL", DEFAULT_URL), os.environ.get("STRANDLINE_KEY")
    try:
        with Client(url, key, timeout=SECONDS, patience=0) as client:
            return list(islice(names(client), MAX_NAMES))
    except (StrandlineError, ValueError, httpx.HTTPError):
        return []

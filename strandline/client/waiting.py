"""Waiting and locking, once for event loops and once for threads: the two halves of what is otherwise one source."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable
from typing import Annotated, TypeAlias, TypeVar

T = TypeVar("T")

#: What a function gives that the caller awaits, or has at once.
AsyncResult: TypeAlias = Awaitable[T]
SyncResult: TypeAlias = Annotated[T, "at once"]

AsyncLock = asyncio.Lock
SyncLock = threading.Lock


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def sync_sleep(seconds: float) -> None:
    time.sleep(seconds)

"""Going through a topic, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from strandline.client.asynchronous.watch import tell_loss
from strandline.client.concurrency import AsyncResult
from strandline.client.topic_types import Page, Record, Tombstone

T = TypeVar("T")


async def read_pages(page: Callable[[int], AsyncResult[Page[T]]], after: int) -> AsyncIterator[Page[T]]:
    """Pages from a seq to the end."""
    position = after
    while True:
        found = await page(position)
        yield found
        if found.caught_up:
            return
        position = found.next_from_seq


async def read_records(
    page: Callable[[int], AsyncResult[Page[T]]], after: int, on_loss: Callable[[Tombstone], None] | None
) -> AsyncIterator[Record[T]]:
    async for found in read_pages(page, after):
        if found.tombstone is not None:
            tell_loss(found.tombstone, on_loss)
        for record in found.records:
            yield record

# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""Going through a topic, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from strandline.client.concurrency import SyncResult
from strandline.client.synchronous.watch import tell_loss
from strandline.client.topic_types import Page, Record, Tombstone

T = TypeVar("T")


def read_pages(page: Callable[[int], SyncResult[Page[T]]], after: int) -> Iterator[Page[T]]:
    """Pages from a seq to the end."""
    position = after
    while True:
        found = page(position)
        yield found
        if found.caught_up:
            return
        position = found.next_from_seq


def read_records(
    page: Callable[[int], SyncResult[Page[T]]], after: int, on_loss: Callable[[Tombstone], None] | None
) -> Iterator[Record[T]]:
    for found in read_pages(page, after):
        if found.tombstone is not None:
            tell_loss(found.tombstone, on_loss)
        yield from found.records

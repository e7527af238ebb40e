# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""Cursors over documents of collections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from strandline.client.collection_types import Element, Pulled
from strandline.client.concurrency import SyncLock, SyncResult
from strandline.client.cursors import CursorState
from strandline.client.errors import BadRequest

T = TypeVar("T")


class AppendLogCursor(Generic[T]):
    """Holds the elements of a document, and pulls only what is new. ``AsyncDocument.cursor`` makes one."""

    def __init__(self, pull: Callable[..., SyncResult[Pulled[dict[str, Any]]]], state: CursorState[T]) -> None:
        self._pull = pull
        self._state = state
        # Two pulls at a time would get the same elements.
        self._lock = SyncLock()

    def pull(self) -> list[Element[T]]:
        """What is new since the last pull, verified and decrypted. Raises WrongAuthor, Unreadable, unless such elements
        are skipped; then nothing has happened, and the next pull begins at the same place."""
        with self._lock:
            pulled = self._first()
            elements = pulled.elements
            while pulled.more and pulled.elements:
                pulled = self._pull(since=pulled.elements[-1].ts)
                elements += pulled.elements
            return self._state.take(elements)

    def _first(self) -> Pulled[dict[str, Any]]:
        if not self._state.is_cold:
            return self._pull(since=self._state.checkpoint)
        try:
            return self._pull(full=True)
        except BadRequest as refused:
            if refused.code != "full_not_allowed":
                raise
        # Some collections are only given part by part.
        return self._pull(since=0)

    @property
    def items(self) -> list[Element[Any]]:
        """All elements that are held, to be kept and given to a later cursor: encrypted with ``persist_encrypted``,
        else as ``pull`` gives them. ``msgspec.json.encode`` writes them as the protocol does."""
        return self._state.items.copy()

    def decrypted_items(self) -> list[Element[T]]:
        """All elements that are held, verified and decrypted."""
        return self._state.opened_items()

    @property
    def skipped(self) -> int:
        """How many elements were skipped since this cursor was made."""
        return self._state.skipped

    @property
    def checkpoint(self) -> int:
        """The time of the last element that was pulled or skipped; 0 if there was none."""
        return self._state.checkpoint

    def set_checkpoint(self, ts: int) -> None:
        """Go on behind this time. Raises ValueError if that is before the last element that is held."""
        self._state.move(ts)

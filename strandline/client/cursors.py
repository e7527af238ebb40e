"""What a cursor over a document knows: the elements that it holds, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from strandline.client.collection_types import Element, ElementErrors
from strandline.client.element_reader import Opening
from strandline.client.errors import BadAnswer, BadElement

T = TypeVar("T")

#: Elements have times from 0 on.
_NOTHING = -1


class CursorState(Generic[T]):
    """The state of one cursor, without its connection."""

    def __init__(
        self,
        opening: Opening[T],
        items: Iterable[Element[Any] | Mapping[str, Any]],
        since: int | None,
        on_element_error: ElementErrors,
        persist_encrypted: bool,
    ) -> None:
        if on_element_error not in ("throw", "skip"):
            raise ValueError('on_element_error is "throw" or "skip"')
        self._opening = opening
        self._skips = on_element_error == "skip"
        self._keeps_sealed = persist_encrypted
        self.items: list[Element[Any]] = [_element(item) for item in items]
        self._position = _last_ts(self.items)
        self.skipped = 0
        if since is not None:
            self.move(since)

    @property
    def checkpoint(self) -> int:
        return max(self._position, 0)

    @property
    def is_cold(self) -> bool:
        """Whether everything has to be asked for. The checkpoint 0 is no bound: it is that of no element and of one at
        the time 0."""
        return self._position <= 0

    def move(self, checkpoint: int) -> None:
        """Go on behind this time. Raises ValueError if that would give elements again that are held."""
        if checkpoint < 0:
            raise ValueError("a checkpoint is not negative")
        if checkpoint < _last_ts(self.items):
            raise ValueError("a checkpoint is not before the last element that is held")
        # Behind no time is behind 0, and yet an element at 0 has not been seen.
        self._position = checkpoint or self._position

    def take(self, elements: Iterable[Element[dict[str, Any]]]) -> list[Element[T]]:
        """The elements that are new, opened. If one of them cannot be opened and is not to be skipped, nothing has
        happened."""
        opened: list[Element[T]] = []
        kept: list[Element[Any]] = []
        position, skipped = self._position, 0
        for element in elements:
            if element.ts <= position:
                continue
            position = element.ts
            plain = self._opened(element)
            if plain is None:
                skipped += 1
            else:
                opened.append(plain)
            if self._keeps_sealed:
                # What cannot be read today may be when a key has come.
                kept.append(element)
            elif plain is not None:
                kept.append(plain)
        self.items += kept
        self._position = position
        self.skipped += skipped
        return opened

    def opened_items(self) -> list[Element[T]]:
        """All elements that are held, opened."""
        if not self._keeps_sealed:
            return self.items.copy()
        found = map(self._opened, self.items)
        return [element for element in found if element is not None]

    def _opened(self, element: Element[dict[str, Any]]) -> Element[T] | None:
        try:
            return self._opening.open(element)
        except (BadElement, BadAnswer):
            if not self._skips:
                raise
            return None


def _element(item: Element[Any] | Mapping[str, Any]) -> Element[Any]:
    return item if isinstance(item, Element) else msgspec.convert(item, Element[Any])


def _last_ts(items: Iterable[Element[Any]]) -> int:
    return max((item.ts for item in items), default=_NOTHING)

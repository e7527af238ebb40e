"""Frames that were written together count together: all of them, or none.

A write over several logs is several frames, one behind the other, of which all but the last say that there is more.
If any of them cannot be read, be it because a crash tore the end off or because of damage, none counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from strandline.engine.journal.frame import MORE, Damage, Frame

T = TypeVar("T")


class Broken(NamedTuple):
    """A frame that can be read and does not count, because others of its write cannot."""

    frame: Frame

    def place_and_reason(self) -> tuple[int, int, str]:
        """Offset, length and why, as of damage."""
        return self.frame.offset, self.frame.length, "the rest of its write cannot be read"


def whole(items: Iterable[Frame | Damage | T]) -> Iterator[Frame | Damage | Broken | T]:
    """The frames that count, in order, with what does not count between them.

    An item of another type stands for frames that are writes of their own: it passes as it is.
    """
    waiting: list[Frame] = []
    for item in items:
        if isinstance(item, Frame) and item.place == len(waiting):
            if item.flags & MORE:
                waiting.append(item)
                continue
            if waiting:
                yield from waiting
                waiting = []
            yield item
            continue
        yield from map(Broken, waiting)
        waiting = []
        if not isinstance(item, Frame):
            yield item
        elif item.place:
            yield Broken(item)
        elif item.flags & MORE:
            waiting.append(item)
        else:
            yield item
    yield from map(Broken, waiting)

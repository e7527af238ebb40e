"""How much work one update of a registry may be.

Schemas can be written so that proving a lens for them takes minutes. The work is counted rather than timed: what is
refused is refused on every machine. It is found by its context, because everything that looks at a schema takes part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from strandline.schema.errors import SchemaError

#: Parts of schemas looked at, some of them many times. Enough for hundreds of operations on thousands of properties,
#: and a second or two at most.
MAX_EFFORT = 500_000

_spent: ContextVar[list[int] | None] = ContextVar("spent", default=None)


@contextmanager
def bounded(limit: int = MAX_EFFORT) -> Iterator[None]:
    """Within it, ``spend`` raises SchemaError once there is nothing left."""
    token = _spent.set([limit])
    try:
        yield
    finally:
        _spent.reset(token)


def spend(units: int = 1) -> None:
    left = _spent.get()
    if left is not None:
        left[0] -= units
        if left[0] < 0:
            raise SchemaError("schema is too complex to be checked")

"""Limits on concurrency: requests in progress per API key, and open streams in total and per key.

Only used on the event loop's thread. Requests without a key are not limited per key.
"""

from __future__ import annotations

from strandline.service.access import Access
from strandline.service.unread import UnreadBytes


class Slots:
    """At most ``total`` slots at the same time, and ``per_key`` for each API key; 0: no limit.

    A caller that got True from ``acquire`` must call ``release`` exactly once, with the same access.
    """

    __slots__ = ("_by_key", "_per_key", "_total", "used")

    def __init__(self, total: int = 0, per_key: int = 0) -> None:
        self._total = total
        self._per_key = per_key
        #: The number of slots in use.
        self.used = 0
        #: Slots in use per key; only keys that hold some.
        self._by_key: dict[str, int] = {}

    def room(self, access: Access) -> bool:
        """Whether ``acquire`` would succeed now."""
        if self._total and self.used >= self._total:
            return False
        return not self._per_key or not access.id or self._by_key.get(access.id, 0) < self._per_key

    def acquire(self, access: Access) -> bool:
        """Take a slot; False if none is free."""
        if not self.room(access):
            return False
        self.used += 1
        if self._per_key and access.id:
            self._by_key[access.id] = self._by_key.get(access.id, 0) + 1
        return True

    def release(self, access: Access) -> None:
        if not self.used:
            raise RuntimeError("a slot was released that was not taken")
        if self._per_key and access.id:
            held = self._by_key.get(access.id, 0)
            if not held:
                raise RuntimeError(f"the API key {access.id} released a slot that it had not taken")
            if held == 1:
                del self._by_key[access.id]
            else:
                self._by_key[access.id] = held - 1
        self.used -= 1


class Limits:
    """``requests`` are in progress until they are answered; ``streams`` (event streams and WebSockets) are open until
    they end; ``unread`` is the data that clients have not read yet."""

    def __init__(
        self,
        *,
        max_inflight_per_key: int = 0,
        max_sse_connections: int = 0,
        max_sse_connections_per_key: int = 0,
        unread: UnreadBytes | None = None,
    ) -> None:
        self.unread = UnreadBytes() if unread is None else unread
        self.requests = Slots(per_key=max_inflight_per_key)
        self.streams = Slots(max_sse_connections, max_sse_connections_per_key)

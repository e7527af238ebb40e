"""Limits on concurrent work: requests in flight per API key, and open streams in total and per API key.

Use this module only on the event loop's thread. Limits per API key do not apply if the server has no API keys.
"""

from __future__ import annotations

from strandline.service.access import Access
from strandline.service.unread import UnreadBytes


class Slots:
    """At most ``total`` slots in use, and at most ``per_key`` for each API key; 0: no limit.

    After ``acquire`` returned True, the caller must call ``release`` exactly once, with the same access.
    """

    __slots__ = ("_by_key", "_per_key", "_total", "used")

    def __init__(self, total: int = 0, per_key: int = 0) -> None:
        self._total = total
        self._per_key = per_key
        #: Number of slots in use.
        self.used = 0
        #: Slots in use by the id of the API key. Keys without slots have no entry.
        self._by_key: dict[str, int] = {}

    def room(self, access: Access) -> bool:
        """Whether ``acquire`` would succeed now."""
        if self._total and self.used >= self._total:
            return False
        return not self._per_key or not access.id or self._by_key.get(access.id, 0) < self._per_key

    def acquire(self, access: Access) -> bool:
        """Take a slot. Returns False if none is free."""
        if not self.room(access):
            return False
        self.used += 1
        if self._per_key and access.id:
            self._by_key[access.id] = self._by_key.get(access.id, 0) + 1
        return True

    def release(self, access: Access) -> None:
        if not self.used:
            raise RuntimeError("release() was called without a matching acquire()")
        if self._per_key and access.id:
            held = self._by_key.get(access.id, 0)
            if not held:
                raise RuntimeError(f"release() was called for the key {access.id}, which holds no slot")
            if held == 1:
                del self._by_key[access.id]
            else:
                self._by_key[access.id] = held - 1
        self.used -= 1


class Limits:
    """The limits of one server.

    ``requests`` counts requests that are not answered yet. ``streams`` counts open event streams and WebSockets.
    ``unread`` tracks the data that clients have not read yet.
    """

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

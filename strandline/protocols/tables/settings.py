"""What there is to choose about tables."""

from __future__ import annotations

from msgspec import Struct


class TablesSettings(Struct, frozen=True, kw_only=True):
    """How those are treated who follow along."""

    #: A reader that takes nothing for this long is disconnected.
    slow_consumer_timeout_ms: int = 30_000

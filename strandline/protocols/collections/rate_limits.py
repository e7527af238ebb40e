"""Rate limits: so many requests of somebody in a window that begins with the first of them."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.protocols.collections.config import (
    Collection,
    CollectionRateLimit,
    CollectionsConfig,
    RateDimension,
    RateLimit,
    RateRule,
)
from strandline.protocols.collections.problems import rate_limited

PUSH, PULL, LIST = "push", "pull", "list"
ACTIONS = (PUSH, PULL, LIST)

#: Windows of one counter that are remembered. Beyond that the oldest is forgotten, and whoever it was of begins anew.
MAX_WINDOWS = 100_000

#: Who is counted together where nothing is known of somebody.
ANONYMOUS = "anonymous"


class UnresolvedLimit(ValueError):
    """A limit without a window or a number, anywhere. The message names what is missing them."""


class Counter:
    """One limit, with a count for everybody."""

    __slots__ = ("_bucket", "_limit", "_windows")

    def __init__(self, limit: RateLimit, bucket: str) -> None:
        self._limit = limit
        self._bucket = bucket
        #: Begin and count of windows, in the order in which they began.
        self._windows: dict[str, tuple[int, int]] = {}

    def count(self, identity: str, address: str, now: int) -> int:
        """Count a request: 0 if it is within the limit, else after how many milliseconds one will be."""
        who = self._who(identity, address)
        begin, count = self._windows.get(who, (now, 0))
        if not begin <= now < begin + self._limit.window_ms:
            begin, count = now, 0
        if not count:
            self._windows.pop(who, None)
            if len(self._windows) >= MAX_WINDOWS:
                del self._windows[next(iter(self._windows))]
        self._windows[who] = (begin, count + 1)
        return 0 if count < self._limit.max_requests else begin + self._limit.window_ms - now

    def _who(self, identity: str, address: str) -> str:
        address = address or ANONYMOUS
        if self._bucket == "ip":
            return address
        if self._bucket == "identity+ip":
            return f"{identity or ANONYMOUS}|{address}"
        # One who is known by nothing but an address is not one of that name.
        return f"={identity}" if identity else address


class Rates:
    """The limits of all collections."""

    def __init__(self, config: CollectionsConfig) -> None:
        self._counters: dict[tuple[str, str, str], list[Counter]] = {}
        for namespace, collections in config.scopes():
            for collection in collections:
                for action, counters in counters_of(collection, config.rate_limit):
                    self._counters[namespace, collection.name, action] = counters

    def limits(self, namespace: str, collection: str, action: str) -> bool:
        """Whether there is a limit at all."""
        return (namespace, collection, action) in self._counters

    def check(self, namespace: str, collection: str, action: str, identity: str, address: str, now: int) -> None:
        """Count a request; raise :class:`Refused` if it is one too many."""
        counters = self._counters.get((namespace, collection, action))
        if counters is None:
            return
        # All are counted, whichever refuses.
        wait = max([counter.count(identity, address, now) for counter in counters])
        if wait:
            raise rate_limited(-(-wait // 1000))


def counters_of(collection: Collection, everywhere: RateLimit | None) -> Iterator[tuple[str, list[Counter]]]:
    """The counters by action. Raises :class:`UnresolvedLimit`."""
    limits = collection.rate_limit
    if limits is None:
        return
    rules: dict[str, RateRule | None] = {action: getattr(limits, action) for action in ACTIONS}
    for action, rule in rules.items():
        if rule is not None:
            yield action, list(_counters(f"rate_limit.{action}", rule, limits, everywhere))
    # The numbers by themselves are about pushes. Where nothing goes for all collections and there are rules, they only
    # complete those.
    if rules[PUSH] is None and (everywhere is not None or not any(rules.values())):
        yield PUSH, list(_counters("rate_limit", RateRule(bucket=limits.bucket), limits, everywhere))


def _counters(
    name: str, rule: RateRule, limits: CollectionRateLimit, everywhere: RateLimit | None
) -> Iterator[Counter]:
    if rule.identity is None and rule.ip is None:
        yield Counter(_resolved(name, RateDimension(), rule, limits, everywhere), rule.bucket or "identity")
    if rule.identity is not None:
        yield Counter(_resolved(f"{name}.identity", rule.identity, rule, limits, everywhere), "identity")
    if rule.ip is not None:
        yield Counter(_resolved(f"{name}.ip", rule.ip, rule, limits, everywhere), "ip")


def _resolved(
    name: str, dimension: RateDimension, rule: RateRule, limits: CollectionRateLimit, everywhere: RateLimit | None
) -> RateLimit:
    """The first who says something counts."""
    sources = [source for source in (dimension, rule, limits, everywhere) if source is not None]
    window = next((source.window_ms for source in sources if source.window_ms is not None), None)
    requests = next((source.max_requests for source in sources if source.max_requests is not None), None)
    if window is None or requests is None:
        missing = " and ".join(
            word for word, value in (("window_ms", window), ("max_requests", requests)) if value is None
        )
        raise UnresolvedLimit(
            f"{name} has no {missing}: say it there, in the rate_limit of the collection, or in that for all of them"
        )
    return RateLimit(window_ms=window, max_requests=requests)

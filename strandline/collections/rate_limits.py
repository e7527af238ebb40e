"""Rate limits: a number of requests per caller, in a window that starts with the first request."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.collections.config import (
    Collection,
    CollectionRateLimit,
    CollectionsConfig,
    RateDimension,
    RateLimit,
    RateRule,
)
from strandline.collections.errors import CollectionError

PUSH, PULL, LIST = "push", "pull", "list"
ACTIONS = (PUSH, PULL, LIST)

#: The maximum number of windows of one counter. Beyond that, the oldest is dropped, and its caller starts a new one.
MAX_WINDOWS = 100_000

#: The shared bucket of callers without a known identity or address.
ANONYMOUS = "anonymous"


class UnresolvedLimit(ValueError):
    """A limit without a declared window or number. The message names what is missing."""


class RateCounter:
    """One limit, with a count per bucket."""

    __slots__ = ("_bucket", "_limit", "_windows")

    def __init__(self, limit: RateLimit, bucket: str) -> None:
        self._limit = limit
        self._bucket = bucket
        #: Start and count of windows, in the order in which they started.
        self._windows: dict[str, tuple[int, int]] = {}

    def count(self, identity: str, address: str, now: int) -> int:
        """Count a request. Returns 0 if it is within the limit, otherwise the milliseconds until the next request
        is."""
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
        # The prefix keeps an identity apart from an address with the same text.
        return f"={identity}" if identity else address


class RateLimiter:
    """The limits of all collections."""

    def __init__(self, config: CollectionsConfig) -> None:
        self._counters: dict[tuple[str, str, str], list[RateCounter]] = {}
        for namespace, collections in config.scopes():
            for collection in collections:
                for action, counters in counters_of(collection, config.rate_limit):
                    self._counters[namespace, collection.name, action] = counters

    def limits(self, namespace: str, collection: str, action: str) -> bool:
        """Whether there is a limit."""
        return (namespace, collection, action) in self._counters

    def check(self, namespace: str, collection: str, action: str, identity: str, address: str, now: int) -> None:
        """Count a request. Raises CollectionError (``rate_limited``) if it exceeds a limit."""
        counters = self._counters.get((namespace, collection, action))
        if counters is None:
            return
        # Every counter counts the request, even if another one refuses it.
        wait = max([counter.count(identity, address, now) for counter in counters])
        if wait:
            raise CollectionError("rate_limited", "the caller has exceeded the rate limit", retry_after_ms=wait)


def counters_of(collection: Collection, everywhere: RateLimit | None) -> Iterator[tuple[str, list[RateCounter]]]:
    """The counters by action. Raises :class:`UnresolvedLimit`."""
    limits = collection.rate_limit
    if limits is None:
        return
    rules: dict[str, RateRule | None] = {action: getattr(limits, action) for action in ACTIONS}
    for action, rule in rules.items():
        if rule is not None:
            yield action, list(_counters(f"rate_limit.{action}", rule, limits, everywhere))
    # Without rules, the numbers limit pushes. With rules, and without a limit for all collections, they only complete
    # the rules.
    if rules[PUSH] is None and (everywhere is not None or not any(rules.values())):
        yield PUSH, list(_counters("rate_limit", RateRule(bucket=limits.bucket), limits, everywhere))


def _counters(
    name: str, rule: RateRule, limits: CollectionRateLimit, everywhere: RateLimit | None
) -> Iterator[RateCounter]:
    if rule.identity is None and rule.ip is None:
        yield RateCounter(_resolved(name, RateDimension(), rule, limits, everywhere), rule.bucket or "identity")
    if rule.identity is not None:
        yield RateCounter(_resolved(f"{name}.identity", rule.identity, rule, limits, everywhere), "identity")
    if rule.ip is not None:
        yield RateCounter(_resolved(f"{name}.ip", rule.ip, rule, limits, everywhere), "ip")


def _resolved(
    name: str, dimension: RateDimension, rule: RateRule, limits: CollectionRateLimit, everywhere: RateLimit | None
) -> RateLimit:
    """Resolve a limit. The first source with a value wins."""
    sources = [source for source in (dimension, rule, limits, everywhere) if source is not None]
    window = next((source.window_ms for source in sources if source.window_ms is not None), None)
    requests = next((source.max_requests for source in sources if source.max_requests is not None), None)
    if window is None or requests is None:
        missing = " and ".join(
            word for word, value in (("window_ms", window), ("max_requests", requests)) if value is None
        )
        raise UnresolvedLimit(
            f"{name} has no {missing}: set it there, in the rate_limit of the collection, or in collections.rate_limit"
        )
    return RateLimit(window_ms=window, max_requests=requests)

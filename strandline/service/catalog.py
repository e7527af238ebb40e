"""The catalog: the one namespace of logs.

All protocols find, create and remove logs here, so the same rules apply to each of them: which names the server
reserves, which logs belong to a table or a collection, and when a log expires.

Removing a log that has forks only hides the log. It is dropped together with its last fork.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from sys import maxunicode
from typing import Any

from strandline.engine import Batch, Config, Engine, Log
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError, NotWritable
from strandline.engine.operations.erasures import NAME as ERASURES
from strandline.engine.ownership import (
    GONE,
    JSON,
    PROFILE,
    REGISTRY,
    STREAMS,
    closed_to_others,
    media_type_of,
    owner_of,
)
from strandline.engine.record import INTERNAL_PREFIX, RESERVED_NAME, is_internal
from strandline.engine.state.log_names import Span
from strandline.schema.profiles import GENERIC, Profile, load_profile
from strandline.schema.registry import Registry
from strandline.service.access import Access
from strandline.service.lifetime import Lifetime
from strandline.service.log_config import has_delivery_limit, kind_of

log = logging.getLogger(__name__)

#: The prefix of the cursor names of consumers.
CONSUMER = "consumer:"
#: The internal streams that every client may read.
METRICS_STREAM = "__stream_metrics__"
SYSTEM = frozenset({METRICS_STREAM})
#: The internal logs that a key without the admin scope may read. Followers need the erasures.
READABLE = SYSTEM | {ERASURES}
#: The delay before the server retries a failed removal of an expired log.
RETRY_MS = 1000


# --- properties of a log --------------------------------------------------------------------------------------------


def holds_json(log: Log) -> bool:
    return media_type_of(log.config) == JSON


def is_hidden(log: Log) -> bool:
    """Whether the log was deleted and is kept only for its forks."""
    return GONE in log.notes


def registry_of(log: Log) -> Registry:
    """The schemas of the log's records."""
    stored = log.notes.get(REGISTRY)
    return Registry.empty(log.name) if stored is None else Registry.load(stored)


def profile_of(log: Log) -> Profile:
    stored = log.notes.get(PROFILE)
    return GENERIC if stored is None else load_profile(stored)


# --- ownership ------------------------------------------------------------------------------------------------------


def check_change(log: Log) -> None:
    """Raise NotWritable if the log has an owner: then other protocols must not configure or remove it, or delete its
    records."""
    why = owner_of(log.name, log.notes)
    if why is not None:
        raise NotWritable(log.name, why)


def check_append(log: Log) -> None:
    """Raise NotWritable if topics and arrow, which do not validate against schemas, must not append to the log."""
    if log.notes or is_internal(log.name):
        why = closed_to_others(log.name, log.notes)
        if why is not None:
            raise NotWritable(log.name, why)


# --- the namespace --------------------------------------------------------------------------------------------------


#: The number of names that a listing reads from the engine at a time.
_CHUNK = 500


class Catalog:
    """``now`` returns milliseconds. Call the methods on the event loop's thread, unless their docstring says otherwise;
    ``post`` runs a function there from any thread."""

    def __init__(self, engine: Engine, now: Callable[[], int], post: Callable[[Callable[[], None]], None]) -> None:
        self.engine = engine
        self._now = now
        self._post = post
        self._lifetimes: dict[str, Lifetime] = {}
        self._expiring: list[tuple[int, str]] = []
        #: The sorted names of logs that were deleted and are kept for their forks.
        self.hidden: list[str] = []
        #: Number of queues.
        self.queues = 0
        #: Listeners that are called on the event loop soon after a log was created, by any protocol, if the log still
        #: exists. Internal logs are left out. A listener must be quick.
        self.created: dict[Callable[[Log], None], None] = {}
        #: Listeners that are called before a log is dropped. A listener must be quick.
        self.dropping: list[Callable[[Log], None]] = []
        #: Each returns the reason why only an owner may create a log of this name, or None.
        self.reservations: list[Callable[[str], str | None]] = []
        self._load()
        engine.created.append(self._hear_of)
        if engine.follower is not None:
            # The leader creates and drops logs, not this catalog.
            engine.created.append(self._enter)
            engine.noted.append(self._note_hidden)
            engine.dropped.append(self._leave)

    def stop(self) -> None:
        """Stop listening for new logs."""
        self.engine.created.remove(self._hear_of)

    def _load(self) -> None:
        for book in list(self.engine.by_epoch.values()):
            self.queues += kind_of(book.config) == "queue" and not is_internal(book.name)
            self._note_lifetime(self.engine.log(book.name))
        heapify(self._expiring)
        for book in list(self.engine.by_epoch.values()):
            log = None if book.dropped else self.engine.log(book.name)
            if log is not None and is_hidden(log):
                insort(self.hidden, log.name)
                if not log.forks and self.engine.writable:
                    self.drop(log)

    @property
    def count(self) -> int:
        """The number of logs, without internal ones."""
        return sum(self.engine.totals.logs.values())

    @property
    def visible_count(self) -> int:
        """The number of logs, without internal and hidden ones."""
        return self.count - len(self.hidden)

    def limited_queues(self) -> list[Log]:
        """The queues that have a maximum number of deliveries."""
        books = list(self.engine.by_epoch.values())
        return [self.engine.log(book.name) for book in books if not book.dropped and has_delivery_limit(book.config)]

    # --- finding -----------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Log | None:
        """The log, hidden or not; None if it does not exist or has expired."""
        log = self.engine.find(name)
        if log is None:
            return None
        lifetime = self._lifetimes.get(name)
        if lifetime is not None and lifetime.expired(self._now()) and not self.expire(log):
            return None
        return log

    def lifetime(self, log: Log) -> Lifetime | None:
        """The log's lifetime; None if the log does not expire."""
        return self._lifetimes.get(log.name)

    def use(self, log: Log) -> None:
        """Note that the log is read or written, which restarts a sliding lifetime."""
        lifetime = self._lifetimes.get(log.name)
        if lifetime is not None:
            lifetime.use(self._now())

    # --- visibility --------------------------------------------------------------------------------------------------

    @staticmethod
    def visible(log: Log, access: Access, *, internal: bool = False) -> bool:
        """Whether the API key may see the log. ``internal`` includes internal and hidden logs; most of them are visible
        to administrators only. Any thread may call it."""
        if not access.may_touch(log.name):
            return False
        if is_hidden(log) or is_internal(log.name):
            return internal and (access.may("admin") or (log.name in READABLE and not is_hidden(log)))
        return True

    def names(
        self,
        access: Access,
        limit: int,
        *,
        prefix: str = "",
        after: str = "",
        position: int = 0,
        internal: bool = False,
    ) -> list[str]:
        """The sorted names of visible logs that have a prefix and come after a name, from a position (counted from 0).

        With ``internal`` the result may include names of logs that are not visible. The result includes expired logs
        that were not removed yet, so call ``sweep`` first. Any thread may call it.
        """
        with self.engine.lock:
            hidden = () if internal else self.hidden
            wanted = spans(access.prefixes, prefix, after, internal=internal)
            return self.engine.names_at(wanted, hidden, position, limit)

    def walk(self, access: Access, *, prefix: str = "", after: str = "", internal: bool = False) -> Iterator[str]:
        """The same as ``names``, without a limit. A log that is created or dropped meanwhile may be listed or not."""
        while names := self.names(access, _CHUNK, prefix=prefix, after=after, internal=internal):
            yield from names
            after = names[-1]

    # --- creating ----------------------------------------------------------------------------------------------------

    def check_name(self, name: str, owner: Callable[[str], str | None] | None = None) -> None:
        """Raise NotWritable if logs of this name belong to the server, a table or a collection. The reservation
        ``owner`` does not count: it is that of the caller."""
        if is_internal(name):
            raise NotWritable(name, RESERVED_NAME)
        for reserved in self.reservations:
            why = None if reserved == owner else reserved(name)
            if why is not None:
                raise NotWritable(name, why)

    def check_target(self, name: str) -> None:
        """Raise NotWritable if the log of this name has an owner, or would have one once it is created."""
        log = self.find(name)
        if log is None:
            self.check_name(name)
        else:
            check_change(log)

    def create(
        self,
        name: str,
        config: Config | None = None,
        *,
        source: tuple[Log, int] | None = None,
        notes: Mapping[str, Any] | None = None,
        batch: Batch | None = None,
    ) -> tuple[Log, Commit[Log]]:
        """Create a log that does not exist, with its first records, in one step. ``source`` is the log to fork and the
        sequence number of the fork.

        The log can be used at once and is durable when the commit is done.
        """
        if name not in SYSTEM:
            self.check_name(name)
        if source is None:
            commit = self.engine.create(name, config, notes=notes, batch=batch)
        else:
            commit = self.engine.fork(name, *source, config, notes=notes, batch=batch)
        log = self.engine.log(name)
        self.queues += kind_of(log.config) == "queue"
        self._note_lifetime(log)
        return log, commit

    def _hear_of(self, log: Log) -> None:
        """Called by the engine for a new log, on the thread that created it, which may be any thread."""
        if not is_internal(log.name):
            self._post(lambda: self._tell(log))

    def _tell(self, log_: Log) -> None:
        for listener in list(self.created):
            if log_.dropped:
                return
            try:
                listener(log_)
            except Exception:
                log.exception("a listener for new logs failed for the log %r", log_.name)

    def _enter(self, log: Log) -> None:
        """The leader has created a log."""
        self.queues += kind_of(log.config) == "queue" and not is_internal(log.name)
        self._note_lifetime(log)

    def _note_hidden(self, log: Log) -> None:
        """The leader has changed the notes of a log."""
        if is_hidden(log) and not self._is_listed_as_hidden(log.name):
            insort(self.hidden, log.name)

    def _leave(self, log: Log) -> None:
        """The leader has dropped a log. Called with the engine's lock held."""
        self._unlist_hidden(log.name)
        self.queues -= kind_of(log.config) == "queue" and not is_internal(log.name)
        self._lifetimes.pop(log.name, None)

    def _is_listed_as_hidden(self, name: str) -> bool:
        at = bisect_left(self.hidden, name)
        return self.hidden[at : at + 1] == [name]

    def _unlist_hidden(self, name: str) -> None:
        if self._is_listed_as_hidden(name):
            del self.hidden[bisect_left(self.hidden, name)]

    # --- removing ----------------------------------------------------------------------------------------------------

    def remove(self, log: Log) -> Commit[Any]:
        """Drop the log, or hide it if it has forks."""
        if log.forks:
            with self.engine.lock:
                commit = log.note({GONE: True})
                insort(self.hidden, log.name)
            return commit
        return self.drop(log)

    def drop(self, log: Log) -> Commit[None]:
        """Drop a log without forks, and its source if that is hidden and has no other fork."""
        base = log.base
        for listener in self.dropping:
            listener(log)
        with self.engine.lock:  # other threads may be listing names
            commit = log.drop()
            self._unlist_hidden(log.name)
        self.queues -= kind_of(log.config) == "queue"
        self._lifetimes.pop(log.name, None)
        if base is not None:
            source = base[0]
            if is_hidden(source) and not source.forks:
                self.drop(source)
        return commit

    def unmake(self, log_: Log) -> None:
        """Drop a log that was created for a write which then failed."""
        try:
            self.drop(log_)
        except EngineError as error:
            log.error("cannot remove the log %r, which was created for a failed write: %s", log_.name, error)

    # --- expiry ------------------------------------------------------------------------------------------------------

    def _note_lifetime(self, log: Log) -> None:
        traits = log.config.attributes.get(STREAMS)
        if traits is None:
            return
        ttl_seconds, fixed = traits.get("ttl_seconds"), traits.get("expires_at")
        if ttl_seconds is None and fixed is None:
            self._lifetimes.pop(log.name, None)
            return
        lifetime = Lifetime(log, ttl_seconds, fixed, self._now())
        self._lifetimes[log.name] = lifetime
        heappush(self._expiring, (lifetime.expires_at, log.name))

    def expire(self, log_: Log) -> bool:
        """Remove a log that has expired. Returns True if the log still exists, hidden, because it has forks."""
        if not is_hidden(log_):
            try:
                self.remove(log_)
            except EngineError as error:
                log.error("cannot remove the expired log %r: %s", log_.name, error)
                return False
        return is_hidden(log_) and not log_.dropped

    def sweep(self) -> None:
        """Remove the expired logs. Requests never find an expired log, even before it is removed."""
        if not self.engine.writable:
            return
        now, heap = self._now(), self._expiring
        while heap and heap[0][0] <= now:
            _, name = heappop(heap)
            lifetime = self._lifetimes.get(name)
            if lifetime is None or lifetime.log.dropped or is_hidden(lifetime.log):
                continue
            if not lifetime.expired(now):
                heappush(heap, (lifetime.expires_at, name))
                continue
            try:
                self.expire(lifetime.log)
            finally:
                if not lifetime.log.dropped and not is_hidden(lifetime.log):
                    heappush(heap, (now + RETRY_MS, name))


# --- listing --------------------------------------------------------------------------------------------------------


def spans(prefixes: Sequence[str], prefix: str = "", after: str = "", *, internal: bool = False) -> list[Span]:
    """The ranges of names that start with ``prefix`` and one of ``prefixes`` (if there are any) and come after
    ``after``. Without ``internal`` the ranges leave out internal names."""
    allowed = [prefix if prefix.startswith(each) else each for each in prefixes or ("",) if _meet(each, prefix)]
    found: list[Span] = []
    last: str | None = None
    for each in sorted(allowed):
        # The range of a shorter prefix includes the names of a longer one.
        if last is None or not each.startswith(last):
            last = each
            found.append((each, _end_of(each)))
    first = f"{after}\0" if after else ""
    if internal:
        return [(max(low, first), high) for low, high in found]
    return list(_without_internal(found, first))


def _meet(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _end_of(prefix: str) -> str | None:
    """The smallest string that sorts after all strings with the prefix; None if there is none."""
    prefix = prefix.rstrip(chr(maxunicode))
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None


def _without_internal(found: Iterable[Span], first: str) -> Iterable[Span]:
    own, after_own = INTERNAL_PREFIX, _end_of(INTERNAL_PREFIX)
    assert after_own is not None
    for low, high in found:
        low = max(low, first)
        if low < own:
            yield low, own if high is None else min(high, own)
        if high is None or high > after_own:
            yield max(low, after_own), high

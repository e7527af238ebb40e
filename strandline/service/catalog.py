"""The catalog: the one namespace of logs.

All protocols find, create and remove logs through the catalog, so that the same rules apply to each of them: which
names belong to the server, which logs belong to a table or a collection, when a log has expired, and what is kept for
forks.

A log that has forks is hidden instead of removed. It is removed with the last of its forks.
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
from strandline.service.log_config import kind_of

log = logging.getLogger(__name__)

#: The prefix of the notes that hold the positions of consumers.
CONSUMER = "consumer:"
#: The internal streams that every client may read.
METRICS_STREAM = "__stream_metrics__"
SYSTEM = frozenset({METRICS_STREAM})
#: The internal logs that a key without the admin scope may read: followers must learn which records were erased.
READABLE = SYSTEM | {ERASURES}
#: How long to wait before the failed removal of an expired log is tried again.
RETRY_MS = 1000


# --- properties of a log -------------------------------------------------------------------------------------------


def holds_json(log: Log) -> bool:
    return media_type_of(log.config) == JSON


def is_hidden(log: Log) -> bool:
    """Deleted, and kept only for its forks."""
    return GONE in log.notes


def registry_of(log: Log) -> Registry:
    """The schemas of the log's records."""
    stored = log.notes.get(REGISTRY)
    return Registry.empty(log.name) if stored is None else Registry.load(stored)


def profile_of(log: Log) -> Profile:
    stored = log.notes.get(PROFILE)
    return GENERIC if stored is None else load_profile(stored)


# --- permission to change a log ------------------------------------------------------------------------------------


def check_change(log: Log) -> None:
    """Raise unless any protocol may configure the log, remove it, and delete its records."""
    why = owner_of(log.name, log.notes)
    if why is not None:
        raise NotWritable(log.name, why)


def check_append(log: Log) -> None:
    """Raise unless topics and Arrow, which do not check schemas, may append to the log."""
    if log.notes or is_internal(log.name):
        why = closed_to_others(log.name, log.notes)
        if why is not None:
            raise NotWritable(log.name, why)


# --- the namespace --------------------------------------------------------------------------------------------------


#: How many names one step of a listing reads from the engine.
_CHUNK = 500


class Catalog:
    """``now`` returns milliseconds. All methods run on the event loop, except where noted; ``post`` lets any thread run
    a function on the event loop."""

    def __init__(self, engine: Engine, now: Callable[[], int], post: Callable[[Callable[[], None]], None]) -> None:
        self.engine = engine
        self._now = now
        self._post = post
        self._lifetimes: dict[str, Lifetime] = {}
        self._expiring: list[tuple[int, str]] = []
        #: The names of logs that were deleted and are kept for their forks, in order.
        self.hidden: list[str] = []
        #: The number of queues.
        self.queues = 0
        #: Called soon after a log was created, by any part of the server, if the log still exists. Internal logs are
        #: left out. Listeners must be quick.
        self.created: dict[Callable[[Log], None], None] = {}
        #: Called with every log that is about to be dropped. Listeners must be quick.
        self.dropping: list[Callable[[Log], None]] = []
        #: Each returns the reason why only its owner may create a log of this name; None: it has no owner.
        self.reservations: list[Callable[[str], str | None]] = []
        self._load()
        engine.created.append(self._hear_of)

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
                if not log.forks:
                    self.drop(log)

    @property
    def count(self) -> int:
        """The number of logs, without internal logs."""
        return sum(self.engine.totals.logs.values())

    @property
    def visible_count(self) -> int:
        """Like ``count``, without hidden logs."""
        return self.count - len(self.hidden)

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
        """The lifetime of the log; None if the log never expires."""
        return self._lifetimes.get(log.name)

    def use(self, log: Log) -> None:
        """Note that the log was read or written."""
        lifetime = self._lifetimes.get(log.name)
        if lifetime is not None:
            lifetime.use(self._now())

    # --- visible logs ----------------------------------------------------------------------------------------------

    @staticmethod
    def visible(log: Log, access: Access, *, internal: bool = False) -> bool:
        """Whether a key may see the log. ``internal`` includes internal and hidden logs, most of which only keys with
        the admin scope see. Any thread may call this."""
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
        """The names of visible logs in order: with a prefix, after a name, from a position on (counted from 0). Any
        thread may call this. With ``internal``, some of the names may not be visible. Call ``sweep`` first, since
        expired logs are included."""
        with self.engine.lock:
            hidden = () if internal else self.hidden
            wanted = spans(access.prefixes, prefix, after, internal=internal)
            return self.engine.names_at(wanted, hidden, position, limit)

    def walk(self, access: Access, *, prefix: str = "", after: str = "", internal: bool = False) -> Iterator[str]:
        """Like ``names``, without a limit. Logs that are created or removed meanwhile may or may not be listed."""
        while names := self.names(access, _CHUNK, prefix=prefix, after=after, internal=internal):
            yield from names
            after = names[-1]

    # --- creating ----------------------------------------------------------------------------------------------------

    def check_name(self, name: str) -> None:
        """Raise if logs of this name belong to the server, a table or a collection."""
        if is_internal(name):
            raise NotWritable(name, RESERVED_NAME)
        for reserved in self.reservations:
            why = reserved(name)
            if why is not None:
                raise NotWritable(name, why)

    def check_target(self, name: str) -> None:
        """Raise if the log of this name has an owner, or would have one: other parts must not send records to it."""
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
        """Create a log with its first records, in one step; ``source`` is the log and the seq that it is forked from.

        The log can be used at once, and is durable when the commit is done.
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
        """The engine has created a log. Runs on the thread that created it, which may belong to tables or
        collections."""
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

    # --- removing ----------------------------------------------------------------------------------------------------

    def remove(self, log: Log) -> Commit[Any]:
        """Drop the log, or hide it while it has forks."""
        if log.forks:
            with self.engine.lock:
                commit = log.note({GONE: True})
                insort(self.hidden, log.name)
            return commit
        return self.drop(log)

    def drop(self, log: Log) -> Commit[None]:
        """Drop a log without forks, and the hidden log that was kept only for it."""
        base = log.base
        for listener in self.dropping:
            listener(log)
        with self.engine.lock:  # other threads may list names
            commit = log.drop()
            at = bisect_left(self.hidden, log.name)
            if self.hidden[at : at + 1] == [log.name]:
                del self.hidden[at]
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
            log.error("the log %r, created for a write that failed, cannot be removed: %s", log_.name, error)

    # --- expiry ------------------------------------------------------------------------------------------------------

    def _note_lifetime(self, log: Log) -> None:
        traits = log.config.attributes.get(STREAMS)
        if traits is None:
            return
        ttl_seconds, fixed = traits.get("ttl_seconds"), traits.get("expires_at")
        if ttl_seconds is None and fixed is None:
            self._lifetimes.pop(log.name, None)
            return
        lifetime = Lifetime(log, ttl_seconds, fixed, traits.get("created_at", 0), self._now())
        self._lifetimes[log.name] = lifetime
        heappush(self._expiring, (lifetime.expires_at, log.name))

    def expire(self, log_: Log) -> bool:
        """Remove an expired log. True if the log still exists, hidden for its forks."""
        if not is_hidden(log_):
            try:
                self.remove(log_)
            except EngineError as error:
                log.error("the expired log %r cannot be removed: %s", log_.name, error)
                return False
        return is_hidden(log_) and not log_.dropped

    def sweep(self) -> None:
        """Remove all expired logs. Requests do not find an expired log even before it is swept."""
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
    """The ranges of names that start with ``prefix`` and with one of the ``prefixes`` (any name, if there are none) and
    come after ``after``. Internal names are left out unless ``internal`` is set."""
    allowed = [prefix if prefix.startswith(each) else each for each in prefixes or ("",) if _meet(each, prefix)]
    found: list[Span] = []
    last: str | None = None
    for each in sorted(allowed):
        # Names that start with an earlier prefix are already listed.
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
    """The first text after all texts with the prefix; None if no text follows them."""
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

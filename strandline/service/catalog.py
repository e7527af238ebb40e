"""The catalog: the one namespace of logs.

All protocols find, create and remove logs here, so the rules about logs hold for each of them: which names belong to
the server, which logs belong to a table or a collection, when a log has expired, and what is kept for its forks.

A log that others were forked from is not removed but hidden. It goes when the last of its forks goes.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from sys import maxunicode
from typing import Any

from strandline.engine import Batch, Config, Engine, Log
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError, NotWritable
from strandline.engine.operations.erasures import NAME as ERASURES
from strandline.engine.record import is_internal
from strandline.engine.state.log_names import Span
from strandline.schema.profiles import GENERIC, Profile, load_profile
from strandline.schema.registry import Registry
from strandline.service.access import Access
from strandline.service.lifetime import Lifetime
from strandline.service.log_config import kind_of

log = logging.getLogger(__name__)

#: The attribute of logs that were created as streams.
STREAMS = "streams"
#: Notes that streams keep with their logs.
CLOSED, GONE, REGISTRY, PROFILE = "closed", "gone", "registry", "profile"
#: The note of a log that is a document of a collection, and of one that has rows of a table.
COLLECTION, TABLE = "collection", "table"
#: The names of the cursors of consumers begin with this.
CONSUMER = "consumer:"
#: The server's own streams that every client may read.
METRICS_STREAM = "__stream_metrics__"
SYSTEM = frozenset({METRICS_STREAM})
#: The server's own logs that a key without the admin scope may read: followers must learn what was erased.
READABLE = SYSTEM | {ERASURES}
#: Names of the server's own logs lie between these.
_INTERNAL = ("_", "`")
#: When the removal of an expired log that failed is tried again.
RETRY_MS = 1000

JSON = "application/json"


# --- what a log is --------------------------------------------------------------------------------------------------


def media_type_of(log: Log) -> str:
    """What the records are. A log that was not created as a stream holds JSON."""
    traits = log.config.attributes.get(STREAMS)
    if traits is None:
        return JSON
    content_type: str = traits.get("content_type", JSON)
    return media_type(content_type)


def media_type(value: str) -> str:
    """A content type without its parameters, for comparing."""
    return value.partition(";")[0].strip().lower()


def holds_json(log: Log) -> bool:
    return media_type_of(log) == JSON


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


# --- who may change it ----------------------------------------------------------------------------------------------


def owner_of(log: Log) -> str | None:
    """Who alone may change the log, and how to do it; None: every protocol may."""
    notes = log.notes
    if notes:
        if COLLECTION in notes:
            return "it is a document of a collection: append with POST /push"
        if TABLE in notes:
            return "it has rows of a table: use the endpoints of the table"
    return "it is one of the server's own logs" if is_internal(log.name) else None


def check_change(log: Log) -> None:
    """Raise unless every protocol may configure the log, remove it, and delete its records."""
    why = owner_of(log)
    if why is not None:
        raise NotWritable(log.name, why)


def closed_to_others(log: Log) -> str | None:
    """Why records cannot be appended to the log by topics and arrow, which know nothing of schemas; None: they can."""
    notes = log.notes
    why = owner_of(log)
    if why is not None or not notes:
        return why
    if GONE in notes:
        return "it is a stream that was deleted, and is kept for its forks"
    if CLOSED in notes:
        return "it is a stream that was closed"
    if REGISTRY in notes or PROFILE in notes:
        return "it is a stream with a schema or a profile: append with POST /v1/stream"
    return None


def check_append(log: Log) -> None:
    """Raise where ``closed_to_others`` gives a reason."""
    if log.notes or is_internal(log.name):
        why = closed_to_others(log)
        if why is not None:
            raise NotWritable(log.name, why)


def may_see(log: Log, access: Access) -> bool:
    """Whether the log exists for the holder of a key. Hidden logs and those of the server are for administrators."""
    if not access.may_touch(log.name):
        return False
    if is_hidden(log) or (is_internal(log.name) and log.name not in READABLE):
        return access.may("admin")
    return True


# --- the namespace --------------------------------------------------------------------------------------------------


class Catalog:
    """``now`` gives milliseconds. Everything here happens on the loop."""

    def __init__(self, engine: Engine, now: Callable[[], int]) -> None:
        self.engine = engine
        self._now = now
        self._lifetimes: dict[str, Lifetime] = {}
        self._expiring: list[tuple[int, str]] = []
        #: The names of logs that were deleted and are kept for their forks, in order.
        self.hidden: list[str] = []
        #: How many logs are queues.
        self.queues = 0
        #: Called with every log that was created, and with every log that is about to be dropped. They must be quick.
        self.created: dict[Callable[[Log], None], None] = {}
        self.dropping: list[Callable[[Log], None]] = []
        #: Each gives the reason why a log of this name is created by its owner only; None: it is not.
        self.reservations: list[Callable[[str], str | None]] = []
        self._load()

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
        """How many logs there are, without the server's own."""
        return sum(self.engine.totals.logs.values())

    # --- finding -----------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Log | None:
        """The log, hidden or not; None if there is none, or it has expired."""
        log = self.engine.find(name)
        if log is None:
            return None
        lifetime = self._lifetimes.get(name)
        if lifetime is not None and lifetime.expired(self._now()) and not self.expire(log):
            return None
        return log

    def lifetime(self, log: Log) -> Lifetime | None:
        """How long the log lives; None: until it is removed."""
        return self._lifetimes.get(log.name)

    def use(self, log: Log) -> None:
        """The log is read or written."""
        lifetime = self._lifetimes.get(log.name)
        if lifetime is not None:
            lifetime.use(self._now())

    # --- creating ----------------------------------------------------------------------------------------------------

    def check_name(self, name: str) -> None:
        """Raise if logs of this name belong to the server, a table or a collection."""
        if is_internal(name):
            raise NotWritable(name, "names that start with an underscore are reserved for the server")
        for reserved in self.reservations:
            why = reserved(name)
            if why is not None:
                raise NotWritable(name, why)

    def check_target(self, name: str) -> None:
        """Raise if the log of this name has an owner, or would have one: others must not send records to it."""
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
        """Create a log that is not there, with its first records, in one step; ``source`` is what it is forked from.

        It can be used at once and is durable when the commit is done.
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
        for listener in list(self.created):
            listener(log)
        return log, commit

    # --- removing ----------------------------------------------------------------------------------------------------

    def remove(self, log: Log) -> Commit[Any]:
        """Drop the log, or hide it while it has forks."""
        if log.forks:
            commit = log.note({GONE: True})
            insort(self.hidden, log.name)
            return commit
        return self.drop(log)

    def drop(self, log: Log) -> Commit[None]:
        """Drop a log without forks, and the hidden log that was kept only for it."""
        base = log.base
        for listener in self.dropping:
            listener(log)
        commit = log.drop()
        self.queues -= kind_of(log.config) == "queue"
        self._lifetimes.pop(log.name, None)
        at = bisect_left(self.hidden, log.name)
        if self.hidden[at : at + 1] == [log.name]:
            del self.hidden[at]
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
            log.error("log %r was created for a write that failed, and cannot be removed: %s", log_.name, error)

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
        """Remove a log that has expired. True if it is still there, hidden for its forks."""
        if not is_hidden(log_):
            try:
                self.remove(log_)
            except EngineError as error:
                log.error("log %r has expired and cannot be removed: %s", log_.name, error)
                return False
        return is_hidden(log_) and not log_.dropped

    def sweep(self) -> None:
        """Remove what has expired. A request does not find an expired log, swept or not."""
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


def spans(prefixes: Sequence[str], prefix: str, after: str) -> list[Span]:
    """Where the names are that have the prefix and one of the prefixes (any, if there are none), come after ``after``,
    and are not the server's own."""
    allowed = [prefix if prefix.startswith(each) else each for each in prefixes or ("",) if _meet(each, prefix)]
    found: list[Span] = []
    last: str | None = None
    for each in sorted(allowed):
        # Names that begin with an earlier prefix are listed with that one.
        if last is None or not each.startswith(last):
            last = each
            found.append((each, _end_of(each)))
    return list(_clipped(found, f"{after}\0" if after else ""))


def _meet(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _end_of(prefix: str) -> str | None:
    """The first text after all that have the prefix; None: there is no such text."""
    prefix = prefix.rstrip(chr(maxunicode))
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None


def _clipped(found: Iterable[Span], first: str) -> Iterable[Span]:
    own, after_own = _INTERNAL
    for low, high in found:
        low = max(low, first)
        if low < own:
            yield low, own if high is None else min(high, own)
        if high is None or high > after_own:
            yield max(low, after_own), high

"""Waiting clients, found by key when a bucket is flushed and by deadline when their timeout ends; and recent interest.

Keys without recent interest are not recorded. If a client comes with a cursor from a time when a key was not recorded,
``since`` shows that it may have missed a change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Literal

from strandline.delivery.invalidation.touch_journal import TouchBucket
from strandline.schema.profiles.touch_settings import MemorySettings


class Interest:
    """The interest of clients in one key or template. All generations later than ``since`` are recorded for it."""

    __slots__ = ("since", "until", "waits")

    def __init__(self, since: int) -> None:
        self.since = since
        self.until: float | None = None
        self.waits: dict[Wait, None] = {}


class Interests:
    """Interests by key. An interest outlives its last waiting client by ``ttl_ms``. If there are more than ``limit``,
    interests without a waiting client are removed first."""

    def __init__(self, ttl_ms: int, limit: int) -> None:
        self.by_key: dict[int, Interest] = {}
        #: The number of interests with a waiting client.
        self.active = 0
        self._ttl_ms = ttl_ms
        self._limit = limit
        self._ending: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self.by_key)

    @property
    def in_grace(self) -> int:
        """The number of interests without a waiting client."""
        return len(self.by_key) - self.active

    def join(self, key: int, wait: Wait, since: int) -> None:
        """Add a wait to an interest. ``since`` is used if the interest is new."""
        interest = self.by_key.get(key)
        if interest is None:
            interest = self._begin(key, since)
        if not interest.waits:
            interest.until = None
            self.active += 1
        interest.waits[wait] = None

    def leave(self, key: int, wait: Wait, now: float) -> None:
        interest = self.by_key.get(key)
        if interest is None or interest.waits.pop(wait, self) is self or interest.waits:
            return
        self.active -= 1
        self._end(key, interest, now)

    def show(self, key: int, now: float, since: int) -> None:
        """Record interest without a wait."""
        interest = self.by_key.get(key) or self._begin(key, since)
        if not interest.waits:
            self._end(key, interest, now)

    def lasts_since(self, key: int, generation: int) -> bool:
        """Whether all later generations were recorded for the key."""
        interest = self.by_key.get(key)
        return interest is not None and interest.since <= generation

    def _begin(self, key: int, since: int) -> Interest:
        while len(self.by_key) >= self._limit and self._ending:
            self._forget(*self._ending.popleft())
        interest = self.by_key[key] = Interest(since)
        return interest

    def _end(self, key: int, interest: Interest, now: float) -> None:
        interest.until = now + self._ttl_ms
        self._ending.append((interest.until, key))

    def sweep(self, now: float) -> None:
        """Remove expired interests."""
        ending = self._ending
        while ending and ending[0][0] <= now:
            self._forget(*ending.popleft())

    def _forget(self, until: float, key: int) -> None:
        interest = self.by_key.get(key)
        # An interest that was renewed has a later end.
        if interest is not None and interest.until == until:
            del self.by_key[key]


Kind = Literal["fineKey", "templateKey", "tableKey"]
#: ``ended`` means that the log is no longer followed; the caller knows the reason.
Verdict = Literal["touched", "timeout", "stale", "ended"]

#: Deadlines within this many milliseconds are processed together.
SLOT_MS = 20
#: The single key of interests that have only one.
ONLY = 0


class TouchAnswer:
    """The answer to a wait, and the cursor to continue from. ``bucket`` is the last flushed bucket. Clients that get
    the same answer at the same time share one object."""

    __slots__ = ("bucket", "generation", "kind", "memo", "verdict")

    def __init__(self, verdict: Verdict, kind: Kind, generation: int, bucket: TouchBucket) -> None:
        self.verdict = verdict
        self.kind = kind
        self.generation = generation
        self.bucket = bucket
        #: A cache for the encoded answer.
        self.memo: Any = None


class Wait:
    """A waiting client. ``ids`` are the requested keys. ``further`` are keys that the server adds so that no change is
    missed. ``exact`` are all of these as full keys, if 32 bits are not enough. ``tell`` is called exactly once."""

    __slots__ = ("broad", "checked", "done", "exact", "fine", "further", "ids", "kind", "slot", "tell", "templates")

    def __init__(
        self,
        *,
        ids: frozenset[int],
        further: frozenset[int],
        exact: frozenset[int] | None,
        kind: Kind,
        fine: bool,
        templates: tuple[int, ...] | None,
        tell: Callable[[TouchAnswer], None],
    ) -> None:
        self.ids = ids
        self.further = further
        self.exact = exact
        self.kind: Kind = kind
        #: Waits on rows, not on tables.
        self.fine = fine
        #: The active ones of the templates that the client names, or None if it names none.
        self.templates = templates
        self.tell = tell
        self.broad = False
        self.checked = 0
        self.slot = -1
        #: The client was notified or is about to be.
        self.done = False

    def touched_by(self, bucket: TouchBucket) -> bool:
        """Whether the bucket touches one of the keys."""
        if bucket.everything:
            return True
        if self.exact is not None:
            return not self.exact.isdisjoint(bucket.keys)
        return not (self.ids.isdisjoint(bucket.ids) and self.further.isdisjoint(bucket.ids))


class Waiters:
    """All waiting clients of one log."""

    def __init__(self, memory: MemorySettings) -> None:
        self._index_max_keys = memory.key_index_max_keys
        #: Row keys. Only keys of interest are recorded.
        self.keys = Interests(memory.hot_key_ttl_ms, memory.hot_max_keys)
        self.templates = Interests(memory.hot_template_ttl_ms, memory.hot_max_templates)
        #: A client that waits on rows without naming templates is interested in all templates. A client that waits on
        #: many keys is interested in all keys.
        self.nameless = Interests(memory.hot_template_ttl_ms, 1)
        self.broad = Interests(memory.hot_key_ttl_ms, 1)
        #: All other keys that are waited on: tables, and the keys that stand for unrecorded rows.
        self._coarse: dict[int, dict[Wait, None]] = {}
        self._all: dict[Wait, None] = {}
        self._broad: dict[Wait, None] = {}
        self._scans: deque[tuple[TouchBucket, Iterator[Wait]]] = deque()
        self._slots: dict[int, dict[Wait, None]] = {}
        self._slot_order: list[int] = []
        #: Notified at the next flush, whatever it contains.
        self._next: list[Wait] = []
        self.fine = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def coarse(self) -> int:
        return len(self._all) - self.fine

    @property
    def broad_fine(self) -> int:
        return sum(wait.fine for wait in self._broad)

    @property
    def interested(self) -> bool:
        """Whether a client waits, or did so recently."""
        return bool(self._all or self.keys.by_key or self.templates.by_key or self.nameless.by_key or self.broad.by_key)

    # --- adding and removing ---------------------------------------------------------------------------------------

    def is_broad(self, wait: Wait) -> bool:
        return len(wait.ids) > self._index_max_keys

    def add(self, wait: Wait, generation: int, since: int, deadline: float) -> None:
        """Add a wait that is checked up to ``generation``. ``since`` applies to interests that begin now."""
        self._all[wait] = None
        wait.checked = generation
        wait.broad = self.is_broad(wait)
        if wait.fine:
            self.fine += 1
            self._show_interest(wait, since)
        if wait.broad:
            self._broad[wait] = None
        else:
            for key in wait.further if wait.fine else (*wait.ids, *wait.further):
                self._coarse.setdefault(key, {})[wait] = None
        self._set_deadline(wait, deadline)

    def _show_interest(self, wait: Wait, since: int) -> None:
        if wait.broad:
            self.broad.join(ONLY, wait, since)
        else:
            for key in wait.ids:
                self.keys.join(key, wait, since)
        if wait.templates is None:
            self.nameless.join(ONLY, wait, since)
        else:
            for template in wait.templates:
                self.templates.join(template, wait, since)

    def remove(self, wait: Wait, now: float) -> None:
        """Remove a wait. Its interests stay active for their TTL."""
        if self._all.pop(wait, self) is self:
            return
        if wait.fine:
            self.fine -= 1
            self._lose_interest(wait, now)
        if wait.broad:
            del self._broad[wait]
        else:
            for key in wait.further if wait.fine else (*wait.ids, *wait.further):
                group = self._coarse.get(key)
                if group is not None:
                    group.pop(wait, None)
                    if not group:
                        del self._coarse[key]
        slot = self._slots.get(wait.slot)
        if slot is not None:
            slot.pop(wait, None)

    def _lose_interest(self, wait: Wait, now: float) -> None:
        if wait.broad:
            self.broad.leave(ONLY, wait, now)
        else:
            for key in wait.ids:
                self.keys.leave(key, wait, now)
        if wait.templates is None:
            self.nameless.leave(ONLY, wait, now)
        else:
            for template in wait.templates:
                self.templates.leave(template, wait, now)

    def lasts_since(self, wait: Wait, generation: int) -> bool:
        """Whether all keys of the wait were recorded after the generation, because there was interest in them all the
        time."""
        if wait.templates is None:
            if not self.nameless.lasts_since(ONLY, generation):
                return False
        elif not all(self.templates.lasts_since(template, generation) for template in wait.templates):
            return False
        if self.is_broad(wait):
            return self.broad.lasts_since(ONLY, generation)
        return self.broad.lasts_since(ONLY, generation) or all(
            self.keys.lasts_since(key, generation) for key in wait.ids
        )

    def sweep_interest(self, now: float) -> None:
        for interests in (self.keys, self.templates, self.nameless, self.broad):
            interests.sweep(now)

    # --- flushed buckets -------------------------------------------------------------------------------------------

    def tell_at_next_flush(self, wait: Wait) -> None:
        self._next.append(wait)

    def found_by(self, bucket: TouchBucket) -> list[Wait]:
        """The waits that the bucket touches, as far as they are indexed by key. ``scan`` checks the others."""
        if bucket.everything:
            self._next.clear()
            self._scans.clear()
            return _taken(self._all)
        found: dict[Wait, None] = {}
        for key in self.keys.by_key.keys() & bucket.ids:
            found.update(self.keys.by_key[key].waits)
        for key in self._coarse.keys() & bucket.ids:
            found.update(self._coarse[key])
        told = {wait: None for wait in found if wait.exact is None or wait.touched_by(bucket)}
        told.update(dict.fromkeys(self._next))
        self._next.clear()
        if self._broad:
            self._scans.append((bucket, iter(tuple(self._broad))))
        return _taken(told)

    @property
    def scanning(self) -> bool:
        return len(self._scans) > 0

    def scan(self, few: int) -> list[Wait]:
        """Check a few of the waits that are not indexed by key, and return those that a bucket touches."""
        found = []
        while self._scans and few:
            bucket, waits = self._scans[0]
            for wait in waits:
                if not wait.done and wait.checked < bucket.generation:
                    wait.checked = bucket.generation
                    if wait.touched_by(bucket):
                        found.append(wait)
                few -= 1
                if not few:
                    break
            else:
                self._scans.popleft()
        return _taken(found)

    def answerable(self, wait: Wait, generation: int) -> int:
        """The generation up to which the wait was checked."""
        return wait.checked if wait.broad and self._scans else generation

    def everybody(self) -> list[Wait]:
        """All waits that are not about to be answered."""
        return _taken(self._all)

    # --- deadlines -------------------------------------------------------------------------------------------------

    def _set_deadline(self, wait: Wait, deadline: float) -> None:
        slot = wait.slot = int(-(-deadline // SLOT_MS))
        waits = self._slots.get(slot)
        if waits is None:
            waits = self._slots[slot] = {}
            heappush(self._slot_order, slot)
        waits[wait] = None

    def next_deadline(self) -> float | None:
        """The next deadline."""
        while self._slot_order and not self._slots[self._slot_order[0]]:
            del self._slots[heappop(self._slot_order)]
        return self._slot_order[0] * float(SLOT_MS) if self._slot_order else None

    def overdue(self, now: float) -> list[Wait]:
        """The waits whose deadline has passed."""
        found: list[Wait] = []
        while self._slot_order and self._slot_order[0] * SLOT_MS <= now:
            found.extend(self._slots.pop(heappop(self._slot_order)))
        return _taken(found)


def _taken(waits: Iterable[Wait]) -> list[Wait]:
    """The waits that were not taken before, so that no client is answered twice."""
    taken = [wait for wait in waits if not wait.done]
    for wait in taken:
        wait.done = True
    return taken

"""The clients that wait: found by key when a bucket is flushed, and by time when their timeout ends; and recent
interest.

Keys that have no recent interest are not recorded. A client that asks later, with a cursor from a time when a key was
not recorded, learns from ``since`` that it may have missed something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Literal

from strandline.delivery.invalidation.touch_journal import TouchBucket
from strandline.schema.profiles.touch_settings import MemorySettings


class Interest:
    """The interest of clients in one key or template. Everything after the generation ``since`` is recorded."""

    __slots__ = ("since", "until", "waits")

    def __init__(self, since: int) -> None:
        self.since = since
        self.until: float | None = None
        self.waits: dict[Wait, None] = {}


class Interests:
    """Interests by their key. An interest outlives its last waiter by ``ttl_ms``. If there are more than ``limit``,
    those without a waiter are removed first."""

    def __init__(self, ttl_ms: int, limit: int) -> None:
        self.by_key: dict[int, Interest] = {}
        #: The number of interests with a waiter.
        self.active = 0
        self._ttl_ms = ttl_ms
        self._limit = limit
        self._ending: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self.by_key)

    @property
    def in_grace(self) -> int:
        """The number of interests without a waiter."""
        return len(self.by_key) - self.active

    def join(self, key: int, wait: Wait, since: int) -> None:
        """``since`` is the value for an interest that begins now."""
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
        """A client is interested without waiting."""
        interest = self.by_key.get(key) or self._begin(key, since)
        if not interest.waits:
            self._end(key, interest, now)

    def lasts_since(self, key: int, generation: int) -> bool:
        """Whether everything after the generation was recorded."""
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
        # An interest that got a new waiter has another end.
        if interest is not None and interest.until == until:
            del self.by_key[key]


Kind = Literal["fineKey", "templateKey", "tableKey"]
#: ``ended``: there is nothing to wait for any more; the caller of ``end`` knows why.
Verdict = Literal["touched", "timeout", "stale", "ended"]

#: Deadlines within this number of milliseconds are checked together.
SLOT_MS = 20
#: The key of interests that have only one.
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
        #: The reply that a protocol builds from the answer.
        self.memo: Any = None


class Wait:
    """A waiting client. ``ids`` are the requested keys, ``further`` the keys that the server adds so that no change is
    missed; ``exact`` are all of them in full, if 32 bits are not enough. ``tell`` is called exactly once."""

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
        #: Whether it waits on rows, not on tables.
        self.fine = fine
        #: The active ones among the templates that it names; None if it names none.
        self.templates = templates
        self.tell = tell
        self.broad = False
        self.checked = 0
        self.slot = -1
        #: Whether it was answered, or is about to be.
        self.done = False

    def touched_by(self, bucket: TouchBucket) -> bool:
        """Whether the bucket contains one of its keys."""
        if bucket.everything:
            return True
        if self.exact is not None:
            return not self.exact.isdisjoint(bucket.keys)
        return not (self.ids.isdisjoint(bucket.ids) and self.further.isdisjoint(bucket.ids))


class Waiters:
    """All waits of one log."""

    def __init__(self, memory: MemorySettings) -> None:
        self._index_max_keys = memory.key_index_max_keys
        #: Keys of rows: only keys with an interest are recorded.
        self.keys = Interests(memory.hot_key_ttl_ms, memory.hot_max_keys)
        self.templates = Interests(memory.hot_template_ttl_ms, memory.hot_max_templates)
        #: A wait on rows without templates is interested in all templates; a wait on many keys, in any key.
        self.nameless = Interests(memory.hot_template_ttl_ms, 1)
        self.broad = Interests(memory.hot_key_ttl_ms, 1)
        #: The other keys that clients wait on: tables, and keys that stand for rows.
        self._coarse: dict[int, dict[Wait, None]] = {}
        self._all: dict[Wait, None] = {}
        self._broad: dict[Wait, None] = {}
        self._scans: deque[tuple[TouchBucket, Iterator[Wait]]] = deque()
        self._slots: dict[int, dict[Wait, None]] = {}
        self._slot_order: list[int] = []
        #: Answered at the next flush, whatever it touches.
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
        """The wait was checked up to ``generation``. ``since`` is the value for interests that begin now."""
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
        """Remove a wait. Its interests last for a while longer."""
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
        """Whether everything that the wait concerns was recorded after the generation, because clients were interested
        without a gap."""
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

    # --- flushes ---------------------------------------------------------------------------------------------------

    def tell_at_next_flush(self, wait: Wait) -> None:
        self._next.append(wait)

    def found_by(self, bucket: TouchBucket) -> list[Wait]:
        """The waits that the bucket concerns and that are found by key; ``scan`` finds the others."""
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
        """Check a few of the waits that are not found by key; returns those that a bucket concerns."""
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
        """When the next deadline is."""
        while self._slot_order and not self._slots[self._slot_order[0]]:
            del self._slots[heappop(self._slot_order)]
        return self._slot_order[0] * float(SLOT_MS) if self._slot_order else None

    def overdue(self, now: float) -> list[Wait]:
        """The waits whose time is up."""
        found: list[Wait] = []
        while self._slot_order and self._slot_order[0] * SLOT_MS <= now:
            found.extend(self._slots.pop(heappop(self._slot_order)))
        return _taken(found)


def _taken(waits: Iterable[Wait]) -> list[Wait]:
    """The waits that were not taken before, so that none is answered twice."""
    taken = [wait for wait in waits if not wait.done]
    for wait in taken:
        wait.done = True
    return taken

"""Live invalidation of one log: follows the log and notifies waiting clients that the data they watch may have changed.

Notifications are sent in small slices: ten thousand answers must not block the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import Literal

from strandline.delivery.invalidation.keys import hexadecimal
from strandline.delivery.invalidation.processor import Follower, Processor
from strandline.delivery.invalidation.request import Asking, WaitRequest
from strandline.delivery.invalidation.templates import Activation, Declaration, Template, Templates
from strandline.delivery.invalidation.touch_journal import TouchBucket, TouchJournal
from strandline.delivery.invalidation.waiters import Kind, TouchAnswer, Verdict, Wait, Waiters
from strandline.engine import Log
from strandline.schema.profiles.touch_settings import TouchSettings

TouchMode = Literal["idle", "fine", "restricted", "coarseOnly"]

#: The time is checked after this many notifications.
LOOK_EVERY = 8


class _Group:
    """Waits that get the same answer."""

    __slots__ = ("_answers", "began", "bucket", "verdict", "waits")

    def __init__(self, verdict: Verdict, bucket: TouchBucket, waits: list[Wait]) -> None:
        self.verdict: Verdict = verdict
        self.bucket = bucket
        self.waits = deque(waits)
        self.began = perf_counter()
        self._answers: dict[tuple[Kind, int], TouchAnswer] = {}

    def answer(self, kind: Kind, generation: int) -> TouchAnswer:
        answer = self._answers.get((kind, generation))
        if answer is None:
            answer = self._answers[kind, generation] = TouchAnswer(self.verdict, kind, generation, self.bucket)
        return answer


class Notifications:
    """Answers waiting clients in small slices. ``clock`` returns milliseconds. Counters are since the start;
    ``flush_ms`` is how long the notifications of the last flush took."""

    def __init__(self, journal: TouchJournal, waiters: Waiters, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._waiters = waiters
        self._clock = clock
        self._groups: deque[_Group] = deque()
        self.counts: dict[Verdict, int] = {"touched": 0, "timeout": 0, "stale": 0, "ended": 0}
        self.wakeups = 0
        self.flush_ms = self.wake_ms = self.wake_ms_max = 0.0

    @property
    def busy(self) -> bool:
        return len(self._groups) > 0 or self._waiters.scanning

    def now(self, verdict: Verdict, wait: Wait) -> TouchAnswer:
        """The answer to a request that does not have to wait."""
        self.counts[verdict] += 1
        return TouchAnswer(verdict, wait.kind, self._journal.generation, self._journal.last)

    def flushed(self, bucket: TouchBucket, began: float) -> None:
        """Queue the notifications for a flushed bucket. ``began`` is the start of the flush, by ``perf_counter``."""
        waits = self._waiters.found_by(bucket)
        if waits:
            self._groups.append(_Group("touched", bucket, waits))
        else:
            self.flush_ms = (perf_counter() - began) * 1000

    def queue(self, verdict: Verdict, waits: list[Wait]) -> None:
        """Queue the same answer for these waits."""
        if waits:
            self._groups.append(_Group(verdict, self._journal.last, waits))

    def some(self, until: float) -> None:
        """Send notifications until ``until``, a time of ``perf_counter``."""
        while self.busy:
            if self._groups:
                self._tell_few(self._groups[0])
            else:
                self.queue("touched", self._waiters.scan(LOOK_EVERY))
            if perf_counter() > until:
                return

    def all(self) -> None:
        while self.busy:
            self.some(0.0)

    def _tell_few(self, group: _Group) -> None:
        now = self._clock()
        for _ in range(min(LOOK_EVERY, len(group.waits))):
            wait = group.waits.popleft()
            generation = group.bucket.generation
            if group.verdict == "touched":
                self.wakeups += 1
            else:
                generation = self._waiters.answerable(wait, generation)
            self.counts[group.verdict] += 1
            self._waiters.remove(wait, now)
            wait.tell(group.answer(wait.kind, generation))
        if not group.waits:
            self._groups.popleft()
            if group.verdict == "touched":
                self._measure((perf_counter() - group.began) * 1000)

    def _measure(self, took_ms: float) -> None:
        self.flush_ms = took_ms
        self.wake_ms += took_ms
        self.wake_ms_max = max(self.wake_ms_max, took_ms)


#: The minimum time between flushes, and the factor that limits the share of time spent on notifications.
MIN_WINDOW_MS = 5.0
WINDOW_SHARE = 4
#: How often expired interests are removed.
CARE_MS = 1000.0
#: How long changes of templates are collected before they are stored.
PERSIST_MS = 1000.0


class Runtime:
    """``clock`` returns monotonic milliseconds, ``wall`` milliseconds since 1970. ``persist`` stores the templates, and
    ``stored`` passes them to the next start. Losing them only reduces precision."""

    def __init__(
        self,
        log: Log,
        settings: TouchSettings,
        *,
        epoch: int,
        clock: Callable[[], float],
        wall: Callable[[], int],
        stored: object = None,
        persist: Callable[[object], None] = lambda stored: None,
    ) -> None:
        self.log = log
        self.settings = settings
        self.epoch = hexadecimal(epoch)
        self._clock = clock
        self._wall = wall
        self._persist = persist
        now = clock()
        self.journal = TouchJournal(settings.memory, log.head, now, wall())
        self.templates = Templates(settings.templates)
        if stored is not None:
            self.templates.load(stored, wall() - now, now)
        self.waiters = Waiters(settings.memory)
        self.processor = Processor(log.name, settings, self.journal, self.templates, self.waiters, now)
        self.follower = Follower(log, self.journal, self.processor, clock, self._open_bucket)
        self.telling = Notifications(self.journal, self.waiters, clock)
        self._asking = Asking(self.journal, self.templates, self.waiters, self.processor)
        self._settling: list[tuple[float, Callable[[], None]]] = []
        self.asleep = False
        self._attended_at = now
        self._care_at = now + CARE_MS
        self._collect_at = now + settings.templates.gc_interval_ms
        #: When to store the templates, and when they were last stored.
        self._persist_at: float | None = None
        self._persisted_at = now
        self.timeouts_fired = 0
        self.sweep_ms = 0.0

    # --- state -----------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether the current generation covers all records of the log."""
        return not (self.journal.dirty or self.processor.owed or self.follower.lag)

    @property
    def mode(self) -> TouchMode:
        if not (self.templates or self.waiters.interested):
            return "idle"
        return self.processor.mode.value

    @property
    def window_ms(self) -> float:
        """How long touches are collected. It grows with the time that the notifications of a flush take."""
        longest = min(self.settings.memory.bucket_ms, self.settings.coalesce_window_ms)
        return min(longest, max(MIN_WINDOW_MS, WINDOW_SHARE * self.telling.flush_ms))

    @property
    def busy(self) -> bool:
        """Whether ``step`` has work to do."""
        return self.telling.busy or (not self.asleep and self.follower.lag > 0)

    # --- interest --------------------------------------------------------------------------------------------------

    def attend(self) -> None:
        """Record that a client is interested, and resume following the log."""
        self._attended_at = self._clock()
        if self.asleep:
            self.asleep = False
            self._care_at = self._attended_at + CARE_MS
            if self.follower.lag:
                self.follower.skip()
                self._flush()

    def _sleep(self, now: float) -> None:
        idle_ms = self.settings.memory.hot_key_ttl_ms
        if self.settled and not (self.waiters.interested or self._settling) and now - self._attended_at >= idle_ms:
            self.asleep = True

    def activate(self, declarations: Sequence[Declaration], ttl_ms: int | None) -> Activation:
        """Activate templates. Records that are already processed are not processed again for them."""
        self.attend()
        now, journal = self._clock(), self.journal
        self._open_bucket()
        self.processor.pay(now, all_of_them=True)
        active_from = journal.next_generation if journal.dirty else journal.generation
        known = len(self.templates)
        outcome = self.templates.activate(declarations, ttl_ms, now, active_from)
        self._tell_retired(outcome.evicted)
        for template in outcome.activated:
            self.waiters.templates.show(template.id, now, self._since())
        if outcome.evicted or len(self.templates) != known:
            self._persist_before(now + PERSIST_MS)
        elif outcome.activated:
            self._seen()
        return outcome

    def _since(self) -> int:
        """For an interest that begins now, all later generations are recorded."""
        return max(self.journal.generation, self.processor.skipped)

    def _tell_retired(self, templates: Collection[Template]) -> None:
        """Notify the clients that wait on rows of retired templates, because those rows are no longer recorded. Their
        next wait covers more."""
        if templates:
            self._open_bucket()
        for template in templates:
            self.processor.touch_template(template)

    # --- waiting ---------------------------------------------------------------------------------------------------

    def kind_of(self, request: WaitRequest) -> str:
        """The kind of keys that the request would wait on."""
        self.processor.judge(self.follower.lag)
        return self._asking.kind_of(request)

    def wait(
        self, request: WaitRequest, epoch: str, generation: int | None, tell: Callable[[TouchAnswer], None]
    ) -> TouchAnswer | None:
        """Return the answer if there is one now; otherwise ``tell`` is called with it later. ``generation`` None means
        from now on."""
        self.attend()
        self.processor.judge(self.follower.lag)
        now, journal = self._clock(), self.journal
        wait = self._asking.wait_for(request, tell, now)
        if wait.templates:
            self._seen()
        if generation is None:
            generation = journal.generation
        elif epoch != self.epoch:
            return self.telling.now("stale", wait)
        generation = min(generation, journal.generation)
        touched = self._asking.touched_after(wait, generation)
        missing = not touched and self._asking.missing_from_bucket(wait, generation)
        self.waiters.add(wait, journal.generation, self._since(), now + request.timeout_ms)
        if touched or request.timeout_ms <= 0:
            # The keys are of interest even if the request does not wait.
            self.waiters.remove(wait, now)
            return self.telling.now("touched" if touched else "timeout", wait)
        if missing:
            self._open_bucket()
            journal.mark()
            self.waiters.tell_at_next_flush(wait)
        return None

    def settle(self, timeout_ms: int, tell: Callable[[], None]) -> None:
        """Call ``tell`` once all records are processed and flushed, or when the timeout ends."""
        self._settling.append((self._clock() + timeout_ms, tell))
        self._flush_if_due()

    def _tell_settled(self, now: float) -> None:
        settled, waiting = self.settled, self._settling
        self._settling = [entry for entry in waiting if not settled and entry[0] > now]
        for due, tell in waiting:
            if settled or due <= now:
                tell()

    # --- processing ------------------------------------------------------------------------------------------------

    def step(self, until: float) -> bool:
        """Send notifications and process records until ``until``, a time of ``perf_counter``. Returns False if the next
        records must be read from the disk and passed to the follower."""
        self.telling.some(until)
        there = self.asleep or self.follower.some(until)
        self._flush_if_due()
        self.telling.some(until)
        return there

    def _open_bucket(self) -> None:
        if not self.journal.dirty:
            self.journal.open(self._clock(), self._wall())

    def _flush_due(self) -> float | None:
        started = self.journal.started_at
        if not self.journal.dirty or started is None:
            return None
        return max(started, self.journal.flushed_at + self.window_ms)

    def _flush_if_due(self) -> None:
        now = self._clock()
        settling = len(self._settling) > 0 and not self.follower.lag
        if self.processor.owed:
            self._open_bucket()
            self.processor.pay(now, all_of_them=settling)
        due = self._flush_due()
        if due is not None and (settling or due <= now):
            self._flush()
        if self._settling:
            self._tell_settled(now)

    def _flush(self) -> None:
        began = perf_counter()
        self.telling.flushed(self.journal.flush(self.follower.position, self._clock(), self._wall()), began)

    # --- time ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Perform all tasks that are due."""
        now = self._clock()
        self._flush_if_due()
        self._time_out(now)
        if now >= self._collect_at:
            self._collect(now)
        if now >= self._care_at and not self.asleep:
            self._care_at = now + CARE_MS
            self.waiters.sweep_interest(now)
            self._sleep(now)
        if self._persist_at is not None and self._persist_at <= now:
            self._persist_at, self._persisted_at = None, now
            self._persist(self.templates.stored(self._wall() - now) or None)

    def next_due(self) -> float | None:
        """The time at which ``tick`` must be called next."""
        times = (
            self._flush_due(),
            self.processor.next_owed(),
            self.waiters.next_deadline(),
            min((due for due, _ in self._settling), default=None),
            self._collect_at if self.templates else None,
            None if self.asleep else self._care_at,
            self._persist_at,
        )
        return min((time for time in times if time is not None), default=None)

    def _time_out(self, now: float) -> None:
        began = perf_counter()
        overdue = self.waiters.overdue(now)
        if overdue:
            self.timeouts_fired += len(overdue)
            self.telling.queue("timeout", overdue)
            self.sweep_ms += (perf_counter() - began) * 1000

    def _collect(self, now: float) -> None:
        self._collect_at = now + self.settings.templates.gc_interval_ms
        in_use = [identifier for identifier, interest in self.waiters.templates.by_key.items() if interest.waits]
        retired = self.templates.retire_inactive(now, in_use)
        if retired:
            self._tell_retired(retired)
            self._persist_before(now + PERSIST_MS)

    def _seen(self) -> None:
        self._persist_before(self._persisted_at + self.settings.templates.last_seen_persist_interval_ms)

    def _persist_before(self, when: float) -> None:
        self._persist_at = when if self._persist_at is None else min(self._persist_at, when)

    def end(self, verdict: Verdict) -> None:
        """Answer all waiting clients. The runtime must not be used afterwards."""
        self.telling.all()
        self.telling.queue(verdict, self.waiters.everybody())
        self.telling.all()
        settling, self._settling = self._settling, []
        for _, tell in settling:
            tell()

"""Telling those who waited, a few at a time: ten thousand answers must not hold up everything else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter

from strandline.delivery.invalidation.touch_journal import Bucket, Journal
from strandline.delivery.invalidation.waiters import Answer, Kind, Verdict, Wait, Waiters

#: So many are told before it is looked at the time.
LOOK_EVERY = 8


class _Group:
    """Some who are told the same."""

    __slots__ = ("_answers", "began", "bucket", "verdict", "waits")

    def __init__(self, verdict: Verdict, bucket: Bucket, waits: list[Wait]) -> None:
        self.verdict: Verdict = verdict
        self.bucket = bucket
        self.waits = deque(waits)
        self.began = perf_counter()
        self._answers: dict[tuple[Kind, int], Answer] = {}

    def answer(self, kind: Kind, generation: int) -> Answer:
        answer = self._answers.get((kind, generation))
        if answer is None:
            answer = self._answers[kind, generation] = Answer(self.verdict, kind, generation, self.bucket)
        return answer


class Telling:
    """``clock`` gives milliseconds. The counts are since the start; ``flush_ms`` is how long it took to tell everybody
    whom the last flush concerned."""

    def __init__(self, journal: Journal, waiters: Waiters, clock: Callable[[], float]) -> None:
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

    def now(self, verdict: Verdict, wait: Wait) -> Answer:
        """The answer to one that need not wait."""
        self.counts[verdict] += 1
        return Answer(verdict, wait.kind, self._journal.generation, self._journal.last)

    def flushed(self, bucket: Bucket, began: float) -> None:
        """Whom the bucket concerns are to be told; the flush began at a time of ``perf_counter``."""
        waits = self._waiters.found_by(bucket)
        if waits:
            self._groups.append(_Group("touched", bucket, waits))
        else:
            self.flush_ms = (perf_counter() - began) * 1000

    def queue(self, verdict: Verdict, waits: list[Wait]) -> None:
        """These are to be told how it stands now."""
        if waits:
            self._groups.append(_Group(verdict, self._journal.last, waits))

    def some(self, until: float) -> None:
        """Tell some, until it is later than ``until`` by ``perf_counter``."""
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

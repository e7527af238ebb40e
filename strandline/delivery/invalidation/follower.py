"""Following a log: its new records go through the processor, batch by batch, in short slices of time."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from strandline.delivery.invalidation.processor import Processor
from strandline.delivery.invalidation.touch_journal import Journal
from strandline.engine import Log, Page

#: What one batch of records takes at the most.
BATCH_RECORDS = 500
BATCH_BYTES = 4 << 20


class Follower:
    """``position`` is the seq up to which the log has been accounted for. The counts are since the start.
    ``open_bucket`` is called before something may be touched."""

    def __init__(
        self,
        log: Log,
        journal: Journal,
        processor: Processor,
        clock: Callable[[], float],
        open_bucket: Callable[[], None],
    ) -> None:
        self._log = log
        self._journal = journal
        self._processor = processor
        self._clock = clock
        self._open_bucket = open_bucket
        self.position = log.head
        self._page: Page | None = None
        self._page_at = 0
        self._touches = 0
        self.rows = 0
        self.batches = 0
        self.empty_batches = 0
        self.advanced = 0

    @property
    def lag(self) -> int:
        """How many records have not been accounted for."""
        return max(0, self._log.head - self.position)

    def skip(self) -> None:
        """Account for everything there is without looking at it."""
        self._page = None
        self._open_bucket()
        self._journal.touch_everything()
        self._advance(self._log.head)

    def some(self, until: float) -> bool:
        """Look at some records, until it is later than ``until`` by ``perf_counter``. False: the next ones must be read
        from the disk, and given to ``give``."""
        while self.lag or self._page is not None:
            if self._page is None:
                page = self._log.read_resident(self.position, **self.bounds)
                if page is None:
                    return False
                self.give(page)
            if not self._go_through(until):
                break
        return True

    @property
    def bounds(self) -> dict[str, Any]:
        """How much of the log is read at a time."""
        return {"limit": BATCH_RECORDS, "max_bytes": BATCH_BYTES, "epoch": self._log.epoch}

    def give(self, page: Page) -> None:
        """What comes behind the position."""
        if self._page is not None:
            return
        self._page, self._page_at = page, 0
        self._touches = self._processor.touches
        self._processor.begin(self.lag, self._clock())
        if page.tombstone is not None:
            # Whatever was lost may have been about anything.
            self._open_bucket()
            self._journal.touch_everything()

    def _go_through(self, until: float) -> bool:
        """Look at the records of the page; False when the time is over."""
        page, processor, now = self._page, self._processor, self._clock()
        assert page is not None
        count = len(page)
        while self._page_at < count:
            self._open_bucket()
            processor.take(page.data[self._page_at], now)
            self._advance(page.seqs[self._page_at])
            self._page_at += 1
            self.rows += 1
            # One change may concern hundreds of templates, so it is looked at the time after each.
            if perf_counter() > until and self._page_at < count:
                return False
        self._advance(max(self.position, page.next_after))
        self._page = None
        self.batches += 1
        if processor.touches == self._touches:
            self.empty_batches += 1
        processor.judge(self.lag)
        return perf_counter() <= until

    def _advance(self, position: int) -> None:
        self.advanced += position - self.position
        self.position = position

"""From records to touches: follows a log, parses its row changes, and records which keys they touch. Other records are
skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Raw

from strandline.delivery.invalidation.keys import ANY, COARSENED, ID_MASK, table_key
from strandline.delivery.invalidation.templates import Template, Templates
from strandline.delivery.invalidation.touch_journal import TouchJournal
from strandline.delivery.invalidation.waiters import Waiters
from strandline.engine import Log, Page
from strandline.schema.profiles.touch_settings import TouchSettings

INSERT, UPDATE, DELETE = "insert", "update", "delete"
OPERATIONS = frozenset((INSERT, UPDATE, DELETE))


class _Headers(msgspec.Struct, gc=False):
    operation: str = ""


class RowChange(msgspec.Struct, gc=False):
    """A change of a row. ``type`` is the entity. The rows stay encoded as JSON until they are needed."""

    type: str
    headers: _Headers
    value: Raw = Raw(b"")
    old_value: Raw = Raw(b"")

    @property
    def operation(self) -> str:
        return self.headers.operation


_decode = msgspec.json.Decoder(RowChange).decode


def change_of(data: bytes) -> RowChange | None:
    """Decode a row change from a record. Returns None for other records, such as control messages."""
    try:
        change = _decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return change if change.type and change.headers.operation in OPERATIONS else None


def row_of(raw: Raw) -> dict[str, Any] | None:
    """Decode a row. Returns None if it is missing or is not an object."""
    if not raw:
        return None
    try:
        row = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return row if type(row) is dict else None


log = logging.getLogger(__name__)

#: If the last touches of more tables than this are kept, expired entries are removed.
_MANY_TABLES = 4096
_SCALARS = (str, int, float, bool, type(None))
_MISSING = object()

Row = dict[str, Any]


class Mode(Enum):
    """The level of detail in which changes are recorded."""

    FINE = "fine"
    RESTRICTED = "restricted"
    COARSE_ONLY = "coarseOnly"


class Processor:
    """Records the touches of one log. The caller passes ``now`` in milliseconds of a monotonic clock."""

    def __init__(
        self,
        name: str,
        settings: TouchSettings,
        journal: TouchJournal,
        templates: Templates,
        waiters: Waiters,
        now: float,
    ) -> None:
        self._name = name
        self._settings = settings
        self._journal = journal
        self._templates = templates
        self._waiters = waiters
        self.mode = Mode.FINE
        self._budget = 0
        self._tokens = float(settings.fine_burst_tokens)
        self._refilled_at = now
        self._table_due: dict[str, float] = {}
        self._owed: dict[str, float] = {}
        #: The last generation in which a key was skipped because no client had shown interest in it.
        self.skipped = -1
        self._complained = False
        self.touches_table = 0
        self.touches_template = 0
        self.dropped_by_budget = 0
        self.skipped_cold_template = 0
        self.skipped_cold_key = 0
        self.skipped_template_bucket = 0

    @property
    def touches(self) -> int:
        """The number of touched keys so far, counted once per bucket."""
        return self.touches_table + self.touches_template

    @property
    def filters_keys(self) -> bool:
        """Whether keys without interest are skipped. They are not while a client waits on too many keys to index."""
        return not self._waiters.broad.by_key

    @property
    def filters_templates(self) -> bool:
        return not self._waiters.nameless.by_key

    # --- a batch ---------------------------------------------------------------------------------------------------

    def begin(self, lag: int, now: float) -> None:
        """Begin a batch with ``lag`` records left to process."""
        settings = self._settings
        self.judge(lag)
        if self.mode is Mode.FINE:
            self._budget = settings.fine_budget_per_batch
        else:
            self._budget = settings.lag_reserved_budget_per_batch
        refill = (now - self._refilled_at) * settings.fine_tokens_per_second / 1000
        self._tokens = min(self._tokens + refill, settings.fine_burst_tokens)
        self._refilled_at = now

    def judge(self, lag: int) -> None:
        """Set the level of detail according to the lag. Between the two thresholds it stays unchanged."""
        settings = self._settings
        if lag >= max(settings.lag_degrade, 1):
            self.mode = Mode.RESTRICTED if settings.lag_reserved_budget_per_batch else Mode.COARSE_ONLY
        elif lag <= settings.lag_recover:
            self.mode = Mode.FINE

    def take(self, data: bytes, now: float) -> None:
        """Touch the keys that the record changes."""
        change = change_of(data)
        if change is None:
            return
        self._touch_table(change.type, now)
        group = self._templates.of(change.type)
        if not group or self._journal.everything:
            return
        if self.mode is Mode.FINE:
            self._touch_rows(change, group)
        elif self.mode is Mode.RESTRICTED:
            self._touch_templates(group)
        else:
            self._coarsen(group)

    # --- tables ----------------------------------------------------------------------------------------------------

    def _touch_table(self, entity: str, now: float) -> None:
        if table_key(entity) in self._journal.pending or entity in self._owed:
            return
        due = self._table_due.get(entity)
        if due is None or now >= due:
            self._touch_table_now(entity, now)
        else:
            self._owed[entity] = due

    def _touch_table_now(self, entity: str, now: float) -> None:
        if self._journal.touch(table_key(entity)):
            self.touches_table += 1
        self._journal.touch(ANY)
        if len(self._table_due) > _MANY_TABLES:
            self._table_due = {table: due for table, due in self._table_due.items() if due > now}
        self._table_due[entity] = now + self._settings.coarse_interval_ms

    @property
    def owed(self) -> int:
        """The number of tables that changed again too soon after their last touch."""
        return len(self._owed)

    def next_owed(self) -> float | None:
        """The next time at which one of them may be touched."""
        return min(self._owed.values(), default=None)

    def pay(self, now: float, *, all_of_them: bool = False) -> None:
        """Touch the tables that are due."""
        for entity, due in list(self._owed.items()):
            if all_of_them or due <= now:
                del self._owed[entity]
                self._touch_table_now(entity, now)

    # --- templates -------------------------------------------------------------------------------------------------

    def touch_template(self, template: Template) -> None:
        """Notify all clients that wait on rows of the template."""
        self._journal.touch(COARSENED)
        if self._journal.touch(template.key):
            self.touches_template += 1

    def _touch_templates(self, group: dict[int, Template]) -> None:
        """Touch templates instead of rows, because the lag is too large. If the budget runs out, touch all templates of
        the entity."""
        pending = self._journal.pending
        for template in group.values():
            if self._is_cold(template):
                continue
            if template.key in pending:
                self.skipped_template_bucket += 1
                continue
            if self._budget <= 0:
                self.dropped_by_budget += 1
                self._coarsen(group)
                return
            self._budget -= 1
            self.touch_template(template)

    def _coarsen(self, group: dict[int, Template]) -> None:
        for template in group.values():
            self.touch_template(template)

    def _is_cold(self, template: Template) -> bool:
        """Whether no client is interested in the template. Then a skip is recorded."""
        if not self.filters_templates or template.id in self._waiters.templates.by_key:
            return False
        self.skipped_cold_template += 1
        self._skip(template)
        return True

    def _skip(self, template: Template) -> None:
        template.skipped = self.skipped = self._journal.next_generation
        self._journal.mark()

    # --- rows ------------------------------------------------------------------------------------------------------

    def _touch_rows(self, change: RowChange, group: dict[int, Template]) -> None:
        journal = self._journal
        rows: tuple[Row | None, Row | None] | None = None
        for template in group.values():
            if self._is_cold(template):
                continue
            if template.key in journal.pending:
                self.skipped_template_bucket += 1
                continue
            if self._budget <= 0 or self._tokens < 1:
                self.dropped_by_budget += 1
                self.touch_template(template)
                continue
            if rows is None:
                rows = row_of(change.old_value), row_of(change.value)
            keys = keys_of(template, change.operation, *rows)
            if keys is None:
                keys = self._without_before(change, template, rows[1])
            self._touch_keys(template, keys)
            if journal.everything:
                return

    def _touch_keys(self, template: Template, keys: list[int]) -> None:
        hot = self._waiters.keys.by_key if self.filters_keys else None
        for key in keys:
            if hot is not None and key & ID_MASK not in hot:
                self.skipped_cold_key += 1
                self._skip(template)
            elif self._journal.touch(key):
                self.touches_template += 1
                self._budget -= 1
                self._tokens -= 1

    def _without_before(self, change: RowChange, template: Template, after: Row | None) -> list[int]:
        """The keys to touch if the row before the change is unknown."""
        policy = self._settings.on_missing_before
        if policy == "skipBefore":
            return [] if after is None or change.operation == DELETE else _keys_after(template, after)
        if policy == "error":
            if not self._complained:
                self._complained = True
                log.error(
                    "a change of %r in log %r lacks row data (value or old_value); all cached results are invalidated",
                    change.type,
                    self._name,
                )
            self._journal.touch_everything()
        else:
            self.touch_template(template)
        return []


def keys_of(template: Template, operation: str, before: Row | None, after: Row | None) -> list[int] | None:
    """The keys that a change touches for one template, or None if the rows lack the data to know."""
    if operation == INSERT:
        return _both(template, _arguments_or_none(template, after))
    if before is None or (after is None and operation != DELETE):
        return None
    try:
        old = template.arguments(before)
        if operation == DELETE:
            return _both(template, old)
        assert after is not None
        new = template.arguments(after)
    except KeyError:
        return None
    if old != new:
        return _both(template, old) + _both(template, new)
    return [] if new is None else [template.keys.watch(new), *_changed_fields(template, new, before, after)]


def _keys_after(template: Template, after: Row) -> list[int]:
    arguments = _arguments_or_none(template, after)
    if arguments is None:
        return []
    return _both(template, arguments) + [
        template.keys.field(name, arguments)
        for name, value in after.items()
        if name not in template.names and isinstance(value, _SCALARS)
    ]


def _arguments_or_none(template: Template, row: Row | None) -> bytes | None:
    """The arguments of a row, or None if the row lacks a field."""
    if row is None:
        return None
    try:
        return template.arguments(row)
    except KeyError:
        return None


def _both(template: Template, arguments: bytes | None) -> list[int]:
    if arguments is None:
        return []
    return [template.keys.watch(arguments), template.keys.membership(arguments)]


def _changed_fields(template: Template, arguments: bytes, before: Row, after: Row) -> list[int]:
    """The keys of the changed fields. A field that only one of the rows has counts as changed."""
    keys = []
    for name in before.keys() | after.keys():
        if name in template.names:
            continue
        old, new = before.get(name, _MISSING), after.get(name, _MISSING)
        if (old != new or type(old) is not type(new)) and (isinstance(old, _SCALARS) or isinstance(new, _SCALARS)):
            keys.append(template.keys.field(name, arguments))
    return keys


#: The limits of one batch of records.
BATCH_RECORDS = 500
BATCH_BYTES = 4 << 20


class Follower:
    """Reads a log in batches. All records up to ``position`` are processed. Counters are since the start.
    ``open_bucket`` is called before a key may be touched."""

    def __init__(
        self,
        log: Log,
        journal: TouchJournal,
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
        """The number of records that are not processed yet."""
        return max(0, self._log.head - self.position)

    def skip(self) -> None:
        """Skip all records up to the head, and touch all keys."""
        self._page = None
        self._open_bucket()
        self._journal.touch_everything()
        self._advance(self._log.head)

    def some(self, until: float) -> bool:
        """Process records until ``until``, a time of ``perf_counter``. Returns False if the next records must be read
        from the disk and passed to ``give``."""
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
        """The limits of one read of the log."""
        return {"limit": BATCH_RECORDS, "max_bytes": BATCH_BYTES, "epoch": self._log.epoch}

    def give(self, page: Page) -> None:
        """Begin a batch with the page after the position."""
        if self._page is not None:
            return
        self._page, self._page_at = page, 0
        self._touches = self._processor.touches
        self._processor.begin(self.lag, self._clock())
        if page.tombstone is not None:
            # The lost records may have changed anything.
            self._open_bucket()
            self._journal.touch_everything()

    def _go_through(self, until: float) -> bool:
        """Process the records of the page. Returns False if the time is up."""
        page, processor, now = self._page, self._processor, self._clock()
        assert page is not None
        count = len(page)
        while self._page_at < count:
            self._open_bucket()
            processor.take(page.data[self._page_at], now)
            self._advance(page.seqs[self._page_at])
            self._page_at += 1
            self.rows += 1
            # One change may concern hundreds of templates, so check the time after each record.
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

"""A log as a plain Python object: obvious and slow. What the engine does must look exactly like this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

from strandline.engine import Appended, Batch, Config, Cursor, Deleted, Producer, Record, Tombstone
from strandline.engine.errors import BatchTooLarge, LogFull, ProducerFenced, ProducerGap, UnknownSeq

#: The note with the lake's mark.
LAKE = "lake"


def size_of(record: Record) -> int:
    return len(record.data) + len(record.meta or b"")


class ModelLog:
    def __init__(self, epoch: int, config: Config, base: ModelLog | None = None, through: int = 0) -> None:
        self.epoch = epoch
        self.config = config
        #: The log that it was forked from, and the last seq that they share.
        self.base = base
        self.through = through
        self.head = through
        self.last_ts = 0
        self.cap_floor = self.ttl_floor = 1
        #: Everything that is neither deleted nor evicted, by seq; and what of it is hidden.
        self.records: dict[int, Record] = {}
        self.hidden: set[int] = set()
        #: First seq, last seq and reason of what is missing without having been evicted or deleted.
        self.gaps: list[tuple[int, int, str]] = []
        #: With the time at which each was made.
        self.idempotency: dict[str, tuple[Appended, int]] = {}
        self.producers: dict[str, tuple[int, int, Appended]] = {}
        self.cursors: dict[str, Cursor] = {}
        self.notes: dict[str, object] = {}
        #: The first seq that the next restart takes, because the log is ephemeral.
        self.volatile_from = through + 1 if config.durability == "ephemeral" else None
        #: How often a restart took something.
        self.losses = 0

    def copy(self) -> ModelLog:
        twin = copy(self)
        twin.records, twin.hidden, twin.gaps = self.records.copy(), self.hidden.copy(), self.gaps.copy()
        twin.cursors, twin.idempotency, twin.producers = (
            self.cursors.copy(),
            self.idempotency.copy(),
            self.producers.copy(),
        )
        twin.notes = self.notes.copy()
        return twin

    # --- what it is like -----------------------------------------------------------------------------------

    @property
    def visible(self) -> list[Record]:
        return [record for seq, record in self.records.items() if seq not in self.hidden]

    def is_visible(self, seq: int) -> bool:
        return seq in self.records and seq not in self.hidden

    @property
    def records_after_restart(self) -> list[int]:
        return [seq for seq in self.records if self.volatile_from is None or seq < self.volatile_from]

    @property
    def count(self) -> int:
        return len(self.visible)

    @property
    def size(self) -> int:
        return sum(map(size_of, self.visible))

    def retained(self, last: int | None = None) -> list[Record]:
        """What is neither deleted nor evicted up to a seq, of its own and shared."""
        last = self.head if last is None else last
        shared = [] if self.base is None else self.base.retained(min(last, self.through))
        return shared + [record for seq, record in self.records.items() if seq <= last]

    def shown(self, last: int | None = None) -> list[Record]:
        """What readers see up to a seq."""
        last = self.head if last is None else last
        shared = [] if self.base is None else self.base.shown(min(last, self.through))
        return shared + [record for record in self.visible if record.seq <= last]

    @property
    def earliest(self) -> int:
        return min((record.seq for record in self.retained()), default=self.head + 1)

    @property
    def evict_floor(self) -> int:
        return max(self.cap_floor, self.ttl_floor)

    def shown_floor(self, last: int | None = None) -> int:
        """Up to where, of the seqs up to ``last``, everything is lost from the beginning on."""
        last = self.head if last is None else last
        floor = 1 if self.base is None else self.base.shown_floor(min(last, self.through))
        if self.base is None or floor > self.through:
            floor = max(floor, self.evict_floor)
        return min(floor, last + 1)

    def lost_from(self, start: int, last: int) -> list[tuple[int, int, str]]:
        found = [] if self.base is None else self.base.lost_from(start, min(last, self.through))
        start = max(start, self.through + 1)
        if start < self.evict_floor:
            capped, expired = start < self.cap_floor, start < self.ttl_floor
            reason = "mixed" if capped and expired else "cap" if capped else "ttl"
            found.append((start, min(last, self.evict_floor - 1), reason))
        start = max(start, self.evict_floor)
        found += [(max(first, start), min(end, last), reason) for first, end, reason in self.gaps]
        return [loss for loss in found if loss[0] <= loss[1]]

    def walk(self, start: int, passes: Callable[[Record], bool]) -> list[Record | Tombstone]:
        """Everything that a reader meets from ``start`` on, in order. Losses side by side are one."""
        losses: list[tuple[int, int, str]] = []
        for first, last, reason in self.lost_from(start, self.head):
            if losses and losses[-1][1] + 1 == first:
                first, _, reason = losses.pop()
            losses.append((first, last, reason))
        met: list[Record | Tombstone] = [Tombstone(*loss, loss[1] + 1, self.head) for loss in losses]
        met += [record for record in self.shown() if record.seq >= start and passes(record)]
        return sorted(met, key=lambda event: event[0])

    def first_since(self, ts: int) -> int:
        """Where a reader begins who wants nothing from before a time."""
        return max((record.seq + 1 for record in self.retained() if record.ts < ts), default=1)

    # --- what happens to it --------------------------------------------------------------------------------

    def append(
        self,
        now: int,
        batch: Batch,
        key: str | None = None,
        producer: Producer | None = None,
        notes: Mapping[str, object] | None = None,
        ts: int | None = None,
    ) -> Appended:
        self.expire(now)
        first = self._duplicate(now, key, producer)
        if first is not None:
            return first.again()
        empty = [None] * len(batch)
        columns = zip(batch.keys or empty, batch.nodes or empty, batch.metas or empty, batch.data, strict=True)
        ts = max(now if ts is None else ts, self.last_ts)
        new = [Record(self.head + 1 + at, ts, *values) for at, values in enumerate(columns)]
        if self.config.discard == "reject":
            self._check_room(len(new), sum(map(size_of, new)))
        appended = Appended(self.head + 1, self.head + len(new), ts)
        self.records |= {record.seq: record for record in new}
        self.head, self.last_ts = appended.last, ts
        if key is not None:
            self.idempotency[key] = appended, now
        self._keep(appended, producer, notes)
        self._evict()
        return appended

    def note(self, now: int, notes: Mapping[str, object], producer: Producer | None) -> Appended:
        self.expire(now)
        first = self._duplicate(now, None, producer)
        if first is not None:
            return first.again()
        appended = Appended(self.head + 1, self.head, now)
        self._keep(appended, producer, notes)
        return appended

    def _keep(self, appended: Appended, producer: Producer | None, notes: Mapping[str, object] | None) -> None:
        if producer is not None:
            self.producers[producer.id] = (producer.epoch, producer.seq, appended)
        self.notes = {name: note for name, note in (self.notes | dict(notes or {})).items() if note is not None}

    def _duplicate(self, now: int, key: str | None, producer: Producer | None) -> Appended | None:
        if key in self.idempotency and now - self.idempotency[key][1] <= self.config.idempotency_window_ms:
            return self.idempotency[key][0]
        if producer is None:
            return None
        epoch, seq, appended = self.producers.get(producer.id, (-1, -1, None))
        if producer.epoch < epoch:
            raise ProducerFenced(producer.id, producer.epoch, epoch)
        expected = seq + 1 if producer.epoch == epoch else 0
        if producer.seq > expected:
            raise ProducerGap(producer.id, expected, producer.seq)
        return appended if producer.seq < expected else None

    def _check_room(self, count: int, size: int) -> None:
        records, bytes_ = self.config.cap_records or float("inf"), self.config.cap_bytes or float("inf")
        if count > records or size > bytes_:
            raise BatchTooLarge("", 0, 0, 0, 0)
        if self.count + count > records or self.size + size > bytes_:
            raise LogFull("", 0, 0, 0, 0, 0, 0)

    def skip(self, now: int, count: int, reason: str) -> None:
        self.expire(now)
        self.gaps.append((self.head + 1, self.head + count, reason))
        self.head += count

    def move_cursor(self, now: int, name: str, seq: int) -> Cursor:
        self.expire(now)
        self.cursors[name] = Cursor(seq, now)
        return self.cursors[name]

    def drop_cursor(self, now: int, name: str) -> bool:
        self.expire(now)
        return self.cursors.pop(name, None) is not None

    def take_copies(self, now: int, records: list[Record], lost: int) -> Appended | None:
        """Take what was forwarded; raises LogFull or BatchTooLarge and takes nothing."""
        self.expire(now)
        if records and self.config.discard == "reject":
            self._check_room(len(records), sum(map(size_of, records)))
        if lost:
            self.skip(now, lost, "source_trim")
        if not records:
            return None
        columns = ([getattr(record, name) for record in records] for name in ("data", "key", "node", "meta"))
        return self.append(now, Batch(*columns))

    def select(
        self,
        before: int | None = None,
        key: str | None = None,
        prefix: str | None = None,
        seqs: Sequence[int] | None = None,
    ) -> list[int]:
        return [
            record.seq
            for record in self.records.values()
            if (before is None or record.seq < before)
            and (key is None or record.key == key)
            and (prefix is None or (record.key is not None and record.key.startswith(prefix)))
            and (seqs is None or record.seq in seqs)
        ]

    def _weigh(self, seqs: list[int]) -> Deleted:
        return Deleted(len(seqs), sum(size_of(self.records[seq]) for seq in seqs))

    def delete(self, now: int, **which: object) -> Deleted:
        self.expire(now)
        chosen = self.select(**which)
        deleted = self._weigh(chosen)
        for seq in chosen:
            self._remove(seq)
        return deleted

    def hide(self, now: int, **which: object) -> Deleted:
        self.expire(now)
        chosen = [seq for seq in self.select(**which) if seq not in self.hidden]
        self.hidden |= set(chosen)
        return self._weigh(chosen)

    def restore(self, now: int, **which: object) -> Deleted:
        self.expire(now)
        chosen = [seq for seq in self.select(**which) if seq in self.hidden]
        self.hidden -= set(chosen)
        restored = self._weigh(chosen)
        if chosen:
            self._rewrite(chosen[0])
        self._evict()
        return restored

    def amend(self, now: int, seq: int, data: bytes) -> None:
        self.expire(now)
        if seq not in self.records:
            raise UnknownSeq("", seq)
        self.records[seq] = self.records[seq]._replace(data=data)
        self._rewrite(seq)
        self._evict()

    def configure(self, now: int, config: Config) -> None:
        self.expire(now)
        if config.durability != "ephemeral":
            self.volatile_from = None
        elif self.volatile_from is None:
            self.volatile_from = self.head + 1
        if not (self.config.retain_until_in_lake and config.retain_until_in_lake):
            self.notes.pop(LAKE, None)
        self.config = config
        self._evict()
        self.expire(now)

    def expire(self, now: int) -> None:
        if self.base is not None:
            self.base.expire(now)
        if self.config.ttl_ms:
            for record in list(self.records.values()):
                if now - record.ts > self.config.ttl_ms and record.seq <= self.removable_through:
                    self.ttl_floor = record.seq + 1
                    self._remove(record.seq)

    @property
    def removable_through(self) -> float:
        """Up to where retention and compaction may remove something."""
        return self.notes.get(LAKE, 0) if self.config.retain_until_in_lake else float("inf")

    def reach_lake(self, now: int, through: int) -> bool:
        if not self.config.retain_until_in_lake or self.notes.get(LAKE, 0) == through:
            return False
        self.expire(now)
        self.notes[LAKE] = through
        self._evict()
        return True

    def _rewrite(self, seq: int) -> None:
        if self.notes.get(LAKE, 0) >= seq:
            self.notes[LAKE] = seq - 1

    def _evict(self) -> None:
        records, bytes_ = self.config.cap_records or float("inf"), self.config.cap_bytes or float("inf")
        while self.count > records or self.size > bytes_:
            if self.visible[0].seq > self.removable_through:
                return
            self.cap_floor = self.visible[0].seq + 1
            for seq in [seq for seq in self.records if seq < self.cap_floor]:
                self._remove(seq)

    def _remove(self, seq: int) -> None:
        del self.records[seq]
        self.hidden.discard(seq)

    def restart(self, head: int) -> None:
        """Take what an ephemeral log keeps in memory only; its seqs go on behind ``head``."""
        first = self.volatile_from
        for seq in [seq for seq in self.records if seq >= first]:
            self._remove(seq)
        self.gaps = [(low, min(high, first - 1), why) for low, high, why in self.gaps if low < first]
        self.gaps += [(first, head, "lost")] if first <= head else []
        self.head = head
        self.volatile_from = head + 1
        self.losses += 1

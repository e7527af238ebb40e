"""What must be true after a failure: a history of what was asked for and acknowledged, held against what is there.

A :class:`Scribe` works an engine and writes every change down before it asks for it. After a failure the engine's
logs must be what *some* allowed part of that history makes of them: everything that was promised to survive, and of
the rest any part, each change whole or not at all. The model of a log is as plain as it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from typing import Literal

import msgspec

from strandline.engine import (
    Amend,
    Append,
    Batch,
    Commit,
    Config,
    Cursor,
    Delete,
    Engine,
    ForwardedCopy,
    Hide,
    Log,
    ManualClock,
    Options,
    Producer,
    Record,
    Restore,
)
from strandline.engine.disk import Disk
from strandline.engine.journal.file import DIRECTORY, journal_index
from strandline.engine.operations.erasures import MAX_BYTES, NAME
from strandline.engine.record import Reason
from strandline.engine.segments.cold_tier import ColdStore
from strandline.engine.segments.store import HOT_DIRECTORY, object_name
from strandline.engine.state.checkpoints import CHECKPOINTS
from strandline.engine.testing.fault_disk import FaultDisk

#: Nothing in these tests is large, and everything is to be sealed when it is asked for only.
OPTIONS = Options(cache_bytes=1 << 20)


def open_engine(disk: Disk, clock: ManualClock, cold: ColdStore | None = None, options: Options = OPTIONS) -> Engine:
    return Engine.open(disk, options, clock=clock, cold=cold, background=False)


# --- the model -----------------------------------------------------------------------------------------------


@dataclass
class LogModel:
    name: str
    epoch: int
    config: Config
    assigned: int = 0
    #: Everything that is neither deleted nor evicted, hidden records included.
    records: dict[int, Record] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    cap_floor: int = 1
    ttl_floor: int = 1
    cursors: dict[str, int] = field(default_factory=dict)
    notes: dict[str, object] = field(default_factory=dict)
    #: Of a fork: what readers see before its own records.
    shared: list[Record] = field(default_factory=list)

    @property
    def shown(self) -> list[Record]:
        return [*self.shared, *self.visible]

    @property
    def visible(self) -> list[Record]:
        return [record for seq, record in sorted(self.records.items()) if seq not in self.hidden]

    @property
    def floor(self) -> int:
        return max(self.cap_floor, self.ttl_floor)

    def append(self, records: Sequence[Record], notes: Mapping[str, object] | None = None) -> None:
        self.records.update((record.seq, record) for record in records)
        self.assigned = records[-1].seq
        self.note(notes or {})
        self.evict()

    def note(self, changes: Mapping[str, object]) -> None:
        self.notes = {name: value for name, value in (self.notes | dict(changes)).items() if value is not None}

    def fork_of(self, source: LogModel, through: int) -> None:
        self.shared = [record for record in source.shown if record.seq <= through]
        self.deleted = set(range(1, through + 1)) - {record.seq for record in self.shared}
        self.assigned = through

    def evict(self) -> None:
        config, last = self.config, 0
        visible = self.visible
        count, size = len(visible), sum(map(size_of, visible))
        for record in visible:
            if not (config.cap_records and count > config.cap_records) and not (
                config.cap_bytes and size > config.cap_bytes
            ):
                break
            count, size, last = count - 1, size - size_of(record), record.seq
        if last:
            self.cap_floor = last + 1
            self._remove(seq for seq in list(self.records) if seq <= last)

    def expire(self, now: int) -> None:
        if self.config.ttl_ms:
            old = [seq for seq, record in self.records.items() if record.ts < now - self.config.ttl_ms]
            if old:
                self.ttl_floor = max(old) + 1
                self._remove(seq for seq in list(self.records) if seq < self.ttl_floor)

    def _remove(self, seqs: Iterable[int]) -> None:
        for seq in list(seqs):
            self.records.pop(seq, None)
            self.hidden.discard(seq)

    def select(self, select: Selection) -> list[int]:
        return [
            seq
            for seq, record in self.records.items()
            if seq <= select.bound
            and (select.before is None or seq < select.before)
            and (select.key is None or record.key == select.key)
            and (select.prefix is None or (record.key or "").startswith(select.prefix))
            and (select.seqs is None or seq in select.seqs)
        ]


def size_of(record: Record) -> int:
    return len(record.data) + len(record.meta or b"")


# --- the history ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    bound: int
    before: int | None = None
    key: str | None = None
    prefix: str | None = None
    seqs: tuple[int, ...] | None = None


@dataclass(eq=False)
class Change:
    """One thing that was asked for. ``make`` does it to the model."""

    epoch: int
    what: str
    make: Callable[[LogModel], None]
    last: int = 0
    config: Config | None = None
    acknowledged: bool = False
    durable: bool = False
    #: In memory only: gone with the process.
    volatile: bool = False
    #: Changes of several logs with the same number happen all or not at all.
    step: int = 0


#: Numbers of steps, and whether they happened.
Steps = set[tuple[int, bool]]


@dataclass
class Life:
    """One log from its creation to its end."""

    name: str
    epoch: int
    changes: list[Change] = field(default_factory=list)

    @property
    def always_fsync(self) -> bool:
        """Whether whoever appended waited for the flush every time. With an erasure event, only those wait who read."""
        return all(
            (change.config is None or change.config.durability == "fsync") and change.what != "tell"
            for change in self.changes
        )

    def model(self, chosen: Iterable[Change]) -> LogModel | None:
        """What these changes make of it; None: there is no such log."""
        model: LogModel | None = None
        for change in chosen:
            if change.what == "create" or (change.what == "tell" and model is None):
                assert change.config is not None
                model = LogModel(self.name, self.epoch, change.config)
                change.make(model)
            elif change.what == "drop":
                model = None
            elif model is not None:
                change.make(model)
        return model

    def now(self) -> LogModel | None:
        return self.model(self.changes)

    def candidates(self, surely: Callable[[Change], bool]) -> Iterator[tuple[LogModel | None, Steps]]:
        """What the log may be like, each with the steps that happened then and that did not."""
        lasting = [change for change in self.changes if not change.volatile]
        doubtful = [change for change in lasting if not surely(change)]
        assert len(doubtful) <= 10, "too many changes in doubt to try all combinations"
        for there in product((True, False), repeat=len(doubtful)):
            missing = {id(change) for change, taken in zip(doubtful, there, strict=True) if not taken}
            steps = {(change.step, id(change) not in missing) for change in lasting if change.step}
            if len({step for step, _ in steps}) < len(steps):
                continue  # one that happened in part
            yield self.model(change for change in lasting if id(change) not in missing), steps


def _hide(model: LogModel, seq: int, data: bytes) -> None:
    model.hidden.update({seq} & set(model.records))


def _restore(model: LogModel, seq: int, data: bytes) -> None:
    model.hidden.discard(seq)


def _delete(model: LogModel, seq: int, data: bytes) -> None:
    model.deleted.add(seq)
    model._remove([seq])


def _amend(model: LogModel, seq: int, data: bytes) -> None:
    if seq in model.records:
        model.records[seq] = model.records[seq]._replace(data=data)


_ALTERATIONS = {"hide": _hide, "restore": _restore, "delete": _delete, "amend": _amend}
_SELECTIONS = {"hide": Hide, "restore": Restore, "delete": Delete}


class Scribe:
    """Works an engine and keeps the history."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine = engine
        self.clock = clock
        self.lives: dict[int, Life] = {}
        self._latest: Change | None = None
        self._next_epoch = 1
        self._last_ts = 0
        self._count = 0
        self._steps = 0

    # Everything below mirrors the engine. A change stands in the history before the engine hears of it.

    def create(self, name: str, *data: bytes, notes: dict[str, object] | None = None, **config: object) -> Scribe:
        made = Config(**config)  # type: ignore[arg-type]
        self._make(
            name, made, data, notes or {}, lambda batch: self.engine.create(name, made, notes=notes, batch=batch)
        )
        return self

    def fork(
        self,
        name: str,
        source: str,
        through: int,
        *data: bytes,
        notes: dict[str, object] | None = None,
        **config: object,
    ) -> None:
        """What is shared must not be in doubt, nor change any more."""
        base, log, made = self._find(source)[1], self.engine.log(source), Config(**config)  # type: ignore[arg-type]

        def create(batch: Batch | None) -> Commit[Log]:
            return self.engine.fork(name, log, through, made, notes=notes, batch=batch)

        self._make(name, made, data, notes or {}, create, base, through)

    def _make(
        self,
        name: str,
        config: Config,
        data: Sequence[bytes],
        notes: Mapping[str, object],
        create: Callable[[Batch | None], Commit[Log]],
        base: LogModel | None = None,
        through: int = 0,
    ) -> None:
        life = self.lives[self._next_epoch] = Life(name, self._next_epoch)
        self._next_epoch += 1
        ts = self._now()
        records = [Record(through + 1 + at, ts, None, None, None, payload) for at, payload in enumerate(data)]

        def make(model: LogModel) -> None:
            if base is not None:
                model.fork_of(base, through)
            model.note(notes)
            if records:
                model.append(records)

        change = self._begin(life, "create", make, last=through + len(records), config=config)
        self._waited(change, create(Batch(data) if data else None))

    def append(
        self,
        name: str,
        *data: bytes,
        keys: Sequence[str | None] | None = None,
        meta: bytes | None = None,
        idempotency_key: str | None = None,
        producer: Producer | None = None,
        notes: dict[str, object] | None = None,
        wait: bool = True,
    ) -> Commit[object]:
        life, model = self._find(name)
        ts = self._now()
        records = [
            Record(model.assigned + 1 + at, ts, None if keys is None else keys[at], None, meta, payload)
            for at, payload in enumerate(data or (self.payload(),))
        ]
        change = self._begin(life, "append", lambda model: model.append(records, notes), last=records[-1].seq)
        change.volatile = model.config.durability == "ephemeral"
        payloads = [record.data for record in records]
        batch = Batch(payloads, keys, None, None if meta is None else [meta] * len(payloads))
        commit = self.engine.log(name).append(batch, idempotency_key=idempotency_key, producer=producer, notes=notes)
        if wait:
            appended = commit.wait()
            assert (appended.first, appended.last, appended.ts) == (records[0].seq, records[-1].seq, ts)
            self._acknowledge(change, model.config.durability == "fsync")
        return commit  # type: ignore[return-value]

    def append_all(self, *members: tuple[str, bytes]) -> None:
        """One record for each log that is named, in one step."""
        self._steps += 1
        ts, changes, appends = self._now(), [], []
        for name, data in members:
            life, model = self._find(name)
            record = Record(model.assigned + 1, ts, None, None, None, data)
            changes.append(self._begin_append(life, model, [record]))
            appends.append(Append(self.engine.log(name), Batch.of(data)))
        self._acknowledge_step(changes, self.engine.append_all(appends))

    def change_all(self, *asked: tuple[str, str, object]) -> None:
        """A hide, a restore or a delete of one seq, an amendment of one to something, or an append of something, each
        of a log that is named, in one step."""
        self._steps += 1
        step, changes, made = self._steps, [], []
        for what, name, value in asked:
            life, model = self._find(name)
            log = self.engine.log(name)
            if what == "append":
                record = Record(model.assigned + 1, self._now(), None, None, None, value)  # type: ignore[arg-type]
                changes.append(self._begin_append(life, model, [record]))
                made.append(Append(log, Batch.of(value)))  # type: ignore[arg-type]
                continue
            seq, data = value if what == "amend" else (value, b"")  # type: ignore[misc]
            event = self._tell(life, model, what, Selection(model.assigned, seqs=(seq,)))
            change = self._begin(life, what, partial(_ALTERATIONS[what], seq=seq, data=data))
            change.volatile = model.config.durability == "ephemeral"
            changes += [change] if event is None else [change, event]
            made.append(Amend(log, seq, data) if what == "amend" else _SELECTIONS[what](log, seqs=[seq]))
        for change in changes:
            change.step = step
        commit = self.engine.change_all(made)
        flushed = not commit.done
        commit.wait()
        for change in changes:
            if change.what == "tell":
                change.acknowledged = True
            else:
                self._acknowledge(change, flushed)

    def forward(self, source: str, *copies: tuple[str, int, int], lost: int = 0) -> None:
        """For every copy: its log, and the first and last seq. The cursor has the log's name and goes to the last."""
        self._steps += 1
        ts, changes, asked = self._now(), [], []
        life, model = self._find(source)
        for name, first, last in copies:
            taker, into = self._find(name)
            chosen = [record for record in model.visible if first <= record.seq <= last]
            base = into.assigned + lost + 1
            changes.append(
                self._begin_append(
                    taker, into, [record._replace(seq=base + at, ts=ts) for at, record in enumerate(chosen)]
                )
            )
            asked.append(ForwardedCopy(self.engine.log(name), name, last, [(first, last)], lost))
        cursors = {name: last for name, _, last in copies}
        changes.append(self._begin(life, "cursor", lambda model: model.cursors.update(cursors)))
        changes[-1].step = self._steps
        self._acknowledge_step(changes, self.engine.forward(self.engine.log(source), asked))

    def _begin_append(self, life: Life, model: LogModel, records: list[Record]) -> Change:
        change = self._begin(life, "append", lambda model: model.append(records), last=records[-1].seq)
        change.volatile = model.config.durability == "ephemeral"
        change.step = self._steps
        return change

    def _acknowledge_step(self, changes: list[Change], commit: Commit[object]) -> None:
        flushed = not commit.done
        commit.wait()
        for change in changes:
            self._acknowledge(change, flushed)

    def move_cursor(self, name: str, cursor: str, seq: int) -> None:
        life, model = self._find(name)
        change = self._begin(life, "cursor", lambda model: model.cursors.update({cursor: seq}))
        self.engine.log(name).move_cursor(cursor, seq).wait()
        self._acknowledge(change, model.config.durability == "fsync")

    def drop_cursor(self, name: str, cursor: str) -> None:
        life, model = self._find(name)
        change = self._begin(life, "cursor", lambda model: model.cursors.pop(cursor, None) and None)
        self.engine.log(name).drop_cursor(cursor).wait()
        self._acknowledge(change, model.config.durability == "fsync")

    def note(self, name: str, **notes: object) -> None:
        life, model = self._find(name)
        change = self._begin(life, "note", lambda model: model.note(notes))
        self.engine.log(name).note(notes).wait()
        self._acknowledge(change, model.config.durability == "fsync")

    def sync(self, name: str) -> None:
        self.engine.log(name).sync().wait()
        self._everything_is_durable()

    def payload(self) -> bytes:
        self._count += 1
        return b'{"payload": %d, "filler": "%s"}' % (self._count, b"x" * (self._count * 37 % 300))

    def delete(self, name: str, **select: object) -> None:
        def make(model: LogModel) -> None:
            seqs = model.select(chosen)
            model.deleted.update(seqs)
            model._remove(seqs)

        chosen = self._selection(name, select)
        self._change(name, "delete", make, lambda log: log.delete(**select), told=chosen)  # type: ignore[arg-type]

    def hide(self, name: str, **select: object) -> None:
        chosen = self._selection(name, select)
        self._change(
            name,
            "hide",
            lambda model: model.hidden.update(model.select(chosen)),
            lambda log: log.hide(**select),  # type: ignore[arg-type]
            told=chosen,
        )

    def restore(self, name: str, **select: object) -> None:
        def make(model: LogModel) -> None:
            model.hidden.difference_update(model.select(chosen))
            model.evict()

        chosen = self._selection(name, select)
        self._change(name, "restore", make, lambda log: log.restore(**select), told=chosen)  # type: ignore[arg-type]

    def _selection(self, name: str, select: dict[str, object]) -> Selection:
        if "seqs" in select:
            select = {**select, "seqs": tuple(select["seqs"])}  # type: ignore[arg-type]
        return Selection(self._find(name)[1].assigned, **select)  # type: ignore[arg-type]

    def amend(self, name: str, seq: int, data: bytes) -> None:
        def make(model: LogModel) -> None:
            if seq in model.records:
                model.records[seq] = model.records[seq]._replace(data=data)
                model.evict()

        told = Selection(self._find(name)[1].assigned, seqs=(seq,))
        self._change(name, "amend", make, lambda log: log.amend(seq, data), told=told)

    def skip(self, name: str, count: int, reason: Reason = "source_trim") -> None:
        last = self._find(name)[1].assigned + count

        def make(model: LogModel) -> None:
            model.assigned = last

        self._change(name, "skip", make, lambda log: log.skip(count, reason), last=last)

    def expire(self, name: str) -> None:
        """Have a reader come by at the present time."""
        now = self._now()
        self._change(name, "expire", lambda model: model.expire(now), lambda log: Commit.of(log.state()), False)

    def configure(self, name: str, **config: object) -> None:
        life = self._find(name)[0]
        made = Config(**config)  # type: ignore[arg-type]

        def make(model: LogModel) -> None:
            model.config = made
            model.evict()

        change = self._begin(life, "configure", make, config=made)
        if made.durability != "ephemeral":
            # What was in memory only is written down now, be it durable or not.
            for earlier in life.changes:
                if earlier.volatile:
                    earlier.volatile = earlier.acknowledged = earlier.durable = False
        self._waited(change, self.engine.log(name).configure(made))
        for earlier in life.changes:
            earlier.acknowledged = earlier.acknowledged or not earlier.volatile

    def drop(self, name: str) -> None:
        life, model = self._find(name)
        event = self._tell(life, model, "drop", Selection(model.assigned))
        change = self._begin(life, "drop", lambda model: None)
        change.step = 0 if event is None else event.step
        self._waited(change, self.engine.log(name).drop())
        if event is not None:
            event.acknowledged = True

    def flush(self) -> None:
        self.engine.flush()
        self._everything_is_durable()

    def close(self) -> None:
        self.engine.close()
        self._everything_is_durable()

    def _change(
        self,
        name: str,
        what: str,
        make: Callable[[LogModel], None],
        ask: Callable[[Log], Commit[object]],
        durable: bool = True,
        last: int = 0,
        told: Selection | None = None,
    ) -> None:
        life, model = self._find(name)
        event = None if told is None else self._tell(life, model, what, told)
        change = self._begin(life, what, make, last)
        change.volatile = model.config.durability == "ephemeral"
        if event is not None:
            change.step = event.step
        ask(self.engine.log(name)).wait()
        self._acknowledge(change, durable and model.config.durability == "fsync")
        if event is not None:
            event.acknowledged = True

    def _tell(self, life: Life, model: LogModel, kind: str, chosen: Selection) -> Change | None:
        """The erasure event that is written in one step with the change it tells of."""
        if model.config.durability == "ephemeral":
            return None
        self._steps += 1
        events = next((life for life in self.lives.values() if life.name == NAME), None)
        if events is None:
            events = self.lives[self._next_epoch] = Life(NAME, self._next_epoch)
            self._next_epoch += 1
        told = {"log": life.name, "epoch": life.epoch, "kind": kind, **asdict(chosen)}
        now = events.now()
        seq = 1 if now is None else now.assigned + 1
        record = Record(seq, self._now(), None, None, None, msgspec.json.encode(told))
        config = Config(durability="fsync", cap_bytes=MAX_BYTES)
        # Nobody is told the seq before the event can be read.
        event = self._begin(events, "tell", lambda model: model.append([record]), config=config)
        event.step = self._steps
        return event

    def _begin(
        self, life: Life, what: str, make: Callable[[LogModel], None], last: int = 0, config: Config | None = None
    ) -> Change:
        change = self._latest = Change(life.epoch, what, make, last, config)
        life.changes.append(change)
        return change

    def _waited(self, change: Change, commit: Commit[object]) -> None:
        commit.wait()
        self._acknowledge(change, True)

    def _acknowledge(self, change: Change, durable: bool) -> None:
        change.acknowledged = True
        if durable:
            # One flush covers the whole journal.
            self._everything_is_durable()

    def _everything_is_durable(self) -> None:
        for life in self.lives.values():
            for change in life.changes:
                change.durable = change.durable or not change.volatile

    def was_refused(self) -> None:
        """The last change was refused in an orderly way: it must not have happened."""
        latest = self._latest
        assert latest is not None
        for life in self.lives.values():
            life.changes = [c for c in life.changes if c is not latest and not (c.step and c.step == latest.step)]
        if self.lives and not self.lives[self._next_epoch - 1].changes:
            # Its number was not given away.
            self._next_epoch -= 1
            del self.lives[self._next_epoch]

    def _find(self, name: str) -> tuple[Life, LogModel]:
        for life in reversed(self.lives.values()):
            if life.name == name and (model := life.now()) is not None:
                return life, model
        raise AssertionError(f"no log {name}")

    def _now(self) -> int:
        self._last_ts = max(self._last_ts, self.clock.now())
        return self._last_ts

    # What must be true.

    def check(self, engine: Engine, after: Literal["power cut", "kill"], now: int) -> dict[str, Observed]:
        """Hold the engine against the history; returns what was seen, by name."""
        seen = observe(engine)

        def surely(change: Change) -> bool:
            return change.durable if after == "power cut" else change.acknowledged

        unexplained = set(seen)
        possible: dict[int, set[bool]] = {}
        for life in self.lives.values():
            there = seen.get(life.name)
            if there is not None and there.epoch != life.epoch:
                there = None
            reasons, fitting = [], Steps()
            matched = False
            for model, steps in life.candidates(surely):
                reason = _mismatch(life, model, there, after, now)
                if reason is None:
                    matched = True
                    fitting |= steps
                reasons.append(reason)
            if not matched:
                raise AssertionError(f"log {life.name!r} of epoch {life.epoch} after a {after}: {reasons[0]}")
            if there is not None:
                unexplained.discard(life.name)
            for step in {step for step, _ in fitting}:
                possible[step] = possible.get(step, {True, False}) & {did for number, did in fitting if number == step}
        assert all(possible.values()), f"steps that were made in part: {[s for s, did in possible.items() if not did]}"
        assert not unexplained, f"logs that nobody made: {unexplained}"
        return seen


@dataclass(frozen=True)
class Observed:
    """A log as a reader sees it."""

    epoch: int
    config: Config
    head: int
    earliest: int
    floor: int
    count: int
    size: int
    records: tuple[Record, ...]
    #: Seqs that readers were told are lost, in order; there is something between two of them.
    lost: tuple[range, ...]
    cursors: tuple[tuple[str, Cursor], ...]
    notes: dict[str, object]


def observe(engine: Engine) -> dict[str, Observed]:
    return {name: observe_log(engine.log(name)) for name in engine.names()}


def observe_log(log: Log) -> Observed:
    records: list[Record] = []
    lost: list[range] = []
    after, caught_up = 0, False
    while not caught_up:
        page = log.read(after, limit=7)
        if page.tombstone is not None:
            lost.append(range(page.tombstone.gap_from, page.tombstone.gap_to + 1))
        records.extend(page)
        assert page.next_after > after or page.caught_up, "a reader does not get on"
        after, caught_up = page.next_after, page.caught_up
    state = log.state()
    return Observed(
        state.epoch, state.config, state.head, state.earliest, state.evict_floor, state.count, state.size,
        tuple(records), _joined(lost), tuple(sorted(log.cursors().items())), dict(log.notes),
    )  # fmt: skip


def _joined(ranges: Iterable[range]) -> tuple[range, ...]:
    """In order, and those that touch are one."""
    joined: list[range] = []
    for each in sorted(ranges, key=lambda each: each.start):
        if joined and each.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, each.stop))
        else:
            joined.append(each)
    return tuple(joined)


def _between(ranges: tuple[range, ...], head: int) -> Iterator[int]:
    """The seqs up to ``head`` that are in none of them."""
    start = 1
    for each in ranges:
        yield from range(start, min(each.start, head + 1))
        start = each.stop
    yield from range(start, head + 1)


def _mismatch(
    life: Life, model: LogModel | None, seen: Observed | None, after: Literal["power cut", "kill"], now: int
) -> str | None:
    """Why the log is not what the model says; None when it is."""
    if model is None or seen is None:
        return None if model is seen else f"it is there: {seen is not None}, and should be: {model is not None}"
    model.expire(now)
    if seen.config != model.config:
        return f"config {seen.config} instead of {model.config}"
    if {name: cursor.seq for name, cursor in seen.cursors} != model.cursors:
        return f"cursors {seen.cursors} instead of {model.cursors}"
    if seen.notes != model.notes:
        return f"notes {seen.notes} instead of {model.notes}"
    if list(seen.records) != model.shown:
        return f"records {brief(seen.records)} instead of {brief(model.shown)}"
    if seen.floor != model.floor:
        return f"floor {seen.floor} instead of {model.floor}"
    if (seen.count, seen.size) != (len(model.visible), sum(map(size_of, model.visible))):
        return f"{seen.count} records of {seen.size} bytes counted"
    if seen.earliest != min([*(record.seq for record in model.shared), *model.records], default=seen.head + 1):
        return f"earliest {seen.earliest}, records {sorted(model.records)}, head {seen.head}"
    ephemeral = any(change.volatile for change in life.changes) or model.config.durability == "ephemeral"
    if (after == "kill" and not ephemeral) or life.always_fsync:
        if seen.head != model.assigned:
            return f"head {seen.head} instead of {model.assigned}"
    known = max((change.last for change in life.changes if change.acknowledged), default=0)
    if seen.head < known:
        return f"head {seen.head}, and {known} was acknowledged"
    there = {record.seq for record in seen.records}
    silent = set(_between(seen.lost, seen.head)) - there - model.deleted - model.hidden
    if silent:
        return f"{sorted(silent)} are missing and no tombstone says so"
    both = sorted(seq for seq in there if any(seq in each for each in seen.lost))
    if both:
        return f"{both} are there and reported lost"
    return None


def brief(records: Iterable[Record]) -> list[tuple[int, bytes]]:
    return [(record.seq, record.data[:16]) for record in records]


# --- the whole check after a failure -------------------------------------------------------------------------


def check_recovery(
    disk: FaultDisk,
    scribe: Scribe,
    after: Literal["power cut", "kill"],
    *,
    cold: ColdStore | None = None,
    damaged: bool = False,
    then: Callable[[Engine, dict[str, Observed]], None] = lambda engine, seen: None,
) -> None:
    """Recover, check, recover again (after a kill, after a power cut, after an orderly stop), and go on writing.

    ``damaged``: the power cut left garbage among what was in doubt, so that recovery has something to report.
    """
    clock = scribe.clock
    engine = open_engine(disk, clock, cold)
    seen = scribe.check(engine, after, clock.now())
    check_losses(engine, scribe, after, damaged)
    check_no_leftovers(engine, disk)

    disk = disk.process_kill()
    engine = open_engine(disk, clock, cold)
    assert observe(engine) == seen, "a second recovery gives something else"

    disk = disk.power_cut()
    engine = open_engine(disk, clock, cold)
    # What a reader has seen, no failure may take back; seqs that may have been handed out can only become more.
    again = observe(engine)
    assert {name: steady(log) for name, log in again.items()} == {name: steady(log) for name, log in seen.items()}
    for name, log in again.items():
        assert log.head >= seen[name].head
        assert _joined([*log.lost, *seen[name].lost]) == log.lost, "something is not lost any more"
    then(engine, again)

    again = observe(engine)
    for name in engine.names():
        appended = engine.log(name).append(Batch.of(b"afterwards")).wait()
        assert appended.first == again[name].head + 1
    before = observe(engine)
    engine.close()
    engine = open_engine(disk, clock, cold)
    assert engine.recovered.clean
    assert damaged or not engine.recovered.losses, engine.recovered.losses
    for name, log in observe(engine).items():
        if log.config.durability != "ephemeral":
            assert log == before[name], "an orderly stop changed something"
    engine.close()


def steady(log: Observed) -> Observed:
    """All but what a further power cut may add to a log that does not wait for the disk: lost seqs at its end."""
    if log.config.durability == "fsync":
        return log
    end = max((record.seq for record in log.records), default=0)
    lost = tuple(range(each.start, min(each.stop, end + 1)) for each in log.lost if each.start <= end)
    return replace(log, head=end, earliest=min(log.earliest, end + 1), lost=lost)


def check_losses(engine: Engine, scribe: Scribe, after: str, damaged: bool) -> None:
    losses = engine.recovered.losses
    if after == "kill":
        assert not losses, losses
    elif not damaged:
        careless = {life.name for life in scribe.lives.values() if not life.always_fsync}
        assert {loss.path for loss in losses} <= careless


def check_no_leftovers(engine: Engine, disk: Disk) -> None:
    manifest = engine.maintenance.manifest
    assert [name for name in disk.list("") if name.endswith(".tmp")] == []
    assert disk.list(CHECKPOINTS) == sorted(manifest.checkpoints)
    assert disk.list(HOT_DIRECTORY) == sorted(object_name(e.id) for e in manifest.segments if e.tier == "hot")
    assert all(journal_index(name) is not None for name in disk.list(DIRECTORY))

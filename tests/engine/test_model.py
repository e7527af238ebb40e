"""The engine against the model: random operations, restarts and crashes; both must always look the same."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.log_model import ModelLog, size_of
from support.replicas import FaultyStore

from strandline.engine import (
    Append,
    Batch,
    Commit,
    Config,
    Engine,
    ForwardedCopy,
    Log,
    ManualClock,
    Options,
    Producer,
    Record,
    Tombstone,
)
from strandline.engine.errors import BadRequest, BatchTooLarge, EngineError, LogExists, LogFull, LogHasForks
from strandline.engine.operations.erasures import NAME
from strandline.engine.segments import writer
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.engine.state.forks import time_at
from strandline.engine.testing.fault_disk import Crashed, FaultDisk

LONG = bool(os.environ.get("STRANDLINE_LONG"))
settings.register_profile(
    "model",
    max_examples=3000 if LONG else 200,
    stateful_step_count=60 if LONG else 40,
    deadline=None,
    derandomize=not LONG,
    database=None,
    suppress_health_check=list(HealthCheck),
)
MODEL = settings.get_profile("model")

COMPACT_AFTER_MS = 100
CLASSES = ["disk", "fsync", "memory", "ephemeral"]
NAMES = ["a", "b", "c"]
KEYS = [None, "a", "ab", "b", "ä"]
NODES = [None, "n", "m"]
METAS = [None, b"", b"{}", b'{"m":1}']

sizes = st.sampled_from([0, 1, 2, 5, 30, 200])
columns = st.lists(
    st.tuples(sizes, st.sampled_from(KEYS), st.sampled_from(NODES), st.sampled_from(METAS)), min_size=1, max_size=6
)


def _config(retain_until_in_lake: bool, durability: str, **others: object) -> Config:
    """An ephemeral log cannot wait for the lake."""
    kept = retain_until_in_lake and durability != "ephemeral"
    return Config(retain_until_in_lake=kept, durability=durability, **others)


configs = st.builds(
    _config,
    durability=st.sampled_from(CLASSES),
    ttl_ms=st.sampled_from([0, 0, 100, 1000]),
    cap_records=st.sampled_from([0, 0, 1, 3, 10]),
    cap_bytes=st.sampled_from([0, 0, 1, 50, 300]),
    discard=st.sampled_from(["old", "old", "reject"]),
    compact=st.booleans(),
    retain_until_in_lake=st.sampled_from([False, False, True]),
    idempotency_window_ms=st.just(500),
)
seqs = st.integers(0, 40)
#: What is noted: None removes a note.
changes = st.dictionaries(st.sampled_from("xyz"), st.sampled_from([None, 0, "text", [1], {"a": {}}]), min_size=1)
#: How long ago the records of an append are from; None: nothing is said of it.
hints = st.sampled_from([None, None, None, 0, 1, 120, 2000, -30, -400])
producers = st.none() | st.tuples(st.sampled_from(["p", "q"]), st.integers(0, 1), st.integers(0, 3))
#: Which records a delete, hide or restore means: at least one condition.
selections = st.dictionaries(st.sampled_from(["before", "key", "prefix", "seqs"]), st.none(), min_size=1).flatmap(
    lambda chosen: st.fixed_dictionaries(
        {
            name: {
                "before": seqs,
                "key": st.sampled_from(KEYS[1:]),
                "prefix": st.sampled_from(["", "a", "b"]),
                "seqs": st.lists(seqs, max_size=5),
            }[name]
            for name in chosen
        }
    )
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a handful of records lies in several blocks of a segment."""
    monkeypatch.setattr(writer, "BLOCK_ROWS", 4)


class Machine(RuleBasedStateMachine):
    """The logs of one engine, their models, and everything that can be done to both."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="strandline-"))
        (self.directory / "data").mkdir()
        self.disk = FaultDisk(self.directory / "data")
        self.clock = ManualClock()
        self.models: dict[str, ModelLog] = {}
        self.epochs: set[int] = set()
        self.written = 0
        #: The erasure events that there are, in order, and whether they must be: of a change that meant nothing, or of
        #: an ephemeral log, there may be one or not.
        self.told: list[tuple[dict[str, object], bool]] = []

    @initialize(
        cold=st.booleans(),
        hot_segments=st.integers(0, 1),
        cache_bytes=st.sampled_from([1, 1 << 20]),
        config=configs,
        other=configs,
    )
    def begin(self, cold: bool, hot_segments: int, cache_bytes: int, config: Config, other: Config) -> None:
        self.options = Options(
            journal_bytes=4000, hot_segments=hot_segments, cache_bytes=cache_bytes, compact_after_ms=COMPACT_AFTER_MS
        )
        self.cold = ObjectStoreCold(str(self.directory / "cold")) if cold else None
        self.open()
        self.create("a", config)
        self.create("b", other)

    def open(self) -> None:
        self.engine = Engine.open(self.disk, self.options, clock=self.clock, cold=self.cold, background=False)

    def teardown(self) -> None:
        try:
            if hasattr(self, "engine") and sys.exc_info()[0] is None:
                self.check_everything()
                self.engine.close()
        finally:
            shutil.rmtree(self.directory)

    # --- doing something to both ---------------------------------------------------------------------------

    def pick(self, number: int) -> str:
        names = sorted(self.models)
        return names[number % len(names)]

    def both(
        self,
        name: str,
        change: Callable[[Log], object],
        expect: Callable[[ModelLog, int], object],
        erases: str = "",
        **which: object,
    ) -> None:
        """Do one thing to the log and to its model: the results and the errors must be the same. What it ``erases`` is
        told."""
        try:
            expected = expect(self.models[name], self.clock.now())
        except EngineError as error:
            with pytest.raises(type(error)):
                change(self.engine.log(name))
        else:
            if erases:
                self.tell(name, erases, bool(getattr(expected, "count", 1)), **which)
            assert change(self.engine.log(name)) == expected
        self.changed(name)
        self.check_state(name)

    def tell(self, name: str, kind: str, surely: bool, **which: object) -> None:
        model = self.models[name]
        conditions = {"before": None, "key": None, "prefix": None, "seqs": None, **which}
        event = {"log": name, "epoch": model.epoch, "kind": kind, "bound": model.head, **conditions}
        self.told.append((event, surely and model.config.durability != "ephemeral"))

    def changed(self, name: str) -> None:
        """Called after every change of a log."""

    def batch(self, rows: list[tuple[int, str | None, str | None, bytes | None]]) -> Batch:
        data, some = [], [*zip(*rows, strict=True)]
        for size in some[0]:
            self.written += 1
            data.append(f"{self.written}.".encode().ljust(size, b"x")[:size])
        return Batch(data, *([*column] if any(x is not None for x in column) else None for column in some[1:]))

    # --- looking at both -----------------------------------------------------------------------------------

    def check_state(self, name: str) -> None:
        model, state = self.models[name], self.engine.log(name).state()
        model.expire(self.clock.now())
        assert (state.name, state.epoch, state.config) == (name, model.epoch, model.config)
        assert (state.head, state.earliest, state.evict_floor) == (model.head, model.earliest, model.shown_floor())
        assert (state.count, state.size) == (model.count, model.size)
        assert state.evict_floor <= state.earliest <= state.head + 1
        self.check_base(name)
        assert self.engine.log(name).cursors() == model.cursors
        assert self.engine.log(name).notes == model.notes
        assert self.engine.log(name).next_seq == model.head + 1

    def check_base(self, name: str) -> None:
        model, log = self.models[name], self.engine.log(name)
        if model.base is None:
            assert log.base is None
        else:
            assert log.base is not None
            assert (log.base[0].epoch, log.base[1]) == (model.base.epoch, model.through)
        assert log.forks == len(self.forks_of(name))

    def forks_of(self, name: str) -> list[str]:
        return [other for other, model in self.models.items() if model.base is self.models[name]]

    def check_everything(self) -> None:
        events = self.check_told()
        assert [name for name in self.engine.names() if name != NAME] == sorted(self.models)
        for name in self.models:
            self.check_state(name)
            self.check_reads(name, limit=7)
            self.check_latest(name, limit=3)
            self.check_room(name)
        stats = self.engine.stats()
        assert stats.records - events[0] == sum(model.count for model in self.models.values())
        assert stats.size - events[1] == self.engine.total_size == sum(model.size for model in self.models.values())

    def check_told(self) -> tuple[int, int]:
        """Hold the erasure events against what was done; how many there are, and their bytes."""
        log, events, told = self.engine.find(NAME), self.events(), iter(self.told)
        for event in events:
            # All that must be there are, in order, and nothing else is.
            assert msgspec.json.decode(event) == next(
                known for known, surely in told if surely or known == msgspec.json.decode(event)
            )
        assert sum(surely for _, surely in told) <= (0 if log is None else log.book.pending_count)
        return len(events), sum(map(len, events))

    def events(self) -> list[bytes]:
        log = self.engine.find(NAME)
        return [] if log is None else [record.data for record in _walk(log, 0)[0].values()]

    def check_room(self, name: str) -> None:
        model, room = self.models[name], self.engine.log(name).room()
        config = model.config
        if config.discard != "reject":
            assert room is None
        else:
            assert room is not None
            assert not config.cap_records or room[0] == max(config.cap_records - model.count, 0)
            assert not config.cap_bytes or room[1] == max(config.cap_bytes - model.size, 0)

    def check_reads(
        self,
        name: str,
        after: int = 0,
        limit: int = 256,
        max_bytes: int | None = None,
        since: int | None = None,
        epoch: int | None = None,
        without_nodes: list[str] | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
    ) -> None:
        """Read page by page to the end; every page must hold exactly what it should."""
        model, log = self.models[name], self.engine.log(name)
        model.expire(self.clock.now())

        def passes(record: Record) -> bool:
            return (
                record.node not in (without_nodes or ())
                and key in (None, record.key)
                and (key_prefix is None or (record.key is not None and record.key.startswith(key_prefix)))
                and record.ts >= (since or 0)
            )

        recreated = after > model.head if epoch is None else epoch != model.epoch
        last_ts = 0
        while True:
            start = max(1 if recreated else after + 1, 1 if since is None else model.first_since(since))
            events = model.walk(start, passes)
            tombstone = None
            if events and isinstance(events[0], Tombstone) and (not recreated or events[0].gap_from == start):
                tombstone = events.pop(0)
            if recreated:
                tombstone = Tombstone(1, model.head, "recreated", model.earliest, model.head)
            records = list(_page(events, limit, max_bytes))
            page = log.read(
                after, limit, max_bytes=max_bytes, since=since, epoch=epoch,
                without_nodes=without_nodes, key=key, key_prefix=key_prefix,
            )  # fmt: skip
            resident = log.read_resident(
                after, limit, max_bytes=max_bytes, since=since, epoch=epoch,
                without_nodes=without_nodes, key=key, key_prefix=key_prefix,
            )  # fmt: skip
            assert resident is None or (list(resident), resident.tombstone) == (list(page), page.tombstone)
            assert page.tombstone == tombstone
            assert list(page) == records
            assert (page.epoch, page.head, page.earliest) == (model.epoch, model.head, model.earliest)
            assert page.caught_up == (page.next_after >= model.head)
            assert page.ts == sorted([last_ts, *page.ts])[1:]
            last_ts = page.ts[-1] if page.ts else last_ts
            onwards = max(page.next_after + 1, 1 if since is None else model.first_since(since))
            assert model.walk(onwards, passes) == events[len(records) :]
            if page.caught_up:
                return
            assert recreated or page.next_after > after
            after, recreated, epoch = page.next_after, False, model.epoch

    def check_latest(self, name: str, after: int = 0, limit: int = 256, key_prefix: str | None = None) -> None:
        """Read page by page: there must be the last record of every key, and nothing else."""
        model, log = self.models[name], self.engine.log(name)
        model.expire(self.clock.now())
        last = self.last_by_key(name)
        expected = [
            record
            for record in model.shown()
            if record in last.values() and record.seq > after and (record.key or "").startswith(key_prefix or "")
        ]
        found: list[Record] = []
        while True:
            page = log.read_latest(after, limit, key_prefix=key_prefix)
            resident = log.read_latest_resident(after, limit, key_prefix=key_prefix)
            assert resident is None or (list(resident), resident.next_after) == (list(page), page.next_after)
            found += page
            if page.caught_up:
                break
            assert page.next_after > after
            after = page.next_after
        assert found == expected

    def last_by_key(self, name: str) -> dict[str, Record]:
        return {record.key: record for record in self.models[name].shown() if record.key is not None}

    def restart(self, name: str) -> None:
        """Let the model of an ephemeral log forget what was in memory only."""
        self.models[name].expire(self.clock.now())
        model, book = self.models[name], self.engine.by_epoch[self.models[name].epoch]
        self.engine.log(name).state()  # time takes what it would have taken
        assert book.head >= model.head
        if model.volatile_from is not None:
            # What was evicted of that may be told as evicted or as lost.
            assert book.cap_floor <= model.cap_floor
            assert book.ttl_floor <= model.ttl_floor
            model.cap_floor, model.ttl_floor = book.cap_floor, book.ttl_floor
            model.restart(book.head)
            assert book.last_ts >= max((record.ts for record in model.retained()), default=0)
            model.last_ts = book.last_ts


def _page(events: list[Record | Tombstone], limit: int, max_bytes: int | None) -> Iterator[Record]:
    """What goes into one page: it ends before a gap, and its first record always fits."""
    room = float("inf") if max_bytes is None else max_bytes
    for count, event in enumerate(events):
        if isinstance(event, Tombstone) or count == limit or (count and size_of(event) > room):
            return
        yield event
        room -= size_of(event)


class Changes(Machine):
    """What callers do."""

    @rule(name=st.sampled_from(NAMES), config=configs, notes=st.none() | changes, rows=st.none() | columns)
    def create(self, name: str, config: Config, notes: dict | None = None, rows: list | None = None) -> None:
        batch = None if rows is None else self.batch(rows)
        self.make(
            name, ModelLog(0, config), lambda: self.engine.create(name, config, notes=notes, batch=batch), notes, batch
        )

    @precondition(lambda self: self.models)
    @rule(
        number=st.integers(0, 2),
        name=st.sampled_from(NAMES),
        back=st.sampled_from([0, 0, 1, 3, 8, 1000]),
        config=configs,
        notes=st.none() | changes,
        rows=st.none() | columns,
    )
    def fork(self, number: int, name: str, back: int, config: Config, notes: dict | None, rows: list | None) -> None:
        source, batch = self.pick(number), None if rows is None else self.batch(rows)
        base = self.models[source]
        base.expire(self.clock.now())
        through = max(base.head - back, 0)
        log = self.engine.log(source)
        if base.volatile_from is not None and through >= base.volatile_from:
            with pytest.raises(BadRequest):
                self.engine.fork(name, log, through, config, notes=notes, batch=batch)
            return
        model = ModelLog(0, config, base, through)
        # The time that its own records are not earlier than is told by the engine, if it may be.
        model.last_ts = time_at(log.book, through)
        assert max((record.ts for record in base.retained(through)), default=0) <= model.last_ts <= base.last_ts
        self.make(
            name, model, lambda: self.engine.fork(name, log, through, config, notes=notes, batch=batch), notes, batch
        )

    def make(
        self, name: str, model: ModelLog, create: Callable[[], Commit[Log]], notes: dict | None, batch: Batch | None
    ) -> None:
        now = self.clock.now()
        if name in self.models:
            with pytest.raises(LogExists):
                create()
            return
        try:
            if batch is None:
                model.note(now, notes or {}, None)
            else:
                model.append(now, batch, notes=notes)
        except BatchTooLarge:
            with pytest.raises(BatchTooLarge):
                create()
            assert self.engine.find(name) is None
            return
        log = create().wait()
        assert log.epoch > max(self.epochs, default=0)
        self.epochs.add(log.epoch)
        model.epoch = log.epoch
        self.models[name] = model
        self.changed(name)
        self.check_state(name)

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2))
    def drop(self, number: int) -> None:
        name = self.pick(number)
        if self.forks_of(name):
            with pytest.raises(LogHasForks):
                self.engine.log(name).drop()
            return
        self.models[name].expire(self.clock.now())
        self.tell(name, "drop", self.models[name].count > 0)
        self.engine.log(name).drop().wait()
        del self.models[name]
        assert self.engine.find(name) is None

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), rows=columns)
    def append(self, number: int, rows: list) -> None:
        batch = self.batch(rows)
        self.both(self.pick(number), lambda log: log.append(batch).wait(), lambda model, now: model.append(now, batch))

    @precondition(lambda self: self.models)
    @rule(
        number=st.integers(0, 2),
        rows=columns,
        key=st.sampled_from([None, "k", "l"]),
        producer=producers,
        notes=st.none() | changes,
        ago=hints,
    )
    def append_once(
        self,
        number: int,
        rows: list,
        key: str | None,
        producer: tuple[str, int, int] | None,
        notes: dict | None,
        ago: int | None,
    ) -> None:
        name, batch = self.pick(number), self.batch(rows)
        # An ephemeral log may remember these over a restart or not: use others from then on.
        key = None if key is None else f"{key}{self.models[name].losses}"
        who = self.producer(name, producer)
        ts = None if ago is None else self.clock.now() - ago
        self.both(
            name,
            lambda log: log.append(batch, idempotency_key=key, producer=who, notes=notes, ts=ts).wait(),
            lambda model, now: model.append(now, batch, key, who, notes, ts),
        )

    def producer(self, name: str, producer: tuple[str, int, int] | None) -> Producer | None:
        return None if producer is None else Producer(f"{producer[0]}{self.models[name].losses}", *producer[1:])

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), notes=changes, producer=producers)
    def note(self, number: int, notes: dict, producer: tuple[str, int, int] | None) -> None:
        name = self.pick(number)
        who = self.producer(name, producer)
        self.both(
            name, lambda log: log.note(notes, producer=who).wait(), lambda model, now: model.note(now, notes, who)
        )

    @precondition(lambda self: self.models)
    @rule(
        members=st.lists(
            st.tuples(st.integers(0, 2), columns, st.sampled_from([None, None, "k", "l"])), min_size=1, max_size=4
        )
    )
    def append_all(self, members: list) -> None:
        step = []
        for number, rows, key in members:
            name = self.pick(number)
            key = None if key is None else f"{key}{self.models[name].losses}"
            step.append((name, self.batch(rows), key))
        now, appends = self.clock.now(), [Append(self.engine.log(name), batch, key) for name, batch, key in step]
        for name, _, _ in step:
            self.models[name].expire(now)
        before = {name: model.copy() for name, model in self.models.items()}
        try:
            expected = [self.models[name].append(now, batch, key) for name, batch, key in step]
        except EngineError as error:
            for name, model in before.items():
                vars(self.models[name]).update(vars(model))  # the same objects: forks know them
            with pytest.raises(type(error)):
                self.engine.append_all(appends)
        else:
            assert self.engine.append_all(appends).wait() == expected
        for name in {name for name, _, _ in step}:
            self.changed(name)
            self.check_state(name)

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), name=st.sampled_from(["x", "y"]), seq=st.none() | seqs)
    def move_cursor(self, number: int, name: str, seq: int | None) -> None:
        if seq is None:
            self.both(
                self.pick(number),
                lambda log: log.drop_cursor(name).wait(),
                lambda model, now: model.drop_cursor(now, name),
            )
        else:
            self.both(
                self.pick(number),
                lambda log: log.move_cursor(name, seq).wait(),
                lambda model, now: model.move_cursor(now, name, seq),
            )

    @precondition(lambda self: len(self.models) > 1)
    @rule(
        number=st.integers(0, 2),
        rows=columns,
        places=st.lists(
            st.tuples(
                st.integers(0, 1),
                st.sets(st.integers(0, 9), min_size=1),
                st.sampled_from([0, 0, 0, 1, 300]),
                st.booleans(),
                st.booleans(),
                st.none() | st.sampled_from(METAS),
            ),
            min_size=1,
            max_size=4,
        ),
    )
    def forward(self, number: int, rows: list, places: list) -> None:
        """Some of the latest records, the newest of which were just appended."""
        self.append(number, rows)
        source, now = self.pick(number), self.clock.now()
        others = [name for name in sorted(self.models) if name != source]
        model = self.models[source]
        model.expire(now)
        copies, expected = [], []
        for at, (other, chosen, lost, keep_keys, keep_nodes, meta) in enumerate(places):
            name = others[other % len(others)]
            wanted = sorted(model.head - place for place in chosen if place < model.head)
            metas = None if meta is None else [meta] * len(wanted)
            ranges = [(seq, seq) for seq in wanted]
            log = self.engine.log(name)
            copies.append(ForwardedCopy(log, f"r{at}", at, ranges, lost, keep_keys, keep_nodes, metas))
            records = [
                Record(
                    0,
                    0,
                    record.key if keep_keys else None,
                    record.node if keep_nodes else None,
                    record.meta if meta is None else meta,
                    record.data,
                )
                for record in model.shown()
                if record.seq in wanted
            ]
            try:
                expected.append(self.models[name].take_copies(now, records, lost))
            except (LogFull, BatchTooLarge):
                expected.append(None)
            else:
                model.move_cursor(now, f"r{at}", at)
        assert self.engine.forward(self.engine.log(source), copies).wait() == expected
        for name in {source, *(copy.log.name for copy in copies)}:
            self.changed(name)
            self.check_state(name)

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2))
    def sync(self, number: int) -> None:
        name = self.pick(number)
        assert self.engine.log(name).sync().wait() == self.models[name].head
        if self.models[name].config.durability != "ephemeral":
            assert self.engine.journal.flushed == self.engine.journal.written
        self.changed(name)

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), times=st.integers(60, 80), pause=st.integers(0, 5), row=columns)
    def append_many(self, number: int, times: int, pause: int, row: list) -> None:
        """Enough single records that the engine joins them."""
        name, model = self.pick(number), self.models[self.pick(number)]
        for _ in range(times):
            batch = self.batch(row[:1])
            with suppress(LogFull, BatchTooLarge):
                appended = model.append(self.clock.now(), batch)
                assert self.engine.log(name).append(batch).wait() == appended
            self.changed(name)
            self.clock.advance(pause)
        self.check_state(name)

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), which=selections)
    def delete(self, number: int, which: dict) -> None:
        self.both(
            self.pick(number),
            lambda log: log.delete(**which).wait(),
            lambda model, now: model.delete(now, **which),
            "delete",
            **which,
        )

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), which=selections)
    def delete_silently(self, number: int, which: dict) -> None:
        self.both(
            self.pick(number),
            lambda log: log.delete(**which, erasure=False).wait(),
            lambda model, now: model.delete(now, **which),
        )

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), which=selections)
    def hide(self, number: int, which: dict) -> None:
        self.both(
            self.pick(number),
            lambda log: log.hide(**which).wait(),
            lambda model, now: model.hide(now, **which),
            "hide",
            **which,
        )

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), which=selections)
    def restore(self, number: int, which: dict) -> None:
        self.both(
            self.pick(number),
            lambda log: log.restore(**which).wait(),
            lambda model, now: model.restore(now, **which),
            "restore",
            **which,
        )

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), seq=seqs, size=sizes)
    def amend(self, number: int, seq: int, size: int) -> None:
        data = b"A" * size
        self.both(
            self.pick(number),
            lambda log: log.amend(seq, data).wait(),
            lambda model, now: model.amend(now, seq, data),
            "amend",
            seqs=[seq],
        )

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), config=configs)
    def configure(self, number: int, config: Config) -> None:
        self.both(
            self.pick(number),
            lambda log: log.configure(config).wait().config,
            lambda model, now: model.configure(now, config) or config,
        )

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 2), back=st.sampled_from([0, 0, 1, 3, 8, 1000]), is_stale=st.booleans())
    def reach_lake(self, number: int, back: int, is_stale: bool) -> None:
        """The lake has everything up to a seq; or it had, before records were restored or amended."""
        name = self.pick(number)
        through = max(self.models[name].head - back, 0)
        self.both(
            name,
            lambda log: log.reach_lake(through, log.book.rewrites - is_stale).wait(),
            lambda model, now: not is_stale and model.reach_lake(now, through),
        )

    @precondition(lambda self: self.models)
    @rule(
        number=st.integers(0, 2),
        count=st.sampled_from([1, 3, 300, 70_000]),
        reason=st.sampled_from(["source_trim", "lost"]),
    )
    def skip(self, number: int, count: int, reason: str) -> None:
        self.both(
            self.pick(number),
            lambda log: log.skip(count, reason).wait(),
            lambda model, now: model.skip(now, count, reason),
        )

    @precondition(lambda self: self.models)
    @rule(
        number=st.integers(0, 2),
        after=seqs,
        limit=st.sampled_from([1, 2, 5, 256]),
        max_bytes=st.sampled_from([None, None, 1, 20, 100]),
        ago=st.sampled_from([None, None, None, 0, 50, 200, 1000]),
        other_epoch=st.sampled_from([None, None, 0, 1]),
        without_nodes=st.sampled_from([None, None, [], ["n"], ["n", "m"]]),
        key=st.sampled_from([None, None, None, "a", "b"]),
        key_prefix=st.sampled_from([None, None, None, "", "a", "ä"]),
    )
    def read(
        self,
        number: int,
        after: int,
        ago: int | None,
        other_epoch: int | None,
        **query: object,
    ) -> None:
        name = self.pick(number)
        since = None if ago is None else self.clock.now() - ago
        epoch = None if other_epoch is None else self.models[name].epoch - other_epoch
        self.check_reads(name, after, since=since, epoch=epoch, **query)

    @precondition(lambda self: self.models)
    @rule(
        number=st.integers(0, 2),
        after=seqs,
        limit=st.sampled_from([1, 2, 256]),
        key_prefix=st.sampled_from([None, None, "", "a", "ä"]),
    )
    def read_latest(self, number: int, after: int, limit: int, key_prefix: str | None) -> None:
        name = self.pick(number)
        self.models[name].expire(self.clock.now())
        self.check_latest(name, min(after, self.models[name].head), limit, key_prefix)

    @rule(milliseconds=st.sampled_from([1, 50, 101, 300, 1001]))
    def let_time_pass(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule()
    def seal(self) -> None:
        self.engine.seal()
        self.check_everything()

    @rule()
    def maintain(self) -> None:
        self.engine.maintain()
        self.check_everything()

    @rule()
    def flush(self) -> None:
        self.engine.flush()

    @rule()
    def compact(self) -> None:
        """Nothing goes but what was superseded long ago; the last record of a key stays, in every fork as well."""
        now = self.clock.now()
        for model in self.models.values():
            model.expire(now)
        before = {name: self.last_by_key(name) for name in self.models}
        self.engine.compact()
        for name, model in self.models.items():
            found = _walk(self.engine.log(name), model.through)[0]
            late = {record.key: record.seq for record in model.visible if record.ts <= now - COMPACT_AFTER_MS}
            for record in model.visible:
                if record.seq not in found:
                    assert model.config.compact
                    assert record.seq <= model.removable_through
                    assert record.seq < late[record.key]
                    model._remove(record.seq)
        for name in self.models:
            assert self.last_by_key(name) == before[name]
            self.changed(name)
            self.check_state(name)


class WithoutPowerCuts(Changes):
    """Nothing but what an ephemeral log holds is ever lost, however the process ends."""

    def restarted(self) -> None:
        self.open()
        for name in self.models:
            self.restart(name)
        self.check_everything()

    @rule()
    def close_and_reopen(self) -> None:
        self.engine.close()
        self.restarted()

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.process_kill()
        self.restarted()

    @rule(calls=st.integers(1, 40))
    def kill_while_sealing(self, calls: int) -> None:
        self.disk.crash_after(self.disk.calls + calls)
        with suppress(Crashed):
            self.engine.seal()
        self.kill()


class WithPowerCuts(Changes):
    """A power cut takes only what was not flushed, and only from logs that do not wait for the flush."""

    def __init__(self) -> None:
        super().__init__()
        #: How every log was when everything was last known to be flushed, and after each change since.
        self.history: dict[str, list[ModelLog]] = {}
        #: How many of the erasure events were flushed then.
        self.told_for_good = 0

    def changed(self, name: str) -> None:
        if self.is_flushed():
            self.told_for_good = len(self.told)
            self.history = {known: [model.copy()] for known, model in self.models.items()}
        else:
            self.history[name].append(self.models[name].copy())

    def is_flushed(self) -> bool:
        return self.engine.journal.flushed == self.engine.journal.written

    @rule(seed=st.none() | st.integers(0, 1000))
    def cut_the_power(self, seed: int | None) -> None:
        flushed = self.is_flushed()
        self.disk = self.disk.power_cut(seed)
        self.open()
        if not flushed:
            unflushed = self.told[self.told_for_good :]
            self.told[self.told_for_good :] = [(event, False) for event, _ in unflushed]
        self.check_told()
        in_doubt: list[str] = []
        for name, model in sorted(self.models.items(), key=lambda item: item[1].epoch):
            base = self.history[name][0]
            unchanged = flushed or len(self.history[name]) == 1
            all_volatile = model.volatile_from is not None and not base.records_after_restart
            if unchanged or all_volatile or model.config.durability == "fsync":
                if all_volatile and not unchanged:
                    self.check_cursors_and_notes(name)
                self.check_nothing_is_lost(name)
            else:
                self.check_only_unflushed_is_lost(name)
                in_doubt.append(name)
            if any(model.base is self.models[other] for other in in_doubt) and name not in in_doubt:
                in_doubt.append(name)
        # There is no saying what these are like, nor what shares records with them: drop them, forks first.
        for name in reversed(in_doubt):
            self.drop(sorted(self.models).index(name))
            assert name not in self.models
        # Nor what was told of that.
        self.told = [(msgspec.json.decode(event), True) for event in self.events()]
        self.reopened()

    @rule(calls=st.integers(1, 40), seed=st.none() | st.integers(0, 1000))
    def cut_the_power_while_sealing(self, calls: int, seed: int | None) -> None:
        self.disk.crash_after(self.disk.calls + calls)
        with suppress(Crashed):
            self.engine.seal()
        self.cut_the_power(seed)

    @rule()
    def close_and_reopen(self) -> None:
        self.engine.close()
        self.open()
        for name in self.models:
            self.check_nothing_is_lost(name)
        self.reopened()

    def reopened(self) -> None:
        """What is there now has been made durable."""
        self.told_for_good = len(self.told)
        self.history = {name: [model.copy()] for name, model in self.models.items()}
        self.check_everything()

    def check_nothing_is_lost(self, name: str) -> None:
        """Except that seqs may be left out that were promised and perhaps never given."""
        model, head = self.models[name], self.engine.log(name).head
        self.restart(name)
        if head > model.head:
            assert model.config.durability != "fsync"
            model.skip(self.clock.now(), head - model.head, "lost")

    def check_cursors_and_notes(self, name: str) -> None:
        """Those of an ephemeral log are journaled and not waited for: each is as it was at some time."""
        history, log = [*self.history[name], self.models[name]], self.engine.log(name)
        cursors, notes = log.cursors(), log.notes
        for cursor in {cursor for known in history for cursor in known.cursors}:
            assert cursors.get(cursor) in [known.cursors.get(cursor) for known in history]
        for note in {note for known in history for note in known.notes}:
            assert notes.get(note) in [known.notes.get(note) for known in history]
        self.models[name].cursors, self.models[name].notes = cursors, dict(notes)

    def check_only_unflushed_is_lost(self, name: str) -> None:
        """Unsynced changes may be lost one by one, so there is no saying what the log is like."""
        history, log = [*self.history[name], self.models[name]], self.engine.log(name)
        kept = history[0].records_after_restart
        capped = any(known.config.cap_records or known.config.cap_bytes for known in history)
        found, lost = _walk(log, history[0].through)
        for seq, record in found.items():
            assert record in [known.records.get(seq) for known in history]
        for seq in {seq for known in history for seq in known.records} - found.keys():
            removed = any(known.head >= seq and not known.is_visible(seq) for known in history)
            told = any(loss.gap_from <= seq <= loss.gap_to for loss in lost)
            assert removed or (told and (capped or seq not in kept))
        state = log.state()
        assert state.evict_floor <= state.earliest
        assert state.head >= max(known.head for known in history)


class Followed(WithoutPowerCuts):
    """A follower has the same logs as its leader, whatever it missed, and after every restart of either."""

    def __init__(self) -> None:
        super().__init__()
        self.bucket = FaultyStore()
        self.follower: Engine | None = None
        (self.directory / "follower").mkdir()

    def open(self) -> None:
        self.engine = Engine.open(
            self.disk, self.options, clock=self.clock, cold=self.cold, background=False, replica=self.bucket
        )

    def teardown(self) -> None:
        if self.follower is not None:
            self.follower.close()
        super().teardown()

    def ship(self) -> None:
        self.engine.flush()
        assert self.engine.replica is not None
        self.engine.replica.ship_all()

    @rule(everything=st.booleans())
    def seal_while_followed(self, everything: bool) -> None:
        """The follower adopts a round: it has read the journal before it, as far as that was shipped."""
        assert self.engine.replica is not None
        self.follow()
        if everything:
            self.engine.seal()
        else:
            self.engine.maintain()
        self.engine.replica.keep_files()
        self.follow()

    @rule()
    def ship_state(self) -> None:
        assert self.engine.replica is not None
        self.engine.replica.keep_files()
        self.ship()

    @rule()
    def ship_part(self) -> None:
        self.ship()

    @rule()
    def stop_following(self) -> None:
        if self.follower is not None:
            self.follower.close()
            self.follower = None

    @rule()
    def follow(self) -> None:
        self.ship()
        if self.follower is None:
            self.follower = Engine.follow(
                FaultDisk(self.directory / "follower"),
                Options(cache_bytes=self.options.cache_bytes),
                clock=self.clock,
                cold=self.cold,
                background=False,
                replica=self.bucket,
            )
        assert self.follower.follower is not None
        self.follower.follower.look()
        leader, self.engine = self.engine, self.follower
        try:
            assert [name for name in self.engine.names() if name != NAME] == sorted(self.models)
            for name, model in self.models.items():
                if self.has_everything(model):
                    self.check_state(name)
                    self.check_reads(name, limit=7)
                    self.check_latest(name, limit=3)
        finally:
            self.engine = leader

    def has_everything(self, model: ModelLog) -> bool:
        """Whether no record of the log, or of the log that it was forked from, is only in the leader's memory."""
        base = model.base is None or self.has_everything(model.base)
        return base and model.volatile_from is None and not model.losses


def _walk(log: Log, after: int) -> tuple[dict[int, Record], list[Tombstone]]:
    """Everything that a log has behind a seq, and everything that it has lost there."""
    found: dict[int, Record] = {}
    lost: list[Tombstone] = []
    caught_up = False
    while not caught_up:
        page = log.read(after)
        found |= {record.seq: record for record in page}
        lost += [page.tombstone] if page.tombstone is not None else []
        after, caught_up = page.next_after, page.caught_up
    return found, lost


TestWithoutPowerCuts = WithoutPowerCuts.TestCase
TestWithoutPowerCuts.settings = MODEL
TestWithPowerCuts = WithPowerCuts.TestCase
TestWithPowerCuts.settings = MODEL
TestFollowed = Followed.TestCase
TestFollowed.settings = MODEL

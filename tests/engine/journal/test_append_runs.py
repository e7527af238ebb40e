"""Appends that are replayed in bulk have the same outcome as when they are replayed one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from support.engines import NOW, fill, make, opened

from strandline.engine import Batch, Config, Engine, ForwardedCopy, Log, ManualClock, Options, Producer
from strandline.engine.disk import LocalDisk
from strandline.engine.journal import append_runs, frame
from strandline.engine.journal.bodies import pack
from strandline.engine.journal.file import journal_path
from strandline.engine.journal.recovery import replay
from strandline.engine.record import Page
from strandline.engine.segments.store import SegmentStore
from strandline.engine.state.checkpoints import BookState, load_books, read_checkpoint, read_manifest
from strandline.engine.state.logbook import Logbook

NEVER = 1 << 30
CONFIGS = (
    Config(durability="memory"),
    Config(durability="memory", cap_records=7, idempotency_window_ms=50),
    Config(durability="memory", cap_bytes=90),
    Config(durability="memory", cap_records=30, cap_bytes=200),
    Config(durability="disk", idempotency_window_ms=0),
)


def replayed(root: Path) -> dict[str, Any]:
    """Everything that a replay of the directory finds out."""
    disk = LocalDisk(root)
    manifest = read_manifest(disk)
    assert manifest is not None
    store = SegmentStore(disk, None)
    for entry in manifest.segments:
        store.add(entry, entry.tier)
    books = load_books(each for name in manifest.checkpoints for each in read_checkpoint(disk, name))
    found = replay(disk, store, manifest, books, None, [])
    try:
        return {
            "books": {epoch: state_of(book, store) for epoch, book in found.books.items()},
            "changed": sorted(book.epoch for book in found.changed),
            "facts": (found.last_ts, found.next_epoch, found.clean, found.replayed_frames, found.replayed_bytes),
            "losses": [msgspec.structs.astuple(loss) for loss in found.losses],
            "torn": found.torn,
            "copied": found.copied_bytes,
        }
    finally:
        store.close()


def state_of(book: Logbook, store: SegmentStore) -> tuple[object, ...]:
    page = Page(1, book.head, 1)
    for part in book.parts():
        for block, start, end in part.visible(book.earliest, book.head, store):
            block.copy_to(page, start, end)
    hidden = [list(part.overlay.hidden) for part in book.parts() if part.overlay is not None and part.overlay.hidden]
    # As pairs, because the order of idempotency keys is that in which they are forgotten.
    keys = list((book.idempotency or {}).items())
    return msgspec.msgpack.decode(pack(BookState.of(book))), list(page), keys, hidden, book.active_ts, book.head


def in_both_ways(root: Path, monkeypatch: pytest.MonkeyPatch, random: Random) -> dict[str, Any]:
    monkeypatch.setattr(append_runs, "MIN_FRAMES", NEVER)
    monkeypatch.setattr(frame, "PIECE_BYTES", 1 << 30)
    expected = replayed(root)
    for frames, rows in ((1, 3), (2, 1000), (16, 1000)):
        monkeypatch.setattr(append_runs, "MIN_FRAMES", frames)
        monkeypatch.setattr(append_runs, "BLOCK_ROWS", rows)
        monkeypatch.setattr(frame, "PIECE_BYTES", random.choice([100, 1000, 10_000, 1 << 20]))
        assert replayed(root) == expected
    return expected


class Writer:
    """Random appends to a few logs, and a few other changes between them."""

    def __init__(self, engine: Engine, clock: ManualClock, random: Random) -> None:
        self.engine, self.clock, self.random = engine, clock, random
        self.logs = [engine.create(f"log {number}", config).wait() for number, config in enumerate(CONFIGS)]
        self._numbers = {log.name: 0 for log in self.logs}

    def step(self) -> None:
        random = self.random
        log = random.choice(self.logs)
        match random.choice(["burst", "burst", "burst", "append", "change", "configure", "seal", "time", "forward"]):
            case "burst":
                logs = random.sample(self.logs, random.randint(1, len(self.logs)))
                for _ in range(random.choice([5, 20, 60])):
                    self.append(random.choice(logs), random.choice([1, 1, 1, 1, 1, 1, 3]))
            case "append":
                self.append(log, random.randint(1, 5))
            case "change":
                how = random.choice([log.delete, log.hide, log.restore])
                how(before=random.randint(1, log.state().head + 2))
                how(key=random.choice("ab"))
            case "configure":
                log.configure(random.choice(CONFIGS)).wait()
            case "seal":
                self.engine.seal()
            case "time":
                self.clock.advance(random.choice([0, 1, 30, 1000]))
            case "forward":
                state, target = log.state(), random.choice(self.logs)
                if target.name != log.name and state.earliest <= state.head:
                    first = random.randint(state.earliest, state.head)
                    self.engine.forward(log, [ForwardedCopy(target, "c", state.head, [(first, state.head)])]).wait()

    def append(self, log: Log, count: int) -> None:
        random, plain = self.random, self.random.random() < 0.5

        def some(values: list[Any]) -> list[Any] | None:
            if plain or random.random() < 0.5:
                return None
            return [random.choice(values) for _ in range(count)]

        data = [random.choice([b"", b"x", b"some data", b"a record of some length"]) for _ in range(count)]
        batch = Batch(data, some([None, "a", "b", "", "schlüssel"]), some([None, "n"]), some([None, b"", b"meta"]))
        key = producer = notes = ts = None
        if not plain and random.random() < 0.6:
            key = f"key {random.randint(0, 30)}"
        elif not plain and random.random() < 0.3:
            self._numbers[log.name] += 1
            producer = Producer("p", 0, self._numbers[log.name] - 1)
        if not plain and random.random() < 0.2:
            notes = {random.choice("xy"): random.choice([None, 1, "two"])}
        if random.random() < 0.2:
            ts = self.clock.now() + random.randint(-50, 50)
        if random.random() < 0.1:
            self.clock.advance(random.randint(0, 20))
        log.append(batch, idempotency_key=key, producer=producer, notes=notes, ts=ts)


@pytest.mark.parametrize("seed", range(25))
def test_bulk_and_single_replay_agree(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random, clock = Random(f"append run {seed}"), ManualClock(NOW)
    engine = Engine.open(tmp_path, Options(), clock=clock, background=False)
    try:
        writer = Writer(engine, clock, random)
        for _ in range(random.randint(1, 25)):
            writer.step()
        found = in_both_ways(tmp_path, monkeypatch, random)
        assert not found["losses"]
        path = tmp_path / journal_path(engine.journal.index)
        raw = bytearray(path.read_bytes())
        for _ in range(random.randint(1, 3)):
            raw[random.randrange(frame.FILE_HEADER.size, len(raw) + 1) - 1] ^= 1 << random.randrange(8)
        path.write_bytes(raw[: random.choice([len(raw), random.randint(frame.FILE_HEADER.size, len(raw))])])
        in_both_ways(tmp_path, monkeypatch, random)
    finally:
        engine.close()


def test_a_cap_takes_no_more_in_bulk_than_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty record at the end of a run stays, unless the run goes as a whole at one append."""
    with opened(tmp_path) as engine:
        log = make(engine, cap_bytes=20)
        log.append(Batch([b"ten bytes.", b""])).wait()
        engine.seal()
        fill(log, *["five."] * 4)
        assert log.state().earliest == 2
        found = in_both_ways(tmp_path, monkeypatch, Random(1))
        (book,) = found["books"].values()
        assert [record.seq for record in book[1]] == [2, 3, 4, 5, 6]

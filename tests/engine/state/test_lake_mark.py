"""Logs that keep their records until the lake has them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support.engines import NOW, make, opened, texts

from strandline.engine import Batch, Config, Engine, ManualClock, Options
from strandline.engine.errors import BadConfig, QuotaExceeded
from strandline.engine.testing.fault_disk import FaultDisk

SETTINGS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
CONFIGS = st.builds(
    Config,
    durability=st.sampled_from(["disk", "fsync"]),
    ttl_ms=st.sampled_from([0, 0, 100]),
    cap_records=st.sampled_from([0, 2, 5]),
    cap_bytes=st.sampled_from([0, 0, 20]),
    compact=st.booleans(),
    retain_until_in_lake=st.just(True),
)


class LakeBehind(RuleBasedStateMachine):
    """A record that no caller removed is in the log or in the lake, as it is now. The lake is a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="strandline-"))
        self.disk, self.clock = FaultDisk(self.directory), ManualClock()
        self.engine: Engine | None = None
        self.wanted: dict[int, bytes] = {}
        self.hidden: dict[int, bytes] = {}
        self.lake: dict[int, bytes] = {}
        self.number = 0

    @initialize(config=CONFIGS)
    def begin(self, config: Config) -> None:
        self._open()
        self.log = self.engine.create("a", config).wait()

    def _open(self) -> None:
        options = Options(journal_bytes=2000, compact_after_ms=50)
        self.engine = Engine.open(self.disk, options, clock=self.clock, background=False)

    def teardown(self) -> None:
        if self.engine is not None:
            self.engine.close()
        shutil.rmtree(self.directory)

    def _found(self) -> dict[int, bytes]:
        found, after, caught_up = {}, 0, False
        while not caught_up:
            page = self.log.read(after, limit=10_000)
            found |= {record.seq: record.data for record in page}
            after, caught_up = page.next_after, page.caught_up
        return found

    @staticmethod
    def _pick(records: dict[int, bytes], at: int) -> int:
        """The record at a place from the end; 0 if there is none."""
        return sorted(records)[-1 - at % len(records)] if records else 0

    def _check(self) -> None:
        found = self._found()
        for seq, data in self.wanted.items():
            assert data in (found.get(seq), self.lake.get(seq)), f"record {seq} is neither in the log nor in the lake"
            if seq in found:
                assert found[seq] == data

    @rule(keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=5), pause=st.sampled_from([0, 0, 30, 200]))
    def append(self, keys: list[str], pause: int) -> None:
        data = [f"{self.number + at}".encode() for at in range(len(keys))]
        self.number += len(keys)
        appended = self.log.append(Batch(data, keys)).wait()
        self.wanted |= dict(zip(range(appended.first, appended.last + 1), data, strict=True))
        self.clock.advance(pause)
        self._check()

    @rule(keys=st.lists(st.sampled_from("abc"), min_size=3, max_size=9))
    def append_many(self, keys: list[str]) -> None:
        self.append(keys, 0)

    @precondition(lambda self: self.wanted)
    @rule()
    def compact(self) -> None:
        self.engine.compact()
        self._check()

    @precondition(lambda self: self.wanted)
    @rule()
    def seal(self) -> None:
        self.engine.seal()
        self._check()

    @precondition(lambda self: self.wanted)
    @rule(back=st.sampled_from([0, 0, 1, 4]), first=st.booleans())
    def copy_to_the_lake(self, back: int, first: bool) -> None:
        rewrites, through = self.log.book.rewrites, max(self.log.head - back, 0)
        self.lake |= {seq: data for seq, data in self._found().items() if seq <= through}
        self.log.reach_lake(through, rewrites).wait()
        self._check()

    @precondition(lambda self: self.wanted)
    @rule(back=st.sampled_from([0, 1, 4]), at=st.integers(0, 5))
    def rewrite_while_it_is_copied(self, back: int, at: int) -> None:
        """The report is about records that have changed since."""
        rewrites, through = self.log.book.rewrites, max(self.log.head - back, 0)
        self.lake |= {known: data for known, data in self._found().items() if known <= through}
        self.restore(at)
        self.amend(at)
        self.log.reach_lake(through, rewrites).wait()
        self._check()

    @precondition(lambda self: self.wanted)
    @rule(at=st.integers(0, 5))
    def amend(self, at: int) -> None:
        seq = self._pick(self.wanted, at)
        if seq in self._found():
            self.log.amend(seq, b"amended").wait()
            self.wanted[seq] = b"amended"
        self._check()

    @precondition(lambda self: self.wanted)
    @rule(at=st.integers(0, 5))
    def hide(self, at: int) -> None:
        seq = self._pick(self.wanted, at)
        if seq in self._found():
            self.log.hide(seqs=[seq]).wait()
            self.hidden[seq] = self.wanted.pop(seq)
            self.lake.pop(seq, None)
        self._check()

    @precondition(lambda self: self.hidden)
    @rule(at=st.integers(0, 5))
    def restore(self, at: int) -> None:
        seq = self._pick(self.hidden, at)
        self.log.restore(seqs=[seq]).wait()
        if seq in self.hidden and seq in self._found():
            self.wanted[seq] = self.hidden.pop(seq)
        self._check()

    @precondition(lambda self: self.wanted)
    @rule(at=st.integers(0, 5))
    def delete(self, at: int) -> None:
        seq = self._pick(self.wanted, at)
        self.log.delete(seqs=[seq]).wait()
        self.wanted.pop(seq, None)
        self.hidden.pop(seq, None)
        self._check()

    @precondition(lambda self: self.lake)
    @rule()
    def lose_the_lake(self) -> None:
        """What was only in the lake is lost; from now on, nothing more is."""
        self.lake.clear()
        self.log.reach_lake(0, self.log.book.rewrites).wait()
        found = self._found()
        self.wanted = {seq: data for seq, data in self.wanted.items() if seq in found}

    @precondition(lambda self: self.wanted)
    @rule(kind=st.sampled_from(["close", "kill", "cut"]))
    def restart(self, kind: str) -> None:
        before, mark = self._found(), self.log.lake_mark
        if kind == "close":
            self.engine.close()
        else:
            self.engine.flush()
            self.disk = self.disk.process_kill() if kind == "kill" else self.disk.power_cut(None)
        self._open()
        self.log = self.engine.log("a")
        assert self.log.lake_mark == mark
        assert self._found() == before
        self._check()


def test_no_record_that_the_lake_does_not_have_is_ever_removed() -> None:
    run_state_machine_as_test(LakeBehind, settings=SETTINGS)


def test_each_limit_waits_and_applies_at_once_when_the_lake_has_the_records(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, compact_after_ms=0) as engine:
        for name, config in {
            "records": Config(cap_records=2, retain_until_in_lake=True),
            "bytes": Config(cap_bytes=2, retain_until_in_lake=True),
            "age": Config(ttl_ms=1000, retain_until_in_lake=True),
            "compacted": Config(compact=True, retain_until_in_lake=True),
        }.items():
            log = engine.create(name, config).wait()
            for text in "12345":
                log.append(Batch.of(text.encode(), "k")).wait()
        clock.advance(5000)
        assert not engine.compact()
        for name in ("records", "bytes", "age", "compacted"):
            log = engine.log(name)
            assert (texts(log), log.state().evict_floor) == (list("12345"), 1)
            log.reach_lake(3, 0).wait()
            engine.compact()
            # The last record of a key that the lake has stays, so compaction cannot remove the third.
            assert texts(log) == list("345" if name == "compacted" else "45")
            log.reach_lake(5, 0).wait()
            engine.compact()
            assert texts(log) == {"records": list("45"), "bytes": list("45"), "age": [], "compacted": ["5"]}[name]


def test_a_caller_still_deletes_and_the_total_size_still_bounds(tmp_path: Path) -> None:
    with opened(tmp_path, max_total_bytes=10) as engine:
        log = make(engine, cap_records=1, retain_until_in_lake=True)
        for _ in range(10):
            log.append(Batch.of(b"x")).wait()
        with pytest.raises(QuotaExceeded):
            log.append(Batch.of(b"x"))
        assert log.delete(before=9).wait().count == 8
        log.append(Batch.of(b"y")).wait()
        assert texts(log) == ["x", "x", "y"]


def test_the_mark_is_forgotten_while_nobody_maintains_it(tmp_path: Path) -> None:
    keeping = Config(cap_records=1, retain_until_in_lake=True)
    with opened(tmp_path) as engine:
        log = make(engine, cap_records=1, retain_until_in_lake=True)
        log.append(Batch([b"1", b"2"])).wait()
        log.reach_lake(2, 0).wait()
        assert texts(log) == ["2"]
        log.configure(Config(cap_records=1)).wait()
        assert not log.reach_lake(2, 0).wait()
        log.configure(keeping).wait()
        assert log.lake_mark == 0
        log.append(Batch([b"3", b"4"])).wait()
    with opened(tmp_path) as engine:
        log = engine.log(log.name)
        assert (log.lake_mark, texts(log), engine.retaining) == (0, ["2", "3", "4"], {log.book})


def test_an_ephemeral_log_cannot_wait_for_the_lake() -> None:
    with pytest.raises(BadConfig, match="the lake has no records"):
        Config(durability="ephemeral", retain_until_in_lake=True)
    with pytest.raises(BadConfig, match="true or false"):
        Config(retain_until_in_lake=1)

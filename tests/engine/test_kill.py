"""Real processes, really killed: whatever was acknowledged on a journaled log is there afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest
from support import writer_process
from support.crash_oracle import observe_log
from support.writer_process import CLASSES, OPTIONS

from strandline.engine import Batch, Config, Engine, Options
from strandline.engine.errors import WorkerFailed
from strandline.engine.process import child_environment
from strandline.engine.segments.worker import SealingWorker
from strandline.engine.worker_process import start

ROUNDS = 25 if os.environ.get("STRANDLINE_LONG") == "1" else 5
WRITER = Path(writer_process.__file__)
#: Nothing here takes a tenth as long, not even on a busy machine.
PATIENCE_S = 120


class Ledger:
    """What writers were told, over all their lives."""

    def __init__(self) -> None:
        self.appended: dict[str, dict[int, bytes]] = {name: {} for name in CLASSES}
        self.deleted: dict[str, set[int]] = {name: set() for name in CLASSES}

    def note(self, line: bytes) -> None:
        what, name, seq, *payload = line.decode().split()
        if what == "+":
            assert int(seq) not in self.appended[name], f"seq {seq} of {name} was handed out twice"
            self.appended[name][int(seq)] = payload[0].encode()
        else:
            self.deleted[name].add(int(seq))

    def check(self, engine: Engine) -> None:
        for name in CLASSES:
            seen = observe_log(engine.log(name))
            there = {record.seq: record.data.rstrip(b".") for record in seen.records}
            assert seen.lost == ()
            missing = self.appended[name].keys() - there.keys()
            # A delete that was asked for and not acknowledged may have happened; it is always a first of ten.
            unasked = {seq for seq in missing - self.deleted[name] if not self.appended[name][seq].endswith(b"0.0")}
            assert not unasked, f"{name}: acknowledged and missing {sorted(unasked)}"
            assert not self.deleted[name] & there.keys(), f"{name}: deleted records came back"
            for seq, payload in self.appended[name].items():
                assert there.get(seq, payload) == payload
            assert seen.head >= max(self.appended[name], default=0)


def run_writer(root: Path, generation: int, ledger: Ledger, kill_after: int, sealing: bool = False) -> None:
    """Let a writer run until it has told of so many acknowledgements, then kill it; hear it out to the end.

    With ``sealing`` they are counted from when a segment has been made: then the next one is being made.
    """
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(root), str(generation)], stdout=subprocess.PIPE, env=child_environment()
    ) as writer:
        assert writer.stdout is not None
        watchdog = threading.Timer(PATIENCE_S, writer.kill)
        watchdog.start()
        heard = 0
        for line in writer.stdout:
            if line.startswith(b"*"):
                sealing = False
            elif line.endswith(b"\n"):
                ledger.note(line)
                heard += not sealing
            if heard == kill_after:
                writer.send_signal(signal.SIGKILL)
        watchdog.cancel()
    assert heard >= kill_after, "the writer ended by itself"


def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    random = Random(20)
    ledger = Ledger()
    for generation in range(ROUNDS):
        run_writer(tmp_path, generation, ledger, random.randint(1, 1000), sealing=generation % 2 == 0)
        with Engine.open(tmp_path, OPTIONS, background=False) as engine:
            assert engine.recovered.losses == []
            ledger.check(engine)
            assert engine.maintenance.manifest.boundary > 1


def test_a_killed_writer_can_be_followed_by_the_next_at_once(tmp_path: Path) -> None:
    """No start in between that tidies up: the next writer recovers by itself."""
    ledger = Ledger()
    for generation in range(ROUNDS):
        run_writer(tmp_path, generation, ledger, 200 + 100 * generation)
    with Engine.open(tmp_path, OPTIONS, background=False) as engine:
        ledger.check(engine)
        engine.seal()
        ledger.check(engine)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = Engine.open(tmp_path, Options(journal_bytes=1 << 40))
    log = engine.create("log", Config(durability="fsync")).wait()
    log.append(Batch([b"%d " % number * 50 for number in range(2000)])).wait()
    return engine


def kill_worker_when_asked(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Kill the sealing process right after it got a job, so many times; returns the list of those killed."""
    killed: list[int] = []
    ask = SealingWorker._ask

    def ask_and_kill(self: SealingWorker, message: bytes) -> object:
        if self._process is None:
            self._process = start(self._module, self._root)
        if len(killed) < times:
            killed.append(self._process.pid)
            os.kill(self._process.pid, signal.SIGSTOP)
            threading.Timer(0, os.kill, (self._process.pid, signal.SIGKILL)).start()
        return ask(self, message)

    monkeypatch.setattr(SealingWorker, "_ask", ask_and_kill)
    return killed


def test_sealing_is_tried_again_when_its_process_is_killed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = kill_worker_when_asked(monkeypatch, 1)
    before = observe_log(engine.log("log"))
    engine.seal()
    assert len(killed) == 1
    assert engine.stats().segments == 1
    assert observe_log(engine.log("log")) == before
    engine.close()


def test_sealing_that_is_killed_twice_leaves_everything_as_it_was(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = kill_worker_when_asked(monkeypatch, 2)
    before = observe_log(engine.log("log"))
    with pytest.raises(WorkerFailed):
        engine.seal()
    assert len(set(killed)) == 2
    assert isinstance(engine.maintenance.failure, WorkerFailed)
    assert observe_log(engine.log("log")) == before
    engine.log("log").append(Batch.of(b"goes on")).wait()
    engine.seal()
    assert engine.maintenance.failure is None
    assert engine.stats().segments == 1
    assert observe_log(engine.log("log")).records[:-1] == before.records
    engine.close()
    assert not list(tmp_path.rglob("*.tmp"))

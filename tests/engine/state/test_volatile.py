"""Logs that become ephemeral, or cease to be: what a restart takes, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import NOW, make, texts

from strandline.engine import Batch, Config, Engine, ManualClock, Options
from strandline.engine.testing.fault_disk import FaultDisk

EPHEMERAL = Config(durability="ephemeral")
FSYNC = Config(durability="fsync")


class Machine:
    """A data directory whose process can be killed."""

    def __init__(self, path: Path) -> None:
        self.disk = FaultDisk(path)
        self.engine = self._open()

    def _open(self) -> Engine:
        return Engine.open(self.disk, Options(), clock=ManualClock(NOW), background=False)

    def kill(self) -> Engine:
        self.disk = self.disk.process_kill()
        self.engine = self._open()
        return self.engine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_record_from_before_stays_deleted(machine: Machine) -> None:
    log = make(machine.engine, durability="fsync")
    log.append(Batch([b"x", b"y"])).wait()
    log.configure(EPHEMERAL).wait()
    log.delete(seqs=[1]).wait()
    assert texts(machine.kill().log("a")) == ["y"]


def test_a_record_from_before_stays_evicted(machine: Machine) -> None:
    log = make(machine.engine, durability="fsync")
    log.append(Batch.of(b"x")).wait()
    log.configure(Config(durability="ephemeral", cap_records=1)).wait()
    log.append(Batch.of(b"y")).wait()
    page = machine.kill().log("a").read()
    assert list(page) == []
    assert page.tombstone is not None


def test_what_was_deleted_before_the_class_was_left_is_not_told_as_lost(machine: Machine) -> None:
    log = make(machine.engine, durability="ephemeral")
    for data in b"x", b"y", b"z":
        log.append(Batch.of(data)).wait()
    log.delete(before=3).wait()
    log.configure(FSYNC).wait()
    log = machine.kill().log("a")
    assert log.read().tombstone is None
    assert texts(log) == ["z"]


def test_floors_keys_and_hidden_records_outlive_the_class(machine: Machine) -> None:
    log = make(machine.engine, durability="ephemeral", cap_records=1)
    log.append(Batch.of(b"evicted")).wait()
    log.append(Batch.of(b"hidden")).wait()
    log.hide(seqs=[2]).wait()
    first = log.append(Batch.of(b"seen"), idempotency_key="k").wait()
    log.configure(Config(durability="fsync", cap_records=1)).wait()
    before = log.state()
    log = machine.kill().log("a")
    assert log.state() == before
    assert log.append(Batch.of(b"again"), idempotency_key="k").wait() == first.again()


def test_no_seq_is_handed_out_again_when_nothing_was_left(machine: Machine) -> None:
    log = make(machine.engine, durability="ephemeral")
    log.append(Batch([b"x", b"y"])).wait()
    log.delete(before=3).wait()
    log.configure(FSYNC).wait()
    assert machine.kill().log("a").append(Batch.of(b"z")).wait().first == 3

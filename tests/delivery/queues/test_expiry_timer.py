"""Jobs that fail for the last time while nobody uses their queue."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import cast

import pytest
from support.hand_loop import HandLoop
from support.manual_queue import NOW

from strandline.delivery.hub import Hub
from strandline.delivery.queues import Queue, Queues, QueueSettings
from strandline.delivery.queues.expiry_timer import ExpiryTimer
from strandline.engine import Batch, Engine, ManualClock
from strandline.engine.testing.fault_disk import FaultDisk

SETTINGS = QueueSettings(max_deliveries=1, dead_letter="dead", leases_durable=True)


class Room:
    def __init__(self, place: Path) -> None:
        place.mkdir()
        self.disk = FaultDisk(place)
        self.clock = ManualClock(NOW)
        self.open(self.disk)

    def open(self, disk: FaultDisk) -> None:
        self.engine = Engine.open(disk, clock=self.clock, background=False)
        self.loop = HandLoop(self.clock)
        hub = Hub(self.clock.now, cast(asyncio.AbstractEventLoop, self.loop))
        self.timer = ExpiryTimer(hub)
        self.dead = self.engine.find("dead") or self.engine.create("dead").wait()
        self.queues = Queues(self.engine, self.clock.now, self.engine.find, self.timer.expect)

    def queue(self, name: str = "jobs") -> Queue:
        return self.queues.open(self.engine.find(name) or self.engine.create(name).wait(), SETTINGS)

    def letters(self) -> list[bytes]:
        self.engine.flush()
        return self.dead.read().data


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path / "data")


def claim(queue: Queue, data: bytes, lease_ms: int) -> None:
    queue.append(Batch([data])).wait()
    assert len(queue.claim("w", 1, lease_ms).wait()) == 1


def test_each_queue_has_its_time(room: Room) -> None:
    claim(room.queue("late"), b"late", 2000)
    claim(room.queue("soon"), b"soon", 1000)
    claim(room.queue("soon"), b"later", 3000)
    room.loop.pass_time(1000)
    assert room.letters() == []
    room.loop.pass_time(1)
    assert room.letters() == [b"soon"]
    room.loop.pass_time(1000)
    assert room.letters() == [b"soon", b"late"]
    room.loop.pass_time(1000)
    assert room.letters() == [b"soon", b"late", b"later"]
    assert room.loop.timers == 0


def test_a_job_that_is_done_in_time_needs_nothing(room: Room) -> None:
    queue = room.queue()
    claim(queue, b"job", 1000)
    queue.ack("w", [1]).wait()
    room.loop.pass_time(5000)
    assert room.letters() == []
    assert room.loop.timers == 0


def test_it_goes_on_after_a_restart_without_a_claim(room: Room) -> None:
    claim(room.queue(), b"job", 1000)
    room.open(room.disk.process_kill())
    room.queue()
    room.loop.pass_time(1001)
    assert room.letters() == [b"job"]


def test_a_full_disk_is_tried_again(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    claim(room.queue(), b"job", 1000)
    room.disk.fail_from(room.disk.calls_of("write") + 1, errno.ENOSPC, kind="write")
    room.loop.pass_time(1001)
    assert "queue 'jobs': cannot move or drop failed jobs; next attempt in 0.1 s" in caplog.text
    room.disk.heal()
    room.loop.pass_time(99)
    assert room.letters() == []
    room.loop.pass_time(1)
    assert room.letters() == [b"job"]


def test_a_queue_that_was_deleted_is_left_alone(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    queue = room.queue()
    claim(queue, b"job", 1000)
    room.queues.drop(queue.log).wait()
    queue.log.drop().wait()
    room.loop.pass_time(5000)
    assert (room.letters(), caplog.text) == ([], "")


def test_nothing_happens_after_the_end(room: Room) -> None:
    claim(room.queue(), b"job", 1000)
    room.loop.turn()
    room.timer.stop()
    room.loop.pass_time(5000)
    assert (room.letters(), room.loop.timers) == ([], 0)

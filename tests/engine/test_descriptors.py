"""An engine in a process that has no file descriptors left: appends and sealing go on with those in its reserve.

Without the reserve sealing waits, and catches up by itself."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.engines import make, opened

from strandline.engine.testing.fault_disk import FaultDisk

STARVED = """
import os, resource, sys, time
from strandline.engine import Batch, Config, Engine, Options

def eventually(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "the condition never came true"
        time.sleep(0.005)

engine = Engine.open(sys.argv[1], Options(journal_bytes=10_000, flush_interval_ms=1))
log = engine.create("a", Config(durability="fsync")).wait()
log.append(Batch.of(b"first")).wait()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for number in range(1, 8):  # with the reserve everything goes on, the start of the worker included
    log.append(Batch.of(b"x" * 20_000)).wait()
    eventually(lambda: engine.stats().rounds >= number)
assert not engine.health.totals()["housekeeping"], engine.health.troubles()
engine.disk.spare.close()
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range(2):  # too few for a whole round, so several steps of it fail
    log.append(Batch.of(b"x" * 20_000)).wait()
    eventually(lambda: engine.health.troubles())
    assert engine.health.troubles()[0].error == "Too many open files", engine.health.troubles()
    failures = engine.health.totals()["housekeeping"]
    eventually(lambda: engine.health.totals()["housekeeping"] > failures)
    os.close(held.pop())
assert not engine.stats().read_only
for fd in held:
    os.close(fd)
eventually(lambda: engine.stats().rounds > 7 and not engine.health.troubles())
assert len(log.read()) == 10
engine.close()
print("done")
"""


def test_without_descriptors_appends_go_on_and_sealing_catches_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARVED, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "done\n", done.stderr
    assert done.stderr.count("housekeeping failed") < 20


@pytest.mark.parametrize("kind", ["sync_directory", "write", "sync"])
def test_a_journal_file_that_cannot_be_prepared_is_closed(tmp_path: Path, kind: str) -> None:
    disk = FaultDisk(tmp_path)
    with opened(disk) as engine:
        make(engine)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            disk.fail_at(disk.calls_of(kind) + 1, errno.EMFILE, kind=kind)  # type: ignore[arg-type]
            with pytest.raises(OSError, match="Too many open files"):
                engine.journal.prepare()
        assert len(os.listdir("/proc/self/fd")) == before
        engine.journal.prepare()

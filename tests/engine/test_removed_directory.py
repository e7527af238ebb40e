"""The data directory is deleted, moved or replaced while the engine runs: nothing more is acknowledged."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from engine.test_background import eventually
from support.engines import fill, make

from strandline.engine import Batch, Config, Engine, ManualClock, Options
from strandline.engine.disk import Disk, LocalDisk
from strandline.engine.errors import JournalFailed
from strandline.engine.testing.fault_disk import FaultDisk


def delete(data: Path) -> None:
    shutil.rmtree(data)


def delete_the_journal(data: Path) -> None:
    for file in (data / "journal").iterdir():
        file.unlink()


def move(data: Path) -> None:
    data.rename(data.with_name("elsewhere"))


def replace(data: Path) -> None:
    """As when a copy of it is put in its place."""
    shutil.copytree(data, data.with_name("copy"))
    data.rename(data.with_name("elsewhere"))
    data.with_name("copy").rename(data)


def replace_by_a_file(data: Path) -> None:
    shutil.rmtree(data)
    data.write_bytes(b"")


WAYS = [delete, delete_the_journal, move, replace, replace_by_a_file]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    return data


@pytest.mark.parametrize("disk", [LocalDisk, FaultDisk])
@pytest.mark.parametrize("lose", WAYS)
def test_no_fsync_append_is_acknowledged_after_it(
    data: Path, lose: Callable[[Path], None], disk: Callable[[Path], Disk], caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine.open(disk(data), clock=ManualClock(), background=False)
    log = make(engine, durability="fsync")
    fill(log, "1")
    lose(data)
    with pytest.raises(JournalFailed, match="data directory was removed or replaced"):
        log.append(Batch.of(b"2")).wait()
    with pytest.raises(JournalFailed):
        log.append(Batch.of(b"3"))
    assert engine.stats().read_only
    assert [record.data for record in log.read()] == [b"1"]
    assert caplog.text.count("The server is read-only now") == 1
    assert str(data) not in str(engine.journal.failure), "clients get this text"
    engine.close()


def test_it_shows_although_nothing_is_written(data: Path) -> None:
    engine = Engine.open(data)
    delete(data)
    engine._wake_keeper.set()
    eventually(lambda: engine.stats().read_only)
    engine.close()


@pytest.mark.parametrize("durability", ["memory", "disk"])
def test_a_log_that_does_not_wait_for_the_disk_is_refused_after_the_next_flush(data: Path, durability: str) -> None:
    engine = Engine.open(data, Options(flush_interval_ms=1))
    log = engine.create("a", Config(durability=durability)).wait()  # type: ignore[arg-type]
    delete(data)

    def refused() -> bool:
        try:
            log.append(Batch.of(b"x"))
        except JournalFailed:
            return True
        return False

    eventually(refused)
    engine.close()


def test_sealing_removes_journal_files_without_being_taken_for_that(data: Path) -> None:
    """While one thread looks after the files and another one flushes."""
    with Engine.open(data, Options(flush_interval_ms=1)) as engine:
        log = engine.create("a", Config(durability="fsync")).wait()
        ended = threading.Event()

        def check() -> None:
            while not ended.is_set():
                engine.flushing.check_in_place()

        checking = threading.Thread(target=check)
        checking.start()
        for _ in range(10):
            log.append(Batch.of(b"x")).wait()
            engine.seal()
        ended.set()
        checking.join()
        assert not engine.stats().read_only
        assert len(log.read()) == 10

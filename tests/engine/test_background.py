"""Background threads outlive errors, say that they fail, and never leave a commit waiting."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.engine import Batch, Config, Engine, Options, worker_process
from strandline.engine.background import MAX_DELAY_SECONDS, BackgroundThread, Health, Task, delay_after
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineClosed, EngineError, JournalFailed
from strandline.engine.journal.flush import MAX_FAILURES


def eventually(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "the condition never came true"
        time.sleep(0.002)


def failing(error: BaseException, times: float, then: Callable[..., Any]) -> Callable[..., Any]:
    """Raises at the first calls, and is ``then`` from there on."""
    calls = iter(range(10**9))

    def act(*arguments: Any, **named: Any) -> Any:
        if next(calls) < times:
            raise error
        return then(*arguments, **named)

    return act


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine.open(tmp_path, Options(flush_interval_ms=1))
    yield engine
    engine.close()


# --- the loop --------------------------------------------------------------------------------------------------------


def test_a_thread_repeats_its_task_after_pauses_that_double_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000
    health = Health(lambda: now)
    pauses: list[float] = []
    troubles: list[tuple[int, int, str]] = []
    done = threading.Event()

    def act() -> None:
        if len(pauses) < 12:
            raise RuntimeError(f"failure {len(pauses) + 1}")
        done.set()

    def pause(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        (trouble,) = health.troubles()
        assert trouble.task == "work"
        troubles.append((trouble.since, trouble.failures, trouble.error))
        now += 1

    thread = BackgroundThread(Task("work", act, health), lambda: None, lambda: None, pause=pause)
    assert health.totals() == {"work": 0}
    with caplog.at_level(logging.INFO):
        thread.start()
        assert done.wait(60)
        thread.end()
        thread.join(60)
    assert not thread.is_alive()
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses == [delay_after(failures) for failures in range(1, 13)]
    assert pauses[-1] == MAX_DELAY_SECONDS
    assert troubles[0] == (1000, 1, "an internal error, RuntimeError")
    assert troubles[-1] == (1000, 12, "an internal error, RuntimeError")
    assert health.troubles() == []
    assert health.totals() == {"work": 12}
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 12
    assert errors[0].getMessage() == "work failed; next attempt in 0.1 s: failure 1"
    assert errors[0].exc_info, "an unexpected error comes with its traceback"
    assert "work recovered" in caplog.text


def test_an_error_of_the_machine_needs_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    Task("work", failing(OSError(24, "Too many open files"), 1, list), Health()).attempt()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert not record.exc_info


def test_the_end_cuts_a_pause_short() -> None:
    health = Health()
    thread = BackgroundThread(
        Task("work", failing(RuntimeError("never works"), 10**9, list), health), *[lambda: None] * 2
    )
    for _ in range(20):
        health.failed("work", RuntimeError("long ago"))  # so the pause is the longest
    thread.start()
    eventually(lambda: health.totals()["work"] == 21)
    thread.end()
    thread.join(30)
    assert not thread.is_alive()


# --- the engine's threads --------------------------------------------------------------------------------------------


def test_the_flusher_goes_on_after_an_unexpected_error(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    log = engine.create("a", Config(durability="fsync")).wait()
    begin = engine.reservations.begin_flush
    monkeypatch.setattr(engine.reservations, "begin_flush", failing(RuntimeError("a defect"), 1, begin))
    done = threading.Event()
    commit = log.append(Batch.of(b"x"))
    commit.add_done_callback(lambda _: done.set())
    assert done.wait(60)
    assert commit.wait().count == 1
    eventually(lambda: engine.health.troubles() == [])
    assert engine.health.totals()["flusher"] == 1
    assert not engine.stats().read_only


def test_a_flusher_that_cannot_go_on_fails_the_commits_instead_of_letting_them_wait(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = engine.create("a", Config(durability="fsync")).wait()
    # Not flush itself: the flusher may be inside of it, and would flush the append as well.
    monkeypatch.setattr(engine.reservations, "begin_flush", failing(RuntimeError("a defect"), 10**9, list))
    done = threading.Event()
    commit = log.append(Batch.of(b"x"))
    commit.add_done_callback(lambda _: done.set())
    assert done.wait(60)
    with pytest.raises(JournalFailed, match="RuntimeError"):
        commit.wait()
    assert engine.stats().read_only
    assert engine.health.totals()["flusher"] >= MAX_FAILURES
    monkeypatch.undo()


def test_commits_fail_if_the_flusher_dies(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    log = engine.create("a", Config(durability="fsync")).wait()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    begin = engine.reservations.begin_flush
    monkeypatch.setattr(engine.reservations, "begin_flush", failing(SystemExit(), 1, begin))
    done = threading.Event()

    def append() -> None:
        # It fails by itself if the flusher has come by and died before it.
        commit = log.append(Batch.of(b"x"))
        commit.add_done_callback(lambda _: done.set())
        assert done.wait(60)
        commit.wait()

    with pytest.raises(JournalFailed, match="RuntimeError"):
        append()
    with pytest.raises(JournalFailed):
        log.append(Batch.of(b"y"))


def test_a_callback_that_fails_keeps_no_other_commit_waiting(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    log = engine.create("a", Config(durability="fsync")).wait()
    done = threading.Event()
    with engine.lock:  # so that one flush covers all of them
        commits = [log.append(Batch.of(b"x")) for _ in range(3)]
        commits[0].add_done_callback(failing(RuntimeError("a defect of the caller"), 1, list))
        commits[0].add_done_callback(lambda _: done.set())
    assert done.wait(60)
    eventually(lambda: all(commit.done for commit in commits))
    assert "a defect of the caller" in caplog.text


def test_a_change_that_cannot_be_made_though_it_is_durable_ends_writing(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = engine.create("a", Config(durability="fsync")).wait()
    with engine.lock:
        commits = [log.append(Batch.of(b"x")) for _ in range(3)]
        monkeypatch.setattr(engine.flushing, "_touch", failing(MemoryError(), 1, engine.touch))
    for commit in commits:
        with pytest.raises(JournalFailed):
            commit.wait()
    with pytest.raises(JournalFailed):
        log.append(Batch.of(b"y"))
    engine.close()
    with Engine.open(tmp_path) as engine:
        assert len(engine.log("a").read()) == 3, "the restart brings memory and journal together"


def test_closing_leaves_no_commit_behind(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    log = engine.create("a", Config(durability="fsync")).wait()
    for thread in engine._threads:
        thread.end()
        thread.join()
    commit = log.append(Batch.of(b"x"))
    monkeypatch.setattr(engine.journal, "sync", failing(RuntimeError("a defect"), 1, list))
    with pytest.raises(RuntimeError):
        engine.close()
    assert commit.done
    with pytest.raises(EngineClosed):
        commit.wait()


@pytest.mark.parametrize("error", [RuntimeError("a defect"), OSError(24, "Too many open files")])
def test_housekeeping_goes_on_after_an_error(engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    went_on = threading.Event()
    monkeypatch.setattr(engine.maintenance, "attempt", failing(error, 2, went_on.set))
    engine._wake_keeper.set()
    assert went_on.wait(60)
    eventually(lambda: engine.health.troubles() == [])
    assert engine.health.totals()["housekeeping"] == 2


def test_housekeeping_that_fails_is_not_tried_again_by_every_flush(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(type(engine.maintenance), "due", property(lambda _: True))
    monkeypatch.setattr(engine.journal, "prepare", failing(OSError(24, "Too many open files"), 10**9, list))
    log = engine.create("a").wait()
    eventually(lambda: engine.health.totals()["housekeeping"] >= 2)
    flushes, failures = engine.stats().flushes, engine.health.totals()["housekeeping"]
    for _ in range(50):
        log.append(Batch.of(b"x")).wait()
        engine.flush()
        engine._after_flush()
    assert engine.stats().flushes >= flushes + 50
    assert engine.health.totals()["housekeeping"] <= failures + 2
    (trouble,) = engine.health.troubles()
    assert (trouble.task, trouble.error) == ("housekeeping", "Too many open files")
    assert caplog.text.count("housekeeping failed") == engine.health.totals()["housekeeping"]


def test_one_log_that_cannot_be_compacted_keeps_no_other_from_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def compact(log: Any) -> None:
        tried.append(log.name)
        if tried.count("b") == 1 and log.name == "b":
            raise RuntimeError("a defect")

    monkeypatch.setattr(engine.compacting, "_compact", compact)
    with engine.lock:
        for name in "abc":
            engine.create(name, Config(compact=True))
    engine._wake_compactor.set()
    eventually(lambda: engine.health.totals()["compaction"] == 1)
    engine._wake_compactor.clear()
    assert set(tried) == {"a", "b", "c"}
    eventually(lambda: tried.count("b") > 1 and engine.health.troubles() == [])


def test_a_sealing_process_that_is_killed_again_and_again_shows_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, left = worker_process._send, [4]  # two processes per attempt

    def send(pipe: Any, message: bytes) -> None:
        usual(pipe, message)
        if left[0]:
            left[0] -= 1
            process = engine.maintenance._runner._process  # type: ignore[attr-defined]
            os.kill(process.pid, signal.SIGKILL)

    monkeypatch.setattr(worker_process, "_send", send)
    with Engine.open(tmp_path, Options(journal_bytes=1000, flush_interval_ms=1)) as engine:
        engine.create("a").wait().append(Batch.of(b"x" * 2000)).wait()
        eventually(lambda: engine.health.troubles())
        assert engine.health.troubles()[0].error == "WorkerFailed"
        eventually(lambda: engine.stats().segments == 1 and engine.health.troubles() == [])
        assert engine.health.totals()["housekeeping"] == 2


# --- whoever listens -------------------------------------------------------------------------------------------------


def test_a_listener_that_fails_does_not_make_the_append_fail(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    log = engine.create("a").wait()
    told: list[str] = []
    log.listen(failing(RuntimeError("a defect of the listener"), 10**9, list))
    log.listen(lambda book: told.append(book.name))
    log.append(Batch.of(b"x")).wait()
    assert told
    assert "a defect of the listener" in caplog.text


def test_the_error_of_a_failed_journal_does_not_grow(engine: Engine) -> None:
    """An exception that is raised again keeps the frames of every raise."""
    log = engine.create("a").wait()
    engine.journal.fail(OSError(5, "Input/output error"))
    seen: list[EngineError] = []
    for _ in range(2):
        with pytest.raises(JournalFailed) as caught:
            log.append(Batch.of(b"x"))
        seen.append(caught.value)
    assert seen[0] is not seen[1]
    assert str(seen[0]) == str(seen[1])
    assert isinstance(Commit.of(1).wait(), int)

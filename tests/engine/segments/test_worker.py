from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import msgspec
import pytest
from engine.segments.test_segment import big_log, keep_all
from support.journal_files import Append, open_segment, read_logs, records_of, write_journal

import strandline
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DamagedFile, MissingFile, UnsupportedFormat, WorkerFailed
from strandline.engine.process import child_environment
from strandline.engine.record import Batch
from strandline.engine.segments.jobs import Keep, MergeJob, SealJob, run
from strandline.engine.segments.worker import SealingWorker
from strandline.engine.worker_process import NICENESS
from strandline.engine.worker_process import _send as send

JOB = SealJob(1, "sealed", ["journal"], keep_all())


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[SealingWorker]:
    worker = SealingWorker(tmp_path)
    yield worker
    worker.close()


def test_a_job_has_the_same_result_as_without_a_worker(disk: LocalDisk, worker: SealingWorker) -> None:
    journal = big_log(5000)
    write_journal(disk, "journal", journal)
    info = worker.run(JOB)
    assert info == run(disk, SealJob(1, "here", ["journal"], keep_all()))
    assert info is not None
    assert read_logs(open_segment(disk, "sealed", info)) == records_of(journal)
    merge = MergeJob(2, "merged", [("sealed", 1, info.size, info.edges)], [Keep(1, "alpha", 4000)])
    merged = worker.run(merge)
    assert merged is not None
    assert merged.runs[0].first == 4000
    assert worker.run(SealJob(3, "nothing", ["journal"], [])) is None


def test_the_process_is_started_by_the_first_job_and_kept(disk: LocalDisk, worker: SealingWorker) -> None:
    assert worker.process_id is None
    write_journal(disk, "journal", big_log(10))
    worker.run(JOB)
    first = worker.process_id
    assert first is not None
    assert os.getpriority(os.PRIO_PROCESS, first) == os.getpriority(os.PRIO_PROCESS, 0) + NICENESS
    worker.run(JOB)
    assert worker.process_id == first


def test_errors_come_through_as_they_are(disk: LocalDisk, worker: SealingWorker) -> None:
    with pytest.raises(MissingFile) as missing:
        worker.run(JOB)
    assert missing.value.path == "journal"
    disk.write_file("journal", b"not a journal, but long enough to have a header, one would think")
    with pytest.raises(DamagedFile, match="magic") as damaged:
        worker.run(JOB)
    assert damaged.value.path == "journal"
    write_journal(disk, "journal", big_log(10))
    raw = bytearray(disk.read("journal"))
    raw[8] = 99
    disk.write_file("journal", bytes(raw))
    with pytest.raises(UnsupportedFormat) as unsupported:
        worker.run(JOB)
    assert unsupported.value.found == 99
    write_journal(disk, "journal", big_log(10))
    assert worker.run(JOB) is not None


def test_a_full_disk_comes_through_with_its_number(disk: LocalDisk, worker: SealingWorker, tmp_path: Path) -> None:
    write_journal(disk, "journal", big_log(10))
    (tmp_path / "sealed.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError) as full:
        worker.run(JOB)
    assert full.value.errno == errno.ENOSPC
    assert worker.run(JOB) is not None


def test_something_unforeseen_is_named(disk: LocalDisk, worker: SealingWorker) -> None:
    write_journal(disk, "journal", big_log(10))
    with pytest.raises(WorkerFailed, match="OverflowError"):
        worker.run(SealJob(1, "sealed", ["journal"], [Keep(1, "alpha", 1 << 63)]))
    assert worker.run(JOB) is not None


def test_a_worker_killed_between_jobs_is_replaced(disk: LocalDisk, worker: SealingWorker) -> None:
    write_journal(disk, "journal", big_log(10))
    info = worker.run(JOB)
    killed = worker.process_id
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    assert worker.run(JOB) == info
    assert worker.process_id != killed


def wait_for_end(descriptor: int) -> None:
    """Wait for the process behind a descriptor, which becomes readable when it has ended."""
    # Unlike select, poll takes descriptors above 1,024, which a process with many tests may have.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(60_000)
    os.close(descriptor)


def kill_and_wait(process: int) -> None:
    descriptor = os.pidfd_open(process)
    os.kill(process, signal.SIGKILL)
    wait_for_end(descriptor)


def write_random_journal(disk: LocalDisk) -> None:
    """Its segment does not fit into a pipe."""
    write_journal(disk, "journal", [Append(1, 1, 5, Batch([os.urandom(1 << 20)]))])


def start_and_stall(disk: LocalDisk, worker: SealingWorker, pool: ThreadPoolExecutor):  # type: ignore[no-untyped-def]
    """A job that hangs in the middle, writing its segment into a pipe; the pipe's other end, and the process."""
    write_random_journal(disk)
    os.mkfifo(disk.root / "sealed.tmp")
    job = pool.submit(worker.run, JOB)
    # Opening a pipe waits for its writer, so after this line the worker is in the middle of the job.
    pipe = open(disk.root / "sealed.tmp", "rb")  # noqa: SIM115
    assert worker.process_id is not None
    return job, pipe, worker.process_id


def test_a_worker_killed_in_the_middle_of_a_job_is_replaced(disk: LocalDisk, worker: SealingWorker) -> None:
    with ThreadPoolExecutor(1) as pool:
        job, pipe, process = start_and_stall(disk, worker, pool)
        (disk.root / "sealed.tmp").unlink()
        os.kill(process, signal.SIGKILL)
        assert job.result(60) == run(disk, SealJob(1, "here", ["journal"], keep_all()))
        assert worker.process_id != process
        pipe.close()


def test_a_job_that_kills_every_worker_is_given_up(disk: LocalDisk, worker: SealingWorker) -> None:
    with ThreadPoolExecutor(1) as pool:
        job, pipe, process = start_and_stall(disk, worker, pool)
        kill_and_wait(process)
        deadline = monotonic() + 60
        while worker.process_id in (None, process):
            assert monotonic() < deadline
            sleep(0.01)
        assert worker.process_id is not None
        os.kill(worker.process_id, signal.SIGKILL)
        with pytest.raises(WorkerFailed, match="twice"):
            job.result(60)
        pipe.close()


def test_closing_gives_up_the_job_under_way(disk: LocalDisk, worker: SealingWorker) -> None:
    with ThreadPoolExecutor(1) as pool:
        job, pipe, process = start_and_stall(disk, worker, pool)
        worker.close()
        with pytest.raises(WorkerFailed, match="closed"):
            job.result(60)
        pipe.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with pytest.raises(WorkerFailed, match="closed"):
        worker.run(JOB)
    worker.close()


PARENT = """
import sys
from strandline.engine.segments.worker import SealingWorker
from strandline.engine.segments.jobs import Keep, SealJob
worker = SealingWorker(sys.argv[1])
worker.run(SealJob(1, "nothing", [], []))
print(worker.process_id, flush=True)
if sys.argv[2] == "busy":
    worker.run(SealJob(1, "sealed", ["journal"], [Keep(1, "alpha", 0)]))
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_a_worker_dies_with_its_parent(disk: LocalDisk, tmp_path: Path, state: str) -> None:
    write_random_journal(disk)
    os.mkfifo(tmp_path / "sealed.tmp")
    command = [sys.executable, "-c", PARENT, str(tmp_path), state]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment()) as parent:
        assert parent.stdout is not None
        orphan = os.pidfd_open(int(parent.stdout.readline()))
        pipe = open(tmp_path / "sealed.tmp", "rb") if state == "busy" else None  # noqa: SIM115
        parent.kill()
        wait_for_end(orphan)
        if pipe is not None:
            pipe.close()


def test_a_worker_whose_parent_was_killed_ends_quietly(disk: LocalDisk, tmp_path: Path) -> None:
    write_journal(disk, "journal", [Append(1, 1, 5, Batch([b"x"]))])
    with subprocess.Popen(
        [sys.executable, "-m", "strandline.engine.segments.worker", str(tmp_path)],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        send(child.stdin, msgspec.msgpack.encode(JOB))
        assert child.stderr.read() == b""
        assert child.wait() == 0


def test_files_of_somebody_are_not_taken_for_the_standard_library(
    disk: LocalDisk, worker: SealingWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the server was started, or where it imports declarations from, files may have any name."""
    for name in ("collections", "queue", "warnings"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('this is not the standard library')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    write_journal(disk, "journal", [Append(1, 1, 5, Batch([b"x"]))])
    assert worker.run(JOB) is not None


def test_what_is_imported_from_the_current_directory_is_found_by_the_process_too(
    disk: LocalDisk, worker: SealingWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a prompt in a clone, where nothing is installed."""
    root = str(Path(strandline.__file__).parents[1])
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", ["", *(entry for entry in sys.path if entry != root)])
    path = child_environment()["PYTHONPATH"].split(os.pathsep)
    assert root in path
    assert path.index(root) > path.index(os.path.dirname(os.__file__))
    write_journal(disk, "journal", [Append(1, 1, 5, Batch([b"x"]))])
    assert worker.run(JOB) is not None


def test_jobs_of_several_threads_take_turns(disk: LocalDisk, worker: SealingWorker) -> None:
    for index in range(4):
        write_journal(disk, f"journal-{index}", [Append(1, 1 + index, 5, Batch([b"x"]))])
    with ThreadPoolExecutor(4) as pool:
        infos = pool.map(lambda i: worker.run(SealJob(i, f"sealed-{i}", [f"journal-{i}"], keep_all())), range(4))
        assert [info and (info.id, info.runs[0].first) for info in infos] == [(i, i + 1) for i in range(4)]

"""The process that seals and merges, so that building columns never holds up the one that answers requests.

``python -m strandline.engine.segments.worker ROOT`` reads jobs from its standard input and answers on its standard
output. A message is a length (u32, little-endian) and msgpack. The process ends when its input does, at once,
even in the middle of a job: an orphan must not write into a directory that somebody may have opened since.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO

import msgspec
import pyarrow as pa

from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DamagedFile, MissingFile, UnsupportedFormat, WorkerFailed
from strandline.engine.process import FOR_A_PROCESS, SpareDescriptors, child_environment, give_back
from strandline.engine.segments.footer import SegmentInfo
from strandline.engine.segments.jobs import MergeJob, SealJob, run

#: Requests come first: the worker takes what processor time they leave.
NICENESS = 5

_LENGTH = struct.Struct("<I")


class _Done(msgspec.Struct, array_like=True, tag="done"):
    info: SegmentInfo | None


class _Failed(msgspec.Struct, array_like=True, tag="failed"):
    """An exception as the name of its type and the arguments that make it again."""

    error: str
    arguments: list[int | str | None]


_job_decoder = msgspec.msgpack.Decoder(SealJob | MergeJob)
_answer_decoder = msgspec.msgpack.Decoder(_Done | _Failed)
_encoder = msgspec.msgpack.Encoder()


class SealingWorker:
    """The parent's side of the sealing process. The first job starts the process; jobs of several threads run one at a
    time."""

    def __init__(self, root: str | os.PathLike[str], spare: SpareDescriptors | None = None) -> None:
        """``spare``: for the start of the process, if no others are left."""
        self._root = os.fspath(root)
        self._spare = spare or SpareDescriptors()
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._closed = False

    @property
    def process_id(self) -> int | None:
        """None while there is no process."""
        process = self._process
        return None if process is None else process.pid

    def run(self, job: SealJob | MergeJob) -> SegmentInfo | None:
        """What ``sealing.run`` does, elsewhere. If the process dies over the job, a new one tries once more.

        Raises what the job raised (DamagedFile, MissingFile, UnsupportedFormat, OSError), and WorkerFailed.
        """
        message = _encoder.encode(job)
        with self._turn:
            answer = self._ask(message) or self._ask(message)
        if answer is None:
            raise WorkerFailed("its process died twice over one job")
        if isinstance(answer, _Done):
            return answer.info
        raise _revive(answer)

    def close(self) -> None:
        """End the process for good. A job that is under way is given up: its ``run`` raises WorkerFailed."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._turn:
            self._bury()

    def _ask(self, message: bytes) -> _Done | _Failed | None:
        """None when the process died."""
        if self._process is None:
            self._process = self._spare.use(lambda: _start(self._root), FOR_A_PROCESS)
        # Only now: whoever closes sets this first and then kills the process it sees.
        if self._closed:
            self._bury()
            raise WorkerFailed("it has been closed")
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            with suppress(BrokenPipeError):
                _send(stdin, message)
                message_back = _receive(stdout)
                if message_back is not None:
                    answer: _Done | _Failed = _answer_decoder.decode(message_back)
                    return answer
        except BaseException:
            # Half of a message may be on its way: the process cannot be given another job.
            self._bury()
            raise
        self._bury()
        return None

    def _bury(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


def _start(root: str) -> subprocess.Popen[bytes]:
    # The package imports this module before runpy executes it once more, which runpy warns of.
    command = [sys.executable, "-W", "ignore::RuntimeWarning:runpy", "-m", "strandline.engine.segments.worker", root]
    return subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment())


def _embalm(error: Exception) -> _Failed:
    match error:
        case UnsupportedFormat():
            return _Failed("UnsupportedFormat", [error.path, error.found, error.supported])
        case MissingFile():
            return _Failed("MissingFile", [error.path])
        case DamagedFile():
            return _Failed("DamagedFile", [error.path, error.why])
        case OSError():
            filename = None if error.filename is None else str(error.filename)
            return _Failed("OSError", [error.errno, error.strerror, filename])
        case _:
            return _Failed("WorkerFailed", [f"{type(error).__name__}: {error}"])


def _revive(failed: _Failed) -> Exception:
    kinds: tuple[Callable[..., Exception], ...] = (
        UnsupportedFormat,
        MissingFile,
        DamagedFile,
        OSError,
        WorkerFailed,
    )
    return {kind.__name__: kind for kind in kinds}[failed.error](*failed.arguments)


def _send(pipe: IO[bytes], message: bytes) -> None:
    rest = memoryview(_LENGTH.pack(len(message)) + message)
    while rest:
        rest = rest[pipe.write(rest) :]


def _receive(pipe: IO[bytes]) -> bytes | None:
    """The next message, or None when the pipe ends, be it within a message."""
    length = _read_exactly(pipe, _LENGTH.size)
    return None if length is None else _read_exactly(pipe, _LENGTH.unpack(length)[0])


def _read_exactly(pipe: IO[bytes], size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = pipe.read(size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def serve(root: str, jobs: IO[bytes], answers: IO[bytes]) -> None:
    """The child's side: never returns, the process ends with the jobs."""
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs, waiting), daemon=True).start()
    disk = LocalDisk(root)
    while True:
        job = _job_decoder.decode(waiting.get())
        answer: _Done | _Failed
        try:
            answer = _Done(run(disk, job))
        except Exception as error:
            answer = _embalm(error)
        _send(answers, _encoder.encode(answer))
        gc.collect()
        # The next job may be far away, and the server needs the memory.
        pa.default_memory_pool().release_unused()
        give_back()


def _listen(jobs: IO[bytes], waiting: queue.SimpleQueue[bytes]) -> None:
    try:
        while (message := _receive(jobs)) is not None:
            waiting.put(message)
    finally:
        # Also after an error: the parent waits for an answer for as long as this process lives. Not sys.exit: the main
        # thread may be in the middle of a job whose result nobody will ever ask for.
        os._exit(0)


def main() -> None:
    # An interrupt at the terminal reaches the whole group; when to stop is for the parent to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    # A job makes millions of objects that die at once and no cycles: looking for some takes a quarter of its time.
    gc.disable()
    # Answers get a descriptor of their own, so that nothing else that prints can get in between.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    serve(sys.argv[1], os.fdopen(0, "rb", buffering=0), answers)


if __name__ == "__main__":
    main()

"""A child process that runs jobs one after the other, so that long work does not block the server process.

``python -m MODULE ROOT`` reads jobs from its standard input and answers on its standard output. A message is a length
(u32, little-endian) and msgpack. The process ends immediately when its input ends, even during a job: an orphaned
process must not write to a directory that another process may have opened since.
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
from typing import IO, Any, Generic, TypeVar

import msgspec

from strandline.arrow import pa
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DamagedFile, MissingFile, UnsupportedFormat, WorkerFailed
from strandline.engine.process import FOR_A_PROCESS, SpareDescriptors, child_environment, give_back

#: Requests have priority: a worker uses the processor time that they leave.
NICENESS = 5

_LENGTH = struct.Struct("<I")

Result = TypeVar("Result")


class _Done(msgspec.Struct, array_like=True, tag="done"):
    result: msgspec.Raw


class _Failed(msgspec.Struct, array_like=True, tag="failed"):
    """An exception as the name of its type and its arguments, from which it can be recreated."""

    error: str
    arguments: list[int | str | None]


_answer_decoder = msgspec.msgpack.Decoder(_Done | _Failed)
_encoder = msgspec.msgpack.Encoder()


class WorkerProcess(Generic[Result]):
    """The parent's side. The first job starts the process. Jobs of several threads run one at a time."""

    def __init__(
        self, module: str, result: Any, root: str | os.PathLike[str], spare: SpareDescriptors | None = None
    ) -> None:
        """``module`` calls :func:`main`, and ``result`` is the type of its results. ``spare``: descriptors for starting
        the process if no others are free."""
        self._module = module
        self._result: msgspec.msgpack.Decoder[Result] = msgspec.msgpack.Decoder(result)
        self._root = os.fspath(root)
        self._spare = spare or SpareDescriptors()
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._closed = False

    @property
    def process_id(self) -> int | None:
        """The id of the process, or None if it is not running."""
        process = self._process
        return None if process is None else process.pid

    def run(self, job: msgspec.Struct) -> Result:
        """Run a job in the process. If the process dies during the job, a new process tries once more.

        Raises the errors of the job (DamagedFile, MissingFile, UnsupportedFormat, OSError), and WorkerFailed.
        """
        message = _encoder.encode(job)
        with self._turn:
            answer = self._ask(message) or self._ask(message)
        if answer is None:
            raise WorkerFailed("it died twice in one job")
        if isinstance(answer, _Done):
            return self._result.decode(answer.result)
        raise _revive(answer)

    def rest(self) -> None:
        """End the process, unless it runs a job. The next job starts another one."""
        if self._turn.acquire(blocking=False):
            try:
                self._bury()
            finally:
                self._turn.release()

    def close(self) -> None:
        """End the process permanently. A job in progress is cancelled: its ``run`` raises WorkerFailed."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._turn:
            self._bury()

    def _ask(self, message: bytes) -> _Done | _Failed | None:
        """Send a message and return the answer, or None if the process died."""
        if self._process is None:
            self._process = self._spare.use(lambda: start(self._module, self._root), FOR_A_PROCESS)
        # Check this last: ``close`` sets the flag first and then kills the process it sees.
        if self._closed:
            self._bury()
            raise WorkerFailed("it was closed")
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
            # Half of a message may have been sent, so the process cannot be given another job.
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


def start(module: str, root: str) -> subprocess.Popen[bytes]:
    # The package imports the module before runpy executes it again, and runpy warns about that.
    command = [sys.executable, "-W", "ignore::RuntimeWarning:runpy", "-m", module, root]
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
    """Return the next message, or None if the pipe ends, even within a message."""
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


#: Runs a job in the data directory of the disk, and returns its result.
Run = Callable[[LocalDisk, Any], object]


def main(jobs: Any, run: Run, niceness: int = NICENESS) -> None:
    """The child's side: run jobs of the types ``jobs`` in the directory that the command line names. Never returns: the
    process ends when its input ends."""
    # An interrupt at the terminal reaches the whole process group, but the parent decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(niceness)
    # A job creates millions of short-lived objects and no cycles. Searching for cycles takes a quarter of its time.
    gc.disable()
    # Answers get their own descriptor, so that other output cannot mix with them.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    _serve(sys.argv[1], msgspec.msgpack.Decoder(jobs), run, os.fdopen(0, "rb", buffering=0), answers)


def _serve(root: str, decoder: msgspec.msgpack.Decoder[Any], run: Run, jobs: IO[bytes], answers: IO[bytes]) -> None:
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs, waiting), daemon=True).start()
    disk = LocalDisk(root)
    first = True
    while True:
        job = decoder.decode(waiting.get())
        answer: _Done | _Failed
        try:
            answer = _Done(msgspec.Raw(_encoder.encode(run(disk, job))))
        except Exception as error:
            answer = _embalm(error)
        try:
            _send(answers, _encoder.encode(answer))
        except BrokenPipeError:
            # The parent was killed. No process needs the result, and the next start of the server removes it.
            os._exit(0)
        gc.collect()
        if first:
            # Everything that jobs import is loaded now. Searching it for cycles after each job takes a while.
            gc.freeze()
            first = False
        # The next job may come much later, and the server needs the memory.
        pa.default_memory_pool().release_unused()
        give_back()


def _listen(jobs: IO[bytes], waiting: queue.SimpleQueue[bytes]) -> None:
    try:
        while (message := _receive(jobs)) is not None:
            waiting.put(message)
    finally:
        # This also runs after an error: the parent waits for an answer while this process lives. Do not use sys.exit:
        # the main thread may be in the middle of a job whose result is no longer needed.
        os._exit(0)

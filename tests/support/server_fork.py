"""Server processes that are forked from one process per test run, which has imported the server already.

Importing takes more than a second of processor time, and the tests start hundreds of servers. A forked server is a
process like any other: it has its own sockets, files, signals and exit code. ``tests/cli`` starts the command itself.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
from multiprocessing import util
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
#: What a server imports until it is ready, also what it imports late.
_PRELOADED = (
    "encodings.idna",
    "jsonschema_rs",
    "pyarrow.compute",
    "pyarrow.parquet",
    "strandline.cli.commands",
    "strandline.cli.main",
    "strandline.cli.serve",
    "strandline.server.run",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
)
_context.set_forkserver_preload([*_PRELOADED])
# Where the processes find each other: not among the files of tests, which may go earlier.
util.get_temp_dir()


class ServerFork:
    """``strandline`` with ``arguments``, with the calls of :class:`subprocess.Popen` that tests use.

    It may have ``open_files`` files open at a time, by default as many as this process, and runs in ``directory``, by
    default where this process runs. What it says is in the file ``log``."""

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str],
        log: Path,
        open_files: int | None = None,
        directory: Path | None = None,
    ) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = soft if open_files is None else open_files, hard
        where = str(directory or os.getcwd())
        self._process = _context.Process(target=_run, args=(arguments, environment, str(log), where, files))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """The exit code. A process that does not end by then is killed."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
            raise subprocess.TimeoutExpired("strandline", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _run(arguments: list[str], environment: dict[str, str], log: str, directory: str, files: tuple[int, int]) -> None:
    os.chdir(directory)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    sys.argv = ["strandline", *arguments]

    from strandline.cli.main import main

    main()

"""A real process, with a stand-in for the pipeline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from strandline.server.pipeline.process import LAST_LINES, LINE_CHARACTERS, NICENESS, Child

#: Generous: the machine may be busy.
SECONDS = 60.0

#: Says what it hears, and ends with its standard input.
ECHO = "import sys\nprint('up', flush=True)\nfor line in sys.stdin: print('heard', line.strip(), flush=True)\n"
#: Does not listen to anybody.
DEAF = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(3600)\n"


def until(condition: Callable[[], object]) -> None:
    deadline = monotonic() + SECONDS
    while not condition():
        assert monotonic() < deadline, "it does not come"
        sleep(0.005)


def gone(pid: int) -> bool:
    """Whether the process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def start() -> Iterator[Callable[[str], Child]]:
    children: list[Child] = []

    def start(program: str) -> Child:
        child = Child([sys.executable, "-c", program])
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        assert child.wait(SECONDS)
        child.close()


def test_it_hears_when_it_is_to_run_and_what_it_says_is_kept(start: Callable[[str], Child]) -> None:
    child = start(ECHO)
    child.run_now()
    until(lambda: child.last_lines == ["up", "heard run"])
    assert child.exit_code() is None


def test_it_stands_back_behind_the_server(start: Callable[[str], Child]) -> None:
    child = start(ECHO)
    assert os.getpriority(os.PRIO_PROCESS, child.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS) or (
        os.getpriority(os.PRIO_PROCESS, child.pid) == NICENESS
    )


def test_it_is_asked_to_stop_and_its_exit_code_is_told(start: Callable[[str], Child]) -> None:
    child = start("import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('up', flush=True)\n"
                  "signal.pause()\n")  # fmt: skip
    until(lambda: child.last_lines)
    child.stop()
    assert child.wait(SECONDS)
    assert child.exit_code() == 7
    child.stop()
    child.run_now()


def test_one_that_does_not_listen_is_killed_with_all_it_has_started(start: Callable[[str], Child]) -> None:
    child = start(
        "import subprocess, sys\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        "print(inner.pid, flush=True)\n" + DEAF
    )
    until(lambda: len(child.last_lines) == 2)
    inner = int(child.last_lines[0])
    child.stop()
    assert not child.wait(0.05)
    child.kill()
    assert child.wait(SECONDS)
    assert child.exit_code() == -signal.SIGKILL
    until(lambda: gone(inner))


def test_of_what_it_says_only_the_end_is_kept(start: Callable[[str], Child]) -> None:
    child = start("for number in range(1000): print(number, 'x' * 10_000)\n")
    assert child.wait(SECONDS)
    child.close()
    assert len(child.last_lines) == LAST_LINES
    assert child.last_lines[-1].startswith("999 ")
    assert all(len(line) <= LINE_CHARACTERS for line in child.last_lines)


def test_a_command_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(OSError):
        Child(["/nonexistent/command"])


SERVER = f"""
import sys, time
from strandline.server.pipeline.process import Child
child = Child([sys.executable, "-c", {ECHO!r}])
print(child.pid, flush=True)
time.sleep(3600)
"""


def test_it_goes_when_the_server_is_killed() -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert not gone(pid)
    finally:
        server.kill()
        server.communicate()
    until(lambda: gone(pid))

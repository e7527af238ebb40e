"""Spare file descriptors: an engine can go on to new files when connections have taken all others.

A process that is out of descriptors cannot open a file, so the journal could neither rotate nor be sealed. The engine
holds some descriptors that it does not need, and gives one up in the moment in which it opens something.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

T = TypeVar("T")

#: To start the worker process takes 8 for a moment. Besides that, two threads open one file each at a time.
SPARE = 12
#: What it takes to start a process: two pipes, and one more that tells whether it was started.
FOR_A_PROCESS = 8


class SpareDescriptors:
    """Empty until ``fill`` is called. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: list[int] = []
        self._wanted = 0

    def fill(self, count: int = SPARE) -> None:
        """Hold this many descriptors, now or as soon as there are some."""
        with self._lock:
            self._wanted = count
            self._top_up()

    def close(self) -> None:
        with self._lock:
            self._wanted = 0
            while self._held:
                os.close(self._held.pop())

    def use(self, act: Callable[[], T], needed: int = 1) -> T:
        """Do something that opens files. If there is no descriptor for it, do it once more with spare ones."""
        if len(self._held) < self._wanted:
            with self._lock:
                self._top_up()
        try:
            return act()
        except OSError as error:
            if error.errno != errno.EMFILE or not self._held:
                raise
        with self._lock:
            for _ in range(min(needed, len(self._held))):
                os.close(self._held.pop())
            try:
                return act()
            finally:
                self._top_up()

    def _top_up(self) -> None:
        try:
            while len(self._held) < self._wanted:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass  # the next use tries again

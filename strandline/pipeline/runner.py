"""Running the pipeline: one round, or rounds for as long as it is wanted, and an end where nothing is lost by it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import BinaryIO

from strandline.pipeline.status import StatusReporter, Stopped

#: A status that is not renewed is that of a process that is gone. In an object store every renewal is a request.
RENEW_SECONDS = 5.0
REMOTE_RENEW_SECONDS = 30.0


class Requests:
    """What is wanted of a pipeline that runs, by signals and by whoever started it. For any thread."""

    def __init__(self) -> None:
        self._changed = threading.Event()
        self._stopping = False

    def stop(self) -> None:
        """End after what is about to be committed."""
        self._stopping = True
        self._changed.set()

    def run(self) -> None:
        """Begin the next round now."""
        self._changed.set()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def wait(self, seconds: float | None) -> bool:
        """Until it is asked for something, or the time is over, if there is one. False: it is to end."""
        self._changed.wait(seconds)
        if not self._stopping:
            self._changed.clear()
        return not self._stopping


def run_once(do_round: Callable[[], None], reporter: StatusReporter) -> bool:
    """One round; False if it was stopped before its end."""
    try:
        with reporter.round():
            do_round()
    except Stopped:
        return False
    return True


def run_on(
    do_round: Callable[[], None],
    reporter: StatusReporter,
    requests: Requests,
    interval: float | None,
    tick: Callable[[], float] = monotonic,
) -> None:
    """Rounds until it is told to stop. One begins as many seconds after the one before as ``interval`` says, and at
    once if that one took longer; without an interval, whenever it is asked for."""
    while not requests.stopping:
        begin = tick()
        run_once(do_round, reporter)
        if not requests.wait(None if interval is None else max(0.0, interval - (tick() - begin))):
            break


def listen(requests: Requests, stream: BinaryIO) -> None:
    """Have whoever holds the other end of the stream ask for rounds, one by every line. When it closes, it is over."""

    def hear() -> None:
        try:
            for _ in stream:
                requests.run()
        finally:
            requests.stop()

    threading.Thread(target=hear, name="pipeline-requests", daemon=True).start()


@contextmanager
def signals(requests: Requests) -> Iterator[None]:
    """SIGTERM and SIGINT ask for an end in order; the second one ends at once. Spark takes SIGINT for itself when it
    starts, so this comes after that."""

    def handle(number: int, frame: FrameType | None) -> None:
        if requests.stopping:
            raise KeyboardInterrupt
        requests.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def renewing(reporter: StatusReporter, seconds: float) -> Iterator[None]:
    """The status says all the while that somebody is there; at the end, that nobody is."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(seconds):
            reporter.flush()

    thread = threading.Thread(target=renew, name="pipeline-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        reporter.change("ended")

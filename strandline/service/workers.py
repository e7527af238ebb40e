"""Worker threads: one pool for everything that takes too long for the event loop.

Work belongs to a class. Each class has a maximum number of concurrent threads and a bound on its waiting work, so that
one class cannot take the threads of another: exports and searches never delay a read, and an application's function
that blocks delays only other such functions. A free thread takes the work of the most urgent class first. Threads start
when they are needed and are shared by all classes.

A function that never returns keeps its thread. The threads are daemons, so they do not keep the process alive.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from time import monotonic, perf_counter
from typing import Any, NamedTuple, TypeVar

from strandline.engine.errors import SOON_MS, EngineClosed
from strandline.service.problems import Throttled
from strandline.spans import WORK, Inside, Span, begin

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Urgent work, such as sampling, takes microseconds and is worthless if it is late.
URGENT_THREADS = 2
#: Reads of sealed records mostly wait for a disk or the cold tier, so there are more of them than cores.
NORMAL_THREADS = 8
#: Searches and exports are bound by the processor. More threads would only compete for the interpreter lock with the
#: event loop.
BULK_THREADS = 4
#: Each query in SQL is a process of its own, which uses the processor and up to half a gigabyte of memory.
QUERY_THREADS = 2
#: Functions of the application wait for databases and other services, and hardly use the processor.
CALLBACK_THREADS = 16
#: The system's resolver can block for many seconds if a name server does not answer. Other lookups continue meanwhile.
LOOKUP_THREADS = 8
#: The number of concurrent requests of the index catalog.
LAKE_THREADS = 8
#: The number of requests that may wait for a thread of a class. Any more would time out at the client.
MAX_WAITING = 1_000
#: How long closing waits for running work. Work that takes longer finds the engine closed.
CLOSE_SECONDS = 10.0


class WorkClass(Executor):
    """Work of one kind. At most ``threads`` functions run at the same time, in the order of their arrival.

    ``refused`` counts the requests that were refused because too many others were waiting.
    """

    def __init__(self, workers: Workers, name: str, threads: int, max_waiting: int = MAX_WAITING) -> None:
        self.name = name
        self.threads = threads
        self.max_waiting = max_waiting
        self.active = 0
        self.refused = 0
        self._workers = workers
        self._waiting: OrderedDict[Future[Any], Callable[[], Any]] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(
        self, work: Callable[..., T], *arguments: Any, until: float | None = None, part: str = WORK, **named: Any
    ) -> T:
        """Call the function on a thread and return its result, as part of a request. In the request's trace, it is the
        part of this name.

        Raises :class:`Throttled` if too many requests are waiting. Raises TimeoutError at the time ``until`` (of
        ``perf_counter``); work that has not started by then is dropped.
        """
        if len(self._waiting) >= self.max_waiting:
            self.refused += 1
            raise Throttled(SOON_MS)
        span = begin(part)
        if span is None:
            future = self.submit(work, *arguments, **named)
        else:
            span.attributes["strandline.work_class"] = self.name
            span.attributes["code.function.name"] = getattr(work, "__qualname__", type(work).__name__)
            future = self.submit(_traced, span, perf_counter(), work, *arguments, **named)
        answer = asyncio.wrap_future(future)
        done: set[asyncio.Future[T]] = set()
        try:
            if until is None:
                return await answer
            done, _ = await asyncio.wait({answer}, timeout=max(until - perf_counter(), 0))
            if not done:
                future.cancel()
                raise TimeoutError
            return answer.result()
        finally:
            if span is not None:
                span.end()
            # An error refers to this frame. Without a cycle, everything that the failed work held is free at once.
            del future, answer, done

    def submit(self, work: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        """Call the function on a thread. There is no bound on the waiting work: the caller must have its own, for
        example one read per open stream."""
        future: Future[T] = Future()
        self._workers.add(self, future, partial(work, *arguments, **named))
        future.add_done_callback(self._forget_cancelled)
        return future

    def _forget_cancelled(self, future: Future[Any]) -> None:
        if future.cancelled():
            with self._workers.lock:
                self._waiting.pop(future, None)

    # --- called by Workers, with the lock held -----------------------------------------------------------------------

    @property
    def is_runnable(self) -> bool:
        return bool(self._waiting) and self.active < self.threads

    def put(self, future: Future[Any], work: Callable[[], Any]) -> None:
        self._waiting[future] = work

    def remove(self, future: Future[Any]) -> None:
        self._waiting.pop(future, None)

    def begin(self) -> _Job:
        self.active += 1
        return _Job(self, *self._waiting.popitem(last=False))

    def drop_waiting(self) -> list[Future[Any]]:
        dropped = list(self._waiting)
        self._waiting.clear()
        return dropped


class _Job(NamedTuple):
    work_class: WorkClass
    future: Future[Any]
    work: Callable[[], Any]


class Workers:
    """The pool. Any thread may use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False
        #: Most urgent first.
        self._classes: list[WorkClass] = []
        #: Short work that must not be late.
        self.urgent = self._add("urgent", URGENT_THREADS)
        #: Reads of sealed records, checks of large bodies, compression.
        self.normal = self._add("normal", NORMAL_THREADS)
        #: Searches, exports and other long work.
        self.bulk = self._add("bulk", BULK_THREADS)
        #: Queries in SQL, whose processes are waited for.
        self.queries = self._add("queries", QUERY_THREADS)
        #: Functions of the application, which may block.
        self.callbacks = self._add("callbacks", CALLBACK_THREADS)
        #: Lookups of host names.
        self.lookups = self._add("lookups", LOOKUP_THREADS)
        #: Requests to the lake's object store, which may never answer.
        self.lake = self._add("lake", LAKE_THREADS)

    def in_order(self, name: str) -> WorkClass:
        """A new class that does its work one after the other, in the order of arrival."""
        with self.lock:
            return self._add(name, 1)

    def _add(self, name: str, threads: int) -> WorkClass:
        added = WorkClass(self, name, threads)
        self._classes.append(added)
        return added

    @property
    def classes(self) -> tuple[WorkClass, ...]:
        return tuple(self._classes)

    def add(self, work_class: WorkClass, future: Future[Any], work: Callable[[], Any]) -> None:
        with self.lock:
            if self._closed:
                raise EngineClosed()
            work_class.put(future, work)
            if work_class.is_runnable:
                try:
                    self._wake()
                except RuntimeError:
                    work_class.remove(future)
                    raise

    def _wake(self) -> None:
        """Make a thread look for work. Raises RuntimeError if there is no thread and none can be started."""
        if self._idle:
            self._changed.notify()
        elif len(self._threads) < sum(each.threads for each in self._classes):
            thread = threading.Thread(target=self._work, name=f"worker-{len(self._threads) + 1}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                if not self._threads:
                    raise
                log.warning("cannot start another worker thread; %d threads do all the work", len(self._threads))
            else:
                self._threads.append(thread)

    def _work(self) -> None:
        job = self._next(None)
        while job is not None:
            _do(job)
            done = job.work_class
            job = None  # its arguments and its result can be large
            job = self._next(done)

    def _next(self, done: WorkClass | None) -> _Job | None:
        """The next job; None if the pool is closed. ``done`` is the class of the job that the thread has finished."""
        with self._changed:
            if done is not None:
                done.active -= 1
                if self._closed:
                    self._changed.notify_all()
            while not self._closed:
                runnable = next((each for each in self._classes if each.is_runnable), None)
                if runnable is not None:
                    job = runnable.begin()
                    if any(each.is_runnable for each in self._classes):
                        self._wake()
                    return job
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return None

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Accept no more work, fail waiting work with :class:`EngineClosed`, and wait for running work. Do not wait for
        functions of the application, lookups and object stores, which do not use the engine."""
        with self._changed:
            self._closed = True
            dropped = [future for each in self._classes for future in each.drop_waiting()]
            self._changed.notify_all()
        for future in dropped:
            if future.set_running_or_notify_cancel():
                future.set_exception(EngineClosed())
        foreign, until = (self.callbacks, self.lookups, self.lake), monotonic() + seconds
        with self._changed:
            while any(each.active for each in self._classes if each not in foreign) and monotonic() < until:
                self._changed.wait(until - monotonic())


def _traced(span: Span, waits_since: float, work: Callable[..., T], /, *arguments: Any, **named: Any) -> T:
    """Do work as a part of a trace."""
    span.attributes["strandline.waited_seconds"] = round(perf_counter() - waits_since, 6)
    with Inside(span):
        return work(*arguments, **named)


def _do(job: _Job) -> None:
    _, future, work = job
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
        # The error refers to this frame. Without a cycle, everything that the failed work held is free at once.
        del job, future, work
    else:
        future.set_result(result)

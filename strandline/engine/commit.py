"""Commits: the promise that every change returns.

A commit is done when the change is as durable as the log's durability requires. Many commits share one flush. A commit
can also depend on other commits (:func:`after_all`, :func:`then`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")

log = logging.getLogger(__name__)


class Flusher(Protocol):
    def flush(self, wanted: Commit[Any] | None = None) -> None:
        """Make everything written so far durable and resolve the commits that waited for it.

        Returns without flushing if ``wanted`` is already done when this caller gets its turn.
        """
        ...

    def flush_soon(self) -> None:
        """Make another thread flush now."""
        ...


class Commit(Generic[T]):
    """Call ``wait``, or add a callback that runs when the commit is done (immediately if it is done already).

    Callbacks run on the thread that flushed and must be quick.
    """

    __slots__ = ("_callbacks", "_error", "_flusher", "_value", "done")

    def __init__(self, flusher: Flusher | None, value: T | None = None) -> None:
        self._flusher = flusher
        self._value = value
        self._error: Exception | None = None
        self.done = flusher is None
        if flusher is not None:
            self._callbacks: list[Callable[[Commit[T]], None]] = []

    @classmethod
    def of(cls, value: T) -> Commit[T]:
        return cls(None, value)

    def wait(self) -> T:
        """Wait until the change is durable and return its result. Raises if the flush failed."""
        flusher = self._flusher
        if not self.done and flusher is not None:
            flusher.flush(self)
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def add_done_callback(self, callback: Callable[[Commit[T]], None]) -> None:
        if self.done:
            callback(self)
            return
        self._callbacks.append(callback)
        flusher = self._flusher
        # The commit may have become done in the meantime, and the thread that resolved it may have missed this
        # callback.
        if self.done or flusher is None:
            self._call_back()
        else:
            flusher.flush_soon()

    def resolve(self, value: T | None, error: Exception | None = None) -> None:
        self._value = value
        self._error = error
        self.done = True
        self._flusher = None
        self._call_back()

    def _call_back(self) -> None:
        # Two threads may run this at once. Each callback is removed from the list by exactly one of them.
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:
                return
            try:
                callback(self)
            except Exception:
                # The flushing thread has further commits to resolve. They must not wait because this callback failed.
                log.exception("a commit callback failed")


S = TypeVar("S")


def after_all(commits: Sequence[Commit[Any]], value: T) -> Commit[T]:
    """Return a commit with ``value`` that is done when all ``commits`` are done. Pass them in the order in which they
    were made."""
    waiting = [commit for commit in commits if not commit.done]
    return _Follower(waiting, lambda: value).commit if waiting else Commit.of(value)


def then(commit: Commit[S], result: Callable[[S], T]) -> Commit[T]:
    """Return a commit whose value is ``result(value of commit)``, computed when ``commit`` is done."""
    if commit.done:
        return Commit.of(result(commit.wait()))
    return _Follower([commit], lambda: result(commit.wait())).commit


class _Follower(Generic[T]):
    """Acts as the flusher of a derived commit and passes the calls on to the original commit."""

    def __init__(self, waiting: list[Commit[Any]], result: Callable[[], T]) -> None:
        self._waiting = waiting
        self._result = result
        self.commit: Commit[T] = Commit(self)

    def flush(self, wanted: Commit[Any] | None = None) -> None:
        try:
            for commit in self._waiting:
                commit.wait()
            value = self._result()
        except Exception as error:  # raised where the commit is awaited
            self.commit.resolve(None, error)
        else:
            self.commit.resolve(value)

    def flush_soon(self) -> None:
        # Commits are done in the order in which they were made, so when the last one is done, all are.
        self._waiting[-1].add_done_callback(lambda _: self.flush())

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

        Nothing is left to do if the ``wanted`` one is done by the time it is this caller's turn.
        """
        ...

    def flush_soon(self) -> None:
        """Have another thread flush, now."""
        ...


class Commit(Generic[T]):
    """``wait`` for it, or have a function called once it is done (at once when it is done already).

    Callbacks run on whichever thread flushed and must be quick.
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
        """The result, once it is durable; raises when the flush failed."""
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
        # It may have become done in the meantime; then whoever made it so may have missed this one.
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
        # Two threads may get here at once; each callback is taken out of the list by exactly one of them.
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:
                return
            try:
                callback(self)
            except Exception:
                # Whoever flushed has further commits to resolve, and they must not wait because of this one.
                log.exception("a callback of a commit failed")


S = TypeVar("S")


def after_all(commits: Sequence[Commit[Any]], value: T) -> Commit[T]:
    """A commit with ``value`` that is done when all commits are done. Pass the commits in the order in which they were
    made."""
    waiting = [commit for commit in commits if not commit.done]
    return _Follower(waiting, lambda: value).commit if waiting else Commit.of(value)


def then(commit: Commit[S], result: Callable[[S], T]) -> Commit[T]:
    """A commit with the result of ``result``, called with the commit's value when it is done."""
    if commit.done:
        return Commit.of(result(commit.wait()))
    return _Follower([commit], lambda: result(commit.wait())).commit


class _Follower(Generic[T]):
    """Stands where a commit expects the engine, and passes on what it is asked for."""

    def __init__(self, waiting: list[Commit[Any]], result: Callable[[], T]) -> None:
        self._waiting = waiting
        self._result = result
        self.commit: Commit[T] = Commit(self)

    def flush(self, wanted: Commit[Any] | None = None) -> None:
        try:
            for commit in self._waiting:
                commit.wait()
            value = self._result()
        except Exception as error:  # whoever waits for the commit gets it
            self.commit.resolve(None, error)
        else:
            self.commit.resolve(value)

    def flush_soon(self) -> None:
        # Commits are done in the order in which they were made: with the last one, all are.
        self._waiting[-1].add_done_callback(lambda _: self.flush())

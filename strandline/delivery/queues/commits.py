"""A commit that is done when others are: what a queue promises rests on the commits of the logs under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from strandline.engine import Commit

S = TypeVar("S")
T = TypeVar("T")


def after(commits: Sequence[Commit[Any]], value: T) -> Commit[T]:
    """``value``, once all of the commits are done; they are given in the order in which they were made."""
    waiting = [commit for commit in commits if not commit.done]
    return _Follower(waiting, lambda: value).commit if waiting else Commit.of(value)


def then(commit: Commit[S], result: Callable[[S], T]) -> Commit[T]:
    """What ``result`` makes of the commit's value, once it is there."""
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

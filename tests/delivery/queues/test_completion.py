"""Jobs that are done with, and what becomes of them when their deletion fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from support.manual_queue import Stand

from strandline.delivery.queues.completion import Completion
from strandline.delivery.queues.state import JobState
from strandline.engine import Commit, Log
from strandline.engine.errors import DamagedFile


class SlowLog:
    """A log whose deletions are done, or fail, when the test says so."""

    def __init__(self) -> None:
        self.deletions: list[tuple[list[int], Commit[Any]]] = []

    def delete(self, *, seqs: Sequence[int], erasure: bool) -> Commit[Any]:
        assert not erasure, "a job that is done with is no secret"
        self.deletions.append((list(seqs), Commit(self)))
        return self.deletions[-1][1]

    def flush(self, wanted: Commit[Any] | None = None) -> None:
        raise AssertionError("nobody is to wait")

    flush_soon = flush

    def finish(self, error: Exception | None = None) -> None:
        self.deletions.pop(0)[1].resolve(None, error)


def slow() -> tuple[SlowLog, Completion]:
    log = SlowLog()
    return log, Completion(cast(Log, log))


def test_a_job_is_leaving_until_its_deletion_is_done() -> None:
    log, leaving = slow()
    leaving.delete([JobState(1), JobState(2)])
    assert leaving.settle() == []
    assert leaving.seqs == {1, 2}
    log.finish()
    assert leaving.settle() == []
    assert leaving.seqs == set()


def test_an_acked_job_comes_back_when_its_deletion_fails() -> None:
    log, leaving = slow()
    job = JobState(1)
    leaving.delete([job])
    leaving.delete([JobState(2)])
    log.finish(DamagedFile("segment", "torn"))
    assert leaving.settle() == [job]
    assert leaving.seqs == {2}


def test_a_dead_letter_does_not_come_back_its_deletion_is_tried_again() -> None:
    log, leaving = slow()
    leaving.remove([1, 2])
    log.finish(DamagedFile("segment", "torn"))
    assert leaving.settle() == []
    assert leaving.seqs == {1, 2}
    assert log.deletions[0][0] == [1, 2]
    log.finish()
    assert leaving.settle() == []
    assert leaving.seqs == set()


def test_what_is_deleted_at_once_never_is_leaving(stand: Stand) -> None:
    stand.fill(2)
    leaving = Completion(stand.log)
    leaving.delete([JobState(1)])
    leaving.remove([2])
    assert leaving.seqs == set()
    assert stand.left() == []

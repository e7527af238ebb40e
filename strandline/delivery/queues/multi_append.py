"""Appending to several logs in one transaction, including the schedules of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from strandline.delivery.queues.jobs import BadSchedule, Schedule, check_schedule
from strandline.delivery.queues.state import Scheduled
from strandline.engine import Append, Appended, Batch, Commit, Engine, Log
from strandline.engine.commit import then

if TYPE_CHECKING:
    from strandline.delivery.queues.queue import Queue


class QueueWrite(NamedTuple):
    """An append to one log. ``schedules`` has one entry per job and requires the ``queue`` of the log."""

    log: Log
    batch: Batch
    queue: Queue | None = None
    schedules: Sequence[Schedule | None] | None = None


class PlannedEvent(NamedTuple):
    """The event that a queue appends together with its jobs."""

    queue: Queue
    jobs: list[Scheduled]
    append: Append


def append_together(
    engine: Engine, writes: Sequence[QueueWrite], idempotency_key: str | None = None
) -> Commit[list[Appended]]:
    """Append to several logs in one transaction. Each log may occur only once.

    The idempotency key applies to each log separately: a log that has seen the key appends nothing. A repeated append
    does not change schedules.
    """
    scheduling = sorted((write for write in writes if write.schedules is not None), key=lambda write: write.log.epoch)
    for write in scheduling:
        _check(write)
    with ExitStack() as locks:
        queues = [write.queue for write in scheduling if write.queue is not None]
        for queue in queues:
            locks.enter_context(queue.lock)
            queue.catch_up()
        with engine.lock:
            plans = [
                plan
                for write in scheduling
                if write.queue is not None and write.schedules is not None
                if (plan := write.queue.plan(write.schedules)) is not None
            ]
            appends = [Append(write.log, write.batch, idempotency_key) for write in writes]
            commit = engine.append_all([*appends, *(plan.append for plan in plans)])
            for plan in plans:
                plan.queue.carry_out(plan)
        for queue in queues:
            queue.catch_up()
    return then(commit, lambda appended: appended[: len(writes)])


def _check(write: QueueWrite) -> None:
    schedules = write.schedules
    if schedules is None or write.queue is None:
        raise BadSchedule(None, f"{write.log.name!r} is not a queue: its records cannot have schedules")
    if len(schedules) != len(write.batch):
        raise BadSchedule(
            None, f"the batch has {len(write.batch)} jobs but {len(schedules)} schedules: send one per job"
        )
    for index, schedule in enumerate(schedules):
        if schedule is not None:
            check_schedule(index, schedule)

"""Queues: the records of a log as jobs that are handed out to workers, under leases.

A queue is the jobs log and a companion log of events; who holds what is the projection of the events. Plain
synchronous Python: whoever gathers cohorts, waits for jobs or pushes them does so with the means of an event loop.
"""

from strandline.delivery.queues.dead_letters import Redriven, redrive
from strandline.delivery.queues.errors import BadClaim, BadLeaseId, BadSchedule, LeaseIdsMismatch, QueueError
from strandline.delivery.queues.jobs import (
    Acked,
    Claimed,
    ClaimRequest,
    Extended,
    Nacked,
    QueueCounters,
    QueueSettings,
    Schedule,
)
from strandline.delivery.queues.multi_append import Write, append_together
from strandline.delivery.queues.queue import Queue
from strandline.delivery.queues.queues import Queues

__all__ = [
    "Acked",
    "BadClaim",
    "BadLeaseId",
    "BadSchedule",
    "ClaimRequest",
    "Claimed",
    "Extended",
    "LeaseIdsMismatch",
    "Nacked",
    "Queue",
    "QueueCounters",
    "QueueError",
    "QueueSettings",
    "Queues",
    "Redriven",
    "Schedule",
    "Write",
    "append_together",
    "redrive",
]

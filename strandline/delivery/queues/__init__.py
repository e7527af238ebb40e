"""Queues: the records of a log as jobs that workers lease.

A queue consists of a jobs log and a lease log of events; the leases are the projection of these events. The package is
synchronous except for the dispatcher, which collects claims and waits for jobs on the event loop.
"""

from strandline.delivery.queues.activity import QueueRates
from strandline.delivery.queues.backoff import Backoff
from strandline.delivery.queues.dead_letters import Redriven, redrive
from strandline.delivery.queues.jobs import (
    Acked,
    AckRequest,
    BadClaim,
    BadLeaseId,
    BadSchedule,
    Claimed,
    ClaimRequest,
    Extended,
    Failure,
    LeaseIdsMismatch,
    Nacked,
    QueueCounters,
    QueueError,
    QueueFigures,
    QueueSettings,
    Schedule,
)
from strandline.delivery.queues.multi_append import QueueWrite, append_together
from strandline.delivery.queues.queue import Queue, Queues

__all__ = [
    "AckRequest",
    "Acked",
    "Backoff",
    "BadClaim",
    "BadLeaseId",
    "BadSchedule",
    "ClaimRequest",
    "Claimed",
    "Extended",
    "Failure",
    "LeaseIdsMismatch",
    "Nacked",
    "Queue",
    "QueueCounters",
    "QueueError",
    "QueueFigures",
    "QueueRates",
    "QueueSettings",
    "QueueWrite",
    "Queues",
    "Redriven",
    "Schedule",
    "append_together",
    "redrive",
]

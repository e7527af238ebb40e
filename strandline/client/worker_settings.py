"""What a worker goes by: its settings, and how long a job that failed is kept back."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from strandline.client.errors import Busy, StrandlineError, Unreachable
from strandline.client.queue_types import Job

#: A job that failed is tried again after a second, then later and later.
FIRST_DELAY_MS = 1000
LONGEST_DELAY_MS = 300_000
#: Leases are renewed so often within their time, so that one lost heartbeat does not cost the job.
HEARTBEATS_PER_LEASE = 3


class WorkerSettings(msgspec.Struct, frozen=True):
    """``lease_ms`` None: as the queue has it. ``heartbeat_seconds`` None: three times per lease. ``poll_seconds`` is
    how often an idle worker looks for jobs that have become due; new ones wake it at once."""

    concurrency: int = 1
    lease_ms: int | None = None
    heartbeat_seconds: float | None = None
    poll_seconds: float = 1.0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError("concurrency must be at least 1")


def usual_delay_ms(job: Job[Any], error: Exception) -> int:
    """Doubles with every delivery, and is cut by up to a half at random."""
    whole = min(LONGEST_DELAY_MS, FIRST_DELAY_MS << min(job.deliveries - 1, 20))
    return round(whole * (1 - random.random() / 2))


def is_passing(error: StrandlineError) -> bool:
    """Whether a worker waits for better times, instead of giving up."""
    return isinstance(error, Unreachable | Busy) or getattr(error, "status", 0) in (408, 502, 504)

"""Claimed jobs in answers and in the event streams of workers."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import astuple

from strandline.delivery.queues import Claimed
from strandline.protocols.topics.wire import Job, JobFailure


def shown_jobs(jobs: list[Claimed], topic: str | UnsetType = UNSET) -> list[Job]:
    """Jobs as workers get them: by priority, then ascending by seq."""
    if len(jobs) > 1:
        jobs = sorted(jobs, key=lambda job: (-job.priority, job.seq))
    return [
        Job(
            topic=topic,
            seq=job.seq,
            lease_id=job.lease_id,
            deadline=job.deadline,
            ts=job.ts,
            tag=UNSET if job.key is None else job.key,
            deliveries=job.deliveries,
            priority=job.priority or UNSET,
            data=Raw(job.data),
            meta=UNSET if job.meta is None else Raw(job.meta),
            failures=[JobFailure(*astuple(failure)) for failure in job.failures] if job.failures else UNSET,
        )
        for job in jobs
    ]

"""Claimed jobs as JSON. ``data`` and ``meta`` are the bytes that came in."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.delivery.queues import Claimed
from strandline.faces.topics.records import quote


def in_order(jobs: list[Claimed]) -> list[Claimed]:
    """As they are shown: ascending by seq, but urgent ones before the others."""
    return sorted(jobs, key=lambda job: (-job.priority, job.seq))


def render_jobs(jobs: Iterable[Claimed]) -> bytes:
    """The jobs as a JSON array without its brackets."""
    return b",".join([render_job(job) for job in jobs])


def render_job(job: Claimed, before: bytes = b"") -> bytes:
    """One job as a JSON object; ``before`` are members that come first, each with a comma behind it."""
    seq, ts, key, _, meta, data, lease_id, deadline, deliveries, priority = job
    return b'{%b"$seq":%d,"lease_id":"%b","deadline":%d,"$ts":%d%b,"deliveries":%d%b,"data":%b%b}' % (
        before,
        seq,
        lease_id.encode(),
        deadline,
        ts,
        b"" if key is None else b',"$tag":' + quote(key),
        deliveries,
        b',"priority":%d' % priority if priority else b"",
        data,
        b"" if meta is None else b',"meta":' + meta,
    )

"""Requests about jobs, and how their answers are read."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from strandline.client import queue_types as types
from strandline.client.calls import ALWAYS, Reading, Request, post
from strandline.client.topic_calls import Match, given

ACKED = Reading(types.Acked)
NACKED = Reading(types.Nacked)
EXTENDED = Reading(types.Extended)
REDRIVEN = Reading(types.Redriven)


@lru_cache(maxsize=256)
def claim_reading(kind: Any) -> Reading[types.Claimed[Any]]:
    return Reading(types.Claimed[kind])


def new_node() -> str:
    """A name for a worker that no other has."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"


def claim(path: str, node: str, most: int, lease_ms: int | None) -> Request:
    """Not to be repeated: what the first one claimed would be kept from everybody until its leases end."""
    return post(f"{path}/claim", given(node=node, max=most, lease_ms=lease_ms))


def ack(path: str, node: str, jobs: Sequence[types.Job[Any]]) -> Request:
    # The leases are told along: a job that is somebody else's by now stays that, also if this is repeated.
    return post(f"{path}/ack", _held(node, jobs), repeatable=ALWAYS)


def nack(path: str, node: str, jobs: Sequence[types.Job[Any]], delay_ms: int) -> Request:
    return post(f"{path}/nack", {**_held(node, jobs), "delay_ms": delay_ms}, repeatable=ALWAYS)


def extend(path: str, node: str, jobs: Sequence[types.Job[Any]], lease_ms: int) -> Request:
    return post(f"{path}/extend", {**_held(node, jobs), "lease_ms": lease_ms}, repeatable=ALWAYS)


def redrive(path: str, to: str | None, limit: int, match: Match | None) -> Request:
    return post(f"{path}/redrive", given(to=to, limit=limit, match=match), repeatable=ALWAYS)


def _held(node: str, jobs: Sequence[types.Job[Any]]) -> dict[str, Any]:
    return {"node": node, "seqs": [job.seq for job in jobs], "lease_ids": [job.lease_id for job in jobs]}


def milliseconds(moment: datetime | int | None) -> int:
    """A moment as the protocol has it."""
    if moment is None:
        return 0
    return round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment

"""Everything that a queue refuses. What the logs under it refuse comes through as the engine's own errors."""

from __future__ import annotations


class QueueError(Exception):
    """Base of everything the queues raise on purpose. Nothing has changed when one is raised."""


class BadLeaseId(QueueError):
    """A lease id that no queue can have given out."""

    def __init__(self, token: object) -> None:
        super().__init__(f"{token!r} is not a lease id: they read lease_ and lowercase hexadecimal digits")
        self.token = token


class LeaseIdsMismatch(QueueError):
    """Lease ids come one per seq, in the same order, or not at all."""

    def __init__(self, seqs: int, lease_ids: int) -> None:
        super().__init__(f"{seqs} seqs and {lease_ids} lease ids: there must be as many of these as of those")
        self.seqs = seqs
        self.lease_ids = lease_ids


class BadSchedule(QueueError):
    """A schedule that makes no sense; ``index`` is the job's place in the batch, None when it is about all of them."""

    def __init__(self, index: int | None, why: str) -> None:
        super().__init__(why if index is None else f"schedule of job {index} of the batch: {why}")
        self.index = index
        self.why = why


class BadClaim(QueueError):
    """A number in a claim, a nack or an extension that is out of its range."""

    def __init__(self, field: str, value: object, why: str) -> None:
        super().__init__(f"{field}={value!r}: {why}")
        self.field = field
        self.value = value
        self.why = why

"""The records of a producer that are not written yet, as batches of encoded records. Nothing here sends anything."""

from __future__ import annotations

from collections import deque
from threading import Lock

import msgspec

from strandline.client.calls import JSON, KEYED_SECONDS, Request
from strandline.client.topic_calls import new_key

#: The memory that a waiting record needs in addition to its text.
RECORD_OVERHEAD = 48


class ProducerLimits(msgspec.Struct, frozen=True):
    """The limits of one batch, which is one request, and of all records that wait."""

    batch_records: int
    batch_bytes: int
    pending_bytes: int

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


class Batch:
    """Records that are written together, with the idempotency key of their request."""

    __slots__ = ("key", "records", "size", "taken")

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.size = 0
        self.key = new_key()
        #: Whether it may have been sent, so that no record is added.
        self.taken = False

    def request(self, path: str, node: str | None) -> Request:
        written_by = b"" if node is None else b'"node":%b,' % msgspec.json.encode(node)
        body = b'{"idempotency_key":"%b",%b"records":[%b]}' % (
            self.key.encode(),
            written_by,
            b",".join(self.records),
        )
        return Request("POST", f"{path}?return_seqs=false", body, (JSON,), KEYED_SECONDS)


class ProducerBuffer:
    """Batches in the order in which their records were added. The first one is kept until it is written. Threads may
    share a buffer."""

    def __init__(self, limits: ProducerLimits) -> None:
        self._limits = limits
        self._lock = Lock()
        self._batches: deque[Batch] = deque()
        #: Whether there is a sender, which takes batches until none is left.
        self._sending = False
        self._size = 0
        self.added = 0
        self.written = 0
        #: Why nothing more is written.
        self.error: Exception | None = None

    def has_room(self) -> bool:
        """Whether there is room for another record. Raises the error that ended the producer."""
        if self.error is not None:
            raise self.error
        return self._size < self._limits.pending_bytes

    def has_written(self, count: int) -> bool:
        """Whether this many records are written. Raises the error that ended the producer before."""
        if self.written >= count:
            return True
        if self.error is not None:
            raise self.error
        return False

    def add(self, record: bytes) -> bool:
        """Add an encoded record. Returns True if there is no sender: then the caller starts one."""
        with self._lock:
            batches, limits = self._batches, self._limits
            batch = batches[-1] if batches else None
            if (
                batch is None
                or batch.taken
                or len(batch.records) >= limits.batch_records
                or batch.size + len(record) > limits.batch_bytes
            ):
                batch = Batch()
                batches.append(batch)
            batch.records.append(record)
            batch.size += len(record)
            self._size += len(record) + RECORD_OVERHEAD
            self.added += 1
            if self._sending or self.error is not None:
                return False
            self._sending = True
            return True

    def first(self) -> Batch | None:
        """The batch to send, from now on without further records. None if there is none: then there is no sender."""
        with self._lock:
            if self._batches:
                self._batches[0].taken = True
                return self._batches[0]
            self._sending = False
            return None

    def succeeded(self) -> None:
        """The first batch is written."""
        with self._lock:
            batch = self._batches.popleft()
            self._size -= batch.size + RECORD_OVERHEAD * len(batch.records)
            self.written += len(batch.records)

    def failed(self, error: Exception) -> None:
        """The first batch could not be written, and nothing after it will be."""
        with self._lock:
            self.error = error

    def unwritten(self) -> list[bytes]:
        with self._lock:
            return [record for batch in self._batches for record in batch.records]

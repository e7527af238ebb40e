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

    __slots__ = ("key", "records", "size")

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.size = 0
        self.key = new_key()

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
        self._batch_records = limits.batch_records
        self._batch_bytes = limits.batch_bytes
        self._pending_bytes = limits.pending_bytes
        self._lock = Lock()
        self._batches: deque[Batch] = deque()
        #: The last batch, if records may be added to it: it has not been sent. And the records of all before it.
        self._open: Batch | None = None
        self._closed = 0
        #: Whether there is a sender, which takes batches until none is left.
        self._sending = False
        self._size = 0
        self.written = 0
        #: Why nothing more is written.
        self.error: Exception | None = None

    @property
    def added(self) -> int:
        """The number of records that were added."""
        with self._lock:
            return self._closed + (0 if self._open is None else len(self._open.records))

    def has_room(self) -> bool:
        """Whether there is room for another record. Raises the error that ended the producer."""
        if self.error is not None:
            raise self.error
        return self._size < self._pending_bytes

    def has_written(self, count: int) -> bool:
        """Whether this many records are written. Raises the error that ended the producer before."""
        if self.written >= count:
            return True
        if self.error is not None:
            raise self.error
        return False

    def add(self, record: bytes) -> bool:
        """Add an encoded record. Returns True if there is no sender: then the caller starts one."""
        size = len(record)
        with self._lock:
            batch = self._open
            if batch is None or len(batch.records) >= self._batch_records or batch.size + size > self._batch_bytes:
                self._close()
                batch = self._open = Batch()
                self._batches.append(batch)
            batch.records.append(record)
            batch.size += size
            self._size += size + RECORD_OVERHEAD
            if self._sending or self.error is not None:
                return False
            self._sending = True
            return True

    def _close(self) -> None:
        """Add no further records to the last batch."""
        if self._open is not None:
            self._closed += len(self._open.records)
            self._open = None

    def first(self) -> Batch | None:
        """The batch to send, from now on without further records. None if there is none: then there is no sender."""
        with self._lock:
            if self._batches:
                if self._batches[0] is self._open:
                    self._close()
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

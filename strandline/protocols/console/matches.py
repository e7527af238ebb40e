"""Finds records of any log by their content: newest first, a bounded part of the log per request.

A request scans records backwards from a position until it has enough, or until it has scanned enough, and says where to
continue. The records themselves are read after the scan, so that a scan holds only sequence numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from time import perf_counter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from strandline.engine import Log
from strandline.engine.reads.single_records import records_at
from strandline.history.live import bounds, sweep
from strandline.history.pieces import Where, projected
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.records import payload_of, render
from strandline.query.content_filter import ContentFilter
from strandline.service.http import Call, Reply
from strandline.service.parameters import moment, number

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
#: When a request stops scanning. It always scans at least one step.
MAX_SCANNED = 500_000
MAX_SECONDS = 1.0
#: The size of the data, and the maximum number of records, that one step scans.
STEP_BYTES = 8 << 20
STEP_RECORDS = 1 << 15
#: A filter may take much longer than expected for some records. So the first step of a request is this much smaller,
#: and so is a step after one that took longer than this.
FIRST_STEP = 64
SLOW_SECONDS = 0.1
#: The maximum bytes of the records in an answer. One record is returned whatever its size.
MAX_BYTES = 2 << 20
#: More bars than this are of no use to a person.
MAX_BUCKETS = 2000

_US_PER_MS = 1000


class Wanted(NamedTuple):
    """Which records of a log: from ``low`` to ``high``, both inclusive, that meet all conditions."""

    low: int
    high: int
    content: ContentFilter | None = None
    key: str | None = None
    prefix: str | None = None


class Found(NamedTuple):
    """``seqs`` are in order, and empty if records were only counted: by the start of their bucket. The part of the log
    before ``next`` was not scanned; ``next`` is 0 if all of it was."""

    seqs: list[int]
    counts: Counter[int]
    matched: int
    scanned: int
    next: int


class ConsoleMatches:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def get(self, call: Call) -> Reply:
        """GET /console/api/log/{name}/matches"""
        log = self._context.log(call)
        before = number(call, "before")
        where = Where(None, moment(call, "since"), moment(call, "until"))
        limit = number(call, "limit", DEFAULT_LIMIT, 0, MAX_LIMIT)
        bucket = number(call, "bucket_ms", None, 1)
        content = content_of(call)
        key, prefix = call.query.get("key") or None, call.query.get("prefix") or None

        def look() -> Reply:
            state = log.state()
            high = state.head if before is None else min(before - 1, state.head)
            low, high = bounds(log, max(state.earliest, 1) - 1, high, where)
            found = scan(log, Wanted(low, high, content, key, prefix), limit or 0, bucket)
            return _reply(log, found, bucket)

        return await self._context.work(look)


def content_of(call: Call) -> ContentFilter | None:
    """The filter of the query string. Raises BadQuery."""
    text = call.query.get("where", "")
    return ContentFilter(text) if text.strip() else None


def scan(log: Log, wanted: Wanted, limit: int, bucket: int | None) -> Found:
    """Scan backwards. With a ``limit``, stop at that many records; without one, only count."""
    until = perf_counter() + MAX_SECONDS
    seqs: list[int] = []
    counts: Counter[int] = Counter()
    matched = scanned = 0
    high, largest = wanted.high, step_of(log)
    step = largest if wanted.content is None else max(largest // FIRST_STEP, 1)
    while high >= wanted.low:
        began = perf_counter()
        low = max(wanted.low, high - step + 1)
        part = _step(log, wanted, low, high)
        if part is None:
            largest = step = max(step // 8, 1)
            continue
        step = min(step * 8, largest) if perf_counter() - began < SLOW_SECONDS else max(step // 8, 1)
        found, times, read = part
        scanned += read
        if limit:
            missing = limit - len(seqs)
            if len(found) > missing:
                # The rest of this step is scanned again by the next request.
                found = found[len(found) - missing :]
                low = int(found[0])
            seqs[:0] = found.tolist()
        elif bucket is not None:
            counts.update(_buckets(times, bucket))
        matched += len(found)
        high = low - 1
        if (limit and len(seqs) >= limit) or scanned >= MAX_SCANNED or len(counts) >= MAX_BUCKETS:
            break
        if perf_counter() >= until:
            break
    return Found(seqs, counts, matched, scanned, high + 1 if high >= wanted.low else 0)


def _buckets(times: Any, bucket: int) -> dict[int, int]:
    starts, sizes = np.unique(times // bucket * bucket, return_counts=True)
    return dict(zip(starts.tolist(), sizes.tolist(), strict=True))


def step_of(log: Log) -> int:
    """How many records to scan in one step."""
    state = log.state()
    average = max(state.size // max(state.count, 1), 1)
    return min(max(STEP_BYTES // average, 1), STEP_RECORDS)


def _step(log: Log, wanted: Wanted, low: int, high: int) -> tuple[Any, Any, int] | None:
    """The seqs and the times of the matching records of a range, and the number of its records. None if the range is
    much larger than expected, and has more than one record."""
    columns = ["seq", "ts"]
    if wanted.content is not None:
        columns.append("data")
    if wanted.key is not None or wanted.prefix is not None:
        columns.append("key")
    seqs, times, read, size = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0, 0
    for batch in sweep(log, low - 1, high, schema=projected(columns)):
        mask = _mask(batch, wanted)
        seqs.append(batch.column("seq").to_numpy()[mask])
        times.append(batch.column("ts").cast("int64").to_numpy()[mask] // _US_PER_MS)
        read += batch.num_rows
        size += batch.nbytes
        if size > 8 * STEP_BYTES and high > low:
            return None
    return np.concatenate(seqs), np.concatenate(times), read


def _mask(batch: Any, wanted: Wanted) -> Any:
    mask = np.ones(batch.num_rows, bool)
    if wanted.key is not None or wanted.prefix is not None:
        keys = batch.column("key").to_pylist()
        mask &= np.array([key is not None and _fits(key, wanted) for key in keys], bool)
    if wanted.content is not None and mask.any():
        mask &= wanted.content.matches(batch.column("data"))
    return mask


def _fits(key: str, wanted: Wanted) -> bool:
    return (wanted.key is None or key == wanted.key) and (wanted.prefix is None or key.startswith(wanted.prefix))


def _reply(log: Log, found: Found, bucket: int | None) -> Reply:
    counts, matched, next = found.counts, found.matched, found.next
    rendered: list[bytes] = []
    if found.seqs:
        # Only what is in this answer counts: the next request finds the rest.
        payload, size, matched = payload_of(log), 0, 0
        for record in _newest_first(log, found.seqs):
            shown = render(record, payload)
            if rendered and size + len(shown) > MAX_BYTES:
                next = record.seq + 1
                break
            rendered.append(shown)
            size += len(shown)
            matched += 1
            if bucket is not None:
                counts[record.ts // bucket * bucket] += 1
    return Reply(
        b'{"records":[%b],"counts":%b,"matched":%d,"scanned":%d,"next":%b}'
        % (
            b",".join(rendered),
            msgspec.json.encode(sorted(counts.items())),
            matched,
            found.scanned,
            b"%d" % next if next else b"null",
        )
    )


def _newest_first(log: Log, seqs: list[int]) -> Iterator[Any]:
    for end in range(len(seqs), 0, -_READ):
        yield from reversed(list(records_at(log, seqs[max(end - _READ, 0) : end])))


#: Records that are read at a time: they may be large.
_READ = 16

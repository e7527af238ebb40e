"""The tables ``latest`` and ``keys``: the last record of every key, and facts about the key.

They are derived from the table ``records`` after their own progress, because that table still has records that
retention removed from a log. Both are stored in buckets by the hash of the key (``lake/key_files``). Buckets with new
records are rewritten, the others stay as they are.

``latest`` is committed first, and ``keys`` holds the progress of both. After a crash between the commits the same
records are processed again: ``latest`` stays the same, and ``keys`` has not counted them yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from strandline.lake import layout
from strandline.lake.erasures import PROGRESS
from strandline.lake.key_files import (
    BUCKET_ROWS,
    Affected,
    BucketDone,
    KeyItem,
    KeyJob,
    Ranges,
    cover,
    even,
    gather,
    hashes,
    places,
    spread,
)
from strandline.lake.table import KnownFile, TableSnapshot
from strandline.pipeline.round import Round

STAGE = "by_key"
#: Records between two commits, which is the most work that a crash can cost.
CHUNK_ROWS = 20_000_000
#: The approximate number of records that a task aggregates.
ITEM_ROWS = 1_000_000
#: With many keys, a round that need not be complete waits until there is a new record for every 16 keys, or for this
#: long: few records touch almost as many buckets, and each bucket is rewritten as a whole.
FEW = 16
FEW_WAIT_MS = 600_000
MANY_KEYS = 1_000_000
#: The initial number of buckets is at most 2 to this power. Large buckets are split later.
MAX_FIRST_BITS = 6

#: Transaction ids besides those of the logs: the version of ``records`` that the table reflects, ...
RECORDS_VERSION = "records"
#: ... and the time of that.
AT = "at"


class ByKey:
    """Snapshots of the two tables, and methods to change them."""

    def __init__(self, round: Round) -> None:
        self.round = round
        self.latest = layout.latest(round.lake).snapshot(round.fence)
        self.keys = layout.keys(round.lake).snapshot(round.fence)

    @property
    def progress(self) -> dict[str, int]:
        return self.keys.progress()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.keys.files())

    def buckets(self, new_rows: int) -> list[str]:
        known = {_bucket(file) for file in (*self.latest.files(), *self.keys.files())}
        if known:
            return cover(known)
        return even(min(max((new_rows // (4 * BUCKET_ROWS)).bit_length(), 1), MAX_FIRST_BITS))

    def job(self, buckets: list[str]) -> KeyJob:
        latest, keys = _by_bucket(self.latest.files(), buckets), _by_bucket(self.keys.files(), buckets)
        return KeyJob(self.round.lake, buckets, latest, keys)

    def change(self, items: Sequence[KeyItem], job: KeyJob, progress: Mapping[str, int]) -> None:
        """Aggregate the items and commit the result."""
        done = self.round.workers.shuffle(spread, gather, items, KeyItem, job, BucketDone)
        touched = {bucket for bucket in job.buckets if bucket in {each.bucket for each in done}}
        for table, files in (
            (self.latest, [file for each in done for file in each.latest]),
            (self.keys, [file for each in done for file in each.keys]),
        ):
            replaced = [file for file in table.files() if _holder(_bucket(file), touched) is not None]
            table.commit(add=files, remove=replaced, progress=progress, now=self.round.now())

    def renew(
        self, files: Sequence[KnownFile], affected: dict[int, list[str] | None], progress: dict[str, int]
    ) -> None:
        """Recompute these keys, up to the progress of the tables, from files of ``records`` that may not be committed
        yet."""
        # After a crash between the two commits ``latest`` is ahead; its extra records are processed again later.
        reached = self.progress
        known = {**self.latest.progress(), **reached}
        affected = {epoch: keys for epoch, keys in affected.items() if str(epoch) in known and keys != []}
        if not affected:
            self.commit(progress)
            return
        epochs = sorted(affected)
        ranges = Ranges(epochs, [0] * len(epochs), [reached.get(str(epoch), 0) for epoch in epochs])
        buckets = self.buckets(0)
        job = msgspec.structs.replace(self.job(buckets), affected=Affected(affected))
        touched = KeyItem([], Ranges([], [], []), _touched(affected, buckets))
        self.change([touched, *items_of(files, ranges)], job, progress)

    def commit(self, progress: Mapping[str, int]) -> None:
        """Commit only progress. Does nothing if the tables do not exist yet."""
        if self.progress:
            for table in (self.latest, self.keys):
                table.commit(progress=progress)


def run(round: Round) -> None:
    by_key = ByKey(round)
    records = layout.records(round.lake).snapshot(round.fence)
    reached, progress = records.progress(), by_key.progress
    if not reached or progress.get(RECORDS_VERSION) == records.version:
        return
    files = _candidates(records, progress.get(RECORDS_VERSION))
    shared = {info.epoch: info.own_after for info in round.all_logs if info.own_after}
    ranges = _ranges(progress, reached, shared)
    total = sum(ranges.through) - sum(ranges.after)
    if not (files or total) or (not round.complete and _can_wait(by_key, total)):
        return
    with round.reporter.stage(STAGE, total) as stage:
        first = {} if PROGRESS in progress else {PROGRESS: reached[PROGRESS]}
        for chunk, is_last in chunks_of(ranges, CHUNK_ROWS):
            rows = sum(chunk.through) - sum(chunk.after)
            moved = {str(epoch): seq for epoch, seq in zip(chunk.epochs, chunk.through, strict=True)}
            if is_last:
                moved |= {RECORDS_VERSION: records.version, AT: round.now()}
            items = items_of(files, chunk)
            by_key.change(items, by_key.job(by_key.buckets(rows)), {**first, **moved})
            first = {}
            stage.advance(rows)
            round.done[STAGE] = round.done.get(STAGE, 0) + rows


def _can_wait(by_key: ByKey, new: int) -> bool:
    waited = by_key.round.now() - by_key.progress.get(AT, 0)
    # A time in the future comes from a wrong clock; do not wait then.
    return by_key.rows > MANY_KEYS and new < by_key.rows // FEW and 0 <= waited < FEW_WAIT_MS


def _candidates(records: TableSnapshot, version: int | None) -> list[KnownFile]:
    """The files that can have new records: those added since a processed version. Some of them may only have been
    rearranged; the seqs tell."""
    known = set() if version is None else records.table.paths_at(version)
    return [file for file in records.files() if file.path not in known]


def _ranges(progress: Mapping[str, int], reached: Mapping[str, int], shared: Mapping[int, int]) -> Ranges:
    """The records that ``records`` has and these tables lack. Shared records of a fork are in neither."""
    behind = []
    for log, seq in reached.items():
        if log.isdecimal():
            after = progress.get(log, shared.get(int(log), 0))
            if seq > after:
                behind.append((int(log), after, seq))
    behind.sort()
    return Ranges([each[0] for each in behind], [each[1] for each in behind], [each[2] for each in behind])


def chunks_of(ranges: Ranges, rows: int) -> Iterator[tuple[Ranges, bool]]:
    """Parts of about ``rows`` records, and whether each is the last; a large log is split. Yields at least one part,
    which may be empty."""
    chunk = Ranges([], [], [])
    room = rows
    for epoch, after, through in zip(ranges.epochs, ranges.after, ranges.through, strict=True):
        while after < through:
            to = min(through, after + room)
            chunk.epochs.append(epoch)
            chunk.after.append(after)
            chunk.through.append(to)
            room -= to - after
            after = to
            if room <= 0:
                yield chunk, after == through and epoch == ranges.epochs[-1]
                chunk, room = Ranges([], [], []), rows
    if chunk.epochs or not ranges.epochs:
        yield chunk, True


def items_of(files: Sequence[KnownFile], ranges: Ranges, item_rows: int = ITEM_ROWS) -> list[KeyItem]:
    """Items of similar size for the files that can have one of the records."""
    items: list[KeyItem] = []
    group: list[KnownFile] = []
    rows = 0
    for file in sorted(files, key=lambda file: file.bounds.get("epoch") or (0, 0)):
        if _may_have(file, ranges):
            group.append(file)
            rows += file.rows
            if rows >= item_rows:
                items.append(_item(group, ranges))
                group, rows = [], 0
    if group:
        items.append(_item(group, ranges))
    return items


def _item(group: list[KnownFile], ranges: Ranges) -> KeyItem:
    bounds = [file.bounds.get("epoch") for file in group]
    if any(bound is None for bound in bounds):
        return KeyItem([file.path for file in group], ranges)
    first, last = min(bound[0] for bound in bounds if bound), max(bound[1] for bound in bounds if bound)
    return KeyItem([file.path for file in group], ranges.between(first, last))


def _may_have(file: KnownFile, ranges: Ranges) -> bool:
    epochs, seqs = file.bounds.get("epoch"), file.bounds.get("seq")
    if epochs is None or seqs is None:
        return True
    there = ranges.between(*epochs)
    return bool(np.any((np.array(there.after) < seqs[1]) & (np.array(there.through) >= seqs[0])))


def _touched(affected: Mapping[int, list[str] | None], buckets: list[str]) -> list[str]:
    """The buckets that may have one of the keys."""
    if any(keys is None for keys in affected.values()):
        return buckets
    pairs = [(epoch, key) for epoch, keys in affected.items() for key in keys or ()]
    found = places(buckets, hashes([epoch for epoch, _ in pairs], [key for _, key in pairs]))
    return [buckets[place] for place in np.unique(found)]


def _bucket(file: KnownFile) -> str:
    bucket = file.partition["bucket"]
    assert bucket is not None
    return bucket


def _holder(bucket: str, buckets: set[str]) -> str | None:
    """The bucket among ``buckets`` that contains this one."""
    return next((bucket[:end] for end in range(1, len(bucket) + 1) if bucket[:end] in buckets), None)


def _by_bucket(files: Sequence[KnownFile], buckets: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    among = set(buckets)
    for file in files:
        holder = _holder(_bucket(file), among)
        assert holder is not None, "the buckets cover everything"
        found.setdefault(holder, []).append(file.path)
    return found

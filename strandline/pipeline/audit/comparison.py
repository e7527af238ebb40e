"""Compares the lake with the logs, in the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from strandline.engine.errors import UnknownLog
from strandline.engine.operations.erasures import NAME, Erasure
from strandline.history.log_info import LogInfo
from strandline.history.source import AnyPiece, History
from strandline.lake.erasures import PROGRESS, ErasureEvents, EventsMissed
from strandline.lake.reporter import StageProgress
from strandline.pipeline.audit.lake_files import (
    CloseItem,
    CloselySeen,
    Expected,
    HeldRecords,
    LakeItem,
    LakeSeen,
    LakeSnapshot,
    difference,
    lake_items,
    look_closely,
    read_lake,
)
from strandline.pipeline.audit.records import RANGE_SEQS, Bad, SeenRecords, Sums, added
from strandline.pipeline.audit.report import Finding, ranges_text
from strandline.pipeline.tasks import Workers

#: The maximum number of differing ranges of a log that are compared record by record. More are only counted.
CLOSE_RANGES = 16
#: Attempts before the comparison fails because files are removed from the lake meanwhile.
ATTEMPTS = 3


class Comparison:
    def __init__(self, history: History, snapshot: LakeSnapshot, logs: Sequence[LogInfo], is_complete: bool) -> None:
        self._history = history
        #: The snapshot that was compared last.
        self.snapshot = snapshot
        self._logs = logs
        self._is_complete = is_complete
        self._events = _EventsOf(history)
        self._covered = {info.epoch: snapshot.covered(info.epoch) for info in logs}
        #: The seq up to which each log is compared, by epoch.
        self.through = {info.epoch: min(self._covered[info.epoch], info.head) for info in logs}
        self.rows = sum(file.rows for file in snapshot.files)
        self.looked = ""

    def findings(
        self,
        seen: Mapping[int, Sequence[SeenRecords]],
        pieces: Mapping[int, Sequence[AnyPiece]],
        unreadable: Collection[int],
        workers: Workers,
        stage: StageProgress,
    ) -> list[Finding]:
        """The differences between lake and logs. Logs that are partly ``unreadable`` are not compared."""
        logs = [info for info in self._logs if info.epoch not in unreadable]
        in_logs = {info.epoch: _sums(seen.get(info.epoch, ())) for info in logs}
        for attempt in range(1, ATTEMPTS + 1):
            found = self._compare(logs, in_logs, pieces, workers, stage)
            if found is not None:
                return found
            fresh = LakeSnapshot.take(self.snapshot.lake)
            if fresh is None or attempt == ATTEMPTS:
                break
            self.snapshot = fresh
        self.looked = "the lake kept changing during the comparison"
        detail = f"{self.looked}: run the audit again when the pipeline is idle"
        return [Finding(check="lake", ok=False, count=1, detail=detail)]

    def _compare(
        self,
        logs: Sequence[LogInfo],
        in_logs: Mapping[int, Sums],
        pieces: Mapping[int, Sequence[AnyPiece]],
        workers: Workers,
        stage: StageProgress,
    ) -> list[Finding] | None:
        """None if files were removed meanwhile."""
        pending = self._events.pending(self.snapshot.progress.get(PROGRESS, 0))
        expected = {info.epoch: self._expected(info) for info in logs}
        held: dict[int, HeldRecords] = defaultdict(HeldRecords)
        orphans: dict[str, int] = defaultdict(int)
        rows = 0
        for done in workers.results(
            read_lake, lake_items(self.snapshot, expected, self._knows_all(logs)), LakeItem, LakeSeen
        ):
            if done.gone:
                return None
            stage.advance(done.rows)
            rows += done.rows
            for epoch, each in done.held.items():
                held[epoch].sums = added(held[epoch].sums, each.sums)
                held[epoch].erased.add(each.erased)
            for log, count in done.orphans.items():
                orphans[log] += count
        self.looked = f"{rows} rows of {len(logs)} logs in {len(self.snapshot.files)} files of the lake"
        findings = [finding for info in logs for finding in self._beyond(info)]
        for info in logs:
            if info.epoch in pending:
                findings += _waiting(info, in_logs[info.epoch] != held[info.epoch].sums)
                continue
            findings += _erased(info.name, held[info.epoch].erased)
            ranges = _differing(in_logs[info.epoch], held[info.epoch].sums)
            if ranges:
                close = self._close(info, ranges[:CLOSE_RANGES], expected[info.epoch], pieces[info.epoch], workers)
                if close is None:
                    return None
                findings += _different(info, ranges, close)
        if not pending:
            findings += [_orphan(log, count) for log, count in sorted(orphans.items())]
        return findings

    def _knows_all(self, logs: Sequence[LogInfo]) -> bool:
        """Whether a row of any other log is an orphan. Not if some logs were left out."""
        return self._is_complete and len(logs) == len(self._logs)

    def _expected(self, info: LogInfo) -> Expected:
        """What the lake must have of a log. Looking up which seqs exist is slow, so skip it if none is missing."""
        standing = [(info.own_after + 1, info.head)]
        if info.records != info.head - info.own_after:
            try:
                standing = self._history.standing(info)
            except UnknownLog:
                standing = []
        followed = self.snapshot.progress.get(PROGRESS, 0)
        return Expected(self.through[info.epoch], standing, self._events.followed(info.epoch, followed))

    def _beyond(self, info: LogInfo) -> Iterator[Finding]:
        covered = self._covered[info.epoch]
        if covered > info.head:
            detail = f"the lake claims to have the log up to seq {covered}, but the log ends at {info.head}"
            yield Finding(
                check="lake", ok=False, log=info.name, first_seq=info.head + 1, count=covered - info.head, detail=detail
            )

    def _close(
        self,
        info: LogInfo,
        ranges: Sequence[int],
        expected: Expected,
        pieces: Sequence[AnyPiece],
        workers: Workers,
    ) -> list[CloselySeen] | None:
        numbers = set(ranges)
        items = [
            CloseItem(info.epoch, list(ranges), expected, [piece])
            for piece in pieces
            if numbers & set(range(piece.first // RANGE_SEQS, piece.last // RANGE_SEQS + 1))
        ]
        for file in self.snapshot.files:
            epochs = file.bounds.get("epoch")
            if epochs is None or epochs[0] <= info.epoch <= epochs[1]:
                items.append(CloseItem(info.epoch, list(ranges), expected, lake=self.snapshot.lake, path=file.path))
        seen = list(workers.results(look_closely, items, CloseItem, CloselySeen))
        return None if any(each.gone for each in seen) else seen


class _EventsOf:
    """The erasure events, to find those that the lake has not applied yet."""

    def __init__(self, history: History) -> None:
        self._events = ErasureEvents(history)
        try:
            first = history.log(NAME).floor - 1
            self._told = self._events.after(max(first, 0))
        except UnknownLog:
            self._told = []

    def pending(self, followed: int) -> _Pending:
        """The epochs whose erasures in the lake differ from those in the logs as they were read."""
        if followed > self._events.head:
            return _Pending(None)
        try:
            return _Pending({event.erasure.epoch for event in self._events.after(followed)})
        except EventsMissed:
            return _Pending(None)

    def followed(self, epoch: int, followed: int) -> list[Erasure]:
        """The erasures that the lake has applied."""
        return [
            event.erasure
            for event in self._told
            if event.seq <= followed
            and event.erasure.epoch == epoch
            and event.erasure.kind in ("delete", "hide", "drop")
        ]


class _Pending:
    """A set of epochs; None stands for all."""

    def __init__(self, epochs: set[int] | None) -> None:
        self._epochs = epochs

    def __contains__(self, epoch: int) -> bool:
        return self._epochs is None or epoch in self._epochs

    def __bool__(self) -> bool:
        return self._epochs is None or bool(self._epochs)


def _sums(seen: Sequence[SeenRecords]) -> Sums:
    total: Sums = {}
    for each in seen:
        total = added(total, each.sums)
    return total


def _differing(one: Sums, other: Sums) -> list[int]:
    return sorted(number for number in one.keys() | other.keys() if one.get(number) != other.get(number))


def _waiting(info: LogInfo, differs: bool) -> Iterator[Finding]:
    if differs:
        detail = "the lake has not applied the latest deletes and changes of the log yet"
        yield Finding(check="lake", ok=True, log=info.name, detail=detail)


def _erased(log: str, erased: Bad) -> Iterator[Finding]:
    if erased.count:
        detail = f"{erased.count} records were deleted from the log but are still in the lake"
        yield Finding(check="lake", ok=False, log=log, first_seq=erased.first, count=erased.count, detail=detail)


def _orphan(log: str, count: int) -> Finding:
    detail = f"{count} rows belong to a log of this name that no longer exists"
    return Finding(check="lake", ok=False, log=log, count=count, detail=detail)


def _different(info: LogInfo, ranges: Sequence[int], close: Sequence[CloselySeen]) -> Iterator[Finding]:
    found = difference(close)
    if not found.seqs:
        return  # the lake has more than the log, which is correct, or duplicate rows, which another check reports
    parts = [
        f"{len(seqs)} {what} (seqs {ranges_text(_ranges(seqs))})"
        for seqs, what in ((found.missing, "missing"), (found.other, "different"))
        if seqs
    ]
    more = len(ranges) - CLOSE_RANGES
    if more > 0:
        parts.append(f"more differences in {more} ranges of {RANGE_SEQS} seqs each")
    yield Finding(
        check="lake",
        ok=False,
        log=info.name,
        first_seq=found.seqs[0],
        count=len(found.seqs),
        detail=f"records in the lake differ from the log: {'; '.join(parts)}",
    )


def _ranges(seqs: Sequence[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for seq in seqs:
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = ranges[-1][0], seq
        else:
            ranges.append((seq, seq))
    return ranges

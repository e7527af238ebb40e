"""Runs an audit."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from strandline.engine.errors import UnknownLog
from strandline.engine.record import is_internal
from strandline.history.log_info import LogInfo
from strandline.history.pieces import SegmentPiece
from strandline.history.source import AnyPiece, History
from strandline.lake.reporter import Reporter
from strandline.pipeline.audit import records
from strandline.pipeline.audit.comparison import Comparison
from strandline.pipeline.audit.duplicates import DuplicateRows, find_copies
from strandline.pipeline.audit.lake_files import LakeSnapshot
from strandline.pipeline.audit.records import SegmentDamage
from strandline.pipeline.audit.report import CHECKS, AuditReport, Check, Finding, judge
from strandline.pipeline.audit.typed_tables import TableComparison
from strandline.pipeline.chosen_logs import EVERYTHING, Chosen, choose, wall_clock
from strandline.pipeline.tasks import Workers

if TYPE_CHECKING:
    pass


def audit(
    workers: Workers,
    history: History,
    snapshot: LakeSnapshot | None,
    reporter: Reporter,
    chosen: Chosen = EVERYTHING,
    *,
    source: str = "",
    removed: DuplicateRows | None = None,
    now: Callable[[], int] = wall_clock,
) -> AuditReport:
    """Check the chosen logs completely, and the lake, whose ``snapshot`` was taken before ``history`` was opened.
    ``removed`` has the rows that a repair has just removed, for the report. Raises UnknownLogs."""
    return _Audit(workers, history, snapshot, reporter, chosen, removed).run(source, now())


class _Audit:
    def __init__(
        self,
        workers: Workers,
        history: History,
        snapshot: LakeSnapshot | None,
        reporter: Reporter,
        chosen: Chosen,
        removed: DuplicateRows | None,
    ) -> None:
        self._workers = workers
        self._history = history
        self._reporter = reporter
        # Internal logs are checked only if they are named.
        every = [info for info in history.logs() if not is_internal(info.name) or info.name in chosen.logs]
        self._is_complete = chosen == EVERYTHING
        self._logs = [info for info in choose(every, chosen) if not info.ephemeral]
        self._pieces = {info.epoch: self._pieces_of(info) for info in self._logs}
        self._by_path = any(isinstance(piece, SegmentPiece) for piece in self._all_pieces())
        self._comparison = None if snapshot is None else Comparison(history, snapshot, self._logs, self._is_complete)
        self._findings: list[Finding] = [] if removed is None else removed.findings(removed=True)
        self._looked: dict[Check, str] = {}

    def run(self, source: str, time: int) -> AuditReport:
        damage = self._check_segments()
        seen = self._read_records()
        self._judge(seen, damage)
        if self._comparison is not None:
            self._compare(seen)
            self._find_copies(self._comparison.snapshot)
            self._compare_tables(self._comparison.snapshot)
        return AuditReport(
            run=uuid.uuid4().hex,
            time=time,
            source=source,
            ok=all(finding.ok for finding in self._findings),
            logs=len(self._logs),
            records=sum(each.rows for pieces in seen.values() for each in pieces),
            findings=[*self._sums(), *self._findings],
        )

    # --- the pieces of the logs --------------------------------------------------------------------------------------

    def _pieces_of(self, info: LogInfo) -> list[AnyPiece]:
        try:
            found = self._history.pieces(info, info.own_after, info.head, records.ITEM_ROWS, own=True)
        except UnknownLog:
            return []  # dropped a moment ago
        return cast(list[AnyPiece], list(found))

    def _all_pieces(self) -> Iterator[AnyPiece]:
        for info in self._logs:
            yield from self._pieces[info.epoch]

    # --- the checks --------------------------------------------------------------------------------------------------

    def _check_segments(self) -> Mapping[int, list[SegmentDamage]]:
        """Damage by the epoch of the log."""
        damage: dict[int, list[SegmentDamage]] = defaultdict(list)
        if not self._by_path:
            return damage
        items = records.segment_items(self._all_pieces())
        blocks = size = 0
        with self._reporter.stage("blocks") as stage:
            for done in self._workers.results(
                records.check_segment, items, records.SegmentItem, records.SegmentChecked
            ):
                stage.advance(done.rows, done.size)
                blocks, size = blocks + done.blocks, size + done.size
                for each in done.damage if not done.unreadable else self._all_of(done):
                    damage[each.epoch].append(each)
                for problem in done.problems:
                    self._findings.append(Finding(check="blocks", ok=False, count=1, detail=problem))
        self._looked["blocks"] = f"{blocks} blocks in {len(items)} segments, {size} bytes"
        return damage

    def _all_of(self, done: records.SegmentChecked) -> Iterator[SegmentDamage]:
        """The records of a segment that cannot be opened."""
        for piece in self._all_pieces():
            if isinstance(piece, SegmentPiece) and piece.id == done.id:
                rows = sum(last - first + 1 for first, last in piece.visible)
                yield SegmentDamage(piece.log, piece.epoch, piece.first, piece.last, rows, done.unreadable)

    def _read_records(self) -> Mapping[int, list[records.SeenRecords]]:
        """The results of all pieces, by epoch and in order."""
        total = sum(info.records for info in self._logs)
        through = {} if self._comparison is None else self._comparison.through
        items = records.record_items(self._all_pieces(), through)
        seen: dict[int, list[records.SeenRecords]] = defaultdict(list)
        with self._reporter.stage("records", total) as stage:
            for done in self._workers.results(
                records.read_records, items, records.RecordCheckItem, records.RecordsSeen
            ):
                stage.advance(sum(each.rows for each in done.pieces))
                for each in done.pieces:
                    seen[each.epoch].append(each)
        for pieces in seen.values():
            pieces.sort(key=lambda each: each.first)
        return seen

    def _judge(self, seen: Mapping[int, list[records.SeenRecords]], damage: Mapping[int, list[SegmentDamage]]) -> None:
        proofs = 0
        for info in self._logs:
            there = seen.get(info.epoch, [])
            proofs += sum(each.proofs for each in there)
            self._findings += judge(info, there, damage.get(info.epoch, []), self._has_changed(info, there))
        looked = f"{sum(each.rows for pieces in seen.values() for each in pieces)} records in {len(self._logs)} logs"
        self._looked |= {"order": looked, "duplicates": looked, "gaps": looked, "floors": looked}
        self._looked.setdefault("blocks", f"{looked}, read through the server")
        self._looked["proofs"] = f"{proofs} proofs in {looked}"

    def _has_changed(self, info: LogInfo, seen: Sequence[records.SeenRecords]) -> bool:
        """Whether records were removed while they were read. A view of a directory does not change."""
        if self._by_path or sum(each.rows for each in seen) == info.records:
            return False
        try:
            now = self._history.log(info.name)
        except UnknownLog:
            return True
        return (now.epoch, now.earliest, now.floor) != (info.epoch, info.earliest, info.floor) or (
            now.records - info.records != now.head - info.head
        )

    def _compare(self, seen: Mapping[int, list[records.SeenRecords]]) -> None:
        assert self._comparison is not None
        with self._reporter.stage("lake", self._comparison.rows) as stage:
            unreadable = {epoch for epoch, pieces in seen.items() if any(each.unread for each in pieces)}
            self._findings += self._comparison.findings(seen, self._pieces, unreadable, self._workers, stage)
        self._looked["lake"] = self._comparison.looked

    def _find_copies(self, snapshot: LakeSnapshot) -> None:
        epochs = None if self._is_complete else {info.epoch for info in self._logs}
        with self._reporter.stage("copies", sum(file.rows for file in snapshot.files)) as stage:
            found = find_copies(snapshot.lake, snapshot.files, self._workers, epochs, stage.advance)
        if found is None:
            self._looked["copies"] = "files were removed from the lake during the check"
            detail = f"{self._looked['copies']}: run the audit again"
            self._findings.append(Finding(check="copies", ok=False, count=1, detail=detail))
            return
        self._looked["copies"] = f"{found.rows} rows in {len(snapshot.files)} files of the lake"
        self._findings += found.findings()

    def _compare_tables(self, snapshot: LakeSnapshot) -> None:
        comparison = TableComparison(snapshot.lake, self._logs, self._is_complete)
        with self._reporter.stage("tables") as stage:
            self._findings += comparison.findings(self._workers, stage)
        if comparison.looked:
            self._looked["tables"] = comparison.looked

    def _sums(self) -> Iterator[Finding]:
        """One summary per check, for all logs."""
        for check in CHECKS:
            if check in self._looked:
                bad = [finding for finding in self._findings if finding.check == check and not finding.ok]
                logs = len({finding.log for finding in bad})
                detail = self._looked[check] + (f"; findings in {logs} logs" if bad else "")
                yield Finding(check=check, ok=not bad, count=sum(finding.count for finding in bad), detail=detail)

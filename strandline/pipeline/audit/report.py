"""The findings and the report of an audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import msgspec
import pyarrow as pa

from strandline.history.log_info import LogInfo
from strandline.lake import layout
from strandline.lake.files import write_file
from strandline.lake.location import Lake
from strandline.pipeline.audit.records import Bad, SeenRecords, SegmentDamage

Check = Literal["blocks", "order", "duplicates", "gaps", "floors", "proofs", "lake", "copies", "tables"]
CHECKS: tuple[Check, ...] = ("blocks", "order", "duplicates", "gaps", "floors", "proofs", "lake", "copies", "tables")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding about one log, or a summary for all logs if ``log`` is empty. If ``ok``, it is information and needs no
    repair. ``detail`` contains nothing of any record."""

    check: Check
    ok: bool
    log: str = ""
    first_seq: int | None = None
    count: int = 0
    detail: str = ""


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """``ok``: no problems were found."""

    run: str
    #: Milliseconds since 1970.
    time: int
    source: str
    ok: bool
    logs: int
    records: int
    #: A summary per check, followed by the findings in single logs.
    findings: list[Finding]


def write_report(lake: Lake, report: AuditReport) -> None:
    """Add the rows to the table ``audit`` of the lake."""
    time = datetime.fromtimestamp(report.time / 1000, UTC)
    rows = [
        {
            "run": report.run,
            "time": time,
            "log": finding.log,
            "check": finding.check,
            "ok": finding.ok,
            "first_seq": finding.first_seq,
            "count": finding.count,
            "detail": finding.detail,
        }
        for finding in report.findings
    ]
    file = write_file(lake, "audit", layout.AUDIT, [pa.Table.from_pylist(rows, schema=layout.AUDIT)])
    assert file is not None, "every check has a row"
    layout.audit(lake).append([file])


def ranges_text(ranges: Sequence[tuple[int, int]], most: int = 5) -> str:
    """Ranges of seqs as text, only the first ``most`` of them."""
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:most]]
    more = len(ranges) - most
    return ", ".join(shown) + (f" and {more} more ranges" if more > 0 else "")


# --- Comparing the records of a log with its metadata ---------------------------------------------------------------


def judge(info: LogInfo, seen: Sequence[SeenRecords], damage: Sequence[SegmentDamage], changed: bool) -> list[Finding]:
    """All findings about a log. ``seen`` has its pieces in order. ``changed``: records were removed while they were
    read, so the count cannot be checked."""
    findings = [*_unread(info, seen, damage), *_order(info, seen), *_floors(info, seen), *_proofs(info, seen)]
    if any(finding.check == "blocks" for finding in findings):
        return [*findings, *_known_gaps(info)]  # with damage, records are missing anyway
    return [*findings, *_known_gaps(info), *([] if changed else _missing(info, seen))]


def _unread(info: LogInfo, seen: Sequence[SeenRecords], damage: Sequence[SegmentDamage]) -> Iterator[Finding]:
    if damage:
        ranges = [(each.first, each.last) for each in damage]
        whys = sorted({each.why for each in damage})
        yield Finding(
            check="blocks",
            ok=False,
            log=info.name,
            first_seq=min(first for first, _ in ranges),
            count=sum(each.rows for each in damage),
            detail=f"seqs {ranges_text(ranges)} cannot be read: {'; '.join(whys)}",
        )
        return
    unread = [each for each in seen if each.unread]
    if unread:
        ranges = [(each.first, each.last) for each in unread]
        yield Finding(
            check="blocks",
            ok=False,
            log=info.name,
            first_seq=unread[0].first,
            count=sum(last - first + 1 for first, last in ranges) - sum(each.rows for each in unread),
            detail=f"some of the seqs {ranges_text(ranges)} could not be read: {unread[0].unread}",
        )


def _order(info: LogInfo, seen: Sequence[SeenRecords]) -> Iterator[Finding]:
    disordered, repeated = Bad(), Bad()
    for each in seen:
        disordered.add(each.disordered)
        repeated.add(each.repeated)
    there = [each for each in seen if each.rows]
    for one, other in pairwise(there):
        assert one.last_seq is not None
        assert other.first_seq is not None
        if other.first_seq == one.last_seq:
            repeated.add(Bad(1, other.first_seq))
        elif other.first_seq < one.last_seq:
            disordered.add(Bad(1, other.first_seq))
    yield from _bad(info, "order", disordered, "records come after a higher seq")
    yield from _bad(info, "duplicates", repeated, "seqs occur more than once")


def _floors(info: LogInfo, seen: Sequence[SeenRecords]) -> Iterator[Finding]:
    there = [each for each in seen if each.rows]
    faults: list[tuple[int, str]] = []
    if info.floor > info.earliest:
        faults.append((info.floor, f"the floor {info.floor} is above the earliest seq {info.earliest}"))
    for first, last in info.gaps:
        if not 1 <= first <= last <= info.head:
            faults.append((first, f"the gap {first} to {last} is outside the log's seqs"))
    if there:
        first_seq, last_seq = there[0].first_seq or 0, there[-1].last_seq or 0
        least = max(info.own_after + 1, info.floor, info.earliest)
        if first_seq < least:
            faults.append((first_seq, f"seq {first_seq} exists, although the log should start at {least}"))
        if last_seq > info.head:
            faults.append((last_seq, f"seq {last_seq} exists after the head {info.head}"))
    if faults:
        details = "; ".join(text for _, text in faults)
        yield Finding(
            check="floors", ok=False, log=info.name, first_seq=faults[0][0], count=len(faults), detail=details
        )


def _proofs(info: LogInfo, seen: Sequence[SeenRecords]) -> Iterator[Finding]:
    forged = Bad()
    for each in seen:
        forged.add(each.forged)
    yield from _bad(info, "proofs", forged, "records have an invalid author proof")


def _known_gaps(info: LogInfo) -> Iterator[Finding]:
    if info.gaps:
        yield Finding(
            check="gaps",
            ok=True,
            log=info.name,
            first_seq=info.gaps[0][0],
            count=sum(last - first + 1 for first, last in info.gaps),
            detail=f"seqs {ranges_text(info.gaps)} are known to be lost",
        )


def _missing(info: LogInfo, seen: Sequence[SeenRecords]) -> Iterator[Finding]:
    found = sum(each.rows for each in seen)
    if found == info.records:
        return
    if found > info.records:
        detail = f"found {found} records, expected only {info.records}"
        yield Finding(check="gaps", ok=False, log=info.name, count=found - info.records, detail=detail)
        return
    holes = [each.first_missing for each in seen if each.first_missing is not None]
    detail = f"found {found} records, expected {info.records}"
    if holes:
        detail += f"; the first missing seq is {min(holes)}, unless that record was removed"
    yield Finding(
        check="gaps",
        ok=False,
        log=info.name,
        first_seq=min(holes, default=None),
        count=info.records - found,
        detail=detail,
    )


def _bad(info: LogInfo, check: Check, bad: Bad, what: str) -> Iterator[Finding]:
    if bad.count:
        detail = f"{bad.count} {what}, the first at seq {bad.first}"
        yield Finding(check=check, ok=False, log=info.name, first_seq=bad.first, count=bad.count, detail=detail)

"""What an audit comes to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
import pyarrow as pa

from strandline.lake import layout
from strandline.lake.files import write_file
from strandline.lake.location import Lake

Check = Literal["blocks", "order", "duplicates", "gaps", "floors", "proofs", "lake", "copies"]
CHECKS: tuple[Check, ...] = ("blocks", "order", "duplicates", "gaps", "floors", "proofs", "lake", "copies")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something about one log, or about what was looked at in all of them if there is no ``log``. If it is ``ok``, it
    is worth knowing and nothing to mend. ``detail`` has nothing of any record in it."""

    check: Check
    ok: bool
    log: str = ""
    first_seq: int | None = None
    count: int = 0
    detail: str = ""


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """``ok``: nothing is wrong."""

    run: str
    #: Milliseconds since 1970.
    time: int
    source: str
    ok: bool
    logs: int
    records: int
    #: What was looked at, check by check, and then what was found in single logs.
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
    """Ranges of seqs in words; only the first ones if there are many."""
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:most]]
    more = len(ranges) - most
    return ", ".join(shown) + (f" and {more} more ranges" if more > 0 else "")

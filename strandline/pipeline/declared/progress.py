"""The progress of a streaming query, as Spark reports it after a batch."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class RunningQuery:
    """A query, and what is known of its batches."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        #: Input rows since the query was started.
        self.rows = 0
        #: Input that the query had not read at its last batch.
        self.lag = 0
        #: When the last batch with rows ended, in milliseconds, and how long it took.
        self.updated: int | None = None
        self.seconds: float | None = None
        #: Whether the query has ended a batch, or found nothing to do, since it was started.
        self.has_reported = False
        self._batch = -1

    def look(self) -> None:
        last = _document(self.query.lastProgress)
        if last is None:
            return
        self.has_reported = True
        # Spark keeps the last hundred reports. They are only read if a batch was missed.
        missed = int(last["batchId"]) > self._batch + 1 and self._batch >= -1
        reports = [_document(each) for each in self.query.recentProgress] if missed else [last]
        for report in reports:
            if report is not None and int(report["batchId"]) > self._batch:
                self._take(report)
        self.lag = sum(_lag(source) for source in last.get("sources", ()))

    def _take(self, report: dict[str, Any]) -> None:
        if not report.get("numInputRows"):
            # A report about waiting has the number of the batch that comes next.
            return
        self._batch = int(report["batchId"])
        self.rows += int(report["numInputRows"])
        milliseconds = int(report.get("durationMs", {}).get("triggerExecution", 0))
        begin = datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00"))
        self.updated = round(begin.timestamp() * 1000) + milliseconds
        self.seconds = milliseconds / 1000


def _document(progress: Any) -> dict[str, Any] | None:
    if progress is None:
        return None
    if isinstance(progress, dict):
        return progress
    found: dict[str, Any] = json.loads(progress.json)
    return found


def _lag(source: dict[str, Any]) -> int:
    """The records between the offset of the last batch and the newest one; for a table, the files."""
    end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
    if "logs" in latest:
        done = end.get("logs", {})
        return sum(max(0, at["seq"] - done.get(name, {}).get("seq", 0)) for name, at in latest["logs"].items())
    return int((source.get("metrics") or {}).get("numFilesOutstanding", 0))


def _offset(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}

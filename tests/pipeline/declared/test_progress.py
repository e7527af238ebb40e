from __future__ import annotations

from typing import Any

from strandline.pipeline.declared.progress import RunningQuery


class Query:
    """The reports of a query."""

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None

    def report(self, batch: int, rows: int, done: int = 0, head: int = 0) -> None:
        logs = [{"logs": {"orders": {"epoch": 1, "seq": seq}}} for seq in (done, head)]
        self.recentProgress.append(
            {
                "batchId": batch,
                "numInputRows": rows,
                "timestamp": "2026-11-02T09:00:00.000Z",
                "durationMs": {"triggerExecution": 1500},
                "sources": [{"endOffset": logs[0], "latestOffset": logs[1]}],
            }
        )


def test_rows_and_lag_follow_the_reports() -> None:
    query = Query()
    running = RunningQuery(query)  # type: ignore[arg-type]
    running.look()
    assert (running.has_reported, running.rows, running.updated) == (False, 0, None)
    query.report(0, 5, done=5, head=9)
    running.look()
    running.look()
    assert (running.rows, running.lag, running.seconds) == (5, 4, 1.5)
    assert running.updated == 1793610001500
    # Two batches between two looks, and then a report of waiting, which has the number of the next batch.
    query.report(1, 2, done=7, head=9)
    query.report(2, 2, done=9, head=9)
    query.report(3, 0, done=9, head=9)
    running.look()
    assert (running.rows, running.lag) == (9, 0)
    query.report(3, 1, done=10, head=10)
    running.look()
    assert running.rows == 10

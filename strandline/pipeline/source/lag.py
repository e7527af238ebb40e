"""How far streaming queries are behind the logs that they read.

Spark shows metrics only for sources that are written for the JVM. So a stream reports its lag with the latest offset,
which is in the progress of the query: ``sources[…].latestOffset``, a JSON object with the member ``lag``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener


class SourceLag(msgspec.Struct, rename="camel"):
    """The lag of one source of a query. Bytes are estimated from the average size of the records of each log.
    ``furthest_behind`` is the log with the most unread records; None if there are no logs."""

    offsets_behind_latest: int
    bytes_behind_latest: int
    min_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    max_offsets_behind_latest: int
    furthest_behind: str | None = None


def lag_of(progress: Any) -> list[SourceLag]:
    """The lag of the sources of a query that read logs. ``progress`` is the progress of the query, as in
    ``query.lastProgress`` and in events of a StreamingQueryListener."""
    found = []
    for source in progress.sources:
        try:
            latest = msgspec.json.decode(source.latestOffset or "null", type=_LatestOffset | None)
        except msgspec.MsgspecError:
            # Another kind of source.
            continue
        if latest is not None:
            found.append(latest.lag)
    return found


class _LatestOffset(msgspec.Struct):
    lag: SourceLag


class LagListener(StreamingQueryListener):
    """Calls ``tell`` with the name (or the id) and the lag of each source after every trigger:
    ``spark.streams.addListener(LagListener(tell))``."""

    def __init__(self, tell: Callable[[str, SourceLag], None]) -> None:
        self._tell = tell

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        for lag in lag_of(progress):
            self._tell(progress.name or str(progress.id), lag)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

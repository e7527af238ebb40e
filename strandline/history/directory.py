"""History by path: reads the files of a data directory, whether or not a server is running on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from strandline.engine.errors import UnknownLog
from strandline.engine.reads.directory_view import DirectoryView, KnownBooks, ViewedRun
from strandline.engine.reads.status import live_ranges
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.engine.state.logbook import Logbook
from strandline.history.log_info import LogInfo, info_of
from strandline.history.pieces import EVERYTHING, ColdPlace, SegmentPiece, Where


class KnownLogs(KnownBooks):
    """What successive histories of one data directory share. Each costs little more than what has changed since the
    one before, which must be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.infos: dict[Logbook, LogInfo] = {}


class DirectoryHistory:
    """The records that were acknowledged when this was created. Its pieces can be read until it is closed."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        cold_url: str = "",
        cold_options: dict[str, str | bool] | None = None,
        known: KnownLogs | None = None,
    ) -> None:
        self._known = known or KnownLogs()
        self._cold = ColdPlace(cold_url, cold_options or {}) if cold_url else None
        self._view = DirectoryView.take(
            path, None if self._cold is None else ObjectStoreCold(cold_url, **self._cold.options), self._known
        )
        #: The id of the data directory.
        self.directory = self._view.directory

    def close(self) -> None:
        self._view.close()

    def logs(self, prefix: str = "") -> list[LogInfo]:
        """Return all logs by name, including internal ones."""
        books = (self._view.find(name) for name in self._view.names() if name.startswith(prefix))
        known = self._known
        before, known.infos = known.infos, {}
        found = []
        for book in books:
            assert book is not None
            info = before.get(book) if known.has(book) else None
            if info is None:
                info = info_of(book)
            if known.has(book):
                known.infos[book] = info
            found.append(info)
        return found

    def log(self, name: str) -> LogInfo:
        """Return a log. Raises UnknownLog."""
        return info_of(self._book(name))

    def standing(self, log: LogInfo) -> list[tuple[int, int]]:
        """Return the visible seqs as inclusive ranges. The ranges may contain seqs that never had a record."""
        return live_ranges(self._view.books[log.epoch])

    def pieces(
        self, log: LogInfo, after: int, through: int, rows: int, where: Where = EVERYTHING, *, own: bool = False
    ) -> list[SegmentPiece]:
        """Return the records after ``after`` up to ``through``, in pieces of about ``rows`` records. With ``own``, omit
        records that a fork shares with its source."""
        book = self._view.books[log.epoch]
        found: list[SegmentPiece] = []
        for run in self._view.runs(book, after, through, own=own):
            if _may_have(run, where, book.last_ts):
                found += self._split(log, run, rows, where)
        return found

    def _book(self, name: str) -> Logbook:
        book = self._view.find(name)
        if book is None:
            raise UnknownLog(name)
        return book

    def _split(self, log: LogInfo, run: ViewedRun, rows: int, where: Where) -> Iterator[SegmentPiece]:
        first, last = run.visible[0][0], run.visible[-1][1]
        dense = run.rows / (run.last - run.first + 1)
        parts = max(round((last - first + 1) * dense / rows), 1)
        step = -(-(last - first + 1) // parts)
        for low in range(first, last + 1, step):
            high = min(low + step - 1, last)
            visible = [(max(a, low), min(b, high)) for a, b in run.visible if a <= high and b >= low]
            if visible:
                amended = {seq: data for seq, data in run.amended.items() if low <= seq <= high}
                count = round(sum(b - a + 1 for a, b in visible) * dense)
                yield SegmentPiece(
                    log.name, log.epoch, low, high, count, *run.file, run.row, run.rows, run.first, visible, amended,
                    where, None if run.file.path else self._cold,
                )  # fmt: skip


def _may_have(run: ViewedRun, where: Where, last_ts: int) -> bool:
    if where.since is not None and max(run.ts_first, run.ts_last) < where.since:
        return False
    # The times of a run are in order, except for records from the future. If one of those is at an edge, others may be
    # earlier.
    if where.until is not None and last_ts >= max(run.ts_first, run.ts_last) and run.ts_first >= where.until:
        return False
    if where.key is None:
        return True
    return run.key_first is not None and run.key_last is not None and run.key_first <= where.key <= run.key_last

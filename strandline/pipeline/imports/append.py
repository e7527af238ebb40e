"""Appending what was put aside, and noting with every append how far that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.engine.errors import UnknownLog
from strandline.history.http import ProgressConflict
from strandline.pipeline.source.targets import Progress, Target

#: An append has at most so many records, and about so many bytes: a server takes more, but what is repeated is repeated
#: as a whole.
APPEND_ROWS = 10_000
APPEND_BYTES = 4 << 20


class ImportFailed(Exception):
    """It could not go on. The message says why; what was appended stays, and the next run goes on behind it."""


class Marks(Protocol):
    """How far an import has come, in a form that the log keeps."""

    def left(self, known: Progress | None, rows: Any) -> Any:
        """Which of the rows, whose order is that of the import, are not appended yet."""

    def after(self, known: Progress | None, rows: Any) -> Progress:
        """How far it is once these are."""


class PartMarks:
    """The number of a part, and of the next row in it."""

    def __init__(self, number: int) -> None:
        self._number = number

    def left(self, known: Progress | None, rows: Any) -> Any:
        if known is None or known["part"] < self._number:
            return rows
        if known["part"] > self._number:
            return rows.slice(0, 0)
        return rows.filter(pc.greater_equal(rows.column("row"), known["row"]))

    def after(self, known: Progress | None, rows: Any) -> Progress:
        return {"part": self._number, "row": rows.column("row")[-1].as_py() + 1}


class Appender:
    """``writer`` is the name under which progress is noted."""

    def __init__(self, target: Target, writer: str, has_times: bool) -> None:
        self._target = target
        self._writer = writer
        self._has_times = has_times
        self._known: dict[str, Progress | None] = {}
        #: How many were appended, by log; and how many had been before.
        self.appended: dict[str, int] = {}
        self.passed = 0

    def known(self, log: str) -> Progress | None:
        """How far the import has come in a log."""
        if log not in self._known:
            try:
                self._known[log] = self._target.progress(log, self._writer)
            except UnknownLog:
                self._known[log] = None
        return self._known[log]

    def append(self, batch: Any, marks: Marks) -> int:
        """Append the rows of a batch that are not there yet; how many were."""
        done = 0
        for log, rows in _by_log(batch):
            left = marks.left(self.known(log), rows)
            self.passed += rows.num_rows - left.num_rows
            for part in self._cut(left):
                self._append(log, part, marks)
            done += left.num_rows
        return done

    def _append(self, log: str, rows: Any, marks: Marks) -> None:
        before = self.known(log)
        after = marks.after(before, rows)
        table = pa.Table.from_batches([rows.select(["key", "node", "meta", "data"])])
        ts = rows.column("ts")[0].as_py() if self._has_times else None
        try:
            self._target.append(log, table, self._writer, before, after, ts=ts)
        except ProgressConflict as error:
            raise ImportFailed(f"another run of this import is under way: {error}") from None
        self._known[log] = after
        self.appended[log] = self.appended.get(log, 0) + rows.num_rows

    def _cut(self, rows: Any) -> Iterator[Any]:
        """What goes into one append: records of one time, if they have times."""
        if not rows.num_rows:
            return
        ends = [rows.num_rows]
        if self._has_times:
            times = rows.column("ts").to_numpy()
            ends = [*(np.flatnonzero(np.diff(times)) + 1).tolist(), rows.num_rows]
        sizes = np.cumsum(pc.binary_length(rows.column("data")).to_numpy())
        start = 0
        for end in ends:
            while start < end:
                before = int(sizes[start - 1]) if start else 0
                fitting = int(np.searchsorted(sizes, before + APPEND_BYTES, "right"))
                stop = min(end, start + APPEND_ROWS, max(fitting, start + 1))
                yield rows.slice(start, stop - start)
                start = stop


def _by_log(batch: Any) -> Iterator[tuple[str, Any]]:
    """The rows of each log, in their order."""
    names = batch.column("log").unique().to_pylist()
    if len(names) == 1:
        yield names[0], batch
        return
    for name in names:
        yield name, batch.filter(pc.equal(batch.column("log"), name))

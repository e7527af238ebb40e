"""The table ``records``: every record of every log, with its schema version.

Tasks read pieces of history and write files. The driver commits the files of a wave together with the progress of each
log. The progress of a log never passes a gap: if one of its pieces cannot be read, the results of later pieces are
discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import cast

from strandline.history.log_info import LogInfo
from strandline.history.source import AnyPiece, History
from strandline.lake import layout
from strandline.lake.erasures import PROGRESS, PURGED
from strandline.lake.files import DataFile
from strandline.lake.record_files import ReadFailure, RecordsDone, RecordsItem, write_records
from strandline.lake.reporter import describe
from strandline.pipeline.round import Round
from strandline.schema.registry import Registry

STAGE = "records"
#: The maximum number of records of an item, about one file of 128 MB, and the minimum, below which a task is not worth
#: its cost. In between, items are as small as is needed to keep all tasks busy.
MAX_ITEM_ROWS = 1_000_000
MIN_ITEM_ROWS = 65_536
#: Items per task, if there is enough to do, so that no task waits long for the slowest.
ITEMS_PER_TASK = 2
#: Starting with a piece costs as much as this many records.
PIECE_ROWS = 50


def run(round: Round) -> None:
    table = layout.records(round.lake).snapshot(round.fence)
    progress = table.progress()
    behind = list(_behind(round, progress))
    # Records that are read now reflect all events up to here.
    started = {} if PROGRESS in progress else {PROGRESS: round.events.head, PURGED: round.events.head}
    total = sum(info.head - after for info, after in behind)
    with round.reporter.stage(STAGE, total) as stage:
        for files, reached in _Copying(round, behind, total).waves():
            moved = {log: seq for log, seq in reached.items() if seq > progress.get(log, 0)}
            if not (files or moved):
                continue
            table.commit(add=files, progress={**started, **moved})
            started = {}
            rows = sum(file.rows for file in files)
            stage.advance(rows, sum(file.size for file in files))
            round.done[STAGE] = round.done.get(STAGE, 0) + rows


def _behind(round: Round, progress: dict[str, int]) -> Iterator[tuple[LogInfo, int]]:
    for info in round.logs:
        after = max(progress.get(str(info.epoch), 0), info.own_after)
        if info.head > after:
            yield info, after
        elif info.head < progress.get(str(info.epoch), 0):
            round.problem(
                STAGE, info.name, info.head, f"the log ends at seq {info.head}, but the lake has it up to {after}"
            )


def pieces_of(history: History, info: LogInfo, after: int, through: int, rows: int) -> list[AnyPiece]:
    """The log's own records after ``after`` up to ``through``."""
    return cast(list[AnyPiece], list(history.pieces(info, after, through, rows, own=True)))


class _Copying:
    """Creates the items of a round while earlier ones are processed. A log that has failed gets no more items."""

    def __init__(self, round: Round, behind: list[tuple[LogInfo, int]], total: int) -> None:
        self._round = round
        self._behind = behind
        effort = total + PIECE_ROWS * len(behind)
        # Asking Spark is not worth it for few records.
        even = effort // (round.workers.parallel * ITEMS_PER_TASK) if effort > MIN_ITEM_ROWS else 0
        self._item_rows = min(max(even, MIN_ITEM_ROWS), MAX_ITEM_ROWS)
        self._numbers = count(1)
        self._failed: set[int] = set()
        #: The schema versions of the current log, if it has a schema.
        self._versions: dict[int, list[tuple[int, int]]] = {}
        #: Logs that reach their head without an item, because there was nothing to read.
        self._bare: dict[str, int] = {}
        #: By item: the progress of each log when it is done.
        self._reached: dict[int, dict[int, int]] = {}
        self._items: dict[int, RecordsItem] = {}

    def waves(self) -> Iterator[tuple[list[DataFile], dict[str, int]]]:
        """The files to commit together, and the progress that they bring."""
        if not self._behind:
            return
        for results in self._work(self._made()):
            done = self._settled({result.number: result for result in results})
            moved = self._moved(done)
            yield [file for number in sorted(done) for file in done[number].files], moved
            for number in done:
                del self._items[number], self._reached[number]
        if self._bare:
            yield [], self._bare

    def _work(self, items: Iterable[RecordsItem]) -> Iterator[list[RecordsDone]]:
        return self._round.workers.waves(write_records, items, RecordsItem, RecordsDone)

    # --- creating items ----------------------------------------------------------------------------------------------

    def _made(self) -> Iterator[RecordsItem]:
        pieces: list[AnyPiece] = []
        versions: dict[int, list[tuple[int, int]]] = {}
        reached: dict[int, int] = {}
        rows = 0
        for info, piece, through in self._pieces():
            if info.epoch in self._failed:
                continue
            if piece is None:
                self._bare[str(info.epoch)] = through
                continue
            if info.epoch in self._versions:
                versions[info.epoch] = self._versions[info.epoch]
            pieces.append(piece)
            reached[info.epoch] = through
            rows += piece.rows + PIECE_ROWS
            if rows >= self._item_rows:
                yield self._item(pieces, versions, reached)
                pieces, versions, reached, rows = [], {}, {}, 0
        if pieces:
            yield self._item(pieces, versions, reached)

    def _pieces(self) -> Iterator[tuple[LogInfo, AnyPiece | None, int]]:
        """The pieces one by one, with the progress of the log after each."""
        for info, after in self._behind:
            try:
                if info.registry is not None:
                    self._versions = {info.epoch: Registry.load(info.registry).versions}
                found = pieces_of(self._round.history, info, after, info.head, self._item_rows)
            except Exception as error:
                self._fail(ReadFailure(info.name, info.epoch, after, describe(error)))
                continue
            for place, piece in enumerate(found):
                yield info, piece, info.head if place == len(found) - 1 else piece.last
            if not found:
                yield info, None, info.head

    def _item(
        self, pieces: list[AnyPiece], versions: dict[int, list[tuple[int, int]]], reached: dict[int, int]
    ) -> RecordsItem:
        number = next(self._numbers)
        item = RecordsItem(number, self._round.lake, pieces, versions)
        self._items[number] = item
        self._reached[number] = reached
        return item

    # --- processing results ------------------------------------------------------------------------------------------

    def _settled(self, done: dict[int, RecordsDone]) -> dict[int, RecordsDone]:
        """The results without records after a failure of their log. An item with such records is processed again
        without that log."""
        while True:
            first: dict[int, int] = {}
            for number in sorted(done):
                for failure in done[number].failures:
                    first.setdefault(failure.epoch, number)
            again = []
            for number in sorted(done):
                late = {epoch for epoch, at in first.items() if at < number and epoch in self._reached[number]}
                if late:
                    again.append(self._without(number, late))
                    lost = done.pop(number)
                    self._round.lake.remove(f"records/{file.path}" for file in lost.files)
            if not again:
                return done
            for results in self._work(again):
                done.update((result.number, result) for result in results)

    def _without(self, number: int, epochs: set[int]) -> RecordsItem:
        item = self._items[number]
        pieces = [piece for piece in item.pieces if piece.epoch not in epochs]
        self._items[number] = item = RecordsItem(number, item.lake, pieces, item.versions)
        for epoch in epochs:
            self._reached[number].pop(epoch, None)
        return item

    def _moved(self, done: dict[int, RecordsDone]) -> dict[str, int]:
        moved, self._bare = self._bare, {}
        for number in sorted(done):
            reached = dict(self._reached[number])
            for failure in done[number].failures:
                reached[failure.epoch] = failure.through
                self._fail(failure)
            moved.update((str(epoch), seq) for epoch, seq in reached.items())
        return moved

    def _fail(self, failure: ReadFailure) -> None:
        self._failed.add(failure.epoch)
        self._round.problem(STAGE, failure.log, failure.through + 1, failure.message)

"""Replay into an engine that answers reads: the changes become visible at once, and listeners hear of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from strandline.engine.errors import DamagedFile
from strandline.engine.follower.mirror import ChunksRemoved
from strandline.engine.journal.append_runs import AppendRun
from strandline.engine.journal.frame import Frame, FrameType
from strandline.engine.journal.replay import Recovered, Replay
from strandline.engine.log import Log
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.notes import Notes
from strandline.engine.state.parts import Segments

if TYPE_CHECKING:
    from strandline.engine.engine import Engine


class LiveReplay(Replay):
    """Until :meth:`attach`, this replays into logbooks that have no readers yet."""

    def __init__(self, books: dict[int, Logbook], segments: Segments, recovered: Recovered) -> None:
        super().__init__(books, segments, recovered)
        self._engine: Engine | None = None
        #: The logs that the frames being applied have created and dropped.
        self._made: list[Logbook] = []
        self._gone: list[Logbook] = []
        for book in books.values():
            self.link(book)

    def attach(self, engine: Engine) -> None:
        """From now on the books are those of the engine."""
        self._engine = engine
        self._books = engine.by_epoch
        self._by_name = {book.name: book for book in engine.by_epoch.values()}
        self._recovered.changed.clear()
        self._made.clear()
        self._gone.clear()

    def apply(self, item: Frame | AppendRun, path: str) -> None:
        """Apply a frame or a run of appends, and tell the listeners of the logs that it has changed. Raises
        ChunksRemoved if that needs a segment that is no longer there."""
        engine = self._engine
        if engine is None:
            self._apply(item, path)
            return
        with engine.lock:
            notes = self._notes_of(item)
            try:
                self._apply(item, path)
            except DamagedFile as error:
                raise _segment_removed(error) from error
            recovered = self._recovered
            changed, recovered.changed = recovered.changed, set()
            for book in self._gone:
                engine.leave(book)
            for book in self._made:
                if not book.dropped:
                    engine.enter(book)
                    engine.tell_created(Log(engine, book))
            self._gone.clear()
            self._made.clear()
            engine.hear_of(changed, [book for book, before in notes if book.notes is not before])

    def _apply(self, item: Frame | AppendRun, path: str) -> None:
        if isinstance(item, AppendRun):
            self.run(item, path)
            return
        self.frame(item, path)
        book = self._books.get(item.epoch)
        if book is not None and item.type is FrameType.CONFIGURE and self._engine is not None:
            self._engine.note_config(book)

    def _notes_of(self, item: Frame | AppendRun) -> list[tuple[Logbook, Notes | None]]:
        """Return the logs that the item may change, with their notes before."""
        epochs: Iterable[int] = {item.epoch} if isinstance(item, Frame) else set(item.headers["epoch"].tolist())
        books = [self._books[epoch] for epoch in epochs if epoch in self._books]
        return [(book, book.notes) for book in books]

    def _failed(self, book: Logbook, frame: Frame, path: str, error: DamagedFile) -> None:
        if self._engine is None:
            super()._failed(book, frame, path, error)
        else:
            raise _segment_removed(error) from error

    def _created(self, book: Logbook) -> None:
        self._made.append(book)

    def _dropped(self, book: Logbook) -> None:
        self._gone.append(book)


def _segment_removed(error: DamagedFile) -> ChunksRemoved:
    """The leader has merged a segment since it wrote a change of its records. Without the change, the follower would
    show what was deleted."""
    return ChunksRemoved(f"a change needs a segment that the replica no longer has ({error})")

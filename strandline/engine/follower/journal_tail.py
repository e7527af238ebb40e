"""The end of a journal that another process writes: what was added since the last look is replayed."""

from __future__ import annotations

from collections.abc import Callable

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile
from strandline.engine.journal.append_runs import AppendRun, with_runs
from strandline.engine.journal.file import JournalFile, journal_indexes, journal_path, read_journal
from strandline.engine.journal.frame import FILE_HEADER, Frame, FrameDamage, IncompleteWrite, whole_writes
from strandline.engine.journal.replay import Replay

#: Readers of the logs wait while frames are applied, so this many bytes are read at a time.
SLICE_BYTES = 1 << 20

#: Applies one frame or one run of appends.
Apply = Callable[[Frame | AppendRun, str], None]


class JournalTail:
    """A position in the journal. Everything before it has been replayed."""

    def __init__(self, disk: Disk, replay: Replay, boundary: int) -> None:
        """Start at the beginning of the journal file ``boundary``."""
        self._disk = disk
        self._replay = replay
        self.index = boundary
        self.offset = FILE_HEADER.size
        self._file: JournalFile | None = None

    def advance(self, apply: Apply) -> None:
        """Replay what was added. A frame that is not complete yet is replayed later."""
        while True:
            self._read(apply, final=False)
            following = self._following()
            if following is None:
                return
            # Nothing is added to a file once a later one has records, but it may have grown since it was read.
            self._read(apply, final=True)
            self._move(following)

    def finish(self, boundary: int, apply: Apply) -> None:
        """Replay what is left before the journal file ``boundary``, and continue there."""
        while self.index < boundary:
            self._read(apply, final=True)
            self._move(self.index + 1)

    def _move(self, index: int) -> None:
        self.index, self.offset, self._file = index, FILE_HEADER.size, None

    def _following(self) -> int | None:
        """Return the number of the next file, or None if the current one may still grow. The next file exists before it
        is begun."""
        later = [index for index in journal_indexes(self._disk) if index > self.index]
        if any(self._disk.size(journal_path(index)) > FILE_HEADER.size for index in later):
            return later[0]
        return None

    def _read(self, apply: Apply, *, final: bool) -> None:
        file = self._open(final)
        if file is None:
            return
        size, step = self._disk.size(file.path), SLICE_BYTES
        while self.offset < size:
            end = min(size, self.offset + step)
            before = self.offset
            self._read_to(file, end, apply, final=final and end == size)
            if self.offset == before:
                if end == size:
                    return
                # The slice ends within a frame.
                step *= 2

    def _open(self, final: bool) -> JournalFile | None:
        if self._file is None:
            try:
                self._file = read_journal(self._disk, self.index)
            except FileNotFoundError:
                return None
            except DamagedFile:
                # Its header is being written.
                if final:
                    raise
                return None
            self._replay.begin(self._file)
        return self._file

    def _read_to(self, file: JournalFile, end: int, apply: Apply, *, final: bool) -> None:
        file.reader.extend(end)
        missing: list[FrameDamage | IncompleteWrite] = []
        for item in whole_writes(with_runs(file.reader, self.offset)):
            if isinstance(item, (FrameDamage, IncompleteWrite)):
                if not final:
                    return
                missing.append(item)
                continue
            if missing:
                self._replay.lost(file, missing)
                missing = []
            apply(item, file.path)
            self.offset = item.offset + item.length if isinstance(item, Frame) else item.end
        if missing:
            self._replay.lost(file, missing)
            self.offset = end

"""Which journal files must exist, and which of them are lost.

The manifest names every journal file from the boundary on before a record is written to it, and gives its final size
once the file is complete. The flush mark says how far the current file was flushed. A file that is missing, shorter
than that, or without a readable header has lost acknowledged records. After an unclean shutdown, only the newest file
may end early, at any point after its flushed bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile
from strandline.engine.journal.file import FlushMark, journal_indexes, journal_path
from strandline.engine.journal.frame import FILE_HEADER, FileKind, read_file_header
from strandline.engine.state.checkpoints import JournalEntry, Manifest


class LostJournal(NamedTuple):
    """A journal file that is missing, truncated or unreadable, or several consecutive missing files."""

    number: int
    why: str
    #: The number of consecutive lost files.
    files: int = 1
    #: Where the file ends, if its header is good and it was truncated; 0: the file is unreadable.
    cut_at: int = 0

    @property
    def path(self) -> str:
        return journal_path(self.number)


def least_sizes(manifest: Manifest, mark: FlushMark | None) -> dict[int, int]:
    """Return the files from the boundary on that must exist, with their minimum sizes; 0: unknown."""
    sizes = {entry.index: entry.size for entry in manifest.journals}
    for index, size in ({} if mark is None else mark.sizes(manifest.id)).items():
        sizes[index] = max(sizes.get(index, 0), size)
    return {index: size for index, size in sizes.items() if index >= manifest.boundary}


def lost_journals(disk: Disk, manifest: Manifest, mark: FlushMark | None, *, guess: bool = False) -> list[LostJournal]:
    """Return the files that must exist but are missing, truncated or unreadable. Raises UnsupportedFormat.

    If a server may be running, read the ``mark`` before calling this and before looking at file sizes.

    Manifests of older releases do not name the journal files. The file at the boundary was created before the
    checkpoint, so it should exist, unless an older release has just restored the directory from a backup. With
    ``guess``, it counts as lost.
    """
    found = [index for index in journal_indexes(disk) if index >= manifest.boundary]
    sizes = least_sizes(manifest, mark)
    if guess and not sizes and manifest.checkpoints:
        sizes[manifest.boundary] = 0
    lost = []
    expected = manifest.boundary
    for index in found:
        if index > expected:
            lost.append(_missing(expected, index - 1))
        problem = _problem_with(disk, index, sizes.get(index))
        if problem is not None:
            lost.append(problem)
        expected = index + 1
    if sizes and max(sizes) >= expected:
        lost.append(_missing(expected, max(sizes)))
    return lost


def _missing(first: int, last: int) -> LostJournal:
    why = "the file is missing" if first == last else f"the files from here to number {last} are missing"
    return LostJournal(first, why, last - first + 1)


def _problem_with(disk: Disk, index: int, named_size: int | None) -> LostJournal | None:
    path = journal_path(index)
    size = disk.size(path)
    if named_size is None and size <= FILE_HEADER.size:
        return None  # a crash while the file was created; no record was written to it
    try:
        found, _ = read_file_header(path, disk.read(path, 0, FILE_HEADER.size), FileKind.JOURNAL)
    except DamagedFile as error:
        return LostJournal(index, error.why)
    if found != index:
        return LostJournal(index, f"its header has the file number {found}")
    if named_size is not None and size < named_size:
        why = f"it was truncated: {named_size - size} of {named_size} bytes are missing"
        return LostJournal(index, why, cut_at=size)
    return None


def final_sizes(disk: Disk, manifest: Manifest, mark: FlushMark | None, before: int) -> list[JournalEntry]:
    """Return the complete files from the boundary to the one before ``before``.

    A size in the manifest or the mark is kept: if the file is shorter now, this must stay known until it is repaired.
    """
    found = set(journal_indexes(disk))
    named = {entry.index: entry.size for entry in manifest.journals}
    least = least_sizes(manifest, mark)

    def final_size(index: int) -> int:
        size = disk.size(journal_path(index)) if index in found else FILE_HEADER.size
        return named.get(index) or max(size, least.get(index, 0))

    return [
        JournalEntry(index, final_size(index))
        for index in sorted(found | least.keys())
        if manifest.boundary <= index < before
    ]

"""Which journal files must exist, and which of them are lost.

The manifest names every journal file from the boundary on before a record is written to it, and gives its final size
once nothing more is added to it. The flush mark says how far the file in use was flushed. A file that is missing,
shorter than that, or without a readable header took acknowledged records with it. Only after its flushed bytes may the
newest file of a directory that was not stopped in order end anywhere.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile
from strandline.engine.journal.file import FlushMark, journal_indexes, journal_path
from strandline.engine.journal.frame import FILE_HEADER, FileKind, read_file_header
from strandline.engine.state.checkpoints import JournalEntry, Manifest


class LostJournal(NamedTuple):
    """A journal file that is not all there, or several in a row that are missing."""

    number: int
    why: str
    #: How many files in a row are lost.
    files: int = 1
    #: Where the file ends, if its header is good and it was cut off; 0: nothing of it can be read.
    cut_at: int = 0

    @property
    def path(self) -> str:
        return journal_path(self.number)


def least_sizes(manifest: Manifest, mark: FlushMark | None) -> dict[int, int]:
    """The files from the boundary on that must exist, and how long each must be at least; 0: not known."""
    sizes = {entry.index: entry.size for entry in manifest.journals}
    for index, size in ({} if mark is None else mark.sizes(manifest.id)).items():
        sizes[index] = max(sizes.get(index, 0), size)
    return {index: size for index, size in sizes.items() if index >= manifest.boundary}


def lost_journals(disk: Disk, manifest: Manifest, mark: FlushMark | None, *, guess: bool = False) -> list[LostJournal]:
    """The files that must exist and are missing, cut off or unreadable. Raises UnsupportedFormat.

    Where a server may be at work, the ``mark`` was read before this is called, and before sizes were taken down.

    Older releases did not name the files. The one at the boundary was made before the checkpoint, so it ought to exist
    unless an older release has just restored the directory from a backup. With ``guess`` it counts as lost.
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
    why = "the file is missing" if first == last else f"it and the files up to number {last} are missing"
    return LostJournal(first, why, last - first + 1)


def _problem_with(disk: Disk, index: int, named_size: int | None) -> LostJournal | None:
    path = journal_path(index)
    size = disk.size(path)
    if named_size is None and size <= FILE_HEADER.size:
        return None  # a crash while the file was being made; no record was ever written to it
    try:
        found, _ = read_file_header(path, disk.read(path, 0, FILE_HEADER.size), FileKind.JOURNAL)
    except DamagedFile as error:
        return LostJournal(index, error.why)
    if found != index:
        return LostJournal(index, f"its header says that it is file {found}")
    if named_size is not None and size < named_size:
        why = f"it was cut off: {named_size - size} of {named_size} bytes are missing"
        return LostJournal(index, why, cut_at=size)
    return None


def final_sizes(disk: Disk, manifest: Manifest, mark: FlushMark | None, before: int) -> list[JournalEntry]:
    """The files from the boundary to the one ``before`` this index, to which nothing more will be added.

    A size that the manifest or the mark has stays: if the file is shorter by now, that must not be forgotten before it
    is repaired.
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

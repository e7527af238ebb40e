"""Small index files share files of the lake, so that thousands of small logs are not thousands of objects.

Such an index file is a part of a file, and its path says which one: ``pieces/shared/ID.arrow@FIRST+SIZE``. The file has
nothing but parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from strandline.query.index_files.table import FOLDER

#: Larger index files have files of their own.
MAX_PART_BYTES = 64 << 10
#: The approximate maximum size of a shared file. Erasing a record of one log rewrites the whole file.
MAX_SHARED_BYTES = 1 << 20
#: Parts begin where their columns can be used as they are.
_ALIGNMENT = 64
_PATH = re.compile(r"(.+\.arrow)@(\d+)\+(\d+)")


class FilePart(NamedTuple):
    """Bytes of a file of the lake."""

    file: str
    first: int
    size: int

    @property
    def path(self) -> str:
        return f"{self.file}@{self.first}+{self.size}"


def part_of(path: str) -> FilePart | None:
    """The part of a shared file that the path of an index file names; None if it names a whole file."""
    found = _PATH.fullmatch(path)
    return None if found is None else FilePart(found[1], int(found[2]), int(found[3]))


def file_of(path: str) -> str:
    """The file of the lake with the index file of this path."""
    part = part_of(path)
    return path if part is None else part.file


def shared_file(id: str, contents: Sequence[Any]) -> tuple[list[FilePart], bytes]:
    """The parts of a shared file with these bytes-like contents, and its own content."""
    name, content = f"{FOLDER}/shared/{id}.arrow", bytearray()
    parts = []
    for each in contents:
        content += bytes(-len(content) % _ALIGNMENT)
        parts.append(FilePart(name, len(content), len(each)))
        content += memoryview(each)
    return parts, bytes(content)

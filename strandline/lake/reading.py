"""Opening files of the lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from strandline.lake.place import Lake


@contextmanager
def open_file(lake: Lake, name: str) -> Iterator[Any]:
    """As Arrow reads it. Raises FileNotFoundError. From an object store a file is fetched whole: those of tables are of
    a size for that, and one request is quicker than many."""
    directory = lake.directory
    if directory is not None:
        with pa.OSFile(str(directory / name)) as file:
            yield file
        return
    data = lake.read(name)
    if data is None:
        raise FileNotFoundError(lake.place_of(name))
    yield pa.BufferReader(data)

"""Reading Parquet files of the lake in tasks: wherever the lake is, and only the rows that are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from strandline.lake.location import Lake

BATCH_ROWS = 65_536


def read_lake_file(
    lake: Lake, name: str, columns: Sequence[str], condition: Any = None, batch_rows: int = BATCH_ROWS
) -> Iterator[Any]:
    """The rows that fulfil the condition, batch by batch, in the order of the file. Raises FileNotFoundError."""
    format = ds.ParquetFileFormat()
    if lake.directory is not None:
        fragment = format.make_fragment(str(lake.directory / name), LocalFileSystem())
    else:
        fragment = format.make_fragment(pa.BufferReader(_fetched(lake, name)))
    for batch in fragment.to_batches(columns=list(columns), filter=condition, batch_size=batch_rows):
        if batch.num_rows:
            yield batch


def _fetched(lake: Lake, name: str) -> bytes:
    data = lake.read(name)
    if data is None:
        raise FileNotFoundError(lake.place_of(name))
    return data

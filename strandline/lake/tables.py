"""The tables of the lake."""

from __future__ import annotations

import pyarrow as pa

from strandline.lake.place import Lake
from strandline.lake.table import Table

#: Every record. A payload is ``data`` if it is text and ``bytes`` if it is not. ``version`` is that of the record's
#: schema, 0 where it has none.
RECORDS = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.string()),
        pa.field("node", pa.string()),
        pa.field("meta", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("data", pa.string()),
        pa.field("bytes", pa.binary()),
    ]
)


def records(lake: Lake) -> Table:
    return Table(lake, "records", RECORDS)

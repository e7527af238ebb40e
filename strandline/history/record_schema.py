"""The columns of records in bulk. Importing this module imports Arrow."""

from __future__ import annotations

import pyarrow as pa

#: The columns of records, from any source.
RECORDS = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.string()),
        pa.field("node", pa.string()),
        pa.field("meta", pa.binary()),
        pa.field("data", pa.binary(), nullable=False),
    ]
)

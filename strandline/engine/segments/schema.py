"""The columns of a segment. Importing this module imports Arrow."""

from __future__ import annotations

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("log", pa.dictionary(pa.int32(), pa.utf8()), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("key", pa.dictionary(pa.int32(), pa.utf8())),
        pa.field("node", pa.dictionary(pa.int32(), pa.utf8())),
        pa.field("meta", pa.binary()),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("by_key", pa.int32()),
    ]
)

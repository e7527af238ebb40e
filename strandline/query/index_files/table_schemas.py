"""The columns of the tables about index files in the lake. Importing this module imports Arrow."""

from __future__ import annotations

import pyarrow as pa

#: The table of rollups: a row per group and measure. An index file that replaces others replaces their rows, which are
#: identified by the log's epoch and the seqs from ``first`` to ``last``.
ROLLUP_ROWS = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("rollup", pa.string(), nullable=False),
        pa.field("interval_ms", pa.int64(), nullable=False),
        pa.field("start", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("dimensions", pa.map_(pa.string(), pa.string())),
        pa.field("measure", pa.string(), nullable=False),
        pa.field("count", pa.float64()),
        pa.field("sum", pa.float64()),
        pa.field("min", pa.float64()),
        pa.field("max", pa.float64()),
        pa.field("histogram", pa.map_(pa.string(), pa.float64())),
    ]
)

#: One row per index file. ``path`` is relative to the lake; ``versions`` are texts "seq:version".
LISTED = pa.schema(
    [
        pa.field("directory", pa.string(), nullable=False),
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("plan", pa.string(), nullable=False),
        pa.field("rollups", pa.string(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("versions", pa.list_(pa.string()), nullable=False),
        pa.field("erasures", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("checksum", pa.string(), nullable=False),
        pa.field("built_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)

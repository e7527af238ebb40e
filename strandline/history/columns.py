"""What records look like in bulk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

#: The columns of records, wherever they come from.
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


def record_batch(
    log: str, epoch: int, seqs: Any, milliseconds: Any, keys: Any, nodes: Any, metas: Any, data: Any
) -> Any:
    """Arrow arrays of one log's records as a batch of ``RECORDS``. Times are whole milliseconds, of whatever type."""
    rows = len(seqs)
    times = pa.array(np.asarray(milliseconds, "datetime64[ms]").astype("datetime64[us]"), RECORDS.field("ts").type)
    return pa.record_batch(
        [
            pa.repeat(log, rows),
            pa.array(np.full(rows, epoch, np.int64)),
            seqs,
            times,
            keys,
            nodes,
            metas,
            data,
        ],
        schema=RECORDS,
    )

"""The tables of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.lake.location import Lake
from strandline.lake.table import LakeTable

#: Every record. A payload is in ``data`` if it is text, otherwise in ``bytes``. ``version`` is the version of the
#: record's schema; 0 if it has none.
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


def records(lake: Lake) -> LakeTable:
    return LakeTable(lake, "records", RECORDS)


#: Results of audits. Rows of one run have the same ``run``. A row with an empty log name summarises the check over all
#: logs; the other rows are about single logs. ``first_seq`` is the first affected seq, and ``count`` the number of
#: affected records. The table contains no data of records.
AUDIT = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("log", pa.string(), nullable=False),
        pa.field("check", pa.string(), nullable=False),
        pa.field("ok", pa.bool_(), nullable=False),
        pa.field("first_seq", pa.int64()),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)


def audit(lake: Lake) -> LakeTable:
    return LakeTable(lake, "audit", AUDIT)


#: The last record of every key.
LATEST = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("data", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("bucket", pa.string(), nullable=False),
    ]
)

#: Every key: its first and last seq, and the number of rows of ``records`` with it.
KEYS = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("first_seq", pa.int64(), nullable=False),
        pa.field("first_ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("last_seq", pa.int64(), nullable=False),
        pa.field("last_ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("bucket", pa.string(), nullable=False),
    ]
)


def latest(lake: Lake) -> LakeTable:
    return LakeTable(lake, "latest", LATEST, ["bucket"])


def keys(lake: Lake) -> LakeTable:
    return LakeTable(lake, "keys", KEYS, ["bucket"])


# --- converting records to the lake's format ------------------------------------------------------------------------

#: If one of many payloads is not text, payloads are checked in groups of this size, and one by one only in the group
#: that contains it.
GROUP = 1024

Versions = Sequence[tuple[int, int]]
#: The columns that both schemas start with.
_SAME = RECORDS.names[: RECORDS.get_field_index("version")]


def lake_rows(batch: Any, versions: Versions = ()) -> Any:
    """Convert a batch of history's records to the columns of the table ``records``. ``versions`` has the first seq of
    each version of the log's schema, ascending."""
    return lake_rows_of([(batch, versions)])


def lake_rows_of(batches: Sequence[tuple[Any, Versions]]) -> Any:
    """Join several batches into one, because small batches cost as much as large ones."""
    batch = batches[0][0] if len(batches) == 1 else pa.concat_batches([batch for batch, _ in batches])
    text, other = split_text(batch.column("data"))
    columns = batch.columns[: len(_SAME)]
    if any(versions for _, versions in batches):
        version = pa.concat_arrays([_versions(each.column("seq").to_numpy(), versions) for each, versions in batches])
    else:
        version = pa.array(np.zeros(batch.num_rows, np.int32))
    return pa.record_batch([*columns, version, text, other], schema=RECORDS)


def split_text(data: Any) -> tuple[Any, Any]:
    """Return payloads as text, null where they are not text, and as bytes where they are not text."""
    whole = _as_text(data)
    if whole is not None:
        return whole, pa.nulls(len(data), pa.binary())
    texts, others = [], []
    for start in range(0, len(data), GROUP):
        group = data.slice(start, GROUP)
        text = _as_text(group)
        if text is not None:
            texts.append(text)
            others.append(pa.nulls(len(group), pa.binary()))
            continue
        values = group.to_pylist()
        decoded = [_decoded(value) for value in values]
        texts.append(pa.array(decoded, pa.string()))
        others.append(
            pa.array(
                [None if text is not None else value for text, value in zip(decoded, values, strict=True)], pa.binary()
            )
        )
    return pa.concat_arrays(texts), pa.concat_arrays(others)


def _as_text(data: Any) -> Any:
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _versions(seqs: Any, versions: Versions) -> Any:
    if not versions:
        return pa.array(np.zeros(len(seqs), np.int32))
    starts = np.array([first for first, _ in versions], np.int64)
    numbers = np.array([0, *(version for _, version in versions)], np.int32)
    return pa.array(numbers[np.searchsorted(starts, seqs, "right")])

"""Records added up by key, on whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.lake.tables import KEYS, LATEST

_LATEST = [name for name in LATEST.names if name != "bucket"]
_KEYS = [name for name in KEYS.names if name != "bucket"]
LATEST_ROWS = pa.schema([LATEST.field(name) for name in _LATEST])
KEY_ROWS = pa.schema([KEYS.field(name) for name in _KEYS])
#: Both in one: the last record of each key, and what is known of the key.
SUMMED = pa.schema(
    [*LATEST_ROWS, *(KEY_ROWS.field(name) for name in ("first_seq", "first_ts", "count"))],
)


def summed(records: Any) -> Any:
    """Of rows of ``records`` that all have a key, one row per log and key, as ``SUMMED``."""
    groups = _grouped(records, ["first", "last", "count"])
    first, last = groups.column("row_first"), groups.column("row_last")
    columns = {name: records.column(name).take(last) for name in _LATEST}
    columns["first_seq"] = records.column("seq").take(first)
    columns["first_ts"] = records.column("ts").take(first)
    columns["count"] = groups.column("row_count")
    return pa.table([columns[name] for name in SUMMED.names], schema=SUMMED)


def merged_latest(tables: Sequence[Any]) -> Any:
    """Of rows of ``latest``, the last one per log and key, in order."""
    rows = pa.concat_tables([table.select(_LATEST).cast(LATEST_ROWS) for table in tables])
    return rows.take(_grouped(rows, ["last"]).column("row_last")).sort_by(_ORDER)


def merged_keys(known: Sequence[Any], new: Sequence[Any]) -> Any:
    """Rows of ``keys`` and of ``SUMMED`` added up per log and key, in order."""
    renamed = [
        table.select(["log", "epoch", "key", "first_seq", "first_ts", "seq", "ts", "count"]).rename_columns(_KEYS)
        for table in new
    ]
    rows = pa.concat_tables([table.select(_KEYS).cast(KEY_ROWS) for table in (*known, *renamed)])
    groups = rows.group_by(["log", "epoch", "key"], use_threads=False).aggregate(
        [("first_seq", "min"), ("first_ts", "min"), ("last_seq", "max"), ("last_ts", "max"), ("count", "sum")]
    )
    columns = [
        *("log", "epoch", "key"),
        *("first_seq_min", "first_ts_min", "last_seq_max", "last_ts_max", "count_sum"),
    ]
    return groups.select(columns).rename_columns(_KEYS).cast(KEY_ROWS).sort_by(_ORDER)


_ORDER = [("log", "ascending"), ("epoch", "ascending"), ("key", "ascending")]


def _grouped(rows: Any, wanted: list[str]) -> Any:
    """One row per log and key, with the numbers of the first and the last of its rows by seq, or how many there are."""
    order = np.argsort(rows.column("seq").to_numpy(), kind="stable")
    columns = {"epoch": rows.column("epoch").take(order), "key": rows.column("key").take(order), "row": order}
    # First and last are by the order of rows, which several threads would not keep.
    grouped = pa.table(columns).group_by(["epoch", "key"], use_threads=False)
    return grouped.aggregate([("row", each) for each in wanted])

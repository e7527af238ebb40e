"""A lake with the records of a directory in it, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.history.log_info import LogInfo
from strandline.history.source import History
from strandline.lake.files import write_file
from strandline.lake.layout import RECORDS, records
from strandline.lake.location import Lake


def fill(
    lake: Lake, history: History, change: Callable[[Any], Any] = lambda table: table, *, erasures: int = 0
) -> None:
    """All records of all logs but the server's own, a file per log; ``change`` may do something to the rows. The table
    says that it has followed the events of erasures up to ``erasures``."""
    table = records(lake)
    for info in history.logs():
        if not info.name.startswith("__"):
            file = write_file(lake, "records", RECORDS, [change(_rows(history, info))])
            table.snapshot().commit(
                add=[file] if file else [], progress={str(info.epoch): info.head, "erasures": erasures}
            )


def _rows(history: History, info: LogInfo) -> Any:
    batches = [batch for piece in history.pieces(info, 0, info.head, 1000, own=True) for batch in piece.read()]
    if not batches:
        return RECORDS.empty_table()
    found = pa.Table.from_batches(batches)
    texts = [_text(data) for data in found.column("data").to_pylist()]
    columns = {name: found.column(name) for name in ("log", "epoch", "seq", "ts", "key", "node", "meta")}
    columns["version"] = pa.array([0] * found.num_rows, pa.int32())
    columns["data"] = pa.array(texts, pa.string())
    columns["bytes"] = pc.if_else(pc.is_null(columns["data"]), found.column("data"), None)
    return pa.table(columns, schema=RECORDS)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None

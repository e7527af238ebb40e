"""The log engine: durable append-only logs in one directory.

The engine is plain synchronous Python without HTTP, asyncio or Spark. :class:`Engine` is the entry point. This package
exports everything a caller needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.late_import import late_names

if TYPE_CHECKING:
    from strandline.engine.clock import Clock, ManualClock, SteadyClock, SystemClock
    from strandline.engine.commit import Commit
    from strandline.engine.engine import Engine, Options
    from strandline.engine.log import Log
    from strandline.engine.operations.forward import ForwardedCopy
    from strandline.engine.operations.transaction import Amend, Append, Delete, Hide, Restore
    from strandline.engine.record import (
        Appended,
        Batch,
        Config,
        Cursor,
        Deleted,
        LogState,
        Page,
        Producer,
        ProducerState,
        Record,
        Tombstone,
    )  # fmt: skip
    from strandline.engine.stats import Histogram, Stats

__all__ = [
    "Amend",
    "Append",
    "Appended",
    "Batch",
    "Clock",
    "Commit",
    "Config",
    "Cursor",
    "Delete",
    "Deleted",
    "Engine",
    "ForwardedCopy",
    "Hide",
    "Histogram",
    "Log",
    "LogState",
    "ManualClock",
    "Options",
    "Page",
    "Producer",
    "ProducerState",
    "Record",
    "Restore",
    "Stats",
    "SteadyClock",
    "SystemClock",
    "Tombstone",
]

#: A module is imported when one of its names is used: the errors and records of the engine are used without it.
__getattr__ = late_names(
    __name__,
    {
        "clock": "Clock ManualClock SteadyClock SystemClock",
        "commit": "Commit",
        "engine": "Engine Options",
        "log": "Log",
        "operations.forward": "ForwardedCopy",
        "operations.transaction": "Amend Append Delete Hide Restore",
        "record": "Appended Batch Config Cursor Deleted LogState Page Producer ProducerState Record Tombstone",
        "stats": "Histogram Stats",
    },
)

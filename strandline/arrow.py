"""Arrow, imported when it is first used: a server without records, and most commands, do not need it.

If pandas is installed, pyarrow imports it when it gets its first Python list. That takes longer, and more memory, than
everything else. It looks for pandas once. Others can still import it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from strandline.late_import import LateModule, Without

_without_pandas = False


def avoid_pandas() -> None:
    """Let pyarrow do without pandas. For a process that runs nothing but Strandline."""
    global _without_pandas
    _without_pandas = True
    if "pyarrow" in sys.modules:
        _find_pandas()


def _find_pandas() -> None:
    """Let pyarrow look for pandas now, and not in the middle of a request."""
    import pyarrow

    finder = Without("pandas")
    if _without_pandas and "pandas" not in sys.modules:
        sys.meta_path.insert(0, finder)
    try:
        pyarrow.array([0])
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)


pa: Any = LateModule("pyarrow", _find_pandas)
pc: Any = LateModule("pyarrow.compute")
pq: Any = LateModule("pyarrow.parquet")
fs: Any = LateModule("pyarrow.fs")


def prepare() -> None:
    """Import what a server needs as soon as it has a log: for segments, schemas and searches. Called on a thread, so
    that requests do not wait for it."""
    _ = pa.Array, pc.equal
    # pyarrow imports numpy.ma for the first array.
    for name in ("numpy.ma", "jsonschema_rs", "strandline.engine.segments.schema", "strandline.history.record_schema"):
        import_module(name)

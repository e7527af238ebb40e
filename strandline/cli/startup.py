"""What makes a short command start quickly."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any

_is_own_process = False


def this_process_runs_one_command() -> None:
    """Let commands change what the whole process imports. Not called by programs that call commands, such as tests."""
    global _is_own_process
    _is_own_process = True


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def keep_pandas_out() -> None:
    """Let pyarrow do without pandas. If pandas is installed, pyarrow imports it when it gets its first Python list, and
    that takes longer than the import of a small file. It looks for pandas once. Others can still import it."""
    if not _is_own_process or "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)

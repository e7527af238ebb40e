"""What makes a short command start quickly."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from strandline.late_import import Without

_is_own_process = False


def this_process_runs_one_command() -> None:
    """Let commands change what the whole process imports. Not called by programs that call commands, such as tests."""
    global _is_own_process
    _is_own_process = True
    # httpx imports its own command line, with click, rich and pygments, if they are installed. That takes longer than
    # the rest of httpx.
    sys.meta_path.insert(0, Without("httpx._main"))


def keep_pandas_out() -> None:
    """Let pyarrow do without pandas, whose import takes longer than the import of a small file."""
    if _is_own_process:
        from strandline.arrow import avoid_pandas

        avoid_pandas()


@contextmanager
def quick_imports() -> Iterator[None]:
    """Imports leave hardly any garbage, and looking for it takes a twentieth of their time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

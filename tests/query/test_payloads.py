"""A process that has read payloads with DuckDB ends without a message."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import strandline.server.metrics
from strandline.query.payloads import prepare

prepare()
"""


def test_a_process_ends_without_warnings_about_leaks() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ended.stdout + ended.stderr == ""

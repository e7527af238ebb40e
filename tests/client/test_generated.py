"""The client for threads is made from the one for event loops; what is committed is what would be made now."""

from __future__ import annotations

import subprocess
import sys

from documents import ROOT


def test_the_client_for_threads_is_up_to_date() -> None:
    check = [sys.executable, str(ROOT / "tools" / "generate_client.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

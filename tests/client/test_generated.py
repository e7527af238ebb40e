"""The client for threads is made from the one for event loops; what is committed is what would be made now."""

from __future__ import annotations

import subprocess
import sys

from support.document_tables import ROOT
from support.either_client import public_classes


def test_the_client_for_threads_is_up_to_date() -> None:
    check = [sys.executable, str(ROOT / "tools" / "generate_client.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_both_clients_can_do_the_same() -> None:
    for one, other in public_classes():
        names = {"close" if name == "aclose" else name for name in vars(one) if not name.startswith("_")}
        assert names == {name for name in vars(other) if not name.startswith("_")}

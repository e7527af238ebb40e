"""A place for servers that run as somebody else than the tests do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Unlike pytest's own directories, these can be made open to everybody who passes by."""
    with tempfile.TemporaryDirectory(prefix="strandline-bench-test-") as root:
        inner = Path(root) / "sides"
        inner.mkdir()
        yield inner

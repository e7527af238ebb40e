"""The test bed of the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console_in_process import ConsoleStand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[ConsoleStand]:
    with ConsoleStand(tmp_path / "data") as stand:
        yield stand

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tables_in_process import Bed


@pytest.fixture(params=["tail", "sealed"])
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    """Everything is true of rows in memory and of rows in segments."""
    bed = Bed(tmp_path / "data", sealed=request.param == "sealed")
    yield bed
    bed.close()


@pytest.fixture
def plain_bed(tmp_path: Path) -> Iterator[Bed]:
    bed = Bed(tmp_path / "data")
    yield bed
    bed.close()

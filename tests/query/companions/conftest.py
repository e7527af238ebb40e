from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.companion_lake import CompanionBed, companion_bed


@pytest.fixture
def covered(tmp_path: Path) -> Iterator[CompanionBed]:
    """A log, and a lake for its companions."""
    with companion_bed(tmp_path) as made:
        yield made

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.searched_log import Bed, bed


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made

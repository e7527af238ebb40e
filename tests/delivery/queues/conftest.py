from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.manual_queue import Stand

MakeStand = Callable[..., Stand]


@pytest.fixture
def make_stand(tmp_path: Path) -> Iterator[MakeStand]:
    stands: list[Stand] = []

    def make(*args: object, **config: object) -> Stand:
        stands.append(Stand(tmp_path / "data", *args, **config))  # type: ignore[arg-type]
        return stands[-1]

    yield make
    for stand in stands:
        stand.close()


@pytest.fixture
def stand(make_stand: MakeStand) -> Stand:
    return make_stand()

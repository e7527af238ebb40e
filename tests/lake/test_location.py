from __future__ import annotations

from pathlib import Path

import pytest

from strandline.engine.errors import DamagedFile
from strandline.lake.location import Lake


@pytest.mark.parametrize("name", ["../outside", "table/../../outside", "/outside"])
def test_names_do_not_lead_out_of_a_lake(name: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"somebody else's")
    lake = Lake.at(tmp_path / "lake")
    (tmp_path / "lake" / "table").mkdir(parents=True)
    for use in (
        lambda: lake.read(name),
        lambda: lake.open(name),
        lambda: lake.state(name),
        lambda: lake.write(name, b"mine"),
        lambda: lake.remove([name]),
    ):
        with pytest.raises(DamagedFile, match="outside the lake"):
            use()
    assert outside.read_bytes() == b"somebody else's"

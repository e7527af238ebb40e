from __future__ import annotations

from pathlib import Path

from strandline.lake.location import Lake
from strandline.pipeline.companions.tables import MAX_FILES, CompanionTable
from strandline.query.index_files.file import Info
from strandline.query.index_files.table import IndexEntry


def entry(number: int) -> IndexEntry:
    info = Info(
        directory="d", log="log", epoch=1, first=number, last=number, versions=((number, 1),), plan="p", rollups="r",
        erasures=0, records=1,
    )  # fmt: skip
    return IndexEntry(info, f"pieces/1/{number}", 10, "sum", 1_700_000_000_000 + number)


def test_rows_come_and_go_with_progress_in_one_step(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    table = CompanionTable(lake)
    assert table.entries == []
    table.change(add=[entry(1), entry(2)], progress={"1/p": 2})
    version = table.version
    table.change(add=[entry(3)], remove=[entry(1)], progress={"1/p": 3})
    assert table.version == version + 1
    again = CompanionTable(lake)
    assert again.entries == table.entries == [entry(2), entry(3)]
    assert again.progress == table.progress == {"1/p": 3}
    assert again.version == table.version
    table.change(remove=[entry(2), entry(3)])
    assert CompanionTable(lake).entries == []
    before = table.version
    table.change(remove=[entry(7)])
    assert table.version == before, "nothing has changed"


def test_the_table_stays_in_few_files(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    table = CompanionTable(lake)
    for number in range(1, 3 * MAX_FILES):
        table.change(add=[entry(number)], progress={"1/p": number})
        assert len(table._files) <= MAX_FILES
    assert sorted(each.info.first for each in CompanionTable(lake).entries) == list(range(1, 3 * MAX_FILES))

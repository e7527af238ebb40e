from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lake_rounds import Bed, append, by_key, derived
from support.local_tasks import work_here

from strandline.lake.table import KnownFile
from strandline.pipeline import table_upkeep
from strandline.pipeline.round import FileRetention

DAY = 86_400_000


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


def test_small_files_become_one_and_records_stay_what_they_are(bed: Bed) -> None:
    log, other = bed.log("b"), bed.log("a")
    for number in range(table_upkeep.FILES_PER_TIER):
        append(log, f"b{number}", key=f"k{number}")
        append(other, f"a{number}")
        bed.round()
    (file,) = bed.table("records").files()
    assert file.bounds["seq"] == (1, table_upkeep.FILES_PER_TIER)
    rows = bed.table("records").open().to_pyarrow_table()
    assert rows.schema.field("ts").type.tz == "UTC"
    order = rows.select(["log", "seq"]).to_pylist()
    assert order == sorted(order, key=lambda row: (row["log"], row["seq"]))
    assert bed.data("b") == [f"b{number}" for number in range(table_upkeep.FILES_PER_TIER)]
    assert by_key(bed) == derived(bed.rows())


def test_files_are_put_together_with_those_of_their_size() -> None:
    def file(number: int, size: int) -> KnownFile:
        return KnownFile(str(number), size, 1, {"log": ("a", "a"), "seq": (number, number)}, {})

    small = [file(number, 1000) for number in range(7)]
    assert list(table_upkeep.groups_of(small)) == []
    medium = [file(100 + number, 5 << 20) for number in range(20)]
    large = [file(200 + number, 100 << 20) for number in range(20)]
    (group,) = table_upkeep.groups_of([*small, *reversed(medium), *large])
    assert group == medium
    half = [file(300 + number, 40 << 20) for number in range(9)]
    assert [len(group) for group in table_upkeep.groups_of(half)] == [3, 3, 3]


def test_replaced_files_go_after_their_time_and_orphans_after_theirs(bed: Bed) -> None:
    """The clock is turned by hand; what is young stays."""
    log = bed.log()
    records = bed.path / "lake" / "records"
    for number in range(table_upkeep.FILES_PER_TIER):
        append(log, str(number), key="x")
        bed.round()
    now = int(records.stat().st_mtime * 1000)
    orphan = records / "left-behind.parquet"
    orphan.write_bytes(b"?")
    os.utime(orphan, (now / 1000, now / 1000))

    def parquet() -> int:
        return len(list(records.glob("*.parquet")))

    assert parquet() == table_upkeep.FILES_PER_TIER + 2
    keeping = FileRetention(versions=2 * 86_400, orphans=86_400)
    bed.round(now=lambda: now + DAY // 2, keeping=keeping)
    assert parquet() == table_upkeep.FILES_PER_TIER + 2
    bed.round(now=lambda: now + DAY + 3_600_000, keeping=keeping)
    assert not orphan.exists()
    assert parquet() == table_upkeep.FILES_PER_TIER + 1
    bed.round(now=lambda: now + 3 * DAY, keeping=keeping)
    assert parquet() == 1
    assert len(bed.data()) == table_upkeep.FILES_PER_TIER
    assert len(list((bed.path / "lake" / "latest").rglob("*.parquet"))) == 1


class TestAfterAWrongClock:
    """One round was made while the clock said 2101."""

    WRONG = 4_150_000_000_000

    def test_files_are_swept_as_ever(self, bed: Bed) -> None:
        log = bed.log()
        records = bed.path / "lake" / "records"
        for number in range(table_upkeep.FILES_PER_TIER):
            append(log, str(number), key="x")
            # The last one puts the files together, and says when it removed them and when it looked for old ones.
            wrong = number == table_upkeep.FILES_PER_TIER - 1
            bed.round(**({"now": lambda: self.WRONG} if wrong else {}))
        assert bed.table("records").progress()[table_upkeep.SWEPT] == self.WRONG
        orphan = records / "left-behind.parquet"
        orphan.write_bytes(b"?")
        for path in records.rglob("*"):
            os.utime(path, (self.WRONG / 1000, self.WRONG / 1000))
        now = int(time.time() * 1000)

        def round(after: int) -> int:
            bed.round(now=lambda: now + after)
            return len(list(records.glob("*.parquet")))

        assert round(0) == table_upkeep.FILES_PER_TIER + 2
        assert bed.table("records").progress()[table_upkeep.SWEPT] == now
        assert all(path.stat().st_mtime < self.WRONG / 1000 for path in records.rglob("*") if path.is_file())
        assert round(DAY + 3_600_000) == table_upkeep.FILES_PER_TIER + 1
        assert not orphan.exists()
        assert round(2 * DAY + 7_200_000) == 1
        assert len(bed.data()) == table_upkeep.FILES_PER_TIER

    def test_a_time_in_the_future_says_nothing(self) -> None:
        assert table_upkeep.is_sweep_due({table_upkeep.SWEPT: self.WRONG}, 1_700_000_000_000)
        assert table_upkeep.is_sweep_due({}, 1_700_000_000_000)
        assert not table_upkeep.is_sweep_due({table_upkeep.SWEPT: 1_700_000_000_000 - 1}, 1_700_000_000_000)

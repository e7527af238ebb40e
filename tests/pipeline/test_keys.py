from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lake_rounds import Bed, append, by_key, derived
from support.local_tasks import work_here

from strandline.lake import key_files
from strandline.lake.table import LakeTable
from strandline.pipeline import keys as stage
from strandline.pipeline.chosen_logs import Chosen


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


def test_every_key_has_its_last_record_and_what_is_known_of_it(bed: Bed) -> None:
    log = bed.log()
    append(log, "1", "2", key="x")
    append(log, "no key")
    append(log, "3", key="")
    append(bed.log("b"), "4", key="x")
    bed.round()
    append(log, "5", key="x")
    bed.round()
    found = {(row["log"], row["key"]): (row["seq"], row["data"]) for row in bed.rows("latest")}
    assert found == {("a", "x"): (5, "5"), ("a", ""): (4, "3"), ("b", "x"): (1, "4")}
    counts = {(row["log"], row["key"]): (row["first_seq"], row["last_seq"], row["count"]) for row in bed.rows("keys")}
    assert counts == {("a", "x"): (1, 5, 3), ("a", ""): (4, 4, 1), ("b", "x"): (1, 1, 1)}
    assert by_key(bed) == derived(bed.rows())


def test_a_round_rewrites_the_buckets_that_it_touches_and_large_ones_are_split(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_files, "BUCKET_ROWS", 10)
    log = bed.log()
    for number in range(100):
        append(log, str(number), key=f"key-{number}")
    bed.round()
    files = {file.path: file for file in bed.table("latest").files()}
    assert all(file.rows <= 10 for file in files.values())
    buckets = {file.partition["bucket"] for file in bed.table("keys").files()}
    assert buckets == {file.partition["bucket"] for file in files.values()}
    append(log, "again", key="key-7")
    bed.round()
    later = {file.path for file in bed.table("latest").files()}
    assert len(files.keys() - later) == 1
    assert len(later - files.keys()) == 1
    assert by_key(bed) == derived(bed.rows())


def test_much_is_added_up_in_parts(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "CHUNK_ROWS", 7)
    monkeypatch.setattr(stage, "ITEM_ROWS", 5)
    for name in "abc":
        log = bed.log(name)
        for number in range(6):
            append(log, f"{number}", f"{number}+", key=f"key-{number % 4}")
        bed.round(chosen=Chosen([name]))
    versions = bed.table("keys").snapshot().version
    assert versions is not None
    assert versions >= 6
    assert by_key(bed) == derived(bed.rows())


def test_few_new_records_wait_while_there_are_many_keys_but_not_for_long(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "MANY_KEYS", 10)
    now = 1_000_000_000

    def at(later_ms: int, complete: bool = False) -> None:
        bed.round(complete=complete, now=lambda: now + later_ms)

    log = bed.log()
    for number in range(40):
        append(log, "x", key=f"key-{number}")
    at(0)
    append(log, "y", key="key-1")
    at(1000)
    assert len(bed.rows()) == 41
    assert bed.heard.last_lag.covered == {"records": 41, "latest": 40, "keys": 40}
    at(2000, complete=True)
    assert bed.heard.last_lag.behind == 0
    append(log, "z", key="key-1")
    at(3000)
    assert bed.heard.last_lag.behind == 1
    at(2000 + stage.FEW_WAIT_MS)
    assert bed.heard.last_lag.behind == 0
    append(log, "1", "2", "3", key="key-2")
    at(2000 + stage.FEW_WAIT_MS + 1)
    assert bed.heard.last_lag.behind == 0


def test_records_that_were_only_rearranged_are_not_counted_again(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.pipeline.table_upkeep.FILES_PER_TIER", 2)
    log = bed.log()
    for number in range(5):
        append(log, str(number), key="x")
        bed.round()
    assert len(bed.table("records").files()) < 5
    (key,) = bed.rows("keys")
    assert key["count"] == 5


def test_an_earlier_version_that_is_not_known_any_more_costs_reading_everything(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bed.log()
    append(log, "1", key="x")
    bed.round()
    append(log, "2", key="x")
    monkeypatch.setattr(LakeTable, "paths_at", lambda table, version: set())
    bed.round()
    assert by_key(bed) == derived(bed.rows())

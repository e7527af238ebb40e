from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lake_rounds import Bed, append, by_key, check_typed, derived, install, text_schema
from support.local_tasks import TravellingWorkers, work_here

from strandline.history.directory import DirectoryHistory
from strandline.lake.erasures import ErasureEvents
from strandline.lake.fence import LakeInUse, claim, take_fence
from strandline.lake.files import write_file
from strandline.lake.layout import RECORDS
from strandline.lake.reporter import Silent
from strandline.lake.table import TableSnapshot
from strandline.pipeline.audit.duplicates import (
    ATTEMPTS,
    DuplicateRows,
    SeqsSeen,
    _compared,
    _ranges,
    is_kept,
    remove_copies,
    repair_lake,
)
from strandline.pipeline.audit.lake_files import LakeSnapshot
from strandline.pipeline.audit.run import audit
from strandline.pipeline.chosen_logs import EVERYTHING, Chosen, choose
from strandline.pipeline.round import Round


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    yield bed
    bed.close()


def double(bed: Bed) -> None:
    """Add every row once more, as a second driver did that had read the same progress."""
    records = bed.table("records")
    for file in records.files():
        rows = pq.read_table(bed.path / "lake" / "records" / file.path)
        copy = write_file(bed.lake, "records", RECORDS, [rows])
        assert copy is not None
        records.append([copy])


def doubled_by_two_drivers(bed: Bed, patch: pytest.MonkeyPatch) -> None:
    """A lake as two drivers left it: all rows are there twice, and the keys have counted them twice."""
    for name in "ab":
        log = bed.log(name)
        for number in range(4):
            append(log, f"{name}{number}", f"{name}{number}+", key=f"key-{number % 2}")
        append(log, "without a key")
    with patch.context() as once:
        once.setattr("strandline.pipeline.keys.run", lambda round: None)
        bed.round()
    double(bed)
    bed.round()
    assert len(bed.rows()) == 36
    assert {row["count"] for row in bed.rows("keys")} == {8}


def repair(bed: Bed, chosen: Chosen = EVERYTHING) -> DuplicateRows:
    history = DirectoryHistory(bed.path / "data")
    try:
        every = [info for info in history.logs() if not info.name.startswith("__")]
        nothing: Any = None
        with take_fence(bed.lake, lambda: 0) as fence:
            logs = choose(every, chosen)
            round = Round(nothing, history, bed.lake, Silent(), logs, every, ErasureEvents(history), fence=fence)
            return remove_copies(round)
    finally:
        history.close()


def findings(bed: Bed, removed: DuplicateRows | None = None) -> list[tuple[str, bool, str, int | None, int]]:
    snapshot = LakeSnapshot.take(bed.lake)
    history = DirectoryHistory(bed.path / "data")
    report = audit(TravellingWorkers(), history, snapshot, Silent(), removed=removed)
    history.close()
    return [(each.check, each.ok, each.log, each.first_seq, each.count) for each in report.findings if each.log]


def test_rows_that_are_there_twice_are_found_and_removed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    doubled_by_two_drivers(bed, monkeypatch)
    install(bed.engine.log("a"), text_schema("v"))
    bed.round()
    assert len(bed.typed("a")) == 18
    assert findings(bed) == [("copies", False, "a", 1, 9), ("copies", False, "b", 1, 9)]
    version = bed.table("records").snapshot().version
    removed = repair(bed)
    assert bed.table("records").snapshot().version == version + 1, "in one commit"
    assert findings(bed, removed) == [("copies", True, "a", 1, 9), ("copies", True, "b", 1, 9)]
    assert [row["seq"] for row in bed.rows()] == [*range(1, 10), *range(1, 10)]
    assert by_key(bed) == derived(bed.rows())
    assert repair(bed).concerned == set(), "there is nothing left to do"
    append(bed.engine.log("a"), "more", key="key-0")
    bed.round()
    assert len(bed.rows()) == 19
    assert by_key(bed) == derived(bed.rows())
    check_typed(bed)
    assert findings(bed) == []


def test_copies_in_one_file_are_found_and_removed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upkeep puts files together, and then the copies are in one of them."""
    monkeypatch.setattr("strandline.pipeline.table_upkeep.FILES_PER_TIER", 2)
    doubled_by_two_drivers(bed, monkeypatch)
    assert len(bed.table("records").files()) == 1
    assert findings(bed) == [("copies", False, "a", 1, 9), ("copies", False, "b", 1, 9)]
    repair(bed)
    assert [row["seq"] for row in bed.rows()] == [*range(1, 10), *range(1, 10)]
    assert by_key(bed) == derived(bed.rows())


def test_copies_of_what_a_log_has_no_more_are_found(bed: Bed) -> None:
    """What a cap took from the log stays in the lake, once."""
    log = bed.log(cap_records=3)
    append(log, "1", "2", "3")
    bed.round()
    double(bed)
    append(log, "4", "5", "6")
    bed.round()
    assert findings(bed) == [("copies", False, "a", 1, 3)]
    repair(bed)
    assert bed.data() == ["1", "2", "3", "4", "5", "6"]


def test_only_the_chosen_logs_are_repaired(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    doubled_by_two_drivers(bed, monkeypatch)
    assert repair(bed, Chosen(["b"])).extra == {bed.engine.log("b").epoch: 9}
    assert findings(bed) == [("copies", False, "a", 1, 9)]


def test_a_repair_is_planned_again_if_the_table_moves(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    doubled_by_two_drivers(bed, monkeypatch)
    real = TableSnapshot.commit
    disturbed = 0

    def commit(snapshot: TableSnapshot, **changes: Any) -> int:
        nonlocal disturbed
        if snapshot.table.name == "records" and disturbed < most:
            disturbed += 1
            real(snapshot.table.snapshot(), progress={"another engine": disturbed})
        return real(snapshot, **changes)

    monkeypatch.setattr(TableSnapshot, "commit", commit)
    most = ATTEMPTS
    with pytest.raises(LakeInUse, match="kept changing during the repair"):
        repair(bed)
    most, disturbed = 1, 0
    repair(bed)
    assert disturbed == 1
    assert len(bed.rows()) == 18
    assert by_key(bed) == derived(bed.rows())


def test_a_lake_that_a_pipeline_works_on_is_not_repaired(bed: Bed) -> None:
    append(bed.log(), "1")
    bed.round()
    history = DirectoryHistory(bed.path / "data")
    nothing: Any = None
    with claim(bed.lake, lambda: 0), pytest.raises(LakeInUse, match="another pipeline uses the lake"):
        repair_lake(nothing, history, bed.lake, Silent())
    history.close()


rows = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 12)), max_size=12)


@given(st.lists(rows, max_size=4))
def test_of_any_rows_each_stays_once(files: list[list[tuple[int, int]]]) -> None:
    seen, held = [], {}
    for each in files:
        path = uuid.uuid4().hex
        epochs = np.array([epoch for epoch, _ in each], np.int64)
        seqs = np.array([seq for _, seq in each], np.int64)
        held[path] = epochs, seqs
        found = SeqsSeen(path, len(each), {}, {}, {}, {1: "one", 2: "two"})
        for epoch in np.unique(epochs).tolist():
            distinct, counts = np.unique(seqs[epochs == epoch], return_counts=True)
            found.ranges[epoch] = _ranges(distinct)
            if (counts > 1).any():
                found.repeated[epoch] = _ranges(distinct[counts > 1])
                found.extra[epoch] = int((counts - 1).sum())
        seen.append(found)
    copies = _compared(seen, None)
    left = []
    for path, (epochs, seqs) in held.items():
        kept = is_kept(epochs, seqs, copies.dropped.get(path, {}))
        assert kept.all() or path in copies.concerned
        left += list(zip(epochs[kept].tolist(), seqs[kept].tolist(), strict=True))
    every = [row for each in files for row in each]
    assert sorted(left) == sorted(set(every))
    assert sum(copies.extra.values()) == len(every) - len(set(every))

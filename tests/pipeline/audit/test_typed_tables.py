from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lake_rounds import Bed, append, install, text_schema
from support.local_tasks import TravellingWorkers, work_here

from strandline.history.directory import DirectoryHistory
from strandline.lake import typed_tables
from strandline.lake.erasures import PROGRESS
from strandline.lake.reporter import Silent
from strandline.pipeline.audit.lake_files import LakeSnapshot
from strandline.pipeline.audit.run import audit
from strandline.pipeline.chosen_logs import EVERYTHING, Chosen


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    work_here(monkeypatch)
    bed = Bed(tmp_path)
    for name in "ab":
        log = bed.log(name)
        install(log, text_schema("v"))
        append(log, '{"v":"1"}', "broken", '{"v":"3"}')
        bed.round()
    bed.engine.log("a").delete(seqs=[1]).wait()
    bed.round()
    yield bed
    bed.close()


def findings(bed: Bed, chosen: Chosen = EVERYTHING) -> list[tuple[bool, str, int]]:
    snapshot = LakeSnapshot.take(bed.lake)
    history = DirectoryHistory(bed.path / "data")
    try:
        report = audit(TravellingWorkers(), history, snapshot, Silent(), chosen)
    finally:
        history.close()
    return [(each.ok, each.log, each.count) for each in report.findings if each.check == "tables"]


def test_tables_that_are_as_records_is_have_no_finding(bed: Bed) -> None:
    assert findings(bed) == [(True, "", 0)]
    assert findings(bed, Chosen(["b"])) == [(True, "", 0)]


def test_rows_that_are_missing_or_should_not_be_there_are_found(bed: Bed) -> None:
    table = typed_tables.typed_table(bed.lake, "a").snapshot()
    (file,) = table.files()
    table.commit(remove=[file], progress={"x": 1})
    assert findings(bed) == [(False, "", 2), (False, "a", 2)]
    assert findings(bed, Chosen(["b"])) == [(True, "", 0)]
    table.commit(add=[], progress={str(bed.engine.log("a").epoch): 0})
    assert findings(bed) == [(True, "", 0)]


def test_erasures_that_records_does_not_have_yet_are_no_finding(bed: Bed) -> None:
    table = typed_tables.typed_table(bed.lake, "a").snapshot()
    (file,) = table.files()
    table.commit(remove=[file], progress={PROGRESS: 1000})
    assert findings(bed) == [(True, "", 0)]

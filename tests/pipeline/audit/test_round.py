from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.local_tasks import TravellingWorkers, work_here

from strandline.engine import Batch, Config, Engine
from strandline.history.directory import DirectoryHistory
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline.audit.lake_files import LakeSnapshot
from strandline.pipeline.audit.report import Finding
from strandline.pipeline.audit.run import audit
from strandline.pipeline.run import run_round


def findings(data: Path, lake: Lake) -> list[Finding]:
    snapshot = LakeSnapshot.take(lake)
    assert snapshot is not None
    history = DirectoryHistory(data)
    report = audit(TravellingWorkers(), history, snapshot, Silent())
    history.close()
    return [finding for finding in report.findings if not finding.ok or finding.log]


def bring_up(data: Path, lake: Lake) -> None:
    nothing: Any = None
    history = DirectoryHistory(data)
    run_round(nothing, history, lake, Silent())
    history.close()


def test_the_lake_that_rounds_make_agrees_with_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work_here(monkeypatch)
    data, lake = tmp_path / "data", Lake.at(tmp_path / "lake")
    with Engine.open(data, background=False) as engine:
        log = engine.create("log").wait()
        payloads = [b'{"n":%d}' % number for number in range(50)] + [b"\xff"]
        log.append(Batch(payloads, ["a", "b", None] * 17, [None, "n", None] * 17, [b"{}", None, None] * 17)).wait()
        capped = engine.create("capped", Config(cap_records=2)).wait()
        capped.append(Batch([b"1", b"2", b"3"])).wait()
        engine.create("dropped").wait().append(Batch([b"1"])).wait()
        engine.fork("fork", log, 20).wait().append(Batch([b"1"])).wait()
    bring_up(data, lake)
    assert findings(data, lake) == []
    with Engine.open(data, background=False) as engine:
        log = engine.log("log")
        log.delete(key="a").wait()
        log.hide(seqs=[2, 3]).wait()
        log.amend(5, b'{"amended":true}').wait()
        engine.log("capped").append(Batch([b"4"])).wait()
        engine.log("dropped").drop().wait()
        log.append(Batch([b"{}"])).wait()
    assert [(finding.log, finding.ok) for finding in findings(data, lake)] == [("log", True)]
    bring_up(data, lake)
    with Engine.open(data, background=False) as engine:
        engine.log("log").restore(seqs=[2]).wait()
    bring_up(data, lake)
    assert findings(data, lake) == []

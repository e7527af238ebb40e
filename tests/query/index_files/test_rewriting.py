"""What the index files know about rewritten records does not grow with the number of rewrites."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from strandline.engine import Batch, Engine
from strandline.engine.operations import erasures
from strandline.query.index_files import answers
from strandline.query.index_files.answers import Rewriting

RECORDS = 600


def test_events_that_are_gone_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasures, "_CONFIG", msgspec.structs.replace(erasures._CONFIG, cap_bytes=4096))
    monkeypatch.setattr(answers, "_DROP_AFTER", 50)
    with closing(Engine.open(tmp_path)) as engine:
        log = engine.create("edited").wait()
        log.append(Batch([b"{}"] * RECORDS)).wait()
        rewriting = Rewriting(engine)
        most = 0
        for seq in range(1, RECORDS + 1):
            log.amend(seq, b'{"edited":true}').wait()
            found = rewriting.since(log, rewriting.through)
            assert found is not None
            assert [event.seqs for event in found] == [(seq,)]
            most = max(most, sum(map(len, rewriting._events.values())))
        events = engine.log(erasures.NAME).state()
        assert events.evict_floor > RECORDS // 2, "the log of erasures kept all events"
        assert most <= events.count + 50
        # Callers that need an event that is gone are told so.
        assert rewriting.since(log, 0) is None

"""The limit on the bytes of all records counts those that still wait for the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.engines import make, opened

from strandline.engine import Append, Batch, Commit, Engine
from strandline.engine.errors import QuotaExceeded

FOUR = Batch.of(b"1234")

#: Each appends four bytes that become visible with the next flush.
APPENDS: dict[str, Callable[[Engine, int], Commit[Any]]] = {
    "append": lambda engine, _: engine.log("a").append(FOUR),
    "several logs": lambda engine, _: engine.change_all([Append(engine.log("a"), FOUR)]),
    "new log": lambda engine, number: engine.create(f"new{number}", batch=FOUR),
}


@pytest.mark.parametrize("kind", APPENDS)
def test_records_that_wait_for_the_disk_take_up_room(tmp_path: Path, kind: str) -> None:
    with opened(tmp_path, max_total_bytes=10) as engine:
        make(engine, durability="fsync")
        waiting = [APPENDS[kind](engine, number) for number in range(2)]
        assert not any(commit.done for commit in waiting)
        with pytest.raises(QuotaExceeded):
            APPENDS[kind](engine, 2)
        for commit in waiting:
            commit.wait()
        assert engine.totals.size == 8
        assert engine.totals.pending_size == 0
        engine.log("a").append(Batch.of(b"12")).wait()


def test_a_log_that_is_dropped_frees_what_waits_for_the_disk(tmp_path: Path) -> None:
    with opened(tmp_path, max_total_bytes=10) as engine:
        log = make(engine, durability="fsync")
        log.append(Batch.of(b"12345678"))
        log.drop()
        engine.flush()
        assert (engine.totals.size, engine.totals.pending_size) == (0, 0)
        make(engine, "b", durability="fsync").append(Batch.of(b"1234567890")).wait()

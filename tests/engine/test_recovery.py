"""Recovery: what it needs of memory and of the disk."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from engines import make, opened

from strandline.engine import Batch, Engine, frame, recovery

MIB = 1 << 20


@pytest.mark.parametrize("records", [1, 200])
def test_a_start_needs_memory_for_a_piece_of_the_journal(
    records: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (frame, recovery):
        monkeypatch.setattr(module, "PIECE_BYTES", MIB)
    engine = Engine.open(tmp_path, background=False)
    log = make(engine, durability="memory", cap_records=records)
    for _ in range(40 * 256 // records):
        log.append(Batch([b"x" * (MIB // 256)] * records))
    assert engine.journal.size > 39 * MIB
    engine.disk.unlock()  # as when the process is killed
    tracemalloc.start()
    try:
        with opened(tmp_path) as again:
            peak = tracemalloc.get_traced_memory()[1]
            assert again.log("a").state().count == records
    finally:
        tracemalloc.stop()
    # The current piece and the one before it, and the records in one of them once more.
    assert peak < 5 * MIB

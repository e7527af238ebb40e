"""Pages of logs in which some records were amended: right, and not put together record by record."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import make, opened

from strandline.engine import Batch
from strandline.engine.state.block import Block


@settings(deadline=None, max_examples=60)
@given(
    amended=st.dictionaries(st.integers(1, 60), st.integers(0, 30), max_size=12),
    deleted=st.sets(st.integers(1, 60), max_size=12),
    sealed=st.booleans(),
    limit=st.integers(1, 70),
    budget=st.none() | st.integers(1, 300),
)
def test_pages_put_together_are_the_log(
    amended: dict[int, int], deleted: set[int], sealed: bool, limit: int, budget: int | None
) -> None:
    with TemporaryDirectory() as directory, opened(Path(directory)) as engine:
        log = make(engine, "log")
        for first in range(0, 60, 20):
            log.append(Batch([b"%010d" % seq for seq in range(first + 1, first + 21)])).wait()
        if sealed:
            engine.seal()
        expected = {seq: b"%010d" % seq for seq in range(1, 61)}
        for seq, length in amended.items():
            expected[seq] = b"a" * length
            log.amend(seq, expected[seq]).wait()
        for seq in deleted:
            del expected[seq]
        if deleted:
            log.delete(seqs=sorted(deleted)).wait()
        found, after, caught_up = {}, 0, False
        while not caught_up:
            page = log.read(after, limit, max_bytes=budget)
            assert budget is None or len(page) <= 1 or sum(map(len, page.data)) <= budget
            found |= dict(zip(page.seqs, page.data, strict=True))
            after, caught_up = page.next_after, page.caught_up
        assert found == expected


def test_one_amended_record_does_not_make_all_others_be_copied_one_by_one(tmp_path: Path, monkeypatch) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log")
        log.append(Batch([b"x"] * 5000)).wait()
        log.amend(2500, b"other").wait()
        copied: list[int] = []
        copy_to = Block.copy_to
        monkeypatch.setattr(
            Block, "copy_to", lambda self, page, low, high: copied.append(high - low) or copy_to(self, page, low, high)
        )
        page = log.read(0, 5000, max_bytes=1 << 20)
        assert (len(page), page.data[2499]) == (5000, b"other")
        assert copied == [2499, 1, 2500]

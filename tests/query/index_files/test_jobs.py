"""Records are extracted in large batches, in whatever blocks they are read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.query.index_files import jobs
from strandline.query.index_files.jobs import in_batches


def blocks(sizes: list[int]) -> Iterator[tuple[np.ndarray, list[bytes]]]:
    at = 1
    for size in sizes:
        seqs = np.arange(at, at + size)
        yield seqs, [b"%d" % seq for seq in seqs]
        at += size


@given(sizes=st.lists(st.integers(1, 9), max_size=20))
def test_batches_have_all_records_in_order(sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "BATCH_ROWS", 10)
        batches = list(in_batches(blocks(sizes)))
    assert [seq for seqs, _ in batches for seq in seqs.tolist()] == list(range(1, sum(sizes) + 1))
    assert all([b"%d" % seq for seq in seqs] == payloads for seqs, payloads in batches)
    assert all(10 <= len(payloads) < 19 for _, payloads in batches[:-1])


def test_large_records_make_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BATCH_BYTES", 4)
    assert [len(payloads) for _, payloads in in_batches(blocks([3, 3, 3]))] == [6, 3]

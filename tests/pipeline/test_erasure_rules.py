from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.engine.operations.erasures import Erasure
from strandline.lake.erasures import AMENDED, DELETED, HIDDEN, RESTORED, ErasureRules, rules_of

KINDS = {"delete": DELETED, "hide": HIDDEN, "drop": DELETED, "restore": RESTORED, "amend": AMENDED}
seqs = st.integers(1, 12)
keys = st.sampled_from(["", "a", "ab", "b", None])
erasures = st.builds(
    Erasure,
    log=st.just("x"),
    epoch=st.integers(1, 3),
    kind=st.sampled_from(sorted(KINDS)),
    bound=seqs,
    before=st.none() | seqs,
    key=keys,
    prefix=st.sampled_from([None, None, "", "a"]),
    seqs=st.none() | st.lists(seqs, max_size=4),
)
records = st.lists(st.tuples(st.integers(1, 3), seqs, keys), unique_by=lambda row: row[:2], max_size=20)


def means(event: Erasure, epoch: int, seq: int, key: str | None) -> bool:
    if event.epoch != epoch:
        return False
    if event.kind == "drop":
        return True
    return (
        seq <= event.bound
        and (event.before is None or seq < event.before)
        and (event.key is None or key == event.key)
        and (event.prefix is None or (key is not None and key.startswith(event.prefix)))
        and (event.seqs is None or seq in event.seqs)
    )


@settings(deadline=None)
@given(st.lists(erasures, max_size=8), records.map(lambda rows: sorted(rows, key=lambda row: row[:2])))
def test_of_all_events_that_mean_a_record_the_last_one_counts_unless_it_was_deleted(
    events: list[Erasure], rows: list[Any]
) -> None:
    rules = ErasureRules(rules_of(events, {1, 2}), {1: [(1, 5)], 2: [(3, 4), (7, 9)]})
    epochs = np.array([row[0] for row in rows], np.int64)
    numbers = np.array([row[1] for row in rows], np.int64)
    names = pa.array([row[2] for row in rows], pa.string())
    expected = []
    for epoch, seq, key in rows:
        meant = [KINDS[event.kind] for event in events if epoch < 3 and means(event, epoch, seq, key)]
        expected.append(DELETED if DELETED in meant else meant[-1] if meant else 0)
    assert rules.kinds(epochs, numbers, names).tolist() == expected
    # What was restored comes from the log if that has it, and stays what it is otherwise.
    standing = [any(low <= row[1] <= high for low, high in rules.standing.get(row[0], [])) for row in rows]
    renewed = [kind == AMENDED or (kind == RESTORED and there) for kind, there in zip(expected, standing, strict=True)]
    assert rules.renewed(epochs, numbers, names).tolist() == renewed
    erased = [kind in (DELETED, HIDDEN) or again for kind, again in zip(expected, renewed, strict=True)]
    assert rules.erased(epochs, numbers, names).tolist() == erased
    # A file is never passed over that has one of them.
    for row, kind in zip(rows, expected, strict=True):
        if kind:
            assert rules.may_mean((row[0], row[0]), (row[1], row[1]))
            assert rules.between(row[0], row[0]).of
    for epoch, found in rules.of.items():
        for rule in found:
            low, high = rule.bounds
            meant = rule.mask(numbers, names) & (epochs == epoch)
            assert not numbers[meant].size or (low <= numbers[meant].min() and numbers[meant].max() <= high)


def test_thousands_of_single_deletes_become_one_rule() -> None:
    events = [Erasure("x", 1, "delete", 5000, seqs=[seq]) for seq in range(5000, 0, -1)]
    (rule,) = rules_of(events, {1})[1]
    assert rule.bounds == (1, 5000)
    events = [Erasure("x", 1, "hide", seq, key=f"k{seq % 7}") for seq in range(100)]
    (rule,) = rules_of(events, {1})[1]
    assert rule.keys is not None
    assert len(rule.keys) == 7

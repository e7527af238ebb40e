from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strandline.engine.operations.erasures import Erasure
from strandline.history.log_info import ForkOrigin, LogInfo
from strandline.pipeline.companions.erasure import (
    ErasureEffect,
    ErasureReach,
    Ranges,
    effects_of,
    joined,
    overlap,
    reaches_of,
)
from strandline.query.index_files.file import Info
from strandline.query.index_files.table import IndexEntry

LOGS = {
    1: LogInfo(name="source", epoch=1, head=100, earliest=1, floor=1, last_ts=0),
    2: LogInfo(name="fork", epoch=2, head=100, earliest=1, floor=1, last_ts=0, base=ForkOrigin(1, 40)),
    3: LogInfo(name="fork of a fork", epoch=3, head=100, earliest=1, floor=1, last_ts=0, base=ForkOrigin(2, 60)),
}


def entry(epoch: int, first: int = 1, last: int = 100) -> IndexEntry:
    info = Info(
        directory="d", log=str(epoch), epoch=epoch, first=first, last=last, versions=(), plan="p", rollups="r",
        erasures=0, records=last - first + 1,
    )  # fmt: skip
    return IndexEntry(info, f"{epoch}/{first}", 1, "", 0)


def erasure(epoch: int, kind: Any = "delete", bound: int = 100, **more: Any) -> Erasure:
    return Erasure("log", epoch, kind, bound, **more)


def effects(*erasures: Erasure, entries: list[IndexEntry], standing: Ranges | None = None) -> dict[str, ErasureEffect]:
    return effects_of(erasures, entries, LOGS, lambda _: [(1, 100)] if standing is None else standing)


def left(effect: ErasureEffect | None, first: int, last: int) -> set[int]:
    """The seqs that a companion has behind it."""
    if effect is None:
        return set(range(first, last + 1))
    kept = {seq for low, high in effect.kept for seq in range(low, high + 1)}
    return (kept & set(range(first, last + 1))) - set(effect.without.tolist())


def test_a_log_has_its_own_records_and_those_it_was_forked_from() -> None:
    everything = 2**63 - 1
    assert reaches_of(1, LOGS) == [ErasureReach(1, 1, everything)]
    assert reaches_of(3, LOGS) == [ErasureReach(3, 61, everything), ErasureReach(2, 41, 60), ErasureReach(1, 1, 40)]


def test_an_event_concerns_the_forks_that_share_the_record() -> None:
    entries = [entry(1), entry(2), entry(3)]
    found = effects(erasure(1, seqs=[40, 41]), entries=entries)
    assert {path: effect.without.tolist() for path, effect in found.items()} == {
        "1/1": [40, 41],
        "2/1": [40],
        "3/1": [40],
    }
    found = effects(erasure(2, seqs=[50, 70]), entries=entries)
    assert {path: effect.without.tolist() for path, effect in found.items()} == {"2/1": [50, 70], "3/1": [50]}


def test_a_log_that_is_dropped_leaves_its_forks_what_they_share() -> None:
    found = effects(erasure(1, "drop"), entries=[entry(1), entry(2)])
    assert list(found) == ["1/1"]
    assert found["1/1"].is_dropped
    gone = effects(erasure(9, seqs=[1]), entries=[entry(9)])
    assert gone["9/1"].is_dropped, "nothing is known of its log any more"


def test_only_companions_with_such_seqs_are_concerned() -> None:
    entries = [entry(1, 1, 50), entry(1, 51, 100)]
    assert list(effects(erasure(1, before=51), entries=entries)) == ["1/1"]
    assert list(effects(erasure(1, bound=50), entries=entries)) == ["1/1"]
    assert list(effects(erasure(1, seqs=[51]), entries=entries)) == ["1/51"]
    assert effects(erasure(1, seqs=[60], bound=59), entries=entries) == {}
    assert list(effects(erasure(1, "amend", seqs=[60]), entries=entries)) == ["1/51"]


def test_what_came_back_or_was_changed_is_read_from_the_log() -> None:
    for kind in ("restore", "amend"):
        found = effects(erasure(1, "hide", seqs=[5]), erasure(1, kind, seqs=[5]), entries=[entry(1)])
        assert found["1/1"].is_outdated


def test_by_key_only_what_does_not_stand_any_more_goes() -> None:
    standing = [(1, 9), (11, 49), (50, 70), (72, 100)]
    found = effects(erasure(1, key="k", bound=60), entries=[entry(1)], standing=standing)
    assert left(found["1/1"], 1, 100) == set(range(1, 101)) - {10}, "71 is none of this event's"
    found = effects(erasure(1, prefix="k", seqs=[9, 10, 11]), entries=[entry(1)], standing=standing)
    assert left(found["1/1"], 1, 100) == set(range(1, 101)) - {10}
    assert effects(erasure(1, key="k"), entries=[entry(1, 11, 70)], standing=standing) == {}


SEQ = st.integers(1, 40)
CONDITIONS = st.fixed_dictionaries(
    {"bound": st.integers(1, 40)},
    optional={
        "before": st.integers(1, 41),
        "seqs": st.lists(SEQ, max_size=5),
        "key": st.sampled_from("abc"),
        "prefix": st.sampled_from(["", "a", "b"]),
    },
)


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "c"]), min_size=40, max_size=40),
    st.lists(CONDITIONS, min_size=1, max_size=6),
    st.sets(SEQ),
    SEQ,
    SEQ,
)
def test_what_was_erased_goes_and_what_stands_stays(
    keys: list[str], conditions: list[dict[str, Any]], evicted: set[int], one: int, other: int
) -> None:
    first, last = min(one, other), max(one, other)
    erased = {seq for seq in range(1, 41) for each in conditions if is_meant(seq, keys[seq - 1], **each)}
    standing = joined([(seq, seq) for seq in range(1, 41) if seq not in erased and seq not in evicted])
    erasures = [erasure(1, **each) for each in conditions]
    found = effects(*erasures, entries=[entry(1, first, last)], standing=standing).get(f"1/{first}")
    has = left(found, first, last)
    assert not has & erased
    assert has >= {seq for low, high in standing for seq in range(low, high + 1) if first <= seq <= last}
    if not any("key" in each or "prefix" in each for each in conditions):
        assert has == set(range(first, last + 1)) - erased


def is_meant(
    seq: int,
    record_key: str,
    bound: int,
    before: int | None = None,
    seqs: list[int] | None = None,
    key: str | None = None,
    prefix: str | None = None,
) -> bool:
    return (
        seq <= bound
        and (before is None or seq < before)
        and (seqs is None or seq in seqs)
        and (key is None or record_key == key)
        and (prefix is None or record_key.startswith(prefix))
    )


RANGES = st.sets(st.integers(1, 30)).map(lambda seqs: joined([(seq, seq) for seq in sorted(seqs)]))


@given(RANGES, RANGES)
def test_the_overlap_of_ranges_is_that_of_their_seqs(these: Ranges, those: Ranges) -> None:
    def seqs(ranges: Ranges) -> set[int]:
        return {seq for low, high in ranges for seq in range(low, high + 1)}

    assert seqs(overlap(these, those)) == seqs(these) & seqs(those)


def test_many_events_are_not_looked_at_one_by_one() -> None:
    events = [erasure(1, bound=20_000, seqs=[seq]) for seq in range(1, 20_001)]
    entries = [entry(1, first, first + 99) for first in range(1, 20_001, 100)]
    found = effects(*events, entries=entries)
    assert len(found) == 200
    assert all(len(effect.without) == 100 for effect in found.values())
    assert isinstance(found["1/1"].without, np.ndarray)

from __future__ import annotations

from math import floor, log2

from hypothesis import given
from hypothesis import strategies as st

from strandline.service.meters import Measured, Meter

values = st.integers(0, 2**40)


@given(st.lists(st.tuples(values, st.booleans())))
def test_a_meter_sums_up_what_was_added_however_often_it_is_folded(steps: list[tuple[int, bool]]) -> None:
    meter = Meter()
    for value, fold in steps:
        meter.add(value)
        if fold:
            meter.fold()
    added = [value for value, _ in steps]
    buckets: dict[str, int] = {}
    for value in sorted(added):
        name = str(2 ** floor(log2(max(1, value))))
        buckets[name] = buckets.get(name, 0) + 1
    expected = Measured(len(added), sum(added), min(added, default=None), max(added, default=None), buckets)
    assert meter.take() == expected
    assert meter.take() == Measured(0, 0, None, None, {})


@given(values)
def test_a_single_value_is_what_a_meter_makes_of_it(value: int) -> None:
    meter = Meter()
    meter.add(value)
    assert meter.take() == Measured.once(value)

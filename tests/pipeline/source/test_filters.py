from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from strandline.pipeline.source.plan import MAX_KEYS, PushedFilters

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS = [GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, EqualTo]


def holds(kind: Any, left: Any, right: Any) -> bool:
    return bool(
        {
            GreaterThan: left > right,
            GreaterThanOrEqual: left >= right,
            LessThan: left < right,
            LessThanOrEqual: left <= right,
            EqualTo: left == right,
        }[kind]
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(COMPARISONS), st.integers(-3, 12)), max_size=4), st.integers(1, 10))
def test_seqs_are_narrowed_down_to_exactly_those_that_all_filters_want(filters: list[Any], seq: int) -> None:
    wanted = PushedFilters()
    assert list(wanted.take([kind(("seq",), value) for kind, value in filters])) == []
    taken = wanted.after < seq and (wanted.through is None or seq <= wanted.through)
    assert taken == all(holds(kind, seq, value) for kind, value in filters)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(COMPARISONS), st.integers(-3000, 9000)), max_size=4), st.integers(0, 8))
def test_so_are_times_to_the_microsecond(filters: list[Any], milliseconds: int) -> None:
    wanted = PushedFilters()
    times = [(kind, EPOCH + timedelta(microseconds=value)) for kind, value in filters]
    assert list(wanted.take([kind(("ts",), value) for kind, value in times])) == []
    taken = (wanted.since is None or milliseconds >= wanted.since) and (
        wanted.until is None or milliseconds < wanted.until
    )
    time = EPOCH + timedelta(milliseconds=milliseconds)
    assert taken == all(holds(kind, time, value) for kind, value in times)


def test_logs_are_chosen_by_name_list_prefix_and_epoch() -> None:
    wanted = PushedFilters()
    filters = [In(("log",), ("a1", "a2", "b1", None)), StringStartsWith(("log",), "a"), EqualTo(("epoch",), 7)]
    assert list(wanted.take([*filters, IsNotNull(("log",)), IsNotNull(("epoch",))])) == []
    assert [name for name in ("a1", "a2", "a3", "b1") if wanted.has_log(name, 7)] == ["a1", "a2"]
    assert not wanted.has_log("a1", 8)
    wanted.take([EqualTo(("log",), "a2")])
    assert [name for name in ("a1", "a2") if wanted.has_log(name, 7)] == ["a2"]


def test_a_few_keys_are_looked_up_and_many_are_left_to_spark() -> None:
    wanted = PushedFilters()
    assert list(wanted.take([IsNotNull(("key",)), EqualNullSafe(("key",), "k")])) == []
    assert wanted.keys == {"k"}
    many = In(("key",), tuple(str(number) for number in range(MAX_KEYS + 1)))
    wanted = PushedFilters()
    assert list(wanted.take([many])) == [many]
    assert wanted == PushedFilters()


def test_what_is_not_understood_is_given_back_as_it_came() -> None:
    filters = [
        Not(EqualTo(("log",), "a")),
        IsNull(("key",)),
        IsNotNull(("key",)),
        EqualTo(("data",), "x"),
        EqualNullSafe(("key",), None),
        StringContains(("log",), "a"),
        GreaterThan(("log",), "a"),
        EqualTo(("seq", "deeper"), 1),
    ]
    wanted = PushedFilters()
    left = list(wanted.take(filters))
    assert [id(each) for each in left] == [id(each) for each in filters]
    assert wanted == PushedFilters()

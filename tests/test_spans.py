"""Spans: their times, their parts, and what happens without them."""

from __future__ import annotations

import pytest

from strandline.spans import MAX_PARTS, OMITTED, Inside, Span, background, begin, current, new_id, part, recorded


def test_a_part_lies_within_its_span_and_belongs_to_its_trace() -> None:
    ended: list[Span] = []
    span = Span("request", new_id(128), 7, ended.append, state="a=b")
    with Inside(span):
        assert current() is span
        with part("outer") as outer, part("inner") as inner:
            pass
    span.end()
    assert [each.name for each in ended] == ["inner", "outer", "request"]
    assert outer is not None
    assert inner is not None
    assert {each.trace for each in ended} == {span.trace}
    assert {each.state for each in ended} == {"a=b"}
    assert (inner.parent_id, outer.parent_id, span.parent_id) == (outer.span_id, span.span_id, 7)
    ends = [each.started + each.nanoseconds for each in ended]
    assert ends == sorted(ends)
    assert span.started <= outer.started <= inner.started


def test_without_a_span_nothing_is_recorded() -> None:
    assert current() is None
    assert begin("read") is None
    with part("read") as span, background(None, "housekeeping") as other:
        assert span is None
        assert other is None


def test_work_that_outlives_its_request_has_no_span() -> None:
    ended: list[Span] = []
    span = Span("request", 1, 0, ended.append)
    with Inside(span):
        span.end()
        assert current() is None
        assert begin("later") is None
    span.end("again")
    assert ended == [span]
    assert span.error is None


def test_an_error_ends_a_part_with_its_name() -> None:
    ended: list[Span] = []
    with pytest.raises(ZeroDivisionError), recorded(Span("work", 1, 0, ended.append)):
        _ = 1 / 0
    assert [each.error for each in ended] == ["ZeroDivisionError"]
    assert current() is None


def test_a_span_has_a_maximum_number_of_parts() -> None:
    ended: list[Span] = []
    span = Span("request", 1, 0, ended.append)
    with Inside(span):
        parts = [begin("read") for _ in range(MAX_PARTS + 3)]
    assert [each is None for each in parts] == [False] * MAX_PARTS + [True] * 3
    assert span.attributes == {OMITTED: 3}

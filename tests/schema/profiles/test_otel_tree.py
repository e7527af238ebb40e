from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from strandline.schema.profiles import OtelTraces, load_profile
from strandline.schema.profiles.otel_tree import DuplicateSpan, FailedSpan, PathStep, ServiceMap, TraceTree, TreeNode

TRACES = load_profile({"kind": "otel-traces"})
MILLISECOND = 1_000_000


def span(number: int, parent: int | None, start: int = 0, end: int = 10, **more: Any) -> dict[str, Any]:
    assert isinstance(TRACES, OtelTraces)
    return TRACES.span({
        "traceId": "a" * 32,
        "spanId": f"{number:016x}",
        "parentSpanId": None if parent is None else f"{parent:016x}",
        "startUnixNano": start * MILLISECOND,
        "endUnixNano": end * MILLISECOND,
        "name": f"span {number}",
        "service": "api",
        **more,
    })  # fmt: skip


def ids(found: Sequence[TreeNode | PathStep | FailedSpan]) -> list[int]:
    return [int(each.span_id, 16) for each in found]


def test_nothing_makes_an_empty_tree() -> None:
    tree = TraceTree([])
    assert (tree.tree, tree.root, tree.errors(), tree.critical_path()) == ([], None, [], [])
    assert tree.is_partial
    assert tree.service_map() == ServiceMap([], [])


def test_spans_are_in_the_order_of_calls() -> None:
    tree = TraceTree([span(3, 1, 5), span(4, 2, 3), span(1, None, 0), span(2, 1, 1)])
    assert ids(tree.tree) == [1, 2, 4, 3]
    assert [node.depth for node in tree.tree] == [0, 1, 2, 1]
    assert tree.tree[0].children == [f"{2:016x}", f"{3:016x}"]
    assert tree.root is not None
    assert int(tree.root["spanId"], 16) == 1
    assert not tree.is_partial


def test_a_caller_that_is_not_there_is_said() -> None:
    tree = TraceTree([span(2, 9), span(3, 9), span(4, 2)])
    assert tree.missing_parents == [f"{9:016x}"]
    assert tree.is_partial
    assert ids(tree.tree) == [2, 4, 3]


def test_a_span_that_came_twice_is_shown_once() -> None:
    tree = TraceTree([span(1, None, name="first"), span(1, None, name="last"), span(2, 1)])
    assert tree.duplicates == [DuplicateSpan(f"{1:016x}", 2)]
    assert [each["name"] for each in tree.spans] == ["last", "span 2"]


def test_spans_that_call_each_other_end_somewhere() -> None:
    tree = TraceTree([span(1, 2), span(2, 1), span(3, 3)])
    assert sorted(ids(tree.tree)) == [1, 2, 3]
    assert tree.is_partial
    assert len(tree.critical_path()) <= 3


def test_a_long_chain_is_no_problem() -> None:
    spans = [span(number, number - 1 or None, number, 20_000) for number in range(1, 3000)]
    tree = TraceTree(spans)
    assert tree.tree[-1].depth == 2998
    assert len(tree.critical_path()) == 2999


def test_the_critical_path_is_what_ended_last() -> None:
    tree = TraceTree([span(1, None, 0, 100), span(2, 1, 10, 40), span(3, 1, 30, 90), span(4, 3, 35, 60)])
    path = tree.critical_path()
    assert ids(path) == [1, 3, 4]
    assert [step.self_duration for step in path] == [20.0, 35.0, 25.0]


def test_calls_between_services_are_counted() -> None:
    tree = TraceTree([
        span(1, None),
        span(2, 1, service="db", status={"code": "error"}),
        span(3, 1, service="db"),
        span(4, 1),
        span(5, 1, service=None),
    ])  # fmt: skip
    assert msgspec.to_builtins(tree.service_map()) == {
        "services": [
            {"service": "api", "spans": 2, "errors": 0},
            {"service": "db", "spans": 2, "errors": 1},
            {"service": "unknown", "spans": 1, "errors": 0},
        ],
        "edges": [
            {"from": "api", "to": "db", "calls": 2, "errors": 1},
            {"from": "api", "to": "unknown", "calls": 1, "errors": 0},
        ],
    }
    assert ids(tree.errors()) == [2]


@given(st.lists(st.tuples(st.integers(1, 12), st.none() | st.integers(1, 14), st.integers(0, 20), st.integers(0, 20))))
def test_every_span_is_in_the_tree_once(drawn: list[tuple[int, int | None, int, int]]) -> None:
    spans = [span(number, parent, start, start + length) for number, parent, start, length in drawn]
    tree = TraceTree(spans)
    assert sorted(ids(tree.tree)) == sorted({number for number, *_ in drawn})
    for step in tree.critical_path():
        assert 0 <= step.self_duration <= step.duration
    called = tree.service_map()
    assert called.edges == []
    assert sum(service.spans for service in called.services) == len(tree.spans)

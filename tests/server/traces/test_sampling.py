"""Which requests are traced."""

from __future__ import annotations

import pytest

from strandline.server.traces.sampling import Caller, SampledTracer
from strandline.server.traces.settings import TracesSettings
from strandline.spans import Span

TRACE, PARENT = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7


def headers(flags: int, trace: int = TRACE) -> dict[bytes, bytes]:
    return {b"traceparent": f"00-{trace:032x}-{PARENT:016x}-{flags:02x}".encode()}


def tracer(sampler: str, ratio: float = 1.0) -> SampledTracer:
    collected: list[Span] = []
    return SampledTracer(TracesSettings(traces_sampler=sampler, traces_ratio=ratio), collected.append)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sampler", "ratio", "alone", "traced_caller", "other_caller"),
    [
        ("always_on", 0.0, True, True, True),
        ("always_off", 1.0, False, False, False),
        ("traceidratio", 1.0, True, True, True),
        ("traceidratio", 0.0, False, False, False),
        ("parentbased_always_on", 0.0, True, True, False),
        ("parentbased_always_off", 1.0, False, True, False),
        ("parentbased_traceidratio", 1.0, True, True, False),
        ("parentbased_traceidratio", 0.0, False, True, False),
    ],
)
def test_a_sampler_decides_by_the_caller_or_by_the_trace(
    sampler: str, ratio: float, alone: bool, traced_caller: bool, other_caller: bool
) -> None:
    decides = tracer(sampler, ratio)
    assert (decides.request({}) is not None) == alone
    assert (decides.request(headers(1)) is not None) == traced_caller
    assert (decides.request(headers(0)) is not None) == other_caller
    assert (decides.background("housekeeping") is not None) == alone


def test_a_ratio_decides_alike_for_the_same_trace_in_all_services() -> None:
    decides = tracer("traceidratio", 0.25)
    shares = [quarter << 62 for quarter in range(4)]
    assert [decides.request(headers(0, (1 << 100) + share)) is not None for share in shares] == [True, *[False] * 3]
    taken = sum(decides.request({}) is not None for _ in range(4000))
    assert 800 < taken < 1200


def test_a_span_continues_the_trace_of_its_caller() -> None:
    span = tracer("always_on").request(headers(1) | {b"tracestate": b"a=b"})
    assert span is not None
    assert (span.trace_id, span.parent_id, span.state) == (TRACE, PARENT, "a=b")
    alone = tracer("always_on").request({})
    assert alone is not None
    assert (alone.parent_id, alone.state) == (0, "")


@pytest.mark.parametrize("state", [b"x" * 513, "ä".encode()])
def test_a_state_that_is_too_long_or_not_ascii_is_dropped(state: bytes) -> None:
    caller = Caller.of(headers(1) | {b"tracestate": state})
    assert caller == Caller(TRACE, PARENT, True, "")

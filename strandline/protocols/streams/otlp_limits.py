"""What both formats of OTLP share: the limits of a request, and numbers that JSON does not have."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isnan
from typing import Any, TypeVar

from strandline.protocols.streams.errors import bad_request
from strandline.schema.profiles.otel_limits import OtlpLimits

T = TypeVar("T")


class SpanCollector:
    """The accepted spans of a request, and how many exceeded the limit."""

    def __init__(self, limits: OtlpLimits) -> None:
        self.spans: list[dict[str, Any]] = []
        self.too_many = 0
        self._limits = limits
        self._scopes = 0
        self._room = limits.max_spans_per_request

    def check_resources(self, count: int) -> None:
        most = self._limits.max_resource_spans_per_request
        if count > most:
            raise bad_request(f"the request has {count} resource spans, the limit is {most}")

    def check_scopes(self, count: int) -> None:
        self._scopes += count
        most = self._limits.max_scope_spans_per_request
        if self._scopes > most:
            raise bad_request(f"the request has more than {most} scope spans")

    def within(self, spans: Sequence[T]) -> Sequence[T]:
        """As many of the spans as the limit allows."""
        taken = spans[: self._room]
        self._room -= len(taken)
        self.too_many += len(spans) - len(taken)
        return taken


def number_text(value: float) -> float | str:
    """The number, or its name if JSON has no such number."""
    if isfinite(value):
        return value
    if isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"

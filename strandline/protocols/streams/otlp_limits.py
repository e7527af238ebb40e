"""What both formats of OTLP share: the names of its signals, the limits of a request, and numbers that JSON does not
have."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isnan
from typing import Any, Literal, TypeVar

from strandline.protocols.streams.errors import bad_request
from strandline.schema.profiles.otel_limits import OtlpLimits

T = TypeVar("T")


#: What a request contains, by the last part of its path.
SignalName = Literal["traces", "logs", "metrics"]
#: What the items of a signal are called in messages.
ITEMS: dict[SignalName, str] = {"traces": "spans", "logs": "log records", "metrics": "data points"}
#: The part of a resource, and of a scope, in the names of OTLP.
PARTS: dict[SignalName, str] = {"traces": "spans", "logs": "logs", "metrics": "metrics"}
#: The kinds of metrics, by their names in JSON; and their temporalities, by number.
METRIC_KINDS = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
TEMPORALITIES = ("unspecified", "delta", "cumulative")


class OtlpItems:
    """The accepted items of a request, and how many exceeded the limit."""

    def __init__(self, signal: SignalName, limits: OtlpLimits) -> None:
        self.signal = signal
        self.accepted: list[dict[str, Any]] = []
        self.too_many = 0
        self._limits = limits
        self._scopes = 0
        self._room = limits.max_spans_per_request

    def check_resources(self, count: int) -> None:
        most = self._limits.max_resource_spans_per_request
        if count > most:
            raise bad_request(f"the request has {count} resource {PARTS[self.signal]}, the limit is {most}")

    def check_scopes(self, count: int) -> None:
        self._scopes += count
        most = self._limits.max_scope_spans_per_request
        if self._scopes > most:
            raise bad_request(f"the request has more than {most} scope {PARTS[self.signal]}")

    def within(self, items: Sequence[T]) -> Sequence[T]:
        """As many of the items as the limit allows."""
        taken = items[: self._room]
        self._room -= len(taken)
        self.too_many += len(items) - len(taken)
        return taken


def number_text(value: float) -> float | str:
    """The number, or its name if JSON has no such number."""
    if isfinite(value):
        return value
    if isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"

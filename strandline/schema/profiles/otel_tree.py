"""The spans of one trace as a tree: which span called which, what took the time, and what is missing.

A trace can be as deep as it is long, so the tree is returned flat: in depth-first order, with the depth.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

Document = dict[str, Any]
_Count = Annotated[int, Meta(ge=0)]


class TreeNode(msgspec.Struct, rename="camel"):
    span_id: str
    depth: _Count
    children: list[str]


class ServiceNode(msgspec.Struct):
    service: str
    spans: _Count = 0
    errors: _Count = 0


class ServiceEdge(msgspec.Struct):
    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    calls: _Count = 0
    errors: _Count = 0


class ServiceMap(msgspec.Struct):
    services: list[ServiceNode]
    edges: list[ServiceEdge]


class PathStep(msgspec.Struct, rename="camel"):
    span_id: str
    service: str | None
    name: str
    duration: float
    self_duration: float


class FailedSpan(msgspec.Struct, rename="camel"):
    span_id: str
    service: str | None
    name: str
    type: str | None
    message: str | None


class DuplicateSpan(msgspec.Struct, rename="camel"):
    span_id: str
    count: _Count


class TraceTree:
    """``spans`` are sorted by start. If a span was received more than once, the last one counts."""

    def __init__(self, spans: list[Document]) -> None:
        counts = Counter(span["spanId"] for span in spans)
        self.duplicates = [DuplicateSpan(span_id, count) for span_id, count in counts.items() if count > 1]
        self._by_id: dict[str, Document] = {span["spanId"]: span for span in spans}
        self.spans = sorted(self._by_id.values(), key=_start)
        self._children: dict[str, list[Document]] = {}
        for span in self.spans:
            self._children.setdefault(self._parent_id(span), []).append(span)
        self.missing_parents = list(
            dict.fromkeys(
                span["parentSpanId"]
                for span in self.spans
                if span["parentSpanId"] is not None and span["parentSpanId"] not in self._by_id
            )
        )
        self.tree = self._flatten()
        self.root = self._root()

    def _parent_id(self, span: Document) -> str:
        """Return the id of the caller; empty if the caller is not in the trace."""
        parent = span["parentSpanId"]
        return parent if parent in self._by_id and parent != span["spanId"] else ""

    def _flatten(self) -> list[TreeNode]:
        """Return every span once, including spans in a cycle of callers."""
        tree: list[TreeNode] = []
        seen: set[str] = set()
        for start in (*self._children.get("", ()), *self.spans):
            waiting = [(start, 0)]
            while waiting:
                span, depth = waiting.pop()
                span_id = span["spanId"]
                if span_id in seen:
                    continue
                seen.add(span_id)
                children = self._children.get(span_id, [])
                tree.append(TreeNode(span_id, depth, [child["spanId"] for child in children]))
                waiting.extend((child, depth + 1) for child in reversed(children))
        return tree

    def _root(self) -> Document | None:
        """Return the first span without a caller, or else the first whose caller is missing."""
        for span in self.spans:
            if span["parentSpanId"] is None:
                return span
        return self._by_id[self.tree[0].span_id] if self.tree else None

    @property
    def is_partial(self) -> bool:
        return bool(self.missing_parents) or self.root is None or self.root["parentSpanId"] is not None

    def service_map(self) -> ServiceMap:
        """Return the services, and how often each has called each other one."""
        services: dict[str, ServiceNode] = {}
        calls: dict[tuple[str, str], ServiceEdge] = {}
        for span in self.spans:
            service, failed = _service(span), span["error"]["isError"]
            entry = services.setdefault(service, ServiceNode(service))
            entry.spans += 1
            entry.errors += failed
            parent = self._by_id.get(self._parent_id(span))
            if parent is not None and _service(parent) != service:
                edge = (_service(parent), service)
                call = calls.setdefault(edge, ServiceEdge(*edge))
                call.calls += 1
                call.errors += failed
        return ServiceMap(list(services.values()), list(calls.values()))

    def critical_path(self) -> list[PathStep]:
        """Return the path from the root that always follows the call that ended last: what the whole trace waited
        for."""
        path: list[PathStep] = []
        seen: set[str] = set()
        span = self.root
        while span is not None and span["spanId"] not in seen:
            seen.add(span["spanId"])
            children = self._children.get(span["spanId"], [])
            alone = _self_nanoseconds(span, children) / 1_000_000
            path.append(PathStep(span["spanId"], span["service"], span["name"], span["duration"], alone))
            span = max(children, key=_end, default=None)
        return path

    def errors(self) -> list[FailedSpan]:
        return [
            FailedSpan(span["spanId"], span["service"], span["name"], span["error"]["type"], span["error"]["message"])
            for span in self.spans
            if span["error"]["isError"]
        ]


def _start(span: Document) -> int:
    return int(span["startUnixNano"])


def _end(span: Document) -> int:
    return int(span["endUnixNano"])


def _service(span: Document) -> str:
    return span["service"] or "unknown"


def _self_nanoseconds(span: Document, children: list[Document]) -> int:
    """Return how long the span ran while none of its calls did. ``children`` are sorted by start."""
    start, end = _start(span), _end(span)
    alone, at = 0, start
    for child in children:
        begun = min(max(_start(child), at), end)
        alone += begun - at
        at = max(at, min(_end(child), end))
    return alone + max(end - at, 0)

"""Everything about one request: its events and its trace, found by key or by search in two streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import msgspec
from msgspec import structs

from strandline.protocols.streams import offsets
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import bad_request
from strandline.protocols.streams.observe_request import ObserveRequest, parse_observe_request
from strandline.protocols.streams.replies import json_reply
from strandline.protocols.streams.search import covered
from strandline.protocols.streams.stream import Stream
from strandline.protocols.streams.wire.observe import (
    FoundCoverage,
    ObserveAnswer,
    ObserveCoverage,
    ObservedEvent,
    ObservedEvents,
    ObservedSpan,
    ObservedTrace,
    ObserveSummary,
    TimelineEvent,
    TimelineSpan,
)
from strandline.protocols.streams.wire.search import StreamCoverage
from strandline.query.bound import bind_search
from strandline.query.language import Compare, Node, Or
from strandline.query.order import OFFSET, SortKey, SortValues
from strandline.query.requests import MAX_SIZE, SearchRequest
from strandline.query.search import Coverage
from strandline.query.searcher import Searcher
from strandline.query.values import format_date, parse_date
from strandline.schema.profiles import Evlog, OtelTraces
from strandline.schema.profiles.otel_tree import TraceTree
from strandline.service.http import Call, Reply
from strandline.service.problems import may_not_touch

Document = dict[str, Any]

#: How many records are read at a time.
PAGE = 1000

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class CollectedRecords:
    """Records by seq, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.truncated = False
        self.records: dict[int, Document] = {}

    def add(self, seq: int, document: Document) -> bool:
        """Add a record; False if the limit is reached."""
        if seq not in self.records and len(self.records) >= self.limit:
            self.truncated = True
            return False
        self.records[seq] = document
        return True

    def in_order(self, time: Callable[[Document], int | None]) -> list[tuple[int, Document]]:
        return sorted(self.records.items(), key=lambda found: (time(found[1]) or 0, found[0]))


class Shelf:
    """One of the two streams during one request. ``deadline`` is a time of ``perf_counter``. Records without all of
    ``fields`` do not belong to the profile and are skipped. Records are used as they are stored, since lenses of the
    stream do not change what the profile knows of them.

    Created on the event loop, used in a thread.
    """

    def __init__(self, stream: Stream, fields: Iterable[str], searcher: Searcher, deadline: float) -> None:
        self._fields = frozenset(fields)
        self._name = stream.name
        self._log = stream.log
        self._registry = stream.registry
        self._search = stream.search
        self._searcher = searcher
        self._deadline = deadline
        self._coverage: Coverage | None = None
        #: Whether the records were found without a search, so that none can be missing.
        self._by_key_alone = False
        self._timed_out = False
        self.warnings: list[str] = []

    def find(self, found: CollectedRecords, field: str, value: str) -> None:
        """Add the records whose field has the value."""
        routing_key = self._registry.routing_key
        keyed = routing_key is not None and routing_key.pointer == f"/{field}"
        if keyed or field != "spanId":
            self._by_key(found, field, value)
        if keyed:
            self._by_key_alone = True
        else:
            self._by_search(found, field, value)

    def _by_key(self, found: CollectedRecords, field: str, value: str) -> None:
        """Records have the id as their key, unless they were appended with another key."""
        after = 0
        while True:
            page = self._log.read(after, PAGE, key=value)
            for seq, row in zip(page.seqs, page.data, strict=True):
                document = _decode(row)
                if document.get(field) == value and document.keys() >= self._fields and not found.add(seq, document):
                    return
            after = page.next_after
            if page.caught_up:
                return
            if perf_counter() > self._deadline:
                self._give_up()
                return

    def _by_search(self, found: CollectedRecords, field: str, value: str) -> None:
        configured = self._search
        searched = None if configured is None else configured.config.fields.get(field)
        if configured is None or searched is None or not searched.exact:
            self.warnings.append(f"{self._name} cannot be searched by {field}: only records with that key were found")
            return
        config, versions = configured
        values = dict.fromkeys((value, value.lower()))
        compared: list[Node] = [Compare(field, "=", each, True) for each in values]
        query = bind_search(compared[0] if len(compared) == 1 else Or(tuple(compared)), config)
        sort = (SortKey(OFFSET, False),)
        after: SortValues | None = None
        while True:
            request = SearchRequest(query=query, size=MAX_SIZE, sort=sort, after=after, timeout_ms=0)
            result = self._searcher.search(self._log, config, request, versions, _stored, self._deadline)
            self._coverage = result.coverage
            if result.coverage.timed_out:
                self._give_up()
            for hit in result.hits:
                if hit.source.keys() >= self._fields and not found.add(hit.seq, hit.source):
                    return
            after = result.next_after
            if after is None or result.coverage.timed_out:
                return

    def _give_up(self) -> None:
        if not self._timed_out:
            self._timed_out = True
            self.warnings.append(f"the time limit was reached before all of {self._name} was searched")

    def coverage(self, found: CollectedRecords) -> FoundCoverage:
        """How the records were found, and whether others may be missing."""
        complete = not found.truncated and not self._timed_out
        count = len(found.records)
        if self._coverage is None:
            return FoundCoverage(stream=self._name, found=count, complete=complete and self._by_key_alone)
        known = StreamCoverage(**covered(self._coverage, self._log))
        known.complete &= complete
        return FoundCoverage(stream=self._name, found=count, **structs.asdict(known))


def _stored(seq: int, data: bytes) -> Document:
    return _decode(data)


# --- events and traces of a request --------------------------------------------------------------------------------


def _members(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """The members of a record that are shown even if the whole record is not requested."""
    return tuple(field.encode_name for field in structs.fields(struct) if field.name not in ("offset", "raw"))


_EVENT_FIELDS = _members(ObservedEvent)
_SPAN_FIELDS = _members(ObservedSpan)


class Observations:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    async def observe(self, call: Call) -> Reply:
        """POST /v1/observe/request"""
        context = self._context
        request = parse_observe_request(call.body)
        events, traces = self._streams(call, request)
        deadline = call.started + context.settings.search_timeout_ms / 1000
        now = context.hub.now()
        shelves = []
        for stream, fields in ((events, _EVENT_FIELDS), (traces, _SPAN_FIELDS)):
            if stream is not None:
                stream.use(now)
            shelves.append(None if stream is None else Shelf(stream, fields, context.searcher, deadline))

        def observe() -> Reply:
            return json_reply(_Observation(request, *shelves).answer())

        return await context.search(call, observe)

    def _streams(self, call: Call, request: ObserveRequest) -> tuple[Stream | None, Stream | None]:
        """The streams of the request; if only one is named, its profile may name the other."""
        events = self._find(call, request.events_stream, "events", Evlog)
        traces = self._find(call, request.traces_stream, "traces", OtelTraces)
        if traces is None and events is not None and isinstance(events.profile, Evlog):
            traces = self._find(call, _touchable(call, events.profile.traces_stream), "traces", OtelTraces)
        elif events is None and traces is not None and isinstance(traces.profile, OtelTraces):
            events = self._find(call, _touchable(call, traces.profile.events_stream), "events", Evlog)
        return events, traces

    def _find(self, call: Call, name: str | None, role: str, kind: type[Evlog | OtelTraces]) -> Stream | None:
        if name is None:
            return None
        if not call.access.may_touch(name):
            raise may_not_touch(name)
        stream = self._context.streams.get(name)
        if not isinstance(stream.profile, kind):
            raise bad_request(f"request.streams.{role} must be a stream with the profile {kind.kind}")
        return stream


def _touchable(call: Call, name: str | None) -> str | None:
    """A stream that a profile names; None if the key may not access it, as if it did not exist."""
    return name if name is not None and call.access.may_touch(name) else None


class _Observation:
    """Everything that was found about one request. Built in a thread."""

    def __init__(self, request: ObserveRequest, events: Shelf | None, traces: Shelf | None) -> None:
        self._request = request
        self._events = events
        self._traces = traces
        self.warnings: list[str] = []
        self.found_events = CollectedRecords(request.max_events)
        self.found_spans = CollectedRecords(request.max_spans)
        self.trace_ids: list[str] = []
        self._look_up()
        records = self.found_events.in_order(_event_time)
        self.events = [(seq, event) for seq, event in records if self._is_asked_for(event)]
        spans = [
            (seq, span)
            for seq, span in self.found_spans.in_order(_span_time)
            if request.in_time(int(span["startUnixNano"]) // 1_000_000, int(span["endUnixNano"]) // 1_000_000)
        ]
        self.offsets_of_spans = {span["spanId"]: seq for seq, span in spans}
        self.tree = TraceTree([span for _, span in spans])

    def _is_asked_for(self, event: Document) -> bool:
        time = _event_time(event)
        return self._request.in_time(time, time)

    # --- finding ---------------------------------------------------------------------------------------------------

    def _look_up(self) -> None:
        request = self._request
        by, value = request.by, request.value
        if by == "traceId":
            self.trace_ids = [value.lower()]
        if self._events is not None:
            self._events.find(self.found_events, by, value)
        if self._traces is not None and by != "traceId":
            known = CollectedRecords(request.max_spans)
            self._traces.find(known, by, value)
            self._note_traces(known)
        self._note_traces(self.found_events)
        if self._traces is not None and self.trace_ids:
            self._traces.find(self.found_spans, "traceId", self.trace_ids[0])
        if self._events is not None and by != "traceId" and self.trace_ids:
            self._events.find(self.found_events, "traceId", self.trace_ids[0])
        self._warn()

    def _note_traces(self, found: CollectedRecords) -> None:
        for document in found.records.values():
            trace_id = document["traceId"]
            if trace_id is not None and trace_id.lower() not in self.trace_ids:
                self.trace_ids.append(trace_id.lower())

    def _warn(self) -> None:
        if len(self.trace_ids) > 1:
            self.warnings.append(f"the request has {len(self.trace_ids)} traces; the first is shown")
        for shelf, found, what in (
            (self._events, self.found_events, "events"),
            (self._traces, self.found_spans, "spans"),
        ):
            if shelf is not None:
                self.warnings.extend(shelf.warnings)
            if found.truncated:
                self.warnings.append(f"there are more than {found.limit} {what}; the first are shown")

    # --- showing ---------------------------------------------------------------------------------------------------

    def answer(self) -> ObserveAnswer:
        request = self._request
        with_trace = request.with_trace and self._traces is not None
        with_events = request.with_events and self._events is not None
        return ObserveAnswer(
            lookup={request.by: request.value},
            summary=self._summary(),
            evlog=ObservedEvents([self._event(*found) for found in self.events]) if with_events else None,
            trace=self._trace() if with_trace else None,
            timeline=self._timeline() if request.with_timeline else None,
            coverage=ObserveCoverage(
                events=None if self._events is None else self._events.coverage(self.found_events),
                traces=None if self._traces is None else self._traces.coverage(self.found_spans),
                warnings=self.warnings,
            ),
        )

    def _summary(self) -> ObserveSummary:
        events, spans, root = [event for _, event in self.events], self.tree.spans, self.tree.root
        services = [document["service"] for document in (*spans, *events) if document["service"] is not None]
        starts = [int(span["startUnixNano"]) // 1_000_000 for span in spans]
        ends = [int(span["endUnixNano"]) // 1_000_000 for span in spans]
        times = [time for event in events if (time := _event_time(event)) is not None]
        first, last = min(starts + times, default=None), max(ends + times, default=None)
        request_ids = [document["requestId"] for document in (*events, *spans) if document["requestId"] is not None]
        main = next((event for event in events if event["status"] is not None), None)
        http = root["http"] if root is not None else {}
        return ObserveSummary(
            request_id=request_ids[0] if request_ids else None,
            trace_id=self.trace_ids[0] if self.trace_ids else None,
            trace_ids=self.trace_ids,
            services=list(dict.fromkeys(services)),
            method=main["method"] if main is not None else http.get("method"),
            path=main["path"] if main is not None else http.get("path"),
            status=main["status"] if main is not None else http.get("statusCode"),
            started_at=None if first is None else format_date(first),
            ended_at=None if last is None else format_date(last),
            duration_ms=None if root is None else root["duration"],
            events=len(events),
            spans=len(spans),
            errors=sum(event["level"] == "error" for event in events) + len(self.tree.errors()),
        )

    def _event(self, seq: int, event: Document) -> ObservedEvent:
        shown = ObservedEvent(offsets.encode(seq), *(event[name] for name in _EVENT_FIELDS))
        if self._request.with_raw:
            shown.raw = event
        return shown

    def _span(self, span: Document) -> ObservedSpan:
        seq = self.offsets_of_spans[span["spanId"]]
        shown = ObservedSpan(offsets.encode(seq), *(span[name] for name in _SPAN_FIELDS))
        if self._request.with_raw:
            shown.raw = span
        return shown

    def _trace(self) -> ObservedTrace:
        tree, root = self.tree, self.tree.root
        return ObservedTrace(
            trace_id=self.trace_ids[0] if self.trace_ids else None,
            root_span_id=None if root is None else root["spanId"],
            spans=[self._span(span) for span in tree.spans],
            tree=tree.tree,
            service_map=tree.service_map(),
            critical_path=tree.critical_path(),
            errors=tree.errors(),
            partial=self.found_spans.truncated or tree.is_partial,
            missing_parents=tree.missing_parents,
            duplicate_spans=tree.duplicates,
        )

    def _timeline(self) -> list[TimelineEvent | TimelineSpan]:
        """Events and starts of spans, in order."""
        entries: list[tuple[int, TimelineEvent | TimelineSpan]] = []
        if self._request.with_events:
            for seq, event in self.events:
                begun = TimelineEvent(
                    timestamp=event["timestamp"],
                    offset=offsets.encode(seq),
                    service=event["service"],
                    level=event["level"],
                    message=event["message"],
                    span_id=event["spanId"],
                )
                entries.append(((_event_time(event) or 0) * 1_000_000, begun))
        if self._request.with_trace:
            for span in self.tree.spans:
                called = TimelineSpan(
                    timestamp=span["timestamp"],
                    offset=offsets.encode(self.offsets_of_spans[span["spanId"]]),
                    service=span["service"],
                    name=span["name"],
                    duration=span["duration"],
                    is_error=span["error"]["isError"],
                    span_id=span["spanId"],
                )
                entries.append((int(span["startUnixNano"]), called))
        entries.sort(key=lambda entry: entry[0])
        return [entry for _, entry in entries]


def _event_time(event: Document) -> int | None:
    return parse_date(event["timestamp"])


def _span_time(span: Document) -> int:
    return int(span["startUnixNano"])

"""The routes of the streams protocol, and its shutdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from strandline.protocols.streams.append import StreamAppends
from strandline.protocols.streams.configuration import Schemas, StreamProfiles
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import refuse, reply_to, too_many_records
from strandline.protocols.streams.inspection import StreamInspection
from strandline.protocols.streams.invalidation import TouchRoutes
from strandline.protocols.streams.lifecycle import ALIAS, PREFIX, Lifecycle
from strandline.protocols.streams.list import StreamLists
from strandline.protocols.streams.observe import Observations
from strandline.protocols.streams.otlp import SIGNALS, Otlp
from strandline.protocols.streams.own_metrics import MetricsSampler, OwnMetrics
from strandline.protocols.streams.read import StreamReads
from strandline.protocols.streams.replies import CORS, SANDBOX
from strandline.protocols.streams.routing_keys import RoutingKeys
from strandline.protocols.streams.search import StreamSearch
from strandline.protocols.streams.server_details import ServerDetails
from strandline.protocols.streams.subscriptions.routes import SubscriptionRoutes
from strandline.service.http import ElementLimit, Handler, Route, preflight

ONE = PREFIX + "{name}"


class StreamsProtocol:
    """The handlers of the streams protocol. ``answered`` counts all replies of the server, by path and status."""

    def __init__(self, context: StreamsContext, answered: Callable[[], Mapping[tuple[str, int], int]] = dict) -> None:
        self.context = context
        self.lifecycle = Lifecycle(context)
        self.appending = StreamAppends(context)
        self.reading = StreamReads(context)
        self.schemas = Schemas(context)
        self.subscribing = SubscriptionRoutes(context)
        self.searching = StreamSearch(context)
        self.profiling = StreamProfiles(context)
        self.otlp = Otlp(context)
        self.observing = Observations(context)
        self.touching = TouchRoutes(context)
        self.listing = StreamLists(context)
        self.inspecting = StreamInspection(context)
        self.routing_keys = RoutingKeys(context)
        self.server_details = ServerDetails(context, self.touching.lives, self._count_waiting)
        self.metrics = OwnMetrics(context, answered)
        self.sampling = MetricsSampler(context, self.metrics)
        self.sampling.begin()

    def routes(self) -> list[Route]:
        records = self._records_limit()
        routes = [
            _route("PUT", ONE, self.lifecycle.put, "write", body="any", elements=records),
            _route("POST", ONE, self.appending.append, "write", body="any", fast=True, elements=records),
            _route("GET", ONE, self.reading.get, "read", fast=True, waits="records"),
            _route("HEAD", ONE, self.reading.head, "read"),
            _route("DELETE", ONE, self.lifecycle.delete, "delete"),
            _route("GET", ONE + "/pk/{key}", self.reading.get, "read", fast=True, waits="records"),
            _route("GET", ONE + "/_schema", self.schemas.get, "read"),
            _route("POST", ONE + "/_schema", self.schemas.post, "write", body="any", audited=True),
            _route("GET", ONE + "/_search", self.searching.search_get, "read", fast=True),
            _route("POST", ONE + "/_search", self.searching.search_post, "read", body="any", fast=True),
            _route("POST", ONE + "/_aggregate", self.searching.aggregate, "read", body="any", fast=True),
            _route("GET", ONE + "/_profile", self.profiling.get, "read"),
            _route("POST", ONE + "/_profile", self.profiling.post, "write", body="any", audited=True),
            *self._otlp_routes(),
            _route("POST", "/v1/observe/request", self.observing.observe, "read", body="any"),
            _route("GET", ONE + "/touch/meta", self.touching.meta, "read", fast=True),
            _route("POST", ONE + "/touch/wait", self.touching.wait, "read", body="any", fast=True, waits="records"),
            _route("POST", ONE + "/touch/templates/activate", self.touching.activate, "read", body="any"),
            _route("GET", "/v1/streams", self.listing.get, "read", fast=True),
            _route("GET", ONE + "/_details", self.inspecting.details, "read"),
            _route("GET", ONE + "/_index_status", self.inspecting.index_status, "read"),
            _route("GET", ONE + "/_routing_keys", self.routing_keys.get, "read"),
            _route("GET", "/v1/server/_details", self.server_details.details, "read"),
            _route("GET", "/v1/server/_mem", self.server_details.mem, "read"),
        ]
        return [*routes, *self._preflights(routes), *self.subscribing.routes()]

    def _otlp_routes(self) -> Iterator[Route]:
        for signal in SIGNALS:
            yield _route("POST", f"{ONE}/_otlp/v1/{signal}", self.otlp.into_stream(signal), "write", body="any")
            yield _route("POST", f"/v1/{signal}", self.otlp.into_default(signal), "write", body="any")

    def _records_limit(self) -> ElementLimit:
        """Bodies with more than twice the records of an append are refused before they are decoded."""
        most = self.context.settings.max_append_records
        return ElementLimit(most=2 * most, depth=1, arrays_only=True, refuse=lambda: too_many_records(most))

    def _preflights(self, routes: list[Route]) -> list[Route]:
        """The preflight routes: browsers ask every path what pages may send, without an API key."""
        paths = dict.fromkeys(route.path for route in routes)
        return [_route("OPTIONS", path, preflight, public=True) for path in paths]

    def _count_waiting(self) -> int:
        """The number of requests that wait for an event."""
        return self.reading.waiting + self.inspecting.waiting + self.touching.lives.waiting

    def drain(self) -> None:
        """Answer all waiting requests, and stop background work."""
        self.reading.drain()
        self.inspecting.drain()
        self.touching.drain()
        self.sampling.stop()
        self.subscribing.stop()


def _route(
    method: str,
    path: str,
    handler: Handler,
    *scopes: str,
    body: str = "none",
    fast: bool = False,
    public: bool = False,
    audited: bool = False,
    elements: ElementLimit | None = None,
    waits: Literal["", "records"] = "",
) -> Route:
    names_stream = "{name}" in path
    return Route(
        method=method,
        path=path,
        handler=handler,
        scopes=scopes,
        names=("name",) if names_stream and scopes else (),
        body=body,
        fast=fast,
        public=public,
        audited=audited,
        elements=elements,
        waits=waits,
        any_case=True,
        spans="name" if names_stream else "",
        alias=ALIAS.rstrip("/") if names_stream else "",
        headers=SANDBOX,
        cors=CORS,
        errors=reply_to,
        refuse=refuse,
    )

"""What load balancers and monitoring ask: is it alive, is it ready, how is it doing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic

import msgspec

import strandline
from strandline.faces.access import Access
from strandline.faces.web import Call, Reply, Route
from strandline.server.gate import Status


class Probes:
    """``topics`` counts the topics; ``metrics`` renders the metrics for whoever asks, as text or as JSON."""

    def __init__(
        self,
        status: Status,
        topics: Callable[[], int],
        metrics: Callable[[Access, bool], Reply | Awaitable[Reply]],
    ) -> None:
        self._status = status
        self._topics = topics
        self._metrics = metrics
        self._started = monotonic()

    def routes(self) -> list[Route]:
        probes = [
            Route(method="GET", path=path, handler=handler, probe=True, always=True)
            for path, handler in (
                ("/v0/health", self.health),
                ("/healthz", self.health),
                ("/v0/ready", self.ready),
                ("/readyz", self.ready),
            )
        ]
        metrics = Route(method="GET", path="/v0/metrics", handler=self.metrics, scopes=("read",), always=True)
        return [*probes, metrics]

    @property
    def uptime_ms(self) -> int:
        return int((monotonic() - self._started) * 1000)

    def health(self, call: Call) -> Reply:
        """GET /v0/health"""
        answer = {"status": "ok", "version": strandline.__version__, "uptime_ms": self.uptime_ms}
        return Reply(msgspec.json.encode(answer))

    def ready(self, call: Call) -> Reply:
        """GET /v0/ready"""
        self._status.check()
        answer = {"status": "ready", "wal_replay_complete": True, "topics": self._topics()}
        return Reply(msgspec.json.encode(answer))

    def metrics(self, call: Call) -> Reply | Awaitable[Reply]:
        """GET /v0/metrics"""
        return self._metrics(call.access, b"application/json" in call.head.headers.get(b"accept", b""))

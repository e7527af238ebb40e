"""The routes for load balancers and monitoring: health, readiness and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic, time_ns

import msgspec

import strandline
from strandline.engine import Engine
from strandline.engine.errors import JournalFailed, Superseded
from strandline.server.answers import Alive, Condition, FailingTask, HealthState, ReadyState, Role
from strandline.server.gate import Status
from strandline.service.access import Access
from strandline.service.http import JSON, Call, Cors, Reply, Route, preflight


class Probes:
    """``topics`` returns the number of logs and ``series`` the number of series of the metrics stream. ``metrics``
    renders the metrics for an API key, as text or as JSON. ``engine`` returns the engine; None before it is open.
    ``warnings`` returns what an operator should know although nothing fails.
    ``cors`` are the CORS headers of collections, whose protocol has the route ``/health``."""

    def __init__(
        self,
        status: Status,
        topics: Callable[[], int],
        metrics: Callable[[Access, bool], Reply | Awaitable[Reply]],
        series: Callable[[], int] = lambda: 0,
        engine: Callable[[], Engine | None] = lambda: None,
        warnings: Callable[[], list[str]] = list,
        cors: Cors | None = None,
    ) -> None:
        self._status = status
        self._engine = engine
        self._warnings = warnings
        self._cors = cors
        self._topics = topics
        self._metrics = metrics
        self._series = series
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
        probes += [
            Route(method="GET", path="/health", handler=self.alive, probe=True, always=True, cors=self._cors),
            Route(method="OPTIONS", path="/health", handler=preflight, public=True, always=True, cors=self._cors),
        ]
        metrics = Route(method="GET", path="/v0/metrics", handler=self.metrics, scopes=("read",), always=True)
        series = Route(method="GET", path="/metrics", handler=self.series, scopes=("read",), always=True)
        return [*probes, metrics, series]

    @property
    def uptime_ms(self) -> int:
        return int((monotonic() - self._started) * 1000)

    def health(self, call: Call) -> Reply:
        """GET /v0/health"""
        failure, failing = self._failure(), self._failing()
        answer = HealthState(
            status=_condition(failure, failing),
            version=strandline.__version__,
            uptime_ms=self.uptime_ms,
            reason="" if failure is None else str(failure),
            role=self._role(failure),
            leader=self._leader(),
            failing=failing,
        )
        return Reply(msgspec.json.encode(answer))

    def alive(self, call: Call) -> Reply:
        """GET /health"""
        condition = _condition(self._failure(), self._failing())
        return Reply(msgspec.json.encode(Alive(ok=True, ts=time_ns() // 1_000_000, status=condition)))

    def _failure(self) -> JournalFailed | None:
        """Why the server is read-only although it should not be; None if all is well."""
        engine = self._engine()
        return None if engine is None or engine.follower is not None else engine.journal.failure

    def _role(self, failure: JournalFailed | None) -> Role:
        if self._status.standby:
            return "standby"
        engine = self._engine()
        if engine is not None and engine.follower is not None:
            return "follower"
        if engine is None or engine.replica is None:
            return ""
        return "replaced" if failure is not None and isinstance(failure.cause, Superseded) else "leader"

    def _leader(self) -> str:
        engine = self._engine()
        if engine is not None and engine.follower is not None:
            return engine.follower.leader
        return self._status.leader if self._status.standby or self._status.replaced else ""

    def _failing(self) -> list[FailingTask]:
        engine = self._engine()
        troubles = [] if engine is None else engine.health.troubles()
        return [
            FailingTask(task=trouble.task, since=trouble.since, failures=trouble.failures, error=trouble.error)
            for trouble in troubles
        ]

    def series(self, call: Call) -> Reply | Awaitable[Reply]:
        """GET /metrics: the text of ``/v0/metrics`` if the client asks for text, as Prometheus does. Otherwise JSON, as
        in the streams protocol. The stream ``__stream_metrics__`` contains the series that it counts."""
        if _wants_text(call):
            return self._metrics(call.access, False)
        return Reply(msgspec.json.encode({"uptime_ms": self.uptime_ms, "series": self._series()}))

    def ready(self, call: Call) -> Reply:
        """GET /v0/ready"""
        self._status.check()
        failure = self._failure()
        if failure is not None:
            raise failure.again()
        answer = ReadyState(
            status="ready",
            wal_replay_complete=True,
            topics=self._topics(),
            failing=self._failing(),
            warnings=self._warnings(),
        )
        return Reply(msgspec.json.encode(answer))

    def metrics(self, call: Call) -> Reply | Awaitable[Reply]:
        """GET /v0/metrics"""
        return self._metrics(call.access, b"application/json" in call.head.headers.get(b"accept", b""))


def _wants_text(call: Call) -> bool:
    """Whether the client accepts Prometheus text. Prometheus lists it beside newer formats; a browser does not."""
    accept = call.head.headers.get(b"accept", b"").lower()
    return JSON not in accept and (b"text/plain" in accept or b"application/openmetrics-text" in accept)


def _condition(failure: JournalFailed | None, failing: list[FailingTask]) -> Condition:
    if failure is not None:
        return "read_only"
    return "degraded" if failing else "ok"

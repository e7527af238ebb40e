"""One server: the engine, the gate and the protocols, from start to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_urlsafe

import msgspec
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Send

from strandline import arrow
from strandline.collections.revocation_files import BadRevocationFile
from strandline.delivery.hub import Hub, Recurrence
from strandline.delivery.subscriptions import Subscriptions
from strandline.engine import Engine, Log, Options
from strandline.engine.clock import Clock, SteadyClock, SystemClock
from strandline.engine.errors import DamagedFile, Superseded
from strandline.engine.follower.mirror import NoLeaderYet
from strandline.engine.replica.standby import MAX_PAUSE_SECONDS, Standby
from strandline.engine.replica.store import ObjectStoreReplica
from strandline.engine.replica.takeover import ReplicaAhead, has_data
from strandline.lake.location import Lake
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.routes import ArrowProtocol
from strandline.protocols.collections.authorization import open_authorizer
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.routes import CollectionsProtocol, cors_of
from strandline.protocols.console.context import ConsoleContext, Surroundings
from strandline.protocols.console.routes import ConsoleProtocol
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.routes import StreamsProtocol
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.routes import TablesProtocol
from strandline.protocols.tables.users import Users
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.routes import TopicsProtocol
from strandline.query.index_files.catalog import IndexCatalog
from strandline.query.index_files.directory import IndexDirectory
from strandline.query.index_files.indexer import Indexer
from strandline.query.index_files.worker import IndexWorker
from strandline.query.searcher import Searcher
from strandline.schema.log_search import search_of
from strandline.server.access_log import AccessLog
from strandline.server.asgi import SocketDoor, make_app
from strandline.server.audit_routes import AuditRoutes
from strandline.server.backup_routes import BackupRoutes
from strandline.server.browser_module import BrowserModule
from strandline.server.client_routes import ClientRoutes
from strandline.server.clients import Clients
from strandline.server.connection import ConnectionLimit, connection_limit
from strandline.server.cors import Origins
from strandline.server.declarations import NOTHING, Declarations
from strandline.server.documentation import Documentation
from strandline.server.gate import Gate, Status
from strandline.server.key_routes import KeyRoutes
from strandline.server.metrics_snapshot import measure
from strandline.server.openapi import openapi_route
from strandline.server.pipeline.lake_marks import LakeMarks
from strandline.server.pipeline.routes import PipelineRoutes
from strandline.server.pipeline.supervisor import OwnServer, PipelineSupervisor, Program
from strandline.server.probes import Probes
from strandline.server.settings import BadSettings, Settings
from strandline.server.traces.gate import TracedGate
from strandline.server.traces.traces import Traces
from strandline.server.websocket_protocol import UnfinishedMessages
from strandline.service.access import ALL_SCOPES, Access, Keys
from strandline.service.admission import SAMPLE_MS
from strandline.service.api_keys import KEYS_LOG, PIPELINE_KEY, ApiKeys
from strandline.service.audit import Audit
from strandline.service.flush_in_place import FlushInPlace
from strandline.service.http import Reply
from strandline.service.kernel import Kernel
from strandline.service.limits import Limits
from strandline.service.live import LiveResponses, SocketResponse
from strandline.service.request_meter import RequestMeter
from strandline.service.unread import UnreadBytes
from strandline.service.workers import Workers
from strandline.tables import BadDeclaration, Tables

log = logging.getLogger(__name__)

#: How often expired API keys are removed, which ends the responses that their clients have open.
KEY_SWEEP_SECONDS = 1.0
#: The directory below the data directory for copies of index files, if the lake is not on this machine.
COMPANIONS = "companions"


class StartGivenUp(Exception):
    """A signal stopped the server while it replayed the journal. The data directory is unchanged."""


class Application:
    """One server. ``app`` is the ASGI app, which opens the data directory when its lifespan begins.

    ``program`` runs the pipeline; without it there is no pipeline. ``clock`` is the server's time and ``wall`` the
    system clock.
    """

    def __init__(
        self,
        settings: Settings,
        program: Program | None = None,
        declared: Declarations = NOTHING,
        *,
        clock: Clock | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock or SteadyClock()
        self._wall = wall or SystemClock().now
        self._program = program
        self._declared = declared
        #: An API key for the pipeline of this server. It exists only in memory.
        self._pipeline_key = token_urlsafe(32)
        self.workers = Workers()
        self._collections = settings.collections_config(declared.collections)
        for warning in self._collections.warnings:
            # The caller has already reported the warnings of the settings.
            if warning not in settings.warnings:
                log.warning(warning)
        try:
            self._authorizer = open_authorizer(self._collections, declared.collections, self.workers.callbacks.run)
        except BadRevocationFile as error:
            raise BadSettings(str(error)) from None
        self.status = Status()
        limits = settings.limits
        self.limits = Limits(
            max_inflight_per_key=limits.max_inflight_per_key,
            max_sse_connections=limits.max_sse_connections,
            max_sse_connections_per_key=limits.max_sse_connections_per_key,
            unread=UnreadBytes(limits.max_unread_bytes, settings.delivery.slow_consumer_timeout_ms / 1000),
        )
        self.unfinished = UnfinishedMessages(limits.max_unfinished_bytes)
        self.probes = Probes(
            self.status,
            self._count_topics,
            self._metrics,
            self._count_series,
            lambda: self.engine,
            lambda: [] if self.marks is None else self.marks.warnings,
            cors_of(self._collections.settings.cors),
        )
        self.keys = ApiKeys(self._keys(), self._clock.now, self._end_key)
        traced = settings.traces
        self.traces = Traces(traced) if traced.traces_endpoint else None
        gate: Callable[..., Gate] = Gate
        if self.traces is not None:
            scheme = "https" if settings.server.tls_certificate else "http"
            gate = partial(TracedGate, tracer=self.traces.tracer, scheme=scheme)
        self.gate = gate(
            self.probes.routes(),
            keys=self.keys if settings.server.api_keys else None,
            limits=self.limits,
            status=self.status,
            workers=self.workers,
            max_body_bytes=limits.max_body_bytes,
            max_body_values=limits.max_body_values,
            probe_auth=settings.server.probe_auth,
            origins=Origins(
                keyed=bool(settings.server.api_keys),
                listen_host=settings.server.host,
                hosts=settings.server.allowed_hosts,
                origins=settings.server.allowed_origins,
                proxies=settings.server.trusted_proxies,
            ),
        )
        if settings.server.access_log:
            self.gate.access_log = AccessLog()
        #: The address where the server listens, as host:port, once it does.
        self.address = ""
        #: The address for clients on other machines.
        self.for_clients = ""
        self._stopping = asyncio.Event()
        self.kernel: Kernel | None = None
        self.topics: TopicsProtocol | None = None
        self.streams: StreamsProtocol | None = None
        self.arrow: ArrowProtocol | None = None
        self.collections: CollectionsProtocol | None = None
        self.tables: TablesProtocol | None = None
        self.console: ConsoleProtocol | None = None
        self.connection_cap = ConnectionLimit(connection_limit(limits.max_connections))
        #: Returns the number of open connections. The listening server replaces it; open streams are a lower bound.
        self.count_connections: Callable[[], int] = lambda: self.limits.streams.used
        #: Returns the open connections. The listening server replaces it.
        self.list_connections: Callable[[], Collection[object]] = tuple
        self.engine: Engine | None = None
        self.live: LiveResponses | None = None
        self.indexer: Indexer | None = None
        self.keeper: PipelineSupervisor | None = None
        self.marks: LakeMarks | None = None
        self._sampling: Recurrence | None = None
        self._key_sweep: Recurrence | None = None
        self._key_reading: Recurrence | None = None
        #: Why the server could not start; set it to make the server stop.
        self.failure: BaseException | None = None
        door = SocketDoor(self.gate, self._serve_socket)
        self.app = make_app(self.gate, [WebSocketRoute("/v0/ws", door)], self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        if self.traces is not None:
            self.traces.exporter.start()
        opening = asyncio.ensure_future(self._open())
        try:
            yield
        finally:
            self._stopping.set()
            await opening
            await self._close()

    async def _open(self) -> None:
        """Replay the journal and set up the protocols. If that fails, the server stops."""
        try:
            await self._make()
        except BaseException as error:
            self.failure = error
            log.critical("the server cannot start", exc_info=error)

    async def _make(self) -> None:
        """Replay the journal on another thread and set up the protocols. Meanwhile the probes report the progress."""
        settings = self.settings
        try:
            engine = await self._open_engine()
        except StartGivenUp:
            if not self.status.standby:
                log.info("stopped while replaying the journal; the next start replays it from the beginning")
            return
        except ReplicaAhead as error:
            self.failure = error
            log.critical("%s", error)
            return
        except BaseException as error:
            self.failure = error
            log.critical("cannot open the data directory %s: %s", settings.storage.data_dir, error)
            return
        self.engine = engine
        if self.traces is not None:
            engine.tracer = self.traces.tracer
        if not await self._load_keys(engine):
            return
        # The hub uses the engine's clock, because queues compare their deadlines with times that the engine wrote.
        hub = Hub(self._clock.now, health=engine.health, wall=self._wall, threads=self.workers.normal)
        kernel = self.kernel = Kernel(
            engine, hub, self.limits.streams, self.workers, target_latency_ms=settings.delivery.target_latency_ms
        )
        self.admission, self.live = kernel.admission, kernel.live
        self.gate.reach = kernel.reach
        if engine.follower is not None:
            self.gate.lag_ms = engine.follower.lag_ms
        in_place = FlushInPlace(engine, lambda: self.gate.entered, lambda: self.gate.in_a_row)
        kernel.admission.flushes_in_place = in_place.is_best
        shelf = IndexCatalog(Lake.at(settings.lake), Path(settings.storage.data_dir) / COMPANIONS, self.workers.lake)
        # One memory budget and one set of index files for the searches of all protocols.
        directory = IndexDirectory(engine.disk)
        searcher = Searcher(settings.streams.search_memory_bytes, [directory, shelf])
        worker = IndexWorker(settings.storage.data_dir)
        self.indexer = Indexer(engine, searcher, directory, search_of, worker)
        declared = self._declared
        try:
            tables = await asyncio.to_thread(Tables, engine, declared.tables, hooks=declared.hooks, searcher=searcher)
        except BadDeclaration as error:
            self.failure = error
            log.critical("cannot serve the declared tables: %s", error)
            return
        users = Users(self.gate.keys is not None, declared.identify)
        self.tables = TablesProtocol(TablesContext(kernel, tables, users))
        self.topics = TopicsProtocol(Context(kernel, settings.topics, settings.limits, settings.delivery))
        self.streams = StreamsProtocol(
            StreamsContext(kernel, settings.streams, searcher, self.indexer), self.gate.answered
        )
        self.arrow = ArrowProtocol(ArrowContext(kernel, settings.topics), settings.limits.max_body_bytes)
        documents = CollectionsContext(kernel, self._collections, self._authorizer)
        self.collections = CollectionsProtocol(documents)
        self.keeper = PipelineSupervisor(settings, self._program, engine, own=self._own_server())
        around = self._surroundings(self.keeper)
        self.console = ConsoleProtocol(ConsoleContext(kernel, around, tables, documents.collections))
        marks = LakeMarks(engine, Lake.at(settings.lake), settings.pipeline.lake_alarm_s, self.keeper.not_run)
        self.marks = marks
        kernel.lake_warning = lambda: marks.warning
        pipeline = PipelineRoutes(self.keeper, marks)
        protocols = {
            "topics": self.topics.routes(),
            "streams": self.streams.routes(),
            "arrow": self.arrow.routes(),
            "collections": self.collections.routes(),
            "tables": self.tables.routes(),
            "console": self.console.routes(),
        }
        if settings.server.audit_bytes and engine.follower is None:
            audit = Audit(engine, settings.server.audit_bytes)
            await asyncio.to_thread(audit.prepare)
            self.gate.audit = audit
        own = [
            *pipeline.routes(),
            *KeyRoutes(self.keys, hub).routes(),
            *AuditRoutes(engine, self.workers).routes(),
            *BackupRoutes(engine, settings, self.workers, self._wall).routes(),
            *ClientRoutes(self._clients(), self.keys, self._wall).routes(),
            *Documentation(self.workers).routes(),
            *BrowserModule(self.workers).routes(),
        ]
        described = [*self.probes.routes(), *(route for routes in protocols.values() for route in routes), *own]
        further = [self.collections.described, self.tables.described]
        protocols["server"] = [*own, openapi_route(described, further)]
        for protocol, routes in protocols.items():
            self.gate.add(protocol, routes)
        await asyncio.to_thread(self.indexer.prepare)
        await self._prepare_imports(kernel)
        self.status.progress = 1.0
        self.status.ready = True
        self._key_sweep = hub.every(KEY_SWEEP_SECONDS, "removal of expired API keys", self.keys.sweep)
        if engine.follower is not None:
            self._key_reading = hub.every(KEY_SWEEP_SECONDS, "reading of API keys", lambda: self._read_keys(hub))
        self._sampling = hub.every(SAMPLE_MS / 1000, "sampling of the pressure", kernel.pressure.sample)
        self.collections.begin()
        self.console.begin()
        kernel.catalog.dropping.append(self.indexer.forget)
        if engine.replica is not None:
            loop = asyncio.get_running_loop()
            engine.replica.when_superseded(lambda error: self._hear_of_successor(loop, error))
        if not self.status.draining:
            self.indexer.start()
        if not self.status.draining:
            self.keeper.start()
            if engine.follower is None:
                marks.start()
        log.info("ready: %d logs in %s", kernel.catalog.count, settings.storage.data_dir)

    async def _open_engine(self) -> Engine:
        """Open the data directory on another thread. A standby waits before."""
        settings = self.settings
        options = msgspec.structs.replace(
            settings.engine_options(), address=settings.server.advertise or self.for_clients or self.address
        )
        if options.follow:
            return await self._follow(options)
        standby: Standby | None = None
        if settings.server.standby and not has_data(settings.storage.data_dir):
            standby = Standby(await asyncio.to_thread(ObjectStoreReplica, options.replica, **options.replica_options))
        while True:
            if standby is not None:
                await self._stand_by(standby)
                options = msgspec.structs.replace(options, expected_term=standby.term)
            try:
                return await asyncio.to_thread(
                    Engine.open, settings.storage.data_dir, options, clock=self._clock, progress=self._progress
                )
            except Superseded:
                if standby is None:
                    raise
                log.info("another standby took over first; this one continues to wait")
                standby.forget()
            except OSError as error:
                if standby is None:
                    raise
                log.error("the takeover failed; this standby waits again: %s", error)
                await asyncio.to_thread(standby.give_back, options.address, options.replica_lease_ms)
            except StartGivenUp:
                if standby is not None:
                    await asyncio.to_thread(standby.give_back, options.address, options.replica_lease_ms)
                raise

    async def _follow(self, options: Options) -> Engine:
        """Open a copy of the logs of another server. Waits until there is one, and while the store is away. Raises
        StartGivenUp if the server should stop."""
        said = ""
        while not self._stopping.is_set():
            try:
                return await asyncio.to_thread(
                    Engine.follow, self.settings.storage.data_dir, options, clock=self._clock
                )
            except (NoLeaderYet, OSError) as error:
                if str(error) != said:
                    log.warning("cannot follow %s yet, and tries again: %s", options.follow, error)
                    said = str(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), MAX_PAUSE_SECONDS)
        raise StartGivenUp

    async def _stand_by(self, standby: Standby) -> None:
        """Wait until it is time to take over. Raises StartGivenUp if the server should stop."""
        status = self.status
        status.standby = True
        failing = False
        while not self._stopping.is_set():
            pause = MAX_PAUSE_SECONDS
            try:
                if await asyncio.to_thread(standby.look):
                    status.standby = False
                    return
                pause, failing = standby.pause, False
            except (DamagedFile, OSError) as error:
                if not failing:
                    log.error("the standby cannot read the replica and tries again: %s", error)
                failing = True
            status.leader = "" if standby.leader is None else standby.leader.address
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        raise StartGivenUp

    async def _load_keys(self, engine: Engine) -> bool:
        """Read the API keys that were added earlier. Without API keys in its settings, a server does not open a
        directory with added keys to every client, unless the settings allow it."""
        added = await asyncio.to_thread(self.keys.load, engine)
        server = self.settings.server
        if not added or server.api_keys or server.allow_insecure_no_auth:
            return True
        self.failure = BadSettings(f"{KEYS_LOG} has API keys, but the settings have none")
        log.critical(
            "the data directory has %d API keys that were added to a server, but no API keys are set, so every client "
            "could do everything: set STRANDLINE_API_KEYS, or STRANDLINE_ALLOW_INSECURE_NO_AUTH=1",
            added,
        )
        return False

    def _read_keys(self, hub: Hub) -> None:
        """Read the API keys again if the leader has changed them."""
        if self.keys.is_stale:
            hub.in_thread(self.keys.read).add_done_callback(lambda read: self.keys.replace(*read.result()))

    def _end_key(self, id: str) -> None:
        """An API key no longer works: check every request again, and end what its clients have open."""
        self.gate.forget_heads()
        if self.live is not None:
            self.live.end_key(id)

    def _keys(self) -> Keys:
        """The configured API keys and, if there are any, the one of the pipeline."""
        keys = self.settings.server.api_keys
        return keys.with_key(self._pipeline_key, Access(PIPELINE_KEY, ALL_SCOPES, ())) if keys else keys

    def _clients(self) -> Clients:
        return Clients(lambda: self.list_connections(), self.limits.unread)

    def _subscriptions(self) -> Subscriptions:
        assert self.streams is not None, "the gate admits no request before the server is ready"
        return self.streams.subscribing.subscriptions

    def _own_server(self) -> OwnServer | None:
        return OwnServer(f"http://{self.address}", self._pipeline_key) if self.address else None

    async def _prepare_imports(self, kernel: Kernel) -> None:
        """Import what every server with logs needs: now, or when the first log is created."""
        if kernel.catalog.count:
            await asyncio.to_thread(arrow.prepare)
            return

        def first(_: Log) -> None:
            del kernel.catalog.created[first]
            self.workers.normal.submit(arrow.prepare)

        kernel.catalog.created[first] = None

    def _surroundings(self, keeper: PipelineSupervisor) -> Surroundings:
        return Surroundings(
            keys_required=self.gate.keys is not None,
            has_pipeline=lambda: keeper.standing.state != "off",
            is_serving=lambda: self.status.serving,
            uptime_ms=lambda: self.probes.uptime_ms,
            connections=lambda: self.count_connections(),
            requests=lambda: RequestMeter.totals(self.gate.meters()),
            # The certificate of a server with TLS is rarely valid for an address of this machine.
            subscriptions=self._subscriptions,
            url=lambda: f"http://{self.address}" if self.address and not self.settings.server.tls_certificate else "",
            data_directory=Path(self.settings.storage.data_dir).absolute(),
            lake_directory=Lake.at(self.settings.lake).directory,
        )

    async def _serve_socket(
        self,
        accept: Callable[[], Awaitable[None]],
        receive: Receive,
        send: Send,
        access: Access,
        opened: Callable[[SocketResponse], None],
    ) -> None:
        assert self.topics is not None, "the gate admits no request before the server is ready"
        await self.topics.websockets.serve(accept, receive, send, access, self.limits.unread, opened)

    def _progress(self, progress: float) -> None:
        """Called by the thread that replays the journal."""
        if self.status.draining:
            raise StartGivenUp
        self.status.progress = progress

    def _count_topics(self) -> int:
        return 0 if self.kernel is None else self.kernel.catalog.count

    def _count_series(self) -> int:
        return 0 if self.streams is None else self.streams.metrics.series

    async def _metrics(self, access: Access, as_json: bool) -> Reply:
        return await measure(self, access, as_json)

    def _hear_of_successor(self, loop: asyncio.AbstractEventLoop, error: Superseded) -> None:
        """Called on a thread of the engine."""
        # The loop may have ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._leave_to_successor, error)

    def _leave_to_successor(self, error: Superseded) -> None:
        """Refuse all requests, because another server has taken over: readers would wait here for records that never
        come."""
        self.status.replaced, self.status.leader = str(error), error.address
        self._end_waiting()

    def drain(self) -> None:
        """Refuse new requests, end live responses, and let running requests finish."""
        self.status.draining = True
        self._stopping.set()
        for recurrence in (self._sampling, self._key_sweep, self._key_reading):
            if recurrence is not None:
                recurrence.stop()
        if self.keeper is not None:
            self.keeper.request_stop()
        self._end_waiting()

    def _end_waiting(self) -> None:
        """Answer the requests that wait, and end live responses."""
        if self.topics is not None:
            self.topics.drain()
        if self.streams is not None:
            self.streams.drain()
        if self.live is not None:
            self.live.drain()

    async def _close(self) -> None:
        self.status.draining = True
        self._stopping.set()
        if self.live is not None:
            self.live.close()
        if self.console is not None:
            self.console.close()
        if self.collections is not None:
            self.collections.close()
        await asyncio.to_thread(self.workers.close)
        if self.keeper is not None:
            await asyncio.to_thread(self.keeper.close)
        if self.marks is not None:
            await asyncio.to_thread(self.marks.close)
        if self.tables is not None:
            await asyncio.to_thread(self.tables.close)
        if self.indexer is not None:
            await asyncio.to_thread(self.indexer.stop)
        if self.kernel is not None:
            self.kernel.stop()
        if self.engine is not None:
            await asyncio.to_thread(self.engine.close)
        if self.traces is not None:
            await asyncio.to_thread(self.traces.exporter.close)

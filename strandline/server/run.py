"""Runs the server: the listening socket, signals, and a shutdown within bounded time."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from pathlib import Path
from types import FrameType

import uvicorn

from strandline.engine.errors import DamagedFile
from strandline.server.application import Application
from strandline.server.connection import IDLE_SECONDS, Connection, ConnectionDeadlines
from strandline.server.declarations import Declarations, load
from strandline.server.fast_lane import FastLane, fast_lane
from strandline.server.log_lines import log_to_stderr
from strandline.server.pipeline.supervisor import Program
from strandline.server.settings import BadSettings, Settings, check_exposure
from strandline.server.tls import BadCertificate, Certificate
from strandline.server.websocket_protocol import socket_protocol

log = logging.getLogger("strandline")

#: Maximum number of connections that wait to be accepted.
BACKLOG = 4096
#: The exit code for a damaged data directory: a restart does not help, but ``strandline verify --repair`` may.
DAMAGED = 3
#: There are hardly any reference cycles. Collecting rarely, and never the objects from the start, keeps pauses short.
GC_THRESHOLDS = (50_000, 20, 50)


def run(settings: Settings, program: Program | None = None, declared: Declarations | None = None) -> int:
    """Serve until a signal stops the server; returns the exit code. ``program`` starts the pipeline, which the server
    supervises. Without ``declared``, the declarations come from the file in the settings."""
    check_exposure(settings)
    declared = load(settings.server.declare) if declared is None else declared
    log_to_stderr(settings.server.log_level, settings.server.log_format)
    if settings.server.log_level != "debug":
        # uvicorn logs every step of its start and stop, which is logged here too.
        logging.getLogger("uvicorn.error").setLevel("WARNING")
    application = Application(settings, program, declared)
    try:
        server = Server(application)
    except BadCertificate as error:
        raise BadSettings(str(error)) from None
    try:
        listener = listen(settings.server.host, settings.server.port)
    except OSError as error:
        log.critical(
            "cannot listen on %s:%d: %s; choose another address with --host and --port",
            settings.server.host,
            settings.server.port,
            error.strerror or error,
        )
        return 1
    # From now on clients can connect, so signals stop the server cleanly.
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, server.handle_exit)
    address = _address(listener)
    application.address = for_browsers(address)
    application.for_clients = for_clients(address)
    if settings.server.port_file:
        write_port_file(settings.server.port_file, address)
    scheme = "https" if settings.server.tls_certificate else "http"
    log.info("listening on %s://%s, data directory %s", scheme, address, settings.storage.data_dir)
    log.info("console: %s://%s/console", scheme, for_browsers(address))
    if not settings.server.api_keys:
        log.warning("no API keys are set: every client that can connect may do everything; set STRANDLINE_API_KEYS")
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    server.run(sockets=[listener])
    # Frozen objects would count as leaked at the end of the process.
    gc.unfreeze()
    if application.failure is None:
        return 0
    return DAMAGED if isinstance(application.failure, DamagedFile) else 1


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # From here on clients can connect; they wait until the event loop runs.
        listener.listen(BACKLOG)
        listener.set_inheritable(False)
    except OSError:
        listener.close()
        raise
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def for_browsers(address: str) -> str:
    """The address for a browser on this machine, also if the server listens on all addresses."""
    host, _, port = address.rpartition(":")
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host) + f":{port}"


def for_clients(address: str) -> str:
    """The address for clients on other machines. A server that listens on all addresses is known by its host name."""
    host, _, port = address.rpartition(":")
    return f"{socket.gethostname()}:{port}" if host in ("0.0.0.0", "[::]") else address


def write_port_file(path: str, address: str) -> None:
    """Write the file atomically: a reader finds all of it or nothing."""
    temporary = Path(f"{path}.{os.getpid()}.tmp")
    temporary.write_text(address + "\n")
    temporary.replace(path)


class Server(uvicorn.Server):
    """uvicorn with a shutdown in two steps: refuse new requests until the running ones end, then close."""

    def __init__(self, application: Application) -> None:
        self._application = application
        settings, limits = application.settings.server, application.settings.limits
        self._deadlines = ConnectionDeadlines(settings.head_timeout_seconds, settings.body_timeout_seconds)
        self._cap = application.connection_cap
        self._certificate = (
            Certificate(settings.tls_certificate, settings.tls_key) if settings.tls_certificate else None
        )
        super().__init__(
            uvicorn.Config(
                application.app,
                http=fast_lane(application.gate, self._cap, self._deadlines, hot=settings.fast_lane),
                loop="uvloop",
                ws=socket_protocol(application.unfinished, application.limits.unread),
                # Compression would cost time per message and memory per socket.
                ws_per_message_deflate=False,
                ws_max_size=min(limits.max_message_bytes, limits.max_body_bytes),
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                # Both lanes read the headers of proxies themselves.
                proxy_headers=False,
                timeout_keep_alive=int(IDLE_SECONDS),
                timeout_graceful_shutdown=1,
                backlog=BACKLOG,
            )
        )
        application.count_connections = lambda: len(self.server_state.connections)
        application.list_connections = lambda: self.server_state.connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._certificate is not None:
            self.config.ssl = self._certificate.context
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(self._deadlines.sweep_seconds, self._sweep)
        self._sweep_unread()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._application.status.draining or not self.started:
            # uvicorn would raise the signal again at the end and kill the process.
            self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
            self.should_exit = True
            return
        log.info("received %s: waiting for open requests, then stopping", signal.Signals(sig).name)
        self._application.status.draining = True
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._drain_until = self._loop.time() + self._application.settings.server.drain_seconds
        try:
            self._application.drain()
        except Exception:
            log.exception("could not notify all clients of the shutdown; stopping anyway")
        self._check_drained()

    def _check_drained(self) -> None:
        busy = any(_is_busy(connection) for connection in self.server_state.connections) or self.server_state.tasks
        if not busy or self._loop.time() >= self._drain_until:
            self.should_exit = True
        else:
            self._loop.call_later(0.02, self._check_drained)

    async def on_tick(self, counter: int) -> bool:
        return self._application.failure is not None or await super().on_tick(counter)

    def _sweep(self) -> None:
        """Close idle connections, and connections whose clients are too slow."""
        # First, so that no error can end the sweeping.
        self._loop.call_later(self._deadlines.sweep_seconds, self._sweep)
        if self._certificate is not None:
            self._certificate.refresh()
        connections = self.server_state.connections
        self._cap.relax(len(connections))
        for connection in list(connections):
            if isinstance(connection, Connection):
                connection.look()

    def _sweep_unread(self) -> None:
        """Disconnect clients that read nothing."""
        unread = self._application.limits.unread
        # First, so that no error can end the sweeping.
        self._loop.call_later(unread.sweep_seconds, self._sweep_unread)
        unread.sweep()


def _is_busy(connection: object) -> bool:
    return isinstance(connection, FastLane) and connection.has_work

"""Running the server: the listening socket, the signals, and an end that takes a bounded time."""

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
from strandline.server.connection import IDLE_SECONDS, Connection, Deadlines
from strandline.server.declarations import Declared, load
from strandline.server.fast_lane import FastLane, fast_lane
from strandline.server.log_lines import log_to_stderr
from strandline.server.pipeline.supervisor import Program
from strandline.server.settings import Settings, check_exposure
from strandline.server.websocket_protocol import socket_protocol

log = logging.getLogger("strandline")

#: Connections that wait to be accepted.
BACKLOG = 4096
#: The exit code when the data directory is damaged: starting again does not help, see ``strandline verify``.
DAMAGED = 3
#: The collector looks for cycles among what was made since; there are hardly any. Looking more seldom, and never at
#: what is there from the start, keeps its pauses short.
GC_THRESHOLDS = (50_000, 20, 50)


def run(settings: Settings, program: Program | None = None, declared: Declared | None = None) -> int:
    """Serve until told to stop; returns the exit code. ``program`` is how the pipeline is run, which the server then
    looks after. What is ``declared`` is found where the settings say, unless it is given here."""
    check_exposure(settings)
    declared = load(settings.server.declare) if declared is None else declared
    log_to_stderr(settings.server.log_level)
    if settings.server.log_level != "debug":
        # It tells of every step of its start and stop, which is told here as well.
        logging.getLogger("uvicorn.error").setLevel("WARNING")
    application = Application(settings, program, declared)
    server = Server(application)
    try:
        listener = listen(settings.server.host, settings.server.port)
    except OSError as error:
        log.critical("cannot listen on %s:%d: %s", settings.server.host, settings.server.port, error)
        return 1
    # As soon as anybody can know of this process, it ends in order when it is told to.
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, server.handle_exit)
    address = _address(listener)
    if settings.server.port_file:
        write_port_file(settings.server.port_file, address)
    log.info("listening on http://%s, data in %s", address, settings.storage.data_dir)
    log.info("the console is at http://%s/console", for_browsers(address))
    if not settings.server.api_keys:
        log.warning("no API keys are configured: everybody who can connect may do everything")
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    server.run(sockets=[listener])
    # What was frozen would count as leaked at the end of the process.
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
        # From here on clients can connect: they wait until the loop runs, instead of being refused.
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
    """The address as a browser on this machine finds it, also where the server listens everywhere."""
    host, _, port = address.rpartition(":")
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host) + f":{port}"


def write_port_file(path: str, address: str) -> None:
    """Whoever waits for the file finds all of it or nothing."""
    temporary = Path(f"{path}.{os.getpid()}.tmp")
    temporary.write_text(address + "\n")
    temporary.replace(path)


class Server(uvicorn.Server):
    """uvicorn, with an end in two steps: first requests are refused and those under way finish, then it closes."""

    def __init__(self, application: Application) -> None:
        self._application = application
        settings, limits = application.settings.server, application.settings.limits
        self._deadlines = Deadlines(settings.head_timeout_seconds, settings.body_timeout_seconds)
        self._cap = application.connection_cap
        super().__init__(
            uvicorn.Config(
                application.app,
                http=fast_lane(application.gate, self._cap, self._deadlines, hot=settings.fast_lane),
                loop="uvloop",
                ws=socket_protocol(application.unfinished, application.limits.unread),
                # Compressing would cost time per message and memory per socket, on every one of them.
                ws_per_message_deflate=False,
                ws_max_size=min(limits.max_message_bytes, limits.max_body_bytes),
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                # Whoever wants to know what proxies say looks by itself, in both lanes alike.
                proxy_headers=False,
                timeout_keep_alive=int(IDLE_SECONDS),
                timeout_graceful_shutdown=1,
                backlog=BACKLOG,
            )
        )
        application.count_connections = lambda: len(self.server_state.connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(self._deadlines.sweep_seconds, self._sweep)
        self._sweep_unread()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._application.status.draining or not self.started:
            # uvicorn would raise the signal once more at the very end, and the process would die of it.
            self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
            self.should_exit = True
            return
        log.info("%s: finishing what is under way", signal.Signals(sig).name)
        self._application.status.draining = True
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._drain_until = self._loop.time() + self._application.settings.server.drain_seconds
        try:
            self._application.drain()
        except Exception:
            log.exception("not everybody could be told that the server stops; it stops all the same")
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
        """Close connections that are idle, and those whose clients take too long."""
        # First, so that no error can end the sweeping.
        self._loop.call_later(self._deadlines.sweep_seconds, self._sweep)
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

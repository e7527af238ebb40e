"""What the handlers of this face share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from strandline.delivery.hub import Hub
from strandline.delivery.pressure import Pressure
from strandline.delivery.watching.alarms import Alarms
from strandline.delivery.watching.feeds import Feeds
from strandline.engine import Engine
from strandline.engine.commit import Commit
from strandline.faces.neighbours import kept_by
from strandline.faces.streams.deadlines import Deadlines
from strandline.faces.streams.errors import append_timeout, conflict, overloaded
from strandline.faces.streams.indexing import Indexing
from strandline.faces.streams.memory import Memory
from strandline.faces.streams.meters import Meters
from strandline.faces.streams.settings import StreamsSettings
from strandline.faces.streams.stream import Stream
from strandline.faces.streams.streams import Streams
from strandline.faces.streams.words import unescape
from strandline.faces.streams.workers import Workers
from strandline.faces.turns import Replying, Turns, after
from strandline.faces.web import Call, Later, Reply, Slots
from strandline.query.companions.shelf import Shelf
from strandline.query.searcher import Searcher

T = TypeVar("T")

#: How often expired streams are removed.
SWEEP_SECONDS = 1.0


class StreamsContext:
    """Made on the loop's thread, once the engine is open."""

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        pressure: Pressure,
        settings: StreamsSettings,
        slots: Slots,
        shelf: Shelf | None = None,
    ) -> None:
        """``shelf``: where searches find companions, if there may be any."""
        self.engine = engine
        self.hub = hub
        self.pressure = pressure
        self.settings = settings
        #: What every open event stream takes one of.
        self.slots = slots
        self.streams = Streams(engine, settings, hub.now)
        self.feeds = Feeds(hub, pressure)
        self.alarms = Alarms(hub.loop)
        self.turns = Turns(pressure)
        self.meters = Meters()
        #: Appends that wait for the disk.
        self.appends = Deadlines(hub.loop, settings.append_timeout_ms / 1000, append_timeout(), self.meters.append_wait)
        self.searcher = Searcher(settings.search_memory_bytes, shelf)
        self.memory = Memory(engine, self.searcher, lambda: self.appends.size)
        self.streams.dropping.append(self.searcher.forget)
        self.indexing = Indexing(self.searcher)
        #: For searches, and whatever else takes long.
        self.workers = Workers(hub.loop)
        self.streams.sweep()
        self._sweeping = hub.every(SWEEP_SECONDS, "removal of expired streams", self.streams.sweep)

    @staticmethod
    def check_path(call: Call) -> None:
        """Refuse a path whose names cannot be read."""
        unescape(call.head.path)

    def stream(self, call: Call) -> Stream:
        """The stream that the path names; refuses where there is none."""
        self.check_path(call)
        return self.streams.get(call.head.params["name"])

    def stream_to_change(self, call: Call) -> Stream:
        """The same, for somebody who appends to it or gives it other rules; refuses where only another protocol may."""
        stream = self.stream(call)
        why = kept_by(stream.log)
        if why is not None:
            raise conflict(f"stream {stream.name!r} cannot be changed here: {why}")
        return stream

    def after(self, commit: Commit[T], make: Callable[[T], Reply]) -> Reply | Later:
        """The reply that is made of the commit's value: now if it is done, else when it is."""
        return after(self.hub, commit, make)

    def after_append(self, commit: Commit[T], size: int, make: Callable[[T], Reply]) -> Reply | Later:
        """As ``after``, but without the outcome when it takes too long."""
        if commit.done:
            self.meters.append_wait.add(0)
            return make(commit.wait())
        pending = self.appends.begin(size)

        def settle() -> None:
            if self.appends.end(pending):
                try:
                    reply = make(commit.wait())
                except Exception as error:
                    pending.fail(error)
                else:
                    pending.settle(reply)

        self.hub.on_done(commit, settle)
        return pending

    def check_backlog(self) -> None:
        """Send the request away while too much waits for the disk."""
        appends, settings = self.appends, self.settings
        if appends.count >= settings.max_waiting_appends or appends.size >= settings.max_waiting_bytes:
            raise overloaded("too many appends wait for the disk")

    def write_in_turn(self, act: Callable[[float], Replying]) -> Replying:
        """Do it now, or after the wait that the pressure on the server asks for."""
        if not self.pressure.holds_writes:
            return act(0.0)
        return self.turns.take_write(lambda: 0, act)

    def stop(self) -> None:
        self._sweeping.stop()
        self.alarms.stop()
        self.workers.stop()
        self.indexing.stop()

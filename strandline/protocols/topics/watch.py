"""Watching topics over an event stream: the sessions there are, and the requests that make and open them."""

from __future__ import annotations

from secrets import token_urlsafe
from typing import Annotated

import msgspec
from msgspec import Meta

from strandline.delivery.watch import Alarms, Feeds
from strandline.protocols.http import Call, Refusal, Reply
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.errors import capped, invalid
from strandline.protocols.topics.event_frames import EventView, decode_cursor, error_frame
from strandline.protocols.topics.sessions import EventStream, Session
from strandline.protocols.topics.watch_request import Natural, Request, TopicOptions, WatchOptions, resolve, view_maker

DEFAULT_FRAME_BYTES = 262_144
DEFAULT_HEARTBEAT_MS = 15_000
MAX_HEARTBEAT_MS = 60_000
_WID_BYTES = 16


class WatchBody(WatchOptions, kw_only=True):
    topics: Annotated[dict[str, TopicOptions], Meta(extra_json_schema={"minProperties": 1})]
    max_batch_bytes: Natural = DEFAULT_FRAME_BYTES
    heartbeat_ms: Natural = DEFAULT_HEARTBEAT_MS
    #: A composite cursor, as events have it in their id: where to go on.
    cursor: str | None = None


_decoder = msgspec.json.Decoder(WatchBody)


class Watching:
    """All watch sessions. A session without a stream is forgotten after a while; that is looked at when another one
    is made or opened."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.feeds = Feeds(context.hub, context.pressure)
        self.alarms = Alarms(context.hub.loop)
        self._sessions: dict[str, Session] = {}
        #: Those without a stream, the longest idle first.
        self._idle: dict[str, Session] = {}

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    # --- requests --------------------------------------------------------------------------------------------------

    def create(self, call: Call) -> Reply:
        """POST /v0/watch"""
        context = self.context
        body = _decoder.decode(call.body)
        cursors = {} if body.cursor is None else _positions(body.cursor)
        lenient = body.lenient or call.flag("lenient", False)
        starts, patterns = resolve(
            context,
            call.access,
            Request(body.topics, view_maker(EventView, body, context.settings), lenient, cursors),
        )
        self._forget_idle()
        maximum = context.settings.max_watch_sessions
        if maximum and len(self._sessions) >= maximum:
            raise capped("max_watch_sessions", maximum)
        heartbeat_ms = max(context.settings.min_heartbeat_ms, min(MAX_HEARTBEAT_MS, body.heartbeat_ms))
        wid = "wid_" + token_urlsafe(_WID_BYTES)
        session = Session(context, self.feeds, self.alarms, call.access, wid, heartbeat_ms, self._changed)
        session.subscribe(starts, patterns)
        self._sessions[wid] = self._idle[wid] = session
        topics = {name: starts[name].json() for name in sorted(starts)}
        return Reply(
            b'{"wid":"%b","stream_url":"/v0/watch/%b","session_ttl_ms":%d,"topics":%b,%b}'
            % (
                wid.encode(),
                wid.encode(),
                context.settings.session_ttl_ms,
                msgspec.json.encode(topics),
                performance(call),
            )
        )

    def open(self, call: Call) -> EventStream:
        """GET /v0/watch/{wid}"""
        self._forget_idle()
        session = self._sessions.get(call.param("wid"))
        if session is None:
            raise Refusal(404, "not_found", "there is no such watch session; it may have expired")
        if session.access.id != call.access.id:
            raise Refusal(401, "unauthorized", "the API key that made the watch session is required")
        rewind: dict[str, int] | None = None
        header = call.head.headers.get(b"last-event-id")
        if header is not None:
            rewind = decode_cursor(header.decode("latin-1"))
        # A browser that comes back repeats its first address: what it has seen since then is in the header.
        if rewind is None and "cursor" in call.query:
            rewind = _positions(call.query["cursor"])
        if not self.context.streams.room(session.access):
            raise Refusal(429, "throttled", "too many streams are open", retry_after=1)
        return EventStream(session, rewind or {})

    # --- sessions come and go --------------------------------------------------------------------------------------

    def _changed(self, session: Session) -> None:
        if session.streams:
            self._idle.pop(session.wid, None)
        else:
            session.idle_since = self.context.hub.now()
            self._idle[session.wid] = session

    def _forget_idle(self) -> None:
        before = self.context.hub.now() - self.context.settings.session_ttl_ms
        while self._idle:
            wid, session = next(iter(self._idle.items()))
            if session.idle_since >= before:
                break
            del self._idle[wid], self._sessions[wid]

    def drain(self) -> None:
        """The server stops: tell everybody, and end their streams."""
        word = error_frame(code="server_shutting_down", message="the server is shutting down; come back in a moment")
        for session in list(self._sessions.values()):
            for stream in list(session.streams):
                stream.end(word)


def _positions(cursor: str) -> dict[str, int]:
    positions = decode_cursor(cursor)
    if positions is None:
        raise invalid("the cursor is none: it must be the id of an event")
    return positions

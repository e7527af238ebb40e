"""Watching topics over an event stream: all watch sessions, and the requests that create and open them."""

from __future__ import annotations

from secrets import token_urlsafe

import msgspec

from strandline.delivery.watch import Feeds
from strandline.nearest_name import decode_body
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.event_frames import EventView, decode_cursor
from strandline.protocols.topics.sessions import EventStream, Session
from strandline.protocols.topics.settings import MAX_HEARTBEAT_MS
from strandline.protocols.topics.watch_request import Request, resolve, view_maker
from strandline.protocols.topics.wire import WatchAnswer, WatchBody
from strandline.service.http import Call, Reply, json_reply
from strandline.service.problems import NOT_FOUND, UNAUTHORIZED, Refusal, invalid, limit_reached

_WID_BYTES = 16


_decoder = msgspec.json.Decoder(WatchBody)


class Watching:
    """All watch sessions. A session without a stream is removed after a while; this is checked when another one is
    created or opened."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.feeds = Feeds(context.hub, context.admission.pressure)
        self._sessions: dict[str, Session] = {}
        #: The sessions without a stream, the longest idle first.
        self._idle: dict[str, Session] = {}

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    # --- requests --------------------------------------------------------------------------------------------------

    def create(self, call: Call) -> Reply:
        """POST /v0/watch"""
        context = self.context
        body = decode_body(_decoder, call.body)
        cursors = {} if body.cursor is None else _positions(body.cursor)
        lenient = body.lenient or call.flag("lenient", False)
        starts, patterns = resolve(
            context,
            call.access,
            Request(body.topics, view_maker(EventView, body, context.settings), lenient, cursors),
        )
        self._forget_idle()
        maximum = context.limits.max_watch_sessions
        if maximum and len(self._sessions) >= maximum:
            raise limit_reached("max_watch_sessions", maximum)
        heartbeat_ms = max(context.delivery.min_heartbeat_ms, min(MAX_HEARTBEAT_MS, body.heartbeat_ms))
        wid = "wid_" + token_urlsafe(_WID_BYTES)
        session = Session(context, self.feeds, call.access, wid, heartbeat_ms, self._changed)
        session.subscribe(starts, patterns)
        self._sessions[wid] = self._idle[wid] = session
        return json_reply(
            WatchAnswer(
                wid=wid,
                stream_url=f"/v0/watch/{wid}",
                session_ttl_ms=context.delivery.session_ttl_ms,
                topics={name: starts[name].shown() for name in sorted(starts)},
                performance=performance(call),
            )
        )

    def open(self, call: Call) -> EventStream:
        """GET /v0/watch/{wid}"""
        self._forget_idle()
        session = self._sessions.get(call.param("wid"))
        if session is None:
            raise Refusal(NOT_FOUND, "the watch session does not exist or has expired; create a new one")
        if session.access.id != call.access.id:
            raise Refusal(UNAUTHORIZED, "use the API key that created the watch session")
        rewind: dict[str, int] | None = None
        header = call.head.headers.get(b"last-event-id")
        if header is not None:
            rewind = decode_cursor(header.decode("latin-1"))
        # A browser that reconnects repeats its first URL: its latest position is in the header.
        if rewind is None and "cursor" in call.query:
            rewind = _positions(call.query["cursor"])
        self.context.live.check_room(session.access)
        return EventStream(session, rewind or {})

    # --- sessions --------------------------------------------------------------------------------------------------

    def _changed(self, session: Session) -> None:
        if session.streams:
            self._idle.pop(session.wid, None)
        else:
            session.idle_since = self.context.hub.now()
            self._idle[session.wid] = session

    def _forget_idle(self) -> None:
        before = self.context.hub.now() - self.context.delivery.session_ttl_ms
        while self._idle:
            wid, session = next(iter(self._idle.items()))
            if session.idle_since >= before:
                break
            del self._idle[wid], self._sessions[wid]


def _positions(cursor: str) -> dict[str, int]:
    positions = decode_cursor(cursor)
    if positions is None:
        raise invalid("invalid cursor: expected the id of an event")
    return positions

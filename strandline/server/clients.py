"""The connections of a server, as an administrator sees them: who is connected, what each one does, and how far behind
it is.

Everything is found when an administrator asks, so that requests and deliveries cost no more. A connection only keeps
the head of its last request. The bytes are counted by the operating system.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Collection, Iterator
from heapq import nlargest
from itertools import islice
from time import perf_counter
from typing import Literal, NamedTuple, get_args

from strandline.server.fast_lane import FastLane
from strandline.server.websocket_protocol import SocketProtocol
from strandline.service.access import Access
from strandline.service.http import Head, Holder
from strandline.service.live import Followed, Following, LiveResponse, OpenResponse
from strandline.service.unread import UnreadBytes

#: What a connection does. A worker gets the jobs of a queue over an event stream; a download is an answer in pieces,
#: such as an export.
Kind = Literal["event_stream", "websocket", "worker", "long_poll", "download", "request", "idle"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Lane = Literal["fast", "asgi"]

#: The number of connections that are looked at before other work gets a turn: about a millisecond.
SLICE = 500
#: The same, for the details of a connection.
DETAIL_SLICE = 50
#: The logs of a response that are looked at.
MAX_LOGS = 100

#: Where Linux has the acknowledged and the received bytes in ``struct tcp_info``.
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_TCP_BYTES = struct.Struct("=120xQQ")

#: The access of a connection that has made no request yet.
_NONE = Access("", frozenset(), ())

Connection = FastLane | SocketProtocol


class Doing(NamedTuple):
    """What a connection does. ``response`` is its live response, and ``head`` that of its last request."""

    kind: Kind
    access: Access
    head: Head | None
    response: OpenResponse | None


class Transferred(NamedTuple):
    """The bytes that the client has acknowledged, and those that the server has received from it."""

    sent: int
    received: int


class Client(NamedTuple):
    """One connection, as it is now. Durations are in seconds."""

    id: int
    peer: str
    port: int
    doing: Doing
    lane: Lane
    connected: float
    #: How long the connection does what it does; None: it does nothing.
    busy: float | None
    following: Following
    transferred: Transferred | None
    unread_bytes: int
    #: How long the client has read nothing although data waits for it; None: it keeps up.
    stalled: float | None


class ClientSelection(NamedTuple):
    """The clients with the most unread data, then those that wait for something, each the oldest first; and the number
    of all by kind."""

    clients: list[Client]
    counts: dict[Kind, int]


class Clients:
    """Use it only on the event loop's thread. ``connections`` returns the open connections."""

    def __init__(self, connections: Callable[[], Collection[object]], unread: UnreadBytes) -> None:
        self._connections = connections
        self._unread = unread

    async def select(self, caller: Access, most: int, kind: str = "") -> ClientSelection:
        """At most ``most`` clients whose API key may do no more than the caller's, and the number of all of them."""
        counts: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        found: list[tuple[int, bool, float, int, Connection]] = []
        for at, connection in enumerate(self._visible(caller), 1):
            doing = _doing(connection)
            counts[doing.kind] += 1
            if not kind or doing.kind == kind:
                unread = _unread_bytes(connection)
                found.append((unread, doing.kind != "idle", -connection.made_at, -connection.number, connection))
            if at % SLICE == 0:
                await asyncio.sleep(0)
        clients: list[Client] = []
        for at, (*_, connection) in enumerate(nlargest(most, found, key=lambda one: one[:4]), 1):
            if not connection.transport.is_closing():
                clients.append(self._describe(connection))
            if at % DETAIL_SLICE == 0:
                await asyncio.sleep(0)
        return ClientSelection(clients, counts)

    def disconnect(self, caller: Access, id: int) -> bool:
        """End a connection; False if the caller may see no such connection."""
        for connection in self._visible(caller):
            if connection.number == id:
                connection.disconnect()
                return True
        return False

    def _visible(self, caller: Access) -> Iterator[Connection]:
        for connection in list(self._connections()):
            if isinstance(connection, Connection) and caller.covers(_doing(connection).access):
                yield connection

    def _describe(self, connection: Connection) -> Client:
        now = perf_counter()
        doing = _doing(connection)
        stalled = [
            waited for holder in _holders(connection) if (waited := self._unread.stalled_seconds(holder)) is not None
        ]
        peer, port = connection.client or ("", 0)
        lane: Lane = "asgi"
        begun = connection.made_at
        if isinstance(connection, FastLane):
            begun = connection.asked_at
            lane = "fast" if connection.is_fast else "asgi"
        return Client(
            id=connection.number,
            peer=peer,
            port=port,
            doing=doing,
            lane=lane,
            connected=now - connection.made_at,
            busy=None if doing.kind == "idle" else max(now - begun, 0.0),
            following=_following(doing),
            transferred=_transferred(connection),
            unread_bytes=_unread_bytes(connection),
            stalled=max(stalled, default=None),
        )


def _doing(connection: Connection) -> Doing:
    if isinstance(connection, SocketProtocol):
        carried = connection.carried
        return Doing("websocket", _NONE if carried is None else carried.access, None, carried)
    head, stream = connection.head, connection.open_stream
    access = (None if head is None else head.access) or _NONE
    waits = "" if head is None or head.route is None else head.route.waits
    if stream is not None:
        kind: Kind = "download" if stream.finite else "worker" if waits == "jobs" else "event_stream"
        live = stream if isinstance(stream, LiveResponse) else None
        return Doing(kind, access if live is None else live.access, head, live)
    if connection.waits_for_answer:
        return Doing("long_poll" if waits else "request", access, head, None)
    return Doing("request" if connection.has_work or connection.in_message else "idle", access, head, None)


def _holders(connection: Connection) -> tuple[Holder, ...]:
    """What buffers data that the client has not read."""
    carried = connection.carried if isinstance(connection, SocketProtocol) else None
    return (connection,) if carried is None else (connection, carried)


def _unread_bytes(connection: Connection) -> int:
    return sum(holder.unread_bytes for holder in _holders(connection))


def _following(doing: Doing) -> Following:
    """The logs of the live response, or those in the path of the last request."""
    if doing.response is not None:
        following = doing.response.following(MAX_LOGS)
        if following.logs:
            return following
    head = doing.head
    if head is None or head.route is None:
        return Following([], 0)
    names = [Followed(head.params[name], None) for name in islice(head.route.names, MAX_LOGS)]
    return Following(names, len(names))


def _transferred(connection: Connection) -> Transferred | None:
    """None where the system does not say."""
    bare = connection.transport.get_extra_info("socket")
    if bare is None or _TCP_INFO is None:
        return None
    try:
        info = bare.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_BYTES.size)
        return Transferred(*_TCP_BYTES.unpack(info))
    except (OSError, struct.error):  # not a TCP connection, closed, or another system than Linux
        return None

"""The routes of connected clients: list the open connections, and end one of them.

Both need the scope ``admin``. A key sees and ends only connections whose API key may do no more than itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from strandline.server.clients import KINDS, Client, Clients, Kind, Lane
from strandline.service.api_keys import ApiKeys
from strandline.service.http import NO_STORE, Call, Reply, Route, encode
from strandline.service.parameters import choice, number
from strandline.service.problems import Problem, Refusal

#: The maximum number of clients in an answer. The counts include all of them.
MAX_CLIENTS = 1_000
#: The logs of a client that are listed; `behind` includes up to a hundred.
SHOWN_LOGS = 10
#: Clients choose the header.
MAX_FORWARDED = 200

CLIENT_NOT_FOUND = Problem("client_not_found", 404, "No open connection has the id; it may have ended.")

Number = Annotated[int, Meta(ge=0)]


class FollowedLog(msgspec.Struct):
    log: str
    #: The number of records after the position of the client; null: it has no position, as a worker of a queue.
    behind: Number | None


class ClientRow(msgspec.Struct, kw_only=True):
    """One connection. Times are milliseconds since 1970."""

    #: No other connection has this number while the server runs.
    id: Number
    #: The address and the port of the client, or of the proxy in front of it.
    peer: str
    port: Number
    #: The X-Forwarded-For header that a trusted proxy sent with the last request.
    forwarded_for: str
    #: The id and the name of the API key; empty: none was sent.
    api_key: str
    api_key_name: str
    kind: Kind
    #: The lane of the HTTP server that the last request took.
    lane: Lane
    #: The protocol, the method and the route of the last request; empty: none was made yet.
    protocol: str
    method: str
    route: str
    connected_at: Number
    #: Since when the connection does what it does; null: it is idle.
    since: Number | None
    #: The first logs that the client reads or that its request names, and the number of all.
    logs: list[FollowedLog]
    log_count: Number
    #: The number of records that the client was not sent yet, in up to a hundred logs; null: it has no position.
    behind: Number | None
    #: Bytes that the client has acknowledged, and that the server has received; null: the system does not say.
    sent_bytes: Number | None
    received_bytes: Number | None
    #: Bytes that wait in the server because the client does not read them.
    unread_bytes: Number
    #: For how long the client has read nothing although data waits for it; null: it keeps up.
    stalled_ms: Number | None


class ClientList(msgspec.Struct):
    now: Number
    #: Those with the most unread data first, then those that wait for something, each the oldest first.
    clients: list[ClientRow]
    #: The number of all connections that the API key may see.
    total: Number
    #: The number of connections of each kind.
    counts: dict[Kind, Number]


class ClientDisconnected(msgspec.Struct):
    id: Number
    disconnected: bool


class ClientRoutes:
    """``wall`` returns the time of day in milliseconds."""

    def __init__(self, clients: Clients, keys: ApiKeys, wall: Callable[[], int]) -> None:
        self._clients = clients
        self._keys = keys
        self._wall = wall

    def routes(self) -> list[Route]:
        return [
            Route(method="GET", path="/v0/clients", handler=self.list, scopes=("admin",)),
            Route(method="DELETE", path="/v0/clients/{id}", handler=self.disconnect, scopes=("admin",)),
        ]

    async def list(self, call: Call) -> Reply:
        """GET /v0/clients"""
        most = number(call, "limit", MAX_CLIENTS, 1, MAX_CLIENTS) or MAX_CLIENTS
        found = await self._clients.select(call.access, most, choice(call, "kind", *KINDS) or "")
        now = self._wall()
        rows = [self._row(client, now) for client in found.clients]
        answer = ClientList(now, rows, sum(found.counts.values()), found.counts)
        return Reply(encode(answer), headers=(NO_STORE,))

    def disconnect(self, call: Call) -> Reply:
        """DELETE /v0/clients/{id}"""
        text = call.param("id")
        id = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
        if not id or not self._clients.disconnect(call.access, id):
            raise Refusal(CLIENT_NOT_FOUND, f"no open connection has the id {text[:40]!r}; GET /v0/clients lists them")
        return Reply(encode(ClientDisconnected(id, True)), headers=(NO_STORE,))

    def _row(self, client: Client, now: int) -> ClientRow:
        doing, following, transferred = client.doing, client.following, client.transferred
        head, key = doing.head, doing.access.id
        behind = [one.behind for one in following.logs if one.behind is not None]
        protocol, method, route = "", "", ""
        if doing.kind == "websocket":
            protocol, method, route = "topics", "GET", "/v0/ws"
        elif head is not None and head.route is not None:
            method, route = head.method, head.route.path
            protocol = "" if head.meter is None else head.meter.protocol
        forwarded = b"" if head is None else head.headers.get(b"x-forwarded-for", b"")
        return ClientRow(
            id=client.id,
            peer=client.peer,
            port=client.port,
            forwarded_for=forwarded[:MAX_FORWARDED].decode("latin-1"),
            api_key=key,
            api_key_name=self._keys.name_of(key),
            kind=doing.kind,
            lane=client.lane,
            protocol=protocol,
            method=method,
            route=route,
            connected_at=now - int(client.connected * 1000),
            since=None if client.busy is None else now - int(client.busy * 1000),
            logs=[FollowedLog(one.log, one.behind) for one in following.logs[:SHOWN_LOGS]],
            log_count=following.total,
            behind=sum(behind) if behind else None,
            sent_bytes=None if transferred is None else transferred.sent,
            received_bytes=None if transferred is None else transferred.received,
            unread_bytes=client.unread_bytes,
            stalled_ms=None if client.stalled is None else int(client.stalled * 1000),
        )

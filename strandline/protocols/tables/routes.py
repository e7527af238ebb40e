"""The routes of the tables protocol, and its CORS headers."""

from __future__ import annotations

from collections.abc import Awaitable

from strandline.nearest_name import did_you_mean
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.errors import Errors
from strandline.protocols.tables.listing import TYPES, TableListing, types_handler
from strandline.protocols.tables.live import LiveReads
from strandline.protocols.tables.openapi import QUERY_NAMES, describe
from strandline.protocols.tables.paths import (
    ANY_READ,
    ANY_WRITE,
    AUTH,
    PUB,
    SCHEMA,
    STREAMS,
    TABLES,
    read_paths,
    write_path,
    writes_of,
)
from strandline.protocols.tables.read import TableReads
from strandline.protocols.tables.requests import check_query
from strandline.protocols.tables.wire import COMPLETE, HAS_MORE, HEAD, LAST
from strandline.protocols.tables.write import TableWrites
from strandline.service.http import Answer, Call, Cors, Handler, Later, Reply, Route, preflight
from strandline.service.openapi import Described
from strandline.tables import Table, TableError

_ALLOWED = b"content-type, content-encoding, authorization, Strandline-User, Last-Event-ID"
_EXPOSED = ("Retry-After", "content-type", "content-encoding", "vary", HEAD, HAS_MORE, LAST, COMPLETE)

CORS = Cors(
    (b"access-control-expose-headers", ", ".join(_EXPOSED).encode()),
    (
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"access-control-allow-headers", _ALLOWED),
        (b"access-control-max-age", b"86400"),
    ),
)


# --- routes --------------------------------------------------------------------------------------------------------


class TablesProtocol:
    """The routes of all declared tables."""

    def __init__(self, context: TablesContext) -> None:
        self.context = context
        self.live = LiveReads(context)

    def close(self) -> None:
        """Wait for hooks that run after their writes. Blocks, and is bounded."""
        self.context.tables.close()

    @property
    def described(self) -> Described:
        return describe(table.declaration for table in self.context.tables)

    def routes(self) -> list[Route]:
        routes = [route for table in self.context.tables for route in self._routes_of(table)]
        routes.append(self._route("GET", TABLES, TableListing(self.context).list, "", "tables"))
        routes += [self._route("GET", path, types_handler(self.context, path), "", "types") for path in TYPES]
        nothing = [
            self._route(method, path, self._nothing, "", "", user=False)
            for path in (ANY_WRITE, ANY_READ)
            for method in _ANY
        ]
        paths = dict.fromkeys(route.path for route in routes)
        return [
            *routes,
            *(self._route("OPTIONS", path, preflight, "", "", user=False) for path in paths),
            *nothing,
        ]

    def _routes_of(self, table: Table) -> list[Route]:
        writing = TableWrites(self.context, table)
        reading = {variant: TableReads(self.context, table, variant) for variant in (AUTH, PUB)}
        writes = [
            self._route("POST", write_path(table.name, op), writing.handler(op), table.name, op, body="required")
            for op in writes_of(table.declaration)
        ]
        reads = [
            self._route(
                "GET",
                path,
                _with_known_query(
                    self.live.handler(table, variant, op) if op in STREAMS else reading[variant].handler(op), op
                ),
                table.name,
                op,
                stream=op in STREAMS,
            )
            for path, variant, op in read_paths(table.declaration)
        ]
        schema = self._route("GET", write_path(table.name, SCHEMA), reading[AUTH].schema, table.name, SCHEMA)
        return [*writes, *reads, schema]

    def _route(
        self,
        method: str,
        path: str,
        handler: Handler,
        table: str,
        op: str,
        *,
        body: str = "none",
        stream: bool = False,
        user: bool = True,
    ) -> Route:
        """``user``: whether the handler asks for the user."""
        errors = Errors(table, op)
        return Route(
            method=method,
            path=path,
            handler=self.context.users.identified(handler) if user else handler,
            body=body,
            stream=stream,
            # The fast lane remembers only some headers of a request, and ``identify`` may look at all of them.
            fast=user and not self.context.users.by_headers,
            any_case=True,
            own_access=True,
            # Without these headers, a browser reports the answers of a stopping server as CORS errors.
            always=method == "OPTIONS",
            cors=CORS,
            errors=errors.reply_to,
            refuse=errors.refuse,
        )

    def _nothing(self, call: Call) -> Reply:
        """Answer a request for an unknown table or operation."""
        name = call.param("table")
        if name not in self.context.tables:
            near = did_you_mean(name, self.context.seen_by(call))
            raise TableError("NOT_FOUND", f"table {name!r} does not exist{near}", table=name)
        op = call.param("operation")
        what = "/".join(filter(None, (call.head.params.get("variant"), op)))
        raise TableError("NOT_FOUND", f"table {name!r} has no operation {call.head.method} {what}", table=name, op=op)


def _with_known_query(handler: Handler, op: str) -> Handler:
    known = QUERY_NAMES[op]

    def handle(call: Call) -> Answer | Later | Awaitable[Answer]:
        check_query(call, known)
        return handler(call)

    return handle


_ANY = ("GET", "POST")

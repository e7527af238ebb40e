"""The routes of the tables protocol, and its CORS headers."""

from __future__ import annotations

from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.errors import Errors
from strandline.protocols.tables.live import Live
from strandline.protocols.tables.openapi import describe
from strandline.protocols.tables.paths import ANY_READ, ANY_WRITE, AUTH, PUB, read_path, reads_of, write_path, writes_of
from strandline.protocols.tables.read import Reading
from strandline.protocols.tables.write import Writing
from strandline.service.http import Call, Cors, Handler, Reply, Route, preflight
from strandline.service.openapi import Described
from strandline.tables import Table, TableError

_ALLOWED = b"content-type, content-encoding, authorization, Strandline-User, Last-Event-ID"

CORS = Cors(
    (b"access-control-expose-headers", b"Retry-After, content-type, content-encoding, vary"),
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
        self.live = Live(context)

    @property
    def described(self) -> Described:
        return describe(table.declaration for table in self.context.tables)

    def routes(self) -> list[Route]:
        routes = [route for table in self.context.tables for route in self._routes_of(table)]
        nothing = [
            self._route(method, path, self._nothing, "", "") for path in (ANY_WRITE, ANY_READ) for method in _ANY
        ]
        paths = dict.fromkeys(route.path for route in routes)
        return [
            *routes,
            *(self._route("OPTIONS", path, preflight, "", "") for path in paths),
            *nothing,
        ]

    def _routes_of(self, table: Table) -> list[Route]:
        writing = Writing(self.context, table)
        reading = {variant: Reading(self.context, table, variant) for variant in (AUTH, PUB)}
        writes = [
            self._route("POST", write_path(table.name, op), writing.handler(op), table.name, op, body="required")
            for op in writes_of(table.declaration)
        ]
        reads = [
            self._route(
                "GET",
                read_path(table.name, variant, op),
                self.live.handler(table, variant) if op == "live" else reading[variant].handler(op),
                table.name,
                op,
                stream=op == "live",
            )
            for variant, op in reads_of(table.declaration)
        ]
        return [*writes, *reads]

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
    ) -> Route:
        errors = Errors(table, op)
        return Route(
            method=method,
            path=path,
            handler=handler,
            body=body,
            stream=stream,
            # The fast lane remembers only some headers of a request, and ``identify`` may look at all of them.
            fast=bool(table) and not self.context.users.by_headers,
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
            raise TableError("NOT_FOUND", f"table {name!r} does not exist")
        what = "/".join(filter(None, (call.head.params.get("variant"), call.param("operation"))))
        raise TableError("NOT_FOUND", f"table {name!r} has no operation {call.head.method} {what}")


_ANY = ("GET", "POST")

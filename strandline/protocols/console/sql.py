"""SQL over logs, the lake and declared tables: each query runs in a process of its own, within limits.

The process reads from this server with the API key of the caller, so a query sees exactly the logs that the caller may
see.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import msgspec

from strandline.extras import is_installed
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.errors import QUERY_LIMIT
from strandline.protocols.console.query_processes import Cancellation, QueryProcesses
from strandline.protocols.console.wire import SqlCancelAnswer, SqlColumn, SqlQuery
from strandline.service.access import Access
from strandline.service.http import JSON, Call, Reply
from strandline.service.problems import (
    INTERNAL,
    INVALID_REQUEST,
    Refusal,
    Throttled,
    invalid,
    not_installed,
    shutting_down,
)
from strandline.sql.request import RESULT, Format, Limits, QueryRequest

#: The most queries of all callers that run or wait. Each of them is a process, and people do not ask faster.
MAX_QUERIES = 8
BUSY_RETRY_MS = 1_000
#: How long a process is kept ready after the last query: starting one takes longer than most queries.
SPARE_SECONDS = 120.0

#: What a page shows. A larger result is cut, and the answer says so.
TABLE = Limits(
    memory_bytes=512 << 20,
    spill_bytes=2 << 30,
    process_bytes=4 << 30,
    seconds=30,
    threads=2,
    rows=10_000,
    result_bytes=16 << 20,
)
#: Files may be larger, and must be complete: a result beyond the limits is an error.
DOWNLOAD = msgspec.structs.replace(TABLE, seconds=60, rows=1_000_000, result_bytes=64 << 20)

#: The package that runs queries.
PACKAGE = "duckdb"

_MEDIA_TYPES: dict[Format, bytes] = {
    "csv": b"text/csv; charset=utf-8",
    "json": JSON,
    "parquet": b"application/vnd.apache.parquet",
}


class _Running(NamedTuple):
    """A query that runs or waits."""

    caller: str
    id: str
    cancellation: Cancellation


class ConsoleSql:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._running: list[_Running] = []
        self._processes = QueryProcesses()
        self._resting: asyncio.TimerHandle | None = None

    async def query(self, call: Call) -> Reply:
        """POST /console/api/sql"""
        if not is_available():
            raise not_installed("a query in SQL", PACKAGE)
        asked = msgspec.json.decode(call.body, type=SqlQuery)
        url = self._context.surroundings.url()
        if not url:
            raise invalid(
                "queries read from an HTTP address of this server, and it has none, or serves TLS itself; use "
                "`strandline sql`, or a proxy for TLS"
            )
        if len(self._running) >= MAX_QUERIES:
            raise Throttled(BUSY_RETRY_MS)
        cancellation = Cancellation()
        running = _Running(caller_of(call.access), asked.id, cancellation)
        self._running.append(running)
        try:
            return await self._context.workers.queries.run(self._answer, asked, url, _key(call), cancellation)
        finally:
            self._running.remove(running)
            self._rest_later()

    def cancel(self, call: Call) -> Reply:
        """POST /console/api/sql/{id}/cancel"""
        caller, id = caller_of(call.access), call.param("id")
        found = [each for each in self._running if (each.caller, each.id) == (caller, id)]
        for each in found:
            each.cancellation.cancel()
        return Reply(msgspec.json.encode(SqlCancelAnswer(cancelled=bool(found))))

    def close(self) -> None:
        """Cancel all queries."""
        for each in self._running:
            each.cancellation.cancel()
        if self._resting is not None:
            self._resting.cancel()
        self._processes.close()

    def _rest_later(self) -> None:
        """End the spare process when no one has asked for a while."""
        if self._resting is not None:
            self._resting.cancel()
        self._resting = self._context.hub.loop.call_later(SPARE_SECONDS, self._processes.rest)

    def _answer(self, asked: SqlQuery, url: str, key: str | None, cancellation: Cancellation) -> Reply:
        limits = TABLE if asked.format == "table" else DOWNLOAD
        began = perf_counter()
        with tempfile.TemporaryDirectory(prefix="strandline-sql-") as directory:
            request = QueryRequest(
                url=url, key=key, statement=asked.statement, format=asked.format, directory=directory, limits=limits
            )
            outcome = self._processes.run(request, cancellation)
            if outcome.fault == "limit":
                raise Refusal(QUERY_LIMIT, outcome.message)
            if outcome.fault == "source" and not self._context.surroundings.is_serving():
                raise shutting_down()
            if outcome.fault == "source":
                raise Refusal(INTERNAL, f"the query cannot read from the server: {outcome.message}")
            if outcome.fault is not None:
                raise Refusal(INVALID_REQUEST, outcome.message)
            content = Path(directory, RESULT).read_bytes()
        if asked.format != "table":
            return Reply(content, content_type=_MEDIA_TYPES[asked.format])
        columns = [SqlColumn(name=column.name, type=column.type) for column in outcome.columns]
        return Reply(
            b'{"columns":%b,"rows":%b,"truncated":%b,"elapsed_ms":%d,"warnings":%b}'
            % (
                msgspec.json.encode(columns),
                content,
                b"true" if outcome.truncated else b"false",
                round((perf_counter() - began) * 1000),
                msgspec.json.encode(outcome.warnings),
            )
        )


def is_available() -> bool:
    """Whether the package is installed that runs queries."""
    return is_installed(PACKAGE)


def caller_of(access: Access) -> str:
    return access.id


def _key(call: Call) -> str | None:
    """The API key of the request. The gate has checked it."""
    scheme, _, key = call.head.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None

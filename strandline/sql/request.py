"""A query that runs in a process of its own: the request to the process, and its answer.

The process gets a :class:`QueryRequest` on its standard input, writes the result to the file ``RESULT`` in the
directory of the request, and a :class:`QueryOutcome` to its standard output.
"""

from __future__ import annotations

from typing import Literal

import msgspec

#: The module that ``python -m`` runs.
MODULE = "strandline.sql.query_process"
RESULT = "result"

Format = Literal["table", "csv", "json", "parquet"]
#: Why a query has no result: the statement is not valid or not allowed, it exceeded a limit, or the server could not be
#: read from.
Fault = Literal["statement", "limit", "source"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one query. ``memory_bytes`` bounds what DuckDB holds in memory, and ``spill_bytes`` its temporary
    files; the process as a whole may have ``process_bytes`` of address space."""

    memory_bytes: int
    spill_bytes: int
    process_bytes: int
    seconds: int
    threads: int
    rows: int
    result_bytes: int


class QueryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``url`` and ``key``: the server to read from, with the API key of the caller, so that the query sees what the
    caller may see. ``directory`` is empty and belongs to the query."""

    url: str
    key: str | None
    statement: str
    format: Format
    directory: str
    limits: Limits


class Column(msgspec.Struct, frozen=True):
    name: str
    #: The type in DuckDB.
    type: str


class QueryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """``truncated``: the result has more rows than the limit; the file has the first ones."""

    columns: list[Column] = []
    rows: int = 0
    truncated: bool = False
    warnings: list[str] = []
    fault: Fault | None = None
    message: str = ""

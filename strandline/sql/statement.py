"""Checks of SQL statements, and the error of a failed query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import duckdb

Reason = Literal["statement", "not_found", "not_allowed", "conflict", "limit", "failed"]


class QueryFailed(Exception):
    """A query that cannot be answered. ``reason`` is the kind of problem."""

    def __init__(self, message: str, reason: Reason = "failed") -> None:
        super().__init__(message)
        self.reason: Reason = reason


# --- The logs that a statement names: DuckDB reports each table that it misses -------------------------------------

_MISSING = re.compile(r"Table with name (.+?) does not exist!", re.DOTALL)
_SHOW_TABLES = re.compile(r"\s*show\s+(?:all\s+)?tables\s*;?\s*", re.IGNORECASE)
_WORD = re.compile(r'"((?:[^"]|"")*)"|([^\W\d][\w$]*)')


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def check_statement(text: str, *, only_select: bool = False) -> None:
    """Raises QueryFailed unless the text is exactly one statement. DuckDB would return only the result of the last.
    ``only_select`` allows only statements that read: SELECT, FROM, WITH, VALUES, DESCRIBE, SUMMARIZE and SHOW."""
    try:
        statements = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise QueryFailed(str(error).strip(), "statement") from None
    if len(statements) != 1:
        raise QueryFailed(f"expected one SQL statement, got {len(statements)}", "statement")
    if only_select and statements[0].type != duckdb.StatementType.SELECT:
        kind = statements[0].type.name
        raise QueryFailed(f"expected a statement that reads, such as SELECT; {kind} is not allowed here", "statement")


def lists_tables(statement: str) -> bool:
    """Whether the statement is ``show tables``, for which DuckDB knows no log."""
    return _SHOW_TABLES.fullmatch(statement) is not None


def missing_table(error: duckdb.Error) -> str | None:
    """The missing table, as written in the statement; None for any other error."""
    match = _MISSING.search(str(error)) if isinstance(error, duckdb.CatalogException) else None
    return None if match is None else match[1]


def words_of(statement: str) -> Iterator[str]:
    """All words of a statement that may be names."""
    for start, kind in duckdb.tokenize(statement):
        if kind in (duckdb.token_type.identifier, duckdb.token_type.keyword):
            match = _WORD.match(statement, start)
            if match is not None:
                yield match[2] if match[1] is None else match[1].replace('""', '"')

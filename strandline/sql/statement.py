"""What can go wrong with an SQL query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import duckdb

Reason = Literal["statement", "not_found", "not_allowed", "conflict", "failed"]


class QueryFailed(Exception):
    """A query that cannot be answered. ``reason`` says what kind of problem it is."""

    def __init__(self, message: str, reason: Reason = "failed") -> None:
        super().__init__(message)
        self.reason: Reason = reason


# --- Which logs a statement of SQL names: told by DuckDB itself, which says what it misses --------------------------

_MISSING = re.compile(r"Table with name (.+?) does not exist!", re.DOTALL)
_WORD = re.compile(r'"((?:[^"]|"")*)"|([^\W\d][\w$]*)')


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def check_statement(text: str) -> None:
    """Raises QueryFailed for what is no statement, and for more than one: only the last would be answered."""
    try:
        statements = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise QueryFailed(str(error).strip(), "statement") from None
    if len(statements) != 1:
        raise QueryFailed(f"found {len(statements)} statements; expected one", "statement")


def missing_table(error: duckdb.Error) -> str | None:
    """The table that is not there, as the statement writes it; None if something else is wrong."""
    match = _MISSING.search(str(error)) if isinstance(error, duckdb.CatalogException) else None
    return None if match is None else match[1]


def words_of(statement: str) -> Iterator[str]:
    """Everything in a statement that may be a name."""
    for start, kind in duckdb.tokenize(statement):
        if kind in (duckdb.token_type.identifier, duckdb.token_type.keyword):
            match = _WORD.match(statement, start)
            if match is not None:
                yield match[2] if match[1] is None else match[1].replace('""', '"')

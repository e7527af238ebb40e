"""Which logs a statement of SQL names: told by DuckDB itself, which says what it misses.

So neither columns nor the names of a WITH are taken for logs, and nothing is read that is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb

from strandline.sql.errors import QueryFailed

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
        raise QueryFailed(f"give one statement, not {len(statements)}", "statement")


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

"""Which logs a statement of SQL names: told by DuckDB itself, before anything is read.

Every word of the statement could be the name of a log. A table without rows is made of each, in a database of its own,
and DuckDB says which of them the statement refers to: neither columns nor the names of a WITH are taken for logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb

from strandline.cli.exits import CommandFailed, Exit

#: What every log has as a table. One that is not JSON has ``data`` as text, and ``bytes`` for what is no text.
COLUMNS = {
    "seq": "bigint",
    "ts": "timestamptz",
    "key": "varchar",
    "node": "varchar",
    "meta": "json",
    "data": "json",
}
_WORD = re.compile(r'"((?:[^"]|"")*)"|([^\W\d][\w$]*)')


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def named_logs(statement: str) -> list[str]:
    """The names as they are written, also of what may be no log. Raises CommandFailed for what is no single
    statement."""
    words: dict[str, set[str]] = {}
    for word in _words(statement):
        words.setdefault(word.lower(), set()).add(word)
    columns = ", ".join(f"{name} {kind}" for name, kind in {**COLUMNS, "bytes": "blob"}.items())
    with duckdb.connect() as scratch:
        scratch.execute("set python_enable_replacements = false")
        for word in words:
            scratch.execute(f"create table {quoted(word)} ({columns})")
        try:
            referred = scratch.get_table_names(statement)
        except duckdb.InvalidInputException:
            raise CommandFailed("give one statement; a PIVOT has to say its values: ON … IN (…)", Exit.USAGE) from None
        except duckdb.ParserException as error:
            raise CommandFailed(str(error), Exit.USAGE) from None
        except duckdb.Error:
            # It goes wrong in any case. What it is about is told best when the logs are there.
            return sorted(word for spellings in words.values() for word in spellings)
    return sorted(name for word in referred for name in words.get(word.lower(), ()))


def _words(statement: str) -> Iterator[str]:
    try:
        tokens = duckdb.tokenize(statement)
    except duckdb.Error as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    for start, kind in tokens:
        if kind in (duckdb.token_type.identifier, duckdb.token_type.keyword):
            match = _WORD.match(statement, start)
            if match is not None:
                yield match[2] if match[1] is None else match[1].replace('""', '"')

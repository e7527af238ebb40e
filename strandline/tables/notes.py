"""The notes of a table's logs: that the table owns them, and how their rows are searched.

Other protocols and the pipeline do not know the declarations. They learn from the notes of a log what they need.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from strandline.engine import Commit, Engine
from strandline.engine.ownership import REGISTRY, TABLE
from strandline.tables.names import is_rows_log, table_of

if TYPE_CHECKING:
    from strandline.tables.declaration import TableDeclaration


def notes_of(table: TableDeclaration, log: str) -> dict[str, Any]:
    """The notes of a new log of the table."""
    notes: dict[str, Any] = {TABLE: True}
    if table.search_registry is not None and is_rows_log(log):
        notes[REGISTRY] = table.search_registry
    return notes


def update_notes(engine: Engine, tables: Iterable[TableDeclaration]) -> Commit[Any]:
    """Give existing logs the search configuration that their tables are declared with now. Logs of tables that are no
    longer declared keep theirs, so that they can still be searched."""
    declared = {table.name: table for table in tables}
    commit: Commit[Any] = Commit.of(None)
    for name in [book.name for book in list(engine.by_epoch.values()) if book.notes is not None]:
        table, log = declared.get(table_of(name) or ""), engine.find(name)
        if table is None or log is None or TABLE not in log.notes or not is_rows_log(name):
            continue
        if log.notes.get(REGISTRY) != table.search_registry:
            commit = log.note({REGISTRY: table.search_registry})
    return commit

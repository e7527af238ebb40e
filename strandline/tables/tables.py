"""The door: declared tables, bound to an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from strandline.engine import Engine
from strandline.query.searcher import Searcher
from strandline.tables.columns import Columns
from strandline.tables.declaration import TableDeclaration
from strandline.tables.errors import BadDeclaration, MisusedHook, TableError
from strandline.tables.hooks import NO_HOOKS, Hooks
from strandline.tables.names import RowId, rows_log
from strandline.tables.pending import Coming
from strandline.tables.rows import Row
from strandline.tables.step import Step, find_log, read_row
from strandline.tables.table import Table

#: What the indexes of searches, and the columns that are counted, may take of the memory each.
SEARCH_BYTES = 64 << 20
COLUMN_BYTES = 64 << 20


class Tables:
    """All tables of one engine, by name. Safe to use from any thread. A table may be in only one of these at a time: it
    knows what is on its way to the disk.

    ``hooks`` are called for every table, before its own. ``searcher`` may be one that is shared with others.
    """

    def __init__(
        self,
        engine: Engine,
        declarations: Sequence[TableDeclaration],
        *,
        hooks: Hooks | None = None,
        searcher: Searcher | None = None,
    ) -> None:
        self.engine = engine
        self.hooks = hooks or NO_HOOKS
        self.searcher = searcher or Searcher(SEARCH_BYTES)
        self.columns = Columns(COLUMN_BYTES)
        #: Called with the name of every log that is made, on whatever thread writes, while nobody else can: they must
        #: be quick. What is in the log may still wait for the disk.
        self.listeners: list[Callable[[str], None]] = []
        self._coming = Coming()
        self._lock = threading.Lock()
        self._writer: int | None = None
        self._tables: dict[str, Table] = {}
        for declaration in declarations:
            if declaration.name in self._tables:
                raise BadDeclaration(f"there are two tables of the name {declaration.name}")
            self._tables[declaration.name] = Table(self, declaration)
        for declaration in declarations:
            if isinstance(declaration.parent, TableDeclaration) and declaration.parent not in declarations:
                raise BadDeclaration(f"{declaration.name} needs its parent {declaration.parent.name} among the tables")

    def __getitem__(self, name: str) -> Table:
        """Raises TableError (NOT_FOUND)."""
        try:
            return self._tables[name]
        except KeyError:
            raise TableError("NOT_FOUND", f"there is no table {name!r}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[Table]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)

    def find_row(self, declaration: TableDeclaration, id: RowId) -> Row | None:
        """A row as everybody sees it."""
        log = find_log(self.engine, rows_log(declaration.name, id.parent))
        return None if log is None else read_row(log, id)

    @contextmanager
    def step(self) -> Iterator[tuple[Step, Coming]]:
        """Plan a step: nobody else writes meanwhile."""
        if self._writer == threading.get_ident():
            raise MisusedHook(
                "inside of a hook, write through its context: ctx.append(table, parent, payload) and so on"
            )
        with self._lock:
            self._writer = threading.get_ident()
            step = Step(self.engine, self._coming)
            try:
                self._coming.forget_done()
                yield step, self._coming
            finally:
                self._writer = None
                for name in step.made:
                    for listener in self.listeners:
                        listener(name)

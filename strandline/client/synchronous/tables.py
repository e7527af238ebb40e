# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""Tables: rows of a parent, appended, changed, read, and followed live."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from strandline.client import table_calls as calls
from strandline.client.calls import ALWAYS
from strandline.client.concurrency import sync_sleep
from strandline.client.errors import StrandlineError
from strandline.client.live import SILENCE_SECONDS, LiveState
from strandline.client.retry import Tries
from strandline.client.synchronous.transport import EventSource, Transport
from strandline.client.table_calls import TableCalls
from strandline.client.table_types import (
    BulkAppended,
    BulkRemoved,
    Counts,
    Edit,
    LiveEvent,
    NewRow,
    Purged,
    Restored,
    Row,
    RowAppended,
    RowPage,
    RowRemoved,
    RowsAfter,
)

T = TypeVar("T")


class Table(Generic[T]):
    """One table, as the server has it declared. Reads show what the caller may see: rows of its own, or all as owner of
    the parent; with ``public`` what everybody may."""

    def __init__(self, transport: Transport, name: str, kind: Any = Any, public: bool = False) -> None:
        self._transport = transport
        self.name = name
        self._calls: TableCalls[T] = TableCalls(name, kind, public)

    # --- writing ---------------------------------------------------------------------------------------------------

    def append(self, parent: str, payload: T, *, idempotency_key: str | None = None) -> RowAppended:
        """Append a row. Whatever happens on the way it is appended once: every append has an idempotency key, of its
        own unless one is given."""
        return self._transport.ask(self._calls.append(parent, payload, idempotency_key), calls.APPENDED)

    def append_bulk(self, parent: str, payloads: Iterable[T | NewRow[T]]) -> BulkAppended:
        """Append rows: all of them or none."""
        return self._transport.ask(self._calls.append_bulk(parent, payloads), calls.BULK_APPENDED)

    def update(self, id: str, patch: Mapping[str, Any], *, expected_updated_at: int | None = None) -> Row[T]:
        """Change members of a row. With ``expected_updated_at`` only if nobody has changed it since: else Conflict."""
        request = self._calls.write("update", id=id, patch=patch, expectedUpdatedAt=expected_updated_at)
        return self._calls.one(self._transport.call(request))

    def rm(self, id: str, *, hard: bool = False) -> RowRemoved:
        """Remove a row; ``hard`` for good, where it could be restored. One that is not there is no error."""
        request = self._calls.write("rm", id=id, hard=hard, repeatable=ALWAYS)
        return self._transport.ask(request, calls.REMOVED)

    def rm_bulk(self, ids: Iterable[str], *, hard: bool = False) -> BulkRemoved:
        """Remove rows: all of them or none."""
        request = self._calls.write("rmBulk", ids=list(ids), hard=hard, repeatable=ALWAYS)
        return self._transport.ask(request, calls.BULK_REMOVED)

    def purge_by_parent(self, parent: str, *, hard: bool = False) -> Purged:
        """Remove all rows of a parent."""
        return self._transport.ask(self._calls.write("purgeByParent", parent=parent, hard=hard), calls.PURGED)

    def restore_by_parent(self, parent: str) -> Restored:
        """Bring all removed rows of a parent back."""
        return self._transport.ask(self._calls.write("restoreByParent", parent=parent), calls.RESTORED)

    def restore(self, id: str) -> Row[T]:
        """Bring a removed row back."""
        return self._calls.one(self._transport.call(self._calls.write("restore", id=id)))

    # --- reading ---------------------------------------------------------------------------------------------------

    def page(
        self,
        parent: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> RowPage[T]:
        """One page of rows, the newest first."""
        return self._calls.page(self._transport.call(self._calls.list_page(parent, limit, cursor, where)))

    def list(
        self, parent: str, *, where: Mapping[str, Any] | None = None, page_size: int | None = None
    ) -> Iterator[Row[T]]:
        """All rows, the newest first, page by page."""
        cursor: str | None = None
        while True:
            page: RowPage[T] = self.page(parent, limit=page_size, cursor=cursor, where=where)
            yield from page.rows
            cursor = page.cursor
            if page.is_done or cursor is None:
                return

    def page_after(self, parent: str, seq: int = 0, *, limit: int | None = None) -> RowsAfter[T]:
        """One page of rows behind a seq, the oldest first."""
        return self._calls.after(
            self._transport.call(self._calls.read("listAfter", parent=parent, seq=seq, limit=limit))
        )

    def list_after(self, parent: str, seq: int = 0, *, page_size: int | None = None) -> Iterator[Row[T]]:
        """All rows behind a seq, the oldest first, page by page."""
        while True:
            page: RowsAfter[T] = self.page_after(parent, seq, limit=page_size)
            yield from page.rows
            seq = page.last
            if not page.has_more:
                return

    def read(self, id: str) -> Row[T] | None:
        """One row; None if there is none that the caller may see."""
        return self._calls.one_or_none(self._transport.call(self._calls.read("read", id=id)))

    def search(self, parent: str, query: str, *, limit: int | None = None) -> tuple[Row[T], ...]:
        """Rows that have all the words, the newest first."""
        request = self._calls.read("search", parent=parent, query=query, limit=limit)
        return tuple(self._calls.found(self._transport.call(request)))

    def indexed(self, parent: str, by: str) -> dict[str, tuple[Row[T], ...]]:
        """All rows, by the value of a field as text."""
        answer = self._transport.call(self._calls.read("indexed", parent=parent, indexBy=by))
        return {value: tuple(rows) for value, rows in self._calls.indexed(answer).items()}

    def counts(self, parent: str, by: str) -> Counts:
        """How many rows have which value of a field."""
        return self._transport.ask(self._calls.read("counts", parent=parent, by=by), calls.COUNTS)

    def history(self, id: str) -> tuple[Edit, ...]:
        """What a row was before it was edited, the oldest edit first."""
        return tuple((self._transport.ask(self._calls.read("history", id=id), calls.EDITS)).edits)

    def live(self, parent: str, *, after: str | None = None) -> Live[T]:
        """Rows and what becomes of them, as it happens: from the beginning, behind a ``cursor`` of before, or with
        ``after="now"`` from now on. Goes on over broken connections, misses nothing and repeats nothing."""
        return Live(self._transport, LiveState(self._calls, parent, after))


# --- live readers ---------------------------------------------------------------------------------------------------


class Live(Generic[T]):
    """Events of a parent's rows: iterate over it. ``cursor`` is always where it has got to. Close it, or use it as a
    context manager."""

    def __init__(self, transport: Transport, state: LiveState[T]) -> None:
        self._transport = transport
        self._state = state
        self._source: EventSource | None = None
        self._tries = Tries(transport.patience)
        self._closed = False

    @property
    def cursor(self) -> str | None:
        return self._state.cursor

    def __enter__(self) -> Live[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._leave()

    def __iter__(self) -> Live[T]:
        return self

    def __next__(self) -> LiveEvent[T]:
        while not self._closed:
            event = self._next()
            if event is not None:
                return event
        raise StopIteration

    def _next(self) -> LiveEvent[T] | None:
        try:
            if self._source is None:
                self._source = self._transport.listen(self._state.request(), SILENCE_SECONDS)
            event = self._state.take(self._source.next())
        except StrandlineError as error:
            self._leave()
            wait = self._tries.failed(error)
        else:
            self._tries.succeeded()
            return event
        sync_sleep(wait)
        return None

    def _leave(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

"""Tables: append, change and read the rows of a parent, and follow them live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from strandline.client import table_calls as calls
from strandline.client.asynchronous.live import AsyncLive
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.calls import ALWAYS, Request
from strandline.client.live import LiveState
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


class AsyncTable(Generic[T]):
    """One table that the server declares. Reads return the rows that the user may see: their own, or all rows for the
    owner of the parent. With ``public``, reads return the rows that everyone may see."""

    def __init__(self, transport: AsyncTransport, name: str, kind: Any = Any, public: bool = False) -> None:
        self._transport = transport
        self.name = name
        self._calls: TableCalls[T] = TableCalls(name, kind, public)

    # --- writing ---------------------------------------------------------------------------------------------------

    async def append(
        self, parent: str, payload: T | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> RowAppended:
        """Append a row exactly once: every append has an idempotency key, which is generated unless you give one. The
        payload may be a mapping without the members that have a default."""
        return await self._transport.ask(self._calls.append(parent, payload, idempotency_key), calls.APPENDED)

    async def append_bulk(
        self, parent: str, payloads: Iterable[T | Mapping[str, Any] | NewRow[T | Mapping[str, Any]]]
    ) -> BulkAppended:
        """Append rows atomically."""
        return await self._transport.ask(self._calls.append_bulk(parent, payloads), calls.BULK_APPENDED)

    async def update(self, id: str, patch: Mapping[str, Any], *, expected_updated_at: int | None = None) -> Row[T]:
        """Change members of a row. With ``expected_updated_at``, raise Conflict if the row changed since then."""
        request = self._calls.write("update", id=id, patch=patch, expectedUpdatedAt=expected_updated_at)
        return self._calls.one(await self._transport.call(request))

    async def rm(self, id: str, *, hard: bool = False) -> RowRemoved:
        """Remove a row. ``hard`` removes it permanently; otherwise it can be restored if the table allows that. A
        missing row is not an error."""
        request = self._calls.write("rm", id=id, hard=hard, repeatable=ALWAYS)
        return await self._transport.ask(request, calls.REMOVED)

    async def rm_bulk(self, ids: Iterable[str], *, hard: bool = False) -> BulkRemoved:
        """Remove rows atomically."""
        request = self._calls.write("rmBulk", ids=list(ids), hard=hard, repeatable=ALWAYS)
        return await self._transport.ask(request, calls.BULK_REMOVED)

    async def purge_by_parent(self, parent: str, *, hard: bool = False) -> Purged:
        """Remove all rows of a parent."""
        return await self._transport.ask(self._calls.write("purgeByParent", parent=parent, hard=hard), calls.PURGED)

    async def restore_by_parent(self, parent: str) -> Restored:
        """Restore all removed rows of a parent."""
        return await self._transport.ask(self._calls.write("restoreByParent", parent=parent), calls.RESTORED)

    async def restore(self, id: str) -> Row[T]:
        """Restore a removed row."""
        return self._calls.one(await self._transport.call(self._calls.write("restore", id=id)))

    # --- reading ---------------------------------------------------------------------------------------------------

    async def page(
        self,
        parent: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> RowPage[T]:
        """One page of rows, newest first."""
        return self._calls.page(await self._transport.call(self._calls.list_page(parent, limit, cursor, where)))

    def list(
        self, parent: str, *, where: Mapping[str, Any] | None = None, page_size: int | None = None
    ) -> AsyncIterator[Row[T]]:
        """All rows, newest first, fetched page by page."""
        return self._all(lambda cursor: self._calls.list_page(parent, page_size, cursor, where))

    async def _all(self, request: Callable[[str | None], Request]) -> AsyncIterator[Row[T]]:
        """The rows of all pages. ``request`` asks for the page at a cursor."""
        cursor: str | None = None
        while True:
            page: RowPage[T] = self._calls.page(await self._transport.call(request(cursor)))
            for row in page.rows:
                yield row
            cursor = page.cursor
            if page.is_done or cursor is None:
                return

    async def page_after(self, parent: str, seq: int = 0, *, limit: int | None = None) -> RowsAfter[T]:
        """One page of the rows after a seq, oldest first."""
        return self._calls.after(
            await self._transport.call(self._calls.read("listAfter", parent=parent, seq=seq, limit=limit))
        )

    async def list_after(self, parent: str, seq: int = 0, *, page_size: int | None = None) -> AsyncIterator[Row[T]]:
        """All rows after a seq, oldest first, fetched page by page."""
        while True:
            page: RowsAfter[T] = await self.page_after(parent, seq, limit=page_size)
            for row in page.rows:
                yield row
            seq = page.last
            if not page.has_more:
                return

    async def read(self, id: str) -> Row[T] | None:
        """One row, or None if it does not exist or the user may not see it."""
        return self._calls.one_or_none(await self._transport.call(self._calls.read("read", id=id)))

    async def search(self, parent: str, query: str, *, limit: int | None = None) -> tuple[Row[T], ...]:
        """Rows that contain all words of the query, newest first."""
        request = self._calls.read("search", parent=parent, query=query, limit=limit)
        return tuple(self._calls.found(await self._transport.call(request)))

    async def indexed(self, parent: str, by: str) -> dict[str, tuple[Row[T], ...]]:
        """All rows, grouped by the value of a field as text."""
        answer = await self._transport.call(self._calls.read("indexed", parent=parent, indexBy=by))
        return {value: tuple(rows) for value, rows in self._calls.indexed(answer).items()}

    async def counts(self, parent: str, by: str) -> Counts:
        """The number of rows for each value of a field."""
        return await self._transport.ask(self._calls.read("counts", parent=parent, by=by), calls.COUNTS)

    async def history(self, id: str) -> tuple[Edit, ...]:
        """The earlier versions of a row, oldest first."""
        return tuple((await self._transport.ask(self._calls.read("history", id=id), calls.EDITS)).edits)

    def trash(self, parent: str, *, page_size: int | None = None) -> AsyncIterator[Row[T]]:
        """The removed rows of a parent that can be restored, the highest seq first, fetched page by page."""
        return self._all(lambda cursor: self._calls.read("trash", parent=parent, limit=page_size, cursor=cursor))

    def feed(self, *, page_size: int | None = None) -> AsyncIterator[Row[T]]:
        """The rows of all parents, newest first, fetched page by page."""
        return self._all(lambda cursor: self._calls.read("feed", limit=page_size, cursor=cursor))

    def feed_live(self, *, after: str | None = None) -> AsyncLive[LiveEvent[T]]:
        """The rows of all parents and their changes as they happen; otherwise as ``live``."""
        return AsyncLive(self._transport, LiveState(self._calls, None, after))

    def live(self, parent: str, *, after: str | None = None) -> AsyncLive[LiveEvent[T]]:
        """Rows and their changes as they happen: from the beginning, after the ``cursor`` of an earlier reader, or only
        new events with ``after="now"``. The reader survives broken connections without missing or repeating events."""
        return AsyncLive(self._transport, LiveState(self._calls, parent, after))

"""Writes. Appends to a table without hooks run on the event loop if everything they need is in memory. Those to the
same parent that arrive in one turn of the loop share a step. All other writes run on one thread of their own, in order.
While that thread works, appends run there too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from strandline.protocols.tables.context import TablesContext, are_keys_resident, pass_on
from strandline.protocols.tables.requests import body_of, item_of
from strandline.protocols.tables.wire import (
    AppendBody,
    AppendBulkBody,
    IdBody,
    ParentBody,
    PurgeBody,
    RmBody,
    RmBulkBody,
    UpdateBody,
    encode,
)
from strandline.service.admission import Replying
from strandline.service.gathered_appends import AppendGroup, GatheredAppends
from strandline.service.http import Call, Handler, Later, LaterCommitted, Reply
from strandline.tables import AppendBulkResult, AppendResult, Item, Row, Table, TableError, User, Write
from strandline.tables.names import parse_id

#: Appends with larger bodies gain nothing by sharing a step with others.
MAX_GATHERED_BODY = 32 << 10

T = TypeVar("T")


class _Append(LaterCommitted):
    """An append that shares a step with others."""

    __slots__ = ("item", "parent", "user")

    def __init__(self, parent: str, item: Item, user: User) -> None:
        super().__init__()
        self.parent = parent
        self.item = item
        self.user = user


class TableWrites:
    """The writes of one table."""

    def __init__(self, context: TablesContext, table: Table) -> None:
        self._context = context
        self._table = table
        #: Whether appends touch only the table itself.
        self._is_plain = not table.hooks.has("before_append") and not table.hooks.has("after_append")
        #: The appends of this turn by their parents. A rate limit counts appends that are made, one by one.
        self._gathers = table.window is None
        self._gathered: GatheredAppends[str, _Append] = GatheredAppends(context.hub.loop, self._append_group)

    def handler(self, op: str) -> Handler:
        handlers: dict[str, Handler] = {
            "append": self.append,
            "appendBulk": self.append_bulk,
            "update": self.update,
            "rm": self.rm,
            "rmBulk": self.rm_bulk,
            "purgeByParent": self.purge_by_parent,
            "restoreByParent": self.restore_by_parent,
            "restore": self.restore,
        }
        return handlers[op]

    # --- appending -------------------------------------------------------------------------------------------------

    def append(self, call: Call) -> Replying:
        """POST /tables/{table}/append"""
        user = self._context.users.known(call, "write")
        body = body_of(call, AppendBody)
        self._check_names(call, body.parent)
        append = _Append(body.parent, Item(body.payload, body.idempotency_key), user)
        if self._context.admission.pressure.holds_writes:
            return self._context.admission.write(lambda _: self._append_one(append))
        size = len(call.body)
        if self._gathers and size <= MAX_GATHERED_BODY and self._is_quick(body.parent, [body.idempotency_key]):
            if self._gathered.take(body.parent, append, size):
                return append
        return self._append_one(append)

    def _append_one(self, append: _Append) -> Reply | Later:
        """Append a row in a step of its own."""
        parent, (payload, key), user = append.parent, append.item, append.user
        return self._append(
            parent, [key], lambda: self._table.append(parent, payload, user=user, idempotency_key=key), encode
        )

    def _append_group(self, parent: str, group: AppendGroup[_Append]) -> None:
        made = self._append_together(parent, group.appends)
        if made is not None:
            self._settle(made, group)
            return
        for append in group.appends:
            try:
                pass_on(self._append_one(append), append)
            except Exception as error:
                append.fail(error)

    def _append_together(self, parent: str, appends: list[_Append]) -> Write[list[AppendResult | TableError]] | None:
        """Append the rows in one step; None if they have to be appended one by one."""
        if len(appends) == 1 or not self._is_quick(parent, [append.item.idempotency_key for append in appends]):
            return None
        try:
            return self._table.append_each(parent, [(append.item, append.user) for append in appends])
        except Exception:
            # Nothing has been written. One by one, each gets an error of its own or succeeds without the others.
            return None

    def _settle(self, made: Write[list[AppendResult | TableError]], group: AppendGroup[_Append]) -> None:
        def settle() -> None:
            try:
                results = made.wait()
            except Exception as error:
                group.fail(error)
                return
            for append, result in zip(group.appends, results, strict=True):
                if isinstance(result, TableError):
                    append.fail(result)
                else:
                    append.settle(Reply(encode(result)))

        if made.commit.done:
            settle()
        else:
            self._context.hub.on_done(made.commit, settle)

    def append_bulk(self, call: Call) -> Replying:
        """POST /tables/{table}/appendBulk"""
        user = self._context.users.known(call, "write")
        body = body_of(call, AppendBulkBody)
        self._check_names(call, body.parent)
        items = [item_of(item, self._table.declaration.schema) for item in body.items]
        keys = [item.idempotency_key for item in items]

        def write() -> Write[AppendBulkResult]:
            return self._table.append_bulk(body.parent, items, user=user)

        return self._context.admission.write(lambda _: self._append(body.parent, keys, write, encode))

    def _append(
        self, parent: str, keys: list[str | None], write: Callable[[], Write[T]], render: Callable[[T], bytes]
    ) -> Reply | Later:
        if self._is_quick(parent, keys):
            return self._done(write(), render)
        return self._elsewhere(write, render)

    def _is_quick(self, parent: str, keys: list[str | None]) -> bool:
        context = self._context
        return (
            self._is_plain
            and not context.writes_elsewhere
            and context.is_parent_resident(self._table.declaration, parent)
            and are_keys_resident(self._table, parent, keys)
            # With a feed, the first row of a parent waits until the log of the parent is durable.
            and (not self._table.declaration.feed or self._table.rows_log(parent) is not None)
        )

    # --- changing --------------------------------------------------------------------------------------------------

    def update(self, call: Call) -> Replying:
        """POST /tables/{table}/update"""
        body = body_of(call, UpdateBody)
        user = self._changer(call, "write", body.id)
        table, expected = self._table, body.expected_updated_at

        def update() -> Write[Row]:
            return table.update(body.id, body.patch, user=user, expected_updated_at=expected)

        return self._context.admission.write(lambda _: self._elsewhere(update, _row))

    def rm(self, call: Call) -> Replying:
        """POST /tables/{table}/rm"""
        body = body_of(call, RmBody)
        user = self._changer(call, "delete", body.id)
        return self._change(lambda: self._table.rm(body.id, user=user, hard=body.hard), encode)

    def rm_bulk(self, call: Call) -> Replying:
        """POST /tables/{table}/rmBulk"""
        body = body_of(call, RmBulkBody)
        user = self._changer(call, "delete", *body.ids)
        return self._change(lambda: self._table.rm_bulk(body.ids, user=user, hard=body.hard), encode)

    def purge_by_parent(self, call: Call) -> Replying:
        """POST /tables/{table}/purgeByParent"""
        user = self._context.users.acting(call, "delete")
        body = body_of(call, PurgeBody)
        self._check_names(call, body.parent)
        return self._change(lambda: self._table.purge_by_parent(body.parent, user=user, hard=body.hard), encode)

    def restore_by_parent(self, call: Call) -> Replying:
        """POST /tables/{table}/restoreByParent"""
        user = self._context.users.acting(call, "delete")
        body = body_of(call, ParentBody)
        self._check_names(call, body.parent)
        return self._change(lambda: self._table.restore_by_parent(body.parent, user=user), encode)

    def restore(self, call: Call) -> Replying:
        """POST /tables/{table}/restore"""
        body = body_of(call, IdBody)
        user = self._changer(call, "delete", body.id)
        return self._change(lambda: self._table.restore(body.id, user=user), _row)

    def _changer(self, call: Call, scope: str, *ids: str) -> User | None:
        """The user who changes these rows."""
        user = self._context.users.acting(call, scope)
        for id in ids:
            self._check_names(call, parse_id(id).parent)
        return user

    def _check_names(self, call: Call, parent: str) -> None:
        self._context.users.check_names(call, self._table.name, parent)

    def _change(self, write: Callable[[], Write[T]], render: Callable[[T], bytes]) -> Replying:
        return self._context.admission.read(lambda _: self._elsewhere(write, render))

    # --- answers ---------------------------------------------------------------------------------------------------

    def _elsewhere(self, write: Callable[[], Write[T]], render: Callable[[T], bytes]) -> Later:
        return self._context.write_elsewhere(write, lambda made: self._done(made, render))

    def _done(self, made: Write[T], render: Callable[[T], bytes]) -> Reply | Later:
        """The answer, sent when the write is as durable as the table promises."""

        if render is _row and self._table.declaration.with_author is not None:
            return self._dressed(made, render)
        return self._context.admission.after(made.commit, lambda _: Reply(render(made.wait())))

    def _dressed(self, made: Write[Any], render: Callable[[Any], bytes]) -> Later:
        """An answer with a row whose author is looked up first, on a worker thread, since a lookup may take long."""
        later = Later()

        def look_up() -> None:
            done = self._context.elsewhere(lambda: Reply(render(made.wait())))
            pass_on(done, later)

        self._context.hub.on_done(made.commit, look_up)
        return later


def _row(row: Row) -> bytes:
    return encode(row.to_json())

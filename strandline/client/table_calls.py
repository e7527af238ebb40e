"""Tables: requests and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from strandline.client import table_types as types
from strandline.client.calls import ALWAYS, Answer, AnswerReader, Request, get, post, segment
from strandline.client.errors import BadAnswer
from strandline.client.topic_calls import given, new_key

T = TypeVar("T")

APPENDED = AnswerReader(types.RowAppended)
BULK_APPENDED = AnswerReader(types.BulkAppended)
REMOVED = AnswerReader(types.RowRemoved)
BULK_REMOVED = AnswerReader(types.BulkRemoved)
PURGED = AnswerReader(types.Purged)
RESTORED = AnswerReader(types.Restored)
COUNTS = AnswerReader(types.Counts)

#: The members of a row that are not part of its payload.
MEMBERS = {
    "id": "id",
    "parent": "parent",
    "seq": "seq",
    "userId": "user",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
    "idempotencyKey": "idempotency_key",
    "deletedAt": "deleted_at",
    "deletedBy": "deleted_by",
    "author": "author",
    "own": "own",
}


class TableCalls(Generic[T]):
    """The requests of one table, and the decoding of its rows. Payloads are decoded as ``kind``."""

    def __init__(self, name: str, kind: Any, public: bool) -> None:
        self._path = f"/tables/{segment(name)}"
        self._reads = f"{self._path}/{'pub' if public else 'auth'}"
        self._kind = kind

    # --- requests --------------------------------------------------------------------------------------------------

    def append(self, parent: str, payload: object, key: str | None) -> Request:
        """Every append has an idempotency key, which the server remembers while the row exists."""
        body = {"parent": parent, "payload": payload, "idempotencyKey": key or new_key()}
        return post(f"{self._path}/append", body, repeatable=ALWAYS)

    def append_bulk(self, parent: str, payloads: Iterable[object]) -> Request:
        items = [
            {"payload": one.payload, "idempotencyKey": one.idempotency_key}
            if isinstance(one, types.NewRow)
            else {"payload": one, "idempotencyKey": new_key()}
            for one in payloads
        ]
        return post(f"{self._path}/appendBulk", {"parent": parent, "items": items}, repeatable=ALWAYS)

    def write(self, operation: str, *, repeatable: float = 0.0, **body: Any) -> Request:
        return post(f"{self._path}/{operation}", given(**body), repeatable=repeatable)

    def read(self, operation: str, **query: Any) -> Request:
        return get(f"{self._reads}/{operation}", query)

    def list_page(self, parent: str, limit: int | None, cursor: str | None, where: Mapping[str, Any] | None) -> Request:
        condition = None if where is None else msgspec.json.encode(where).decode()
        return self.read("list", parent=parent, limit=limit, cursor=cursor, where=condition)

    # --- answers ---------------------------------------------------------------------------------------------------

    def row(self, shown: Mapping[str, Any]) -> types.Row[T]:
        members = {name: shown[member] for member, name in MEMBERS.items() if member in shown}
        payload: Any = {member: value for member, value in shown.items() if member not in MEMBERS}
        try:
            if self._kind is not Any:
                payload = msgspec.convert(payload, self._kind)
            return types.Row(payload=payload, **members)
        except (msgspec.ValidationError, TypeError) as error:
            raise BadAnswer(f"row {shown.get('id')}: {error}") from error

    def rows(self, shown: Sequence[Mapping[str, Any]]) -> list[types.Row[T]]:
        return [self.row(one) for one in shown]

    def one(self, answer: Answer) -> types.Row[T]:
        return self.row(_decoded(answer))

    def one_or_none(self, answer: Answer) -> types.Row[T] | None:
        shown = _decoded(answer)
        return None if shown is None else self.row(shown)

    def page(self, answer: Answer) -> types.RowPage[T]:
        shown = _decoded(answer)
        return types.RowPage(self.rows(shown["page"]), shown["isDone"], shown["continueCursor"])

    def after(self, answer: Answer) -> types.RowsAfter[T]:
        headers = answer.headers
        try:
            head, last = int(headers["strandline-head"]), int(headers["strandline-last"])
            has_more = headers["strandline-has-more"] == "true"
        except (KeyError, ValueError) as error:
            raise BadAnswer(f"the answer lacks a header: {error}") from error
        return types.RowsAfter(self.rows(_decoded(answer)), head, has_more, last)

    def found(self, answer: Answer) -> list[types.Row[T]]:
        return self.rows(_decoded(answer))

    def indexed(self, answer: Answer) -> dict[str, list[types.Row[T]]]:
        return {value: self.rows(rows) for value, rows in _decoded(answer).items()}


class _Edits(msgspec.Struct):
    edits: list[types.Edit]


EDITS = AnswerReader(_Edits)


def _decoded(answer: Answer) -> Any:
    try:
        return msgspec.json.decode(answer.body)
    except msgspec.DecodeError as error:
        raise BadAnswer(f"the server sent an unexpected answer: {error}") from error

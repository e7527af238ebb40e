"""Rows as JSON, joined from the stored bytes instead of built from objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from strandline.engine import Page
from strandline.tables.rows import split_stamps

_JSON_USER = msgspec.json.Decoder(dict[str, Any])

#: The authors of rows, as returned by the table's ``with_author``.
Authors = Mapping[str, Mapping[str, Any] | None]


class RenderedRow(NamedTuple):
    """A row without the parts that depend on the reader: ``json`` lacks its end. ``user`` is the author."""

    seq: int
    ts: int
    user: str | None
    json: bytes

    def whole(self, reader: str | None, authors: Authors | None) -> bytes:
        """The row as JSON for this reader."""
        own = b"" if reader is None else b',"own":true' if reader == self.user else b',"own":false'
        if authors is None:
            return b"%b%b}" % (self.json, own)
        author = None if self.user is None else authors.get(self.user)
        return b'%b,"author":%b%b}' % (self.json, msgspec.json.encode(author), own)


class RowRenderer:
    """Renders the rows of one table and parent."""

    def __init__(self, parent: str) -> None:
        quoted = msgspec.json.encode(parent)
        #: The id of a row up to its sequence number.
        self._id = b'"id":%b:' % quoted[:-1]
        self._parent = b'","parent":%b,"seq":' % quoted
        self._users: dict[bytes | None, tuple[str | None, bytes]] = {None: (None, b"null")}

    def page(self, page: Page) -> list[RenderedRow]:
        columns = zip(page.seqs, page.ts, page.data, page.keys, page.metas, strict=True)
        return [self.row(*record) for record in columns]

    def row(self, seq: int, ts: int, data: bytes, key: str | None, meta: bytes | None) -> RenderedRow:
        user, user_json = self._user(meta)
        payload, _, updated = split_stamps(data)
        front = payload.strip()[:-1].rstrip()
        comma = b"" if front == b"{" else b","
        further = b"" if key is None else b',"idempotencyKey":%b' % msgspec.json.encode(key)
        json = b'%b%b%b%d%b%d,"userId":%b,"createdAt":%d,"updatedAt":%d%b' % (
            front, comma, self._id, seq, self._parent, seq, user_json, ts, ts if updated is None else updated, further,
        )  # fmt: skip
        return RenderedRow(seq, ts, user, json)

    def _user(self, meta: bytes | None) -> tuple[str | None, bytes]:
        found = self._users.get(meta)
        if found is None:
            assert meta is not None
            user = _JSON_USER.decode(meta).get("user")
            found = self._users[meta] = (user, msgspec.json.encode(user))
            if len(self._users) > 10_000:
                self._users.clear()
                self._users[None] = (None, b"null")
        return found


def authors_of(rows: Sequence[RenderedRow], with_author: Callable[[str], Mapping[str, Any] | None]) -> Authors:
    """The authors of the rows, looked up once each."""
    return {user: with_author(user) for user in {row.user for row in rows} if user is not None}

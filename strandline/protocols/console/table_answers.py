"""The answers of the console about tables."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from strandline.engine.record import Durability
from strandline.tables import RateLimit
from strandline.tables.rows import Edit

Number = Annotated[int, Meta(ge=0)]
#: A row with the fields of its payload, as the routes of tables show it.
ShownRow = dict[str, Any]


class HookRow(msgspec.Struct, kw_only=True):
    hook: str
    after_commit: bool


class TableRow(msgspec.Struct, kw_only=True):
    name: str
    parent: str
    parent_is_table: bool
    version: Number
    parents: Number
    rows: Number
    bytes: Number
    last_ts: Number | None
    soft_delete: bool
    public: bool | str
    feed: bool
    search: list[str]
    rate_limit: RateLimit | None
    hooks: list[HookRow]
    durability: Durability


class ConsoleTablesAnswer(msgspec.Struct, kw_only=True):
    tables: list[TableRow]


class TableVersion(msgspec.Struct, kw_only=True):
    version: Number
    at: Number
    schema: dict[str, Any]
    lens: dict[str, Any] | None


class ConsoleTableAnswer(TableRow, kw_only=True):
    schema: dict[str, Any]
    versions: list[TableVersion]
    moderators: list[str]


class ParentRow(msgspec.Struct, kw_only=True):
    parent: str
    log: str
    rows: Number
    bytes: Number
    last_ts: Number | None


class ParentsAnswer(msgspec.Struct, kw_only=True):
    parents: list[ParentRow]
    total: Number


class ParentAnswer(ParentRow, kw_only=True):
    changes_log: str | None
    owner: str | None
    found: bool
    revision: str


class RowsAnswer(msgspec.Struct, kw_only=True):
    rows: list[ShownRow]
    next: str | None


class RowAnswer(msgspec.Struct, kw_only=True):
    row: ShownRow
    edits: list[Edit]

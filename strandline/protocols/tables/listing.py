"""``GET /tables``: the declared tables, with the schemas of their payloads and the paths of their operations; and
``GET /tables/types.ts`` and ``types.py``: their types, for the developers of programs and pages that use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.paths import SCHEMA, read_paths, write_path, writes_of
from strandline.protocols.tables.schemas import fields_of
from strandline.protocols.tables.wire import (
    ParentDescription,
    TableDescription,
    TableOperationPath,
    TableOptions,
    TablesAnswer,
    encode,
)
from strandline.service.http import Call, Handler, Reply
from strandline.service.static_files import TEXT
from strandline.tables import TableDeclaration
from strandline.tables.types import python_types, typescript_types

#: The languages in which the types of the tables are written, by path.
TYPES: dict[str, tuple[str, Callable[..., str]]] = {
    "/tables/types.ts": ("TypeScript", typescript_types),
    "/tables/types.py": ("Python", python_types),
}


class TableListing:
    """The tables do not change while the server runs, so the answer is encoded once for all keys that may access the
    same tables."""

    def __init__(self, context: TablesContext) -> None:
        self._context = context
        self._body = cache(self._encoded)

    def list(self, call: Call) -> Reply:
        """GET /tables"""
        self._context.users.known(call, None)
        return Reply(self._body(self._context.seen_by(call)))

    def _encoded(self, names: tuple[str, ...]) -> bytes:
        tables = self._context.tables
        return encode(TablesAnswer([describe_table(tables[name].declaration) for name in names]))


def describe_table(table: TableDeclaration) -> TableDescription:
    return TableDescription(
        name=table.name,
        parent=ParentDescription(
            table.parent_label, "table" if isinstance(table.parent, TableDeclaration) else "label"
        ),
        fields=list(fields_of(table.schema.document)),
        schema=table.schema.document,
        options=TableOptions(
            soft_delete=table.soft_delete,
            pub=table.public_field or table.public,
            search=list(table.search_fields),
            rate_limit=table.rate_limit,
            with_author=table.with_author is not None,
            moderators=sorted(table.moderators),
            feed=table.feed,
            durability=table.durability,
        ),
        operations=list(_operations(table)),
    )


def _operations(table: TableDeclaration) -> Iterator[TableOperationPath]:
    for op in writes_of(table):
        yield TableOperationPath(op, "POST", write_path(table.name, op))
    for path, _, _ in read_paths(table):
        yield TableOperationPath(path.removeprefix(f"/tables/{table.name}/").replace("/", "."), "GET", path)
    yield TableOperationPath(SCHEMA, "GET", write_path(table.name, SCHEMA))


def types_handler(context: TablesContext, path: str) -> Handler:
    """The text is written once for all keys that may access the same tables. Declarations do not change while a server
    runs."""
    _, write = TYPES[path]

    @cache
    def text(names: tuple[str, ...]) -> bytes:
        return write(context.tables[name].declaration for name in names).encode()

    def types(call: Call) -> Reply:
        context.users.known(call, None)
        return Reply(text(context.seen_by(call)), 200, TEXT)

    return types

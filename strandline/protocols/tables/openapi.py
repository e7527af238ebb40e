"""The routes of tables, described for those who call them: those that this very server has, by what is declared."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.protocols.tables.errors import PROBLEMS, RENAMED
from strandline.protocols.tables.paths import (
    ANY_READ,
    ANY_WRITE,
    PUB,
    WRITES,
    read_path,
    reads_of,
    write_path,
    writes_of,
)
from strandline.protocols.tables.schemas import TableSchemas
from strandline.protocols.tables.wire import TableErrorAnswer
from strandline.service.openapi import (
    EVENT_STREAM,
    EVENTS,
    JSON,
    TEXT,
    Answer,
    Described,
    Operation,
    Parameter,
    Schema,
    shown,
)
from strandline.tables import TableDeclaration
from strandline.tables.table import MAX_BULK

_WRITE_SUMMARIES = {
    "append": "Append a row",
    "appendBulk": "Append several rows in one step",
    "update": "Change a row",
    "rm": "Remove a row",
    "rmBulk": "Remove several rows in one step",
    "purgeByParent": "Remove all rows of a parent",
    "restoreByParent": "Bring all removed rows of a parent back",
    "restore": "Bring a removed row back",
}
_WRITE_WORDS = {
    "append": "With an `idempotencyKey` that a row of this parent has already, nothing is appended and that row's seq "
    "is told, with `created` false. A key is good for as long as its row is there.",
    "appendBulk": f"Up to {MAX_BULK} rows; all of them are appended, or none is. Their seqs follow each other.",
    "update": "For the author, and the owner of the parent. With `expectedUpdatedAt` only if nobody has changed the "
    "row since then. Seq, parent and author stay.",
    "rm": "For the author, and the owner of the parent. `hard` removes it for good where it could be restored. A row "
    "that is not there is no error.",
    "rmBulk": f"Up to {MAX_BULK} ids; all of them are removed, or none is.",
    "purgeByParent": "For the owner of the parent. `hard` removes them for good where they could be restored.",
    "restoreByParent": "For the owner of the parent. Also those that were removed one by one.",
    "restore": "For the author, and the owner of the parent.",
}
_READ_SUMMARIES = {
    "list": "Read rows, the newest first",
    "listAfter": "Read rows behind a seq, the oldest first",
    "read": "Read one row",
    "search": "Find rows by their text",
    "indexed": "Read all rows, grouped by a field",
    "counts": "Count rows by a field",
    "history": "Read what a row was before it was edited",
    "live": "Be told of rows and of what becomes of them",
}
_LIVE = """Server-sent events, in the order of their times: `append`, `update` and `restore` with the row, `rm` with
`{id, seq, soft}`, `purge` with `{parent, soft}`, `restoreAll` with `{parent}`; `ready` with `{cursor}` once everything
there was has been told. A change always comes after the row it is about. The id of each event says where to go on: in
`after`, or in the header `Last-Event-ID`. `after=now` begins with what comes. Whoever may not read any more is told so
with `end`, whose data is that of an error."""
_READ_WORDS = {
    "list": "`continueCursor` is the `cursor` of the next page. A page can be short without being the last.",
    "listAfter": "For those who follow along: `last` is the `seq` to go on behind.",
    "read": "Null if there is none that whoever asks may see.",
    "search": "Rows that have all the words, the newest first.",
    "indexed": "By the value of the field, as text.",
    "counts": "By the value of the field, as text.",
    "history": "The oldest edit first.",
    "live": _LIVE,
}
_FOR = {
    "auth": "For the author of a row, who gets nothing else, and for the owner of the parent, who gets everything.",
    "pub": "For everybody; no API key is needed.",
}


def _query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required)


_PARENT = _query(
    "parent", "The parent whose rows.", {"type": "string", "minLength": 1, "maxLength": 256}, required=True
)
_ID = _query("id", "The id of the row.", required=True)
_LIMIT = _query("limit", "How many rows at the most.", {"type": "integer", "minimum": 1})
_USER = Parameter(
    "Strandline-User",
    "header",
    "Who asks, where there are no API keys; for whom a key with the admin scope acts, where there are.",
    {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[ -~]*$"},
)
_PARAMETERS: dict[str, tuple[Parameter, ...]] = {
    "list": (
        _PARENT,
        _LIMIT,
        _query("cursor", "Where to go on, as the last page says."),
        _query("where", "Conditions on rows, as JSON."),
    ),
    "listAfter": (
        _PARENT,
        _query("seq", "Only rows behind this one.", {"type": "integer", "minimum": 0, "default": 0}),
        _LIMIT,
    ),
    "read": (_ID,),
    "search": (_PARENT, _query("query", "What to look for.", required=True), _LIMIT),
    "indexed": (_PARENT, _query("indexBy", "The field.", required=True), _LIMIT),
    "counts": (_PARENT, _query("by", "The field.", required=True)),
    "history": (_ID,),
    "live": (
        _PARENT,
        _query("after", "The id of the last event that was seen, or `now`."),
        _query("user", "As the header `Strandline-User`, which browsers cannot send here."),
        _query("token", "An API key, for browsers, which cannot send a header here."),
        Parameter("Last-Event-ID", "header", "As `after`, and before it.", {"type": "string", "pattern": "^[ -~]*$"}),
    ),
}
_WRITE_ERRORS = (
    "VALIDATION_FAILED",
    "NOT_AUTHENTICATED",
    "FORBIDDEN",
    "NOT_FOUND",
    "CONFLICT",
    "READ_ONLY",
    "DISK_FULL",
)
_READ_ERRORS = ("VALIDATION_FAILED", "NOT_AUTHENTICATED", "FORBIDDEN", "NOT_FOUND", "CONFLICT")


def describe(tables: Iterable[TableDeclaration]) -> Described:
    operations: dict[tuple[str, str], Operation] = {}
    components: dict[str, Schema] = {}
    groups: dict[str, str] = {}
    for table in tables:
        schemas = TableSchemas(table)
        components |= schemas.components
        group = f"table {table.name}"
        groups[group] = f"The table {table.name}: rows by {table.parent_label}."
        for op in writes_of(table):
            operations["POST", write_path(table.name, op)] = _write(group, table, op, schemas)
        for variant, op in reads_of(table):
            operations["GET", read_path(table.name, variant, op)] = _read(group, variant, op, schemas)
    return Described(
        name="tables",
        groups=groups,
        operations=operations,
        problems=PROBLEMS,
        error=TableErrorAnswer,
        renamed=RENAMED,
        schemas=components,
        nothing=frozenset((ANY_WRITE, ANY_READ)),
    )


def _write(group: str, table: TableDeclaration, op: str, schemas: TableSchemas) -> Operation:
    limited = table.rate_limit is not None and op.startswith("append")
    return Operation(
        group=group,
        summary=_WRITE_SUMMARIES[op],
        description=f"{_WRITE_WORDS[op]}\n\nAn API key needs the scope {WRITES[op]}.",
        body={JSON: schemas.body(op)},
        answers=shown(schemas.answer(op)),
        parameters=(_USER,),
        errors=(*_WRITE_ERRORS, *(("RATE_LIMITED",) if limited else ())),
    )


def _read(group: str, variant: str, op: str, schemas: TableSchemas) -> Operation:
    words = [_READ_WORDS[op], _FOR[variant]]
    if variant != PUB:
        words.append("An API key needs the scope read.")
    events = (Answer(200, "The events.", {EVENT_STREAM: EVENTS}),)
    return Operation(
        group=group,
        summary=_READ_SUMMARIES[op],
        description="\n\n".join(words),
        answers=events if op == "live" else shown(schemas.answer(op)),
        parameters=(*_PARAMETERS[op], _USER),
        errors=_READ_ERRORS,
    )

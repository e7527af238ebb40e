"""The OpenAPI descriptions of the tables that this server declares."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.protocols.tables.errors import PROBLEMS, RENAMED
from strandline.protocols.tables.listing import TYPES
from strandline.protocols.tables.paths import (
    ANY_READ,
    ANY_WRITE,
    PUB,
    SCHEMA,
    STREAMS,
    TABLES,
    WRITES,
    read_paths,
    write_path,
    writes_of,
)
from strandline.protocols.tables.schemas import TableSchemas
from strandline.protocols.tables.wire import COMPLETE, HAS_MORE, HEAD, LAST, TableErrorAnswer, TablesAnswer
from strandline.service.openapi import (
    EVENT_STREAM,
    EVENTS,
    JSON,
    TEXT,
    AnswerShape,
    Described,
    Header,
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
    "rm": "Delete a row",
    "rmBulk": "Delete several rows in one step",
    "purgeByParent": "Delete all rows of a parent",
    "restoreByParent": "Restore all deleted rows of a parent",
    "restore": "Restore a deleted row",
}
_WRITE_WORDS = {
    "append": "If a row of this parent already has the `idempotencyKey`, nothing is appended: the answer has the seq "
    "of that row and `created` is false. The key is valid as long as its row exists.",
    "appendBulk": f"Up to {MAX_BULK} rows; either all are appended, or none. Their seqs are consecutive. An item is a "
    "payload, with an optional `idempotencyKey` beside its fields.",
    "update": "For the author and the owner of the parent. With `expectedUpdatedAt`, the row is updated only if it was "
    "not changed since that time. Seq, parent and author do not change.",
    "rm": "For the author and the owner of the parent. With `hard`, the row cannot be restored. Deleting a row that "
    "does not exist is not an error.",
    "rmBulk": f"Up to {MAX_BULK} ids; either all rows are deleted, or none.",
    "purgeByParent": "For the owner of the parent. With `hard`, the rows cannot be restored.",
    "restoreByParent": "For the owner of the parent. Also restores rows that were deleted one by one.",
    "restore": "For the owner of the parent, and for the author if the author removed the row.",
}
_READ_SUMMARIES = {
    "list": "List rows, newest first",
    "listAfter": "List the rows after a seq, oldest first",
    "read": "Get one row",
    "search": "Search rows by text",
    "indexed": "Group all rows by a field",
    "counts": "Count rows by a field",
    "history": "Get the earlier versions of a row",
    "trash": "List deleted rows that can be restored",
    "feed": "List rows of all parents, newest first",
    "feed/live": "Follow the rows of all parents and their changes",
    "live": "Follow rows and their changes",
}
_LIVE = """Server-sent events, in the order of their times: `append`, `update` and `restore` with the row, `rm` with
`{id, seq, soft}`, `purge` with `{parent, soft}`, `restoreAll` with `{parent}`, and `ready` with `{cursor}` once all
existing events were sent. A change always comes after its row. To resume, send the id of the last event in `after` or
in the header `Last-Event-ID`; `after=now` skips existing rows. When the reader may no longer read the rows, the stream
ends with `end`, whose data is an error."""
_FEED_LIVE = """Server-sent events as in `live`, about the rows of all parents that the reader may see at that time, in
the order in which they were written. The `id` of an event is a number. `purge` and `restoreAll` have no `parent` if the
reader does not see all rows of the parent: read the feed again then."""
_READ_WORDS = {
    "list": "`continueCursor` is the `cursor` of the next page. A short page is not necessarily the last one.",
    "listAfter": "For polling: `Strandline-Last` is the `seq` of the next request.",
    "read": "Null if the row does not exist or the user may not see it.",
    "search": "The rows that contain all words, newest first.",
    "indexed": "Keyed by the value of the field, as text.",
    "counts": "Keyed by the value of the field, as text.",
    "history": "Oldest version first.",
    "trash": "The rows with the highest seq first, each with `deletedAt` and `deletedBy`.",
    "feed": "The rows that the reader may see under each parent. `continueCursor` is the `cursor` of the next page. "
    "To follow what happens after the first page, pass its `liveCursor` as `after` to `feed/live`.",
    "feed/live": _FEED_LIVE,
    "live": _LIVE,
}
_FOR = {
    "auth": "For users: the author of a row gets that row; the owner of the parent and moderators get all rows.",
    "pub": "Public; no API key is needed.",
}


def _query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required)


_PARENT = _query(
    "parent", "The parent of the rows.", {"type": "string", "minLength": 1, "maxLength": 256}, required=True
)
_ID = _query("id", "The id of the row.", required=True)
_LIMIT = _query("limit", "Maximum number of rows.", {"type": "integer", "minimum": 1})
_USER = Parameter(
    "Strandline-User",
    "header",
    "The user. If the server has API keys, only a key with the admin scope may name another user.",
    {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[ -~]*$"},
)
_PAGE = (
    _LIMIT,
    _query("cursor", "The `continueCursor` of the previous page."),
    _query(
        "paginationOpts",
        "Instead of `limit` and `cursor`: a JSON object with `numItems` and `cursor`.",
        {"type": "string", "example": '{"numItems":20,"cursor":null}'},
    ),
)
_FOLLOW = (
    _query("after", "The id of the last event that you got, or `now`."),
    _query("user", "Same as the header `Strandline-User`, for browsers, whose event sources cannot send headers."),
    _query("token", "An API key, for browsers, whose event sources cannot send headers."),
    Parameter("Last-Event-ID", "header", "Takes precedence over `after`.", {"type": "string", "pattern": "^[ -~]*$"}),
)
_PARAMETERS: dict[str, tuple[Parameter, ...]] = {
    "list": (
        _PARENT,
        *_PAGE,
        _query("where", "Conditions on rows, as a JSON object."),
    ),
    "listAfter": (
        _PARENT,
        _query("seq", "Only rows after this seq.", {"type": "integer", "minimum": 0, "default": 0}),
        _LIMIT,
    ),
    "read": (_ID,),
    "search": (_PARENT, _query("query", "The words to search for.", required=True), _LIMIT),
    "indexed": (_PARENT, _query("indexBy", "The field to group by.", required=True), _LIMIT),
    "counts": (_PARENT, _query("by", "The field to count by.", required=True)),
    "history": (_ID,),
    "trash": (_PARENT, *_PAGE),
    "live": (_PARENT, *_FOLLOW),
    "feed": _PAGE,
    "feed/live": _FOLLOW,
}
#: The names of the parameters in the query string of each read.
QUERY_NAMES = {
    op: tuple(each.name for each in parameters if each.place == "query") for op, parameters in _PARAMETERS.items()
}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_HEADERS = {
    "listAfter": (
        Header(HEAD, "The highest seq of a visible row.", _COUNT, True),
        Header(HAS_MORE, "Whether there are further rows.", _FLAG, True),
        Header(LAST, "The seq up to which all rows were returned.", _COUNT, True),
    ),
    "search": (Header(COMPLETE, "Whether all rows were examined before the time limit.", _FLAG, True),),
}
_WRITE_ERRORS = (
    "VALIDATION_FAILED",
    "NOT_AUTHENTICATED",
    "FORBIDDEN",
    "NOT_FOUND",
    "CONFLICT",
    "READ_ONLY",
    "DISK_FULL",
    "HOOK_FAILED",
)
_READ_ERRORS = ("VALIDATION_FAILED", "NOT_AUTHENTICATED", "FORBIDDEN", "NOT_FOUND", "CONFLICT")


_GROUP = "tables"
_LISTING = Operation(
    group=_GROUP,
    summary="List the declared tables",
    description="With the schemas of their payloads, their options and the paths of their operations. For every "
    "user, and for API keys with any scope.",
    answers=shown(TablesAnswer),
    parameters=(_USER,),
    errors=("VALIDATION_FAILED", "NOT_AUTHENTICATED", "FORBIDDEN"),
)
_TYPES = {
    ("GET", path): Operation(
        group=_GROUP,
        summary=f"Get the types of the tables in {language}",
        description="For each table: a row, its payload, and what you append. `strandline types` writes the same "
        "text. For every user, and for API keys with any scope, about the tables that the prefixes of the key allow.",
        answers=(AnswerShape(200, "The types.", {"text/plain": TEXT}),),
        errors=("NOT_AUTHENTICATED", "FORBIDDEN"),
    )
    for path, (language, _) in TYPES.items()
}


def describe(tables: Iterable[TableDeclaration]) -> Described:
    operations = {("GET", TABLES): _LISTING, **_TYPES}
    components: dict[str, Schema] = {}
    groups = {_GROUP: "The declared tables."}
    for table in tables:
        schemas = TableSchemas(table)
        components |= schemas.components
        group = f"table {table.name}"
        groups[group] = f"The table {table.name}: rows by {table.parent_label}."
        for op in writes_of(table):
            operations["POST", write_path(table.name, op)] = _write(group, table, op, schemas)
        for path, variant, op in read_paths(table):
            operations["GET", path] = _read(group, variant, op, schemas)
        operations["GET", write_path(table.name, SCHEMA)] = _schema(group, table, schemas)
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


def _schema(group: str, table: TableDeclaration, schemas: TableSchemas) -> Operation:
    access = _FOR[PUB] if table.public else "An API key needs the scope read."
    return Operation(
        group=group,
        summary="Get the versions of the schema",
        description=f"Oldest first, each with the lens that turns rows of the version before into its own.\n\n{access}",
        answers=shown(schemas.answer(SCHEMA)),
        parameters=(_USER,),
        errors=("NOT_AUTHENTICATED", "FORBIDDEN"),
    )


def _read(group: str, variant: str, op: str, schemas: TableSchemas) -> Operation:
    words = [_READ_WORDS[op], _FOR[variant]]
    if variant != PUB:
        words.append("An API key needs the scope read.")
    if op in STREAMS:
        answer = AnswerShape(200, "The events.", {EVENT_STREAM: EVENTS})
    else:
        answer = AnswerShape(200, "The answer.", {JSON: schemas.answer(op)}, _HEADERS.get(op, ()))
    return Operation(
        group=group,
        summary=_READ_SUMMARIES[op],
        description="\n\n".join(words),
        answers=(answer,),
        parameters=(*_PARAMETERS[op], _USER),
        errors=_READ_ERRORS,
    )

"""OpenAPI descriptions of the console's routes for tables and collections."""

from __future__ import annotations

from strandline.engine.record import MAX_SEQ
from strandline.protocols.console import documents, logs, routes, tables
from strandline.protocols.console.collection_answers import (
    ConsoleCollectionAnswer,
    ConsoleCollectionsAnswer,
    ConsoleDocumentAnswer,
    DocumentsAnswer,
    ElementsAnswer,
)
from strandline.protocols.console.table_answers import (
    ConsoleTableAnswer,
    ConsoleTablesAnswer,
    ParentAnswer,
    ParentsAnswer,
    RowAnswer,
    RowsAnswer,
)
from strandline.query.content_language import MAX_LENGTH
from strandline.service.openapi import TEXT, Operation, Parameter, Schema, shown
from strandline.tables.columns import MAX_SORTED

_GROUP = "console"
_SEQ: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}


def _query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required=required)


def _limit(most: int, default: int) -> Parameter:
    schema = {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    return _query("limit", "Maximum number of results.", schema)


_TABLE = Parameter("table", "path", "The name of the table.", TEXT, required=True)
_PARENT = _query("parent", "The parent whose rows are shown.", required=True)
_CURSOR = _query("cursor", "The `next` of the page before.", _SEQ)
_ORDER = _query("order", "The direction.", {"enum": ["asc", "desc"]})
_SEARCH = _query("search", "Only parents that contain this text, ignoring case.")
_PATH = Parameter(
    "name",
    "path",
    "The path of the document, which is the name of its log. Slashes in it need not be escaped.",
    {"type": "string", "minLength": 1},
    required=True,
)
_COLLECTION = (
    _query("name", "The name of the collection.", required=True),
    _query("namespace", "Its namespace; empty for collections without one."),
)

_ROWS = f"""Returns rows of a parent, newest first, and everything that the prefixes of the API key allow: the access
rules of tables do not apply. `sort` is `seq`, `userId` or a field of the payload. `where` is a filter as in
`{routes.MATCHES}`, applied to the row as clients see it, with members such as `.userId` and `.createdAt`.

A page may have few or no rows, because a request examines a bounded number of them. To continue, send `next` as
`cursor`, until it is null."""

_DOCUMENTS = """Returns the documents of a collection, in the order of their paths. A page may be short or empty,
because a request looks at a bounded number of names. To continue, send `next` as `after`, until it is null."""

_ELEMENTS = """Returns the elements of an append-only document, or the stored versions of a regular one, newest first.
`signature` says whether the stored signature of the author fits the data and the path; whether the author was allowed
to write is checked when an element is pushed. To continue, send `next` as `before`, until it is null."""

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", routes.TABLES): Operation(
        group=_GROUP,
        summary="List tables with their sizes",
        description="Returns the declared tables of which the API key may access some parents. The sums are those of "
        "the parents that it may access.",
        answers=shown(ConsoleTablesAnswer),
    ),
    ("GET", routes.TABLE): Operation(
        group=_GROUP,
        summary="Get a table",
        answers=shown(ConsoleTableAnswer),
        parameters=(_TABLE,),
        errors=("not_found",),
    ),
    ("GET", routes.PARENTS): Operation(
        group=_GROUP,
        summary="List the parents of a table in any order",
        answers=shown(ParentsAnswer),
        parameters=(
            _TABLE,
            _SEARCH,
            _query(
                "sort",
                "The order: by name, by rows or size, or by the time of the last row.",
                {"enum": list(tables.SORTS)},
            ),
            _ORDER,
            _query("offset", "Number of results to skip.", {**_SEQ, "default": 0}),
            _limit(logs.MAX_LIMIT, logs.DEFAULT_LIMIT),
        ),
        errors=("invalid_request", "not_found"),
    ),
    ("GET", routes.FEED): Operation(
        group=_GROUP,
        summary="Read the rows of all parents",
        description="Returns rows newest first. The table must be declared with `feed`.",
        answers=shown(RowsAnswer),
        parameters=(_TABLE, _CURSOR, _limit(tables.MAX_ROWS, logs.DEFAULT_LIMIT)),
        errors=("invalid_request", "not_found"),
    ),
    ("GET", routes.PARENT): Operation(
        group=_GROUP,
        summary="Get a parent of a table",
        answers=shown(ParentAnswer),
        parameters=(_TABLE, _PARENT),
        errors=("invalid_request", "not_found", "log_not_found"),
    ),
    ("GET", routes.ROWS): Operation(
        group=_GROUP,
        summary="Read the rows of a parent",
        description=_ROWS,
        answers=shown(RowsAnswer),
        parameters=(
            _TABLE,
            _PARENT,
            _query("where", "Only rows that match this filter.", {"type": "string", "maxLength": MAX_LENGTH}),
            _query("sort", f"The order. A parent with at most {MAX_SORTED:,} rows can be sorted by a field."),
            _ORDER,
            _CURSOR,
            _limit(tables.MAX_ROWS, logs.DEFAULT_LIMIT),
        ),
        errors=("invalid_request", "not_found", "log_not_found"),
    ),
    ("GET", routes.TRASH): Operation(
        group=_GROUP,
        summary="Read the removed rows of a parent",
        description="Returns the rows that can be restored, with the time and the user of their removal.",
        answers=shown(RowsAnswer),
        parameters=(_TABLE, _PARENT, _CURSOR, _limit(tables.MAX_ROWS, logs.DEFAULT_LIMIT)),
        errors=("invalid_request", "not_found", "log_not_found"),
    ),
    ("GET", routes.ROW): Operation(
        group=_GROUP,
        summary="Get a row and its edits",
        answers=shown(RowAnswer),
        parameters=(_TABLE, _query("id", "The id of the row: `parent:seq`.", required=True)),
        errors=("invalid_request", "not_found", "log_not_found"),
    ),
    ("GET", routes.COLLECTIONS): Operation(
        group=_GROUP,
        summary="List collections with their sizes",
        description="Returns the configured collections of which the API key may access some documents.",
        answers=shown(ConsoleCollectionsAnswer),
    ),
    ("GET", routes.COLLECTION): Operation(
        group=_GROUP,
        summary="Get a collection",
        answers=shown(ConsoleCollectionAnswer),
        parameters=_COLLECTION,
        errors=("not_found",),
    ),
    ("GET", routes.DOCUMENTS): Operation(
        group=_GROUP,
        summary="List the documents of a collection",
        description=_DOCUMENTS,
        answers=shown(DocumentsAnswer),
        parameters=(
            *_COLLECTION,
            _query("prefix", "Only documents whose path starts with this."),
            _query("after", "Only documents after this path."),
            _limit(logs.MAX_LIMIT, logs.DEFAULT_LIMIT),
        ),
        errors=("invalid_request", "not_found"),
    ),
    ("GET", routes.DOCUMENT): Operation(
        group=_GROUP,
        summary="Get a document of a collection",
        answers=shown(ConsoleDocumentAnswer),
        parameters=(_PATH,),
        errors=("invalid_request", "not_found", "log_not_found"),
    ),
    ("GET", routes.ELEMENTS): Operation(
        group=_GROUP,
        summary="Read the elements or versions of a document",
        description=_ELEMENTS,
        answers=shown(ElementsAnswer),
        parameters=(
            _PATH,
            _query("before", "Only elements before this sequence number.", _SEQ),
            _limit(documents.MAX_LIMIT, documents.DEFAULT_LIMIT),
        ),
        errors=("invalid_request", "not_found", "log_not_found"),
    ),
}

_SUMS = {"bytes": "Bytes of data and meta.", "last_ts": "The time of the last write; null if there never was one."}

DESCRIPTIONS = {
    "HookRow": {"after_commit": "Whether the hook runs after the write, when it is durable."},
    "TableRow": {
        **_SUMS,
        "parent": "The label of the parents, or the table whose rows they are.",
        "version": "The version of the schema.",
        "parents": "Number of parents that have or had rows.",
        "rows": "Number of rows that are not removed.",
        "public": "Whether every caller may read; or the field of the row of a parent that says so.",
        "search": "The searchable fields.",
    },
    "ParentRow": {**_SUMS, "log": "The log of the rows."},
    "ParentAnswer": {
        "changes_log": "The log of edits and removals; null if there were none.",
        "owner": "The owner of the parent; null if it has none.",
        "found": "Whether the parent exists.",
        "revision": "Changes whenever rows are added, changed or removed.",
    },
    "CollectionRow": {
        **_SUMS,
        "path": "The path of its documents, with placeholders in braces.",
        "kind": "`events` if elements are not stored and only make queue events.",
        "records": "Number of elements and stored versions.",
    },
    "ConsoleCollectionAnswer": {"events": "The topic of the queue events; null without them."},
    "DocumentRow": {**_SUMS, "records": "Number of elements, or of stored versions."},
    "ConsoleDocumentAnswer": {
        "collection": "The collection that created the document.",
        "hash": "The hash that clients get, which identifies the state of the document.",
        "checkpoint": "The time of the last element, after which a client continues; null for a regular document.",
        "expired": "Whether `ttl_ms` has passed, so that clients see an empty document.",
        "head": "The sequence number of the last element or version.",
        "served_by": "The collections to which a pull of this path goes.",
    },
    "ElementRow": {
        "author": "The public key of the author, if the element is signed.",
        "encrypted_bytes": "The size of the ciphertext, if the client encrypted the element.",
        "epoch": "The number of the key in the keyring.",
    },
}

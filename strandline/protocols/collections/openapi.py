"""The paths of the protocol, and their description in OpenAPI: at the root, and again for every namespace."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.collections.collections import LIST_LIMIT, MAX_LIST_LIMIT
from strandline.collections.pull import DEFAULT_PAGE
from strandline.protocols.collections.errors import PROBLEMS, RENAMED
from strandline.protocols.collections.wire import (
    DESCRIPTIONS,
    BatchAnswer,
    BundleAnswer,
    CollectionErrorAnswer,
    ConfigAnswer,
    DocumentAnswer,
    ListAnswer,
    PullAnswer,
    PushAnswer,
    PushRequest,
)
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
    preflight,
    shown,
)

PUSH = "/push/{path}"
PULL = "/pull/{path}"
LIVE = "/live/{path}"
LIST = "/list/{path}"
BATCH = "/batch/pull"
CONFIG = "/config"


def mounts_of(namespace: str) -> tuple[str, ...]:
    """The prefixes of the paths of a namespace. Clients that know namespaces put a version before them. Collections
    without a namespace are at the root."""
    return (f"/v1/{namespace}", f"/{namespace}") if namespace else ("",)


_GROUP = "collections"

_PATH = Parameter(
    "path",
    "path",
    "The path of a document, as configured for the collection. Slashes need not be escaped.",
    {"type": "string", "minLength": 1},
    required=True,
)
_SOME_TEXT: Schema = {"type": "string", "minLength": 1}
_NUMBER: Schema = {"type": "string", "pattern": "^(0|[1-9][0-9]*)$"}
_HASH: Schema = {"type": "string", "pattern": "^([0-9a-f]{64})?$"}
_POSITION: Schema = {"type": "string", "pattern": "^(0|[1-9][0-9]*|[0-9a-f]{64})$"}
_ETAG = Header("ETag", "The hash of the document, if it exists.", TEXT)
_CACHE = Header("Cache-Control", "How long the answer is valid.", TEXT)

_PUSH = """The body has the element under `data`. The collection decides who may append and whether the author must sign
the element; a signed request has the headers of the protocol. An acknowledged element is durable. The event of the
append, if the collection has one, is written in the same step. A push to a regular document replaces it if `baseHash`
is the hash of its current version."""
_PULL = f"""A pull needs a bound: `checkpoint` selects the elements later than a time, `limit` or `last` the newest ones
(with a checkpoint: of those after it), `full` all. A strict collection that does not allow full pulls returns the
oldest elements after a checkpoint, up to its limit or {DEFAULT_PAGE}, and `more`. A regular document is always pulled
as a whole, without a bound."""
_LIVE = """Server-sent events. For an append-only document, the stream has an `element` for every element, as a pull
shows it, with its time as the id: new elements, or with `checkpoint` first the existing ones after a time. A regular
document has a `document` event for the current version, as a pull shows it, and for every version that replaces
it; `timestamp` is the time of the push, and the id is the hash. The document need not exist yet. A client that
reconnects sends the last id. The request is authorized like a pull; the signature covers the path and the query. The
stream ends with `end`, whose data is an error, when the certificate expires or is revoked, or if the client does not
keep up."""
_BATCH = """`params` and `appendParams` are JSON objects of arrays, by the names of collections. Each array has one
object per document: the parameters of its path in `params`, its bounds (`since`, `last`, `limit`) in `appendParams`. If
a document fails, its entry in the answer has the error."""


def _query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required)


_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", PUSH): Operation(
        group=_GROUP,
        summary="Append an element to a document, or replace a regular document",
        description=_PUSH,
        body={JSON: PushRequest},
        needs_body=True,
        answers=shown(PushAnswer),
        parameters=(_PATH,),
        errors=("unauthorized", "forbidden", "not_found", "conflict", "read_only", "no_room"),
    ),
    ("GET", PULL): Operation(
        group=_GROUP,
        summary="Pull elements of a document, or a regular document",
        description=_PULL,
        answers=(
            AnswerShape(
                200,
                "Elements, a regular document, or the documents of a bundle.",
                {JSON: (PullAnswer, DocumentAnswer, BundleAnswer)},
                (_ETAG, _CACHE),
            ),
            AnswerShape(304, "The document still has the ETag of `If-None-Match`."),
        ),
        parameters=(
            _PATH,
            _query("checkpoint", "Only elements after this time.", _NUMBER),
            _query("limit", "The number of newest elements.", _NUMBER),
            _query("last", "Same as `limit`, which takes precedence.", _NUMBER),
            _query("full", "All elements.", {"type": "string", "enum": ["true", "1"]}),
            _query(
                "withKeyring",
                "Regular documents: add the document at the path followed by `/_keyring`.",
                {"type": "string", "enum": ["true", "1"]},
            ),
            Parameter("If-None-Match", "header", "The ETag of a known version.", TEXT),
        ),
        errors=("bad_request", "unauthorized", "forbidden", "not_found", "conflict"),
    ),
    ("GET", LIVE): Operation(
        group=_GROUP,
        summary="Follow a document",
        description=_LIVE,
        answers=(AnswerShape(200, "The events.", {EVENT_STREAM: EVENTS}),),
        parameters=(
            _PATH,
            _query(
                "checkpoint",
                "Append-only documents: first send the existing elements after this time. Default: none.",
                _NUMBER,
            ),
            _query(
                "baseHash",
                "Regular documents: the hash of the version that the client has. It is not sent again.",
                _HASH,
            ),
            Parameter(
                "Last-Event-ID", "header", "The id of the last event; replaces `checkpoint` and `baseHash`.", _POSITION
            ),
        ),
        errors=("bad_request", "unauthorized", "forbidden", "not_found", "conflict"),
    ),
    ("GET", LIST): Operation(
        group=_GROUP,
        summary="List documents",
        description="The documents of a listable collection, by the path of a document without its last segment.",
        answers=shown(ListAnswer),
        parameters=(
            _PATH,
            _query(
                "limit",
                f"Maximum number of documents, at most {MAX_LIST_LIMIT}.",
                {"type": "integer", "minimum": 1, "default": LIST_LIMIT},
            ),
            _query("after", "Only documents after this one."),
        ),
        errors=("bad_request", "unauthorized", "forbidden", "not_found"),
    ),
    ("GET", BATCH): Operation(
        group=_GROUP,
        summary="Pull elements of several documents",
        description=_BATCH,
        answers=shown(BatchAnswer),
        parameters=(
            _query("collections", "Names of collections, separated by commas.", _SOME_TEXT, required=True),
            _query("params", "The documents."),
            _query("appendParams", "The bounds of each document."),
        ),
        errors=("bad_request",),
    ),
}  # fmt: skip

_CONFIG = Operation(
    group=_GROUP,
    summary="List collections",
    description="If the endpoint is enabled: all collections, or those that the caller has a role for.",
    answers=shown(ConfigAnswer),
    errors=("not_found",),
)


def describe(mounts: Iterable[str]) -> Described:
    """``mounts`` are the prefixes of paths."""
    operations = {
        (method, mount + path): operation for mount in mounts for (method, path), operation in _OPERATIONS.items()
    }
    operations["GET", CONFIG] = _CONFIG
    operations |= {("OPTIONS", path): _preflight(operation) for (_, path), operation in operations.items()}
    return Described(
        name="collections",
        groups={_GROUP: "Documents of signed elements: the Starfish protocol."},
        operations=operations,
        problems=PROBLEMS,
        error=CollectionErrorAnswer,
        coded=False,
        renamed=RENAMED,
        descriptions=DESCRIPTIONS,
    )


def _preflight(operation: Operation) -> Operation:
    return preflight(_GROUP, tuple(parameter for parameter in operation.parameters if parameter.place == "path"))

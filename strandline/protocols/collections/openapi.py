"""The routes of collections, described for those who call them: at the root, and those of every namespace."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.protocols.collections.list import DEFAULT_LIMIT, MAX_LIMIT
from strandline.protocols.collections.paths import BATCH, CONFIG, LIST, PULL, PUSH
from strandline.protocols.collections.pull_request import DEFAULT_PAGE
from strandline.protocols.collections.wire import (
    DESCRIPTIONS,
    BatchAnswer,
    CollectionErrorAnswer,
    ConfigAnswer,
    ListAnswer,
    PullAnswer,
    PushAnswer,
    PushRequest,
)
from strandline.protocols.openapi import (
    JSON,
    TEXT,
    Answer,
    Described,
    Header,
    Operation,
    Parameter,
    Problem,
    Schema,
    shown,
)

_GROUP = "collections"
_CODES = {
    "throttled": "rate_limited",
    "invalid_request": "bad_request",
    "not_ready": "unavailable",
    "shutting_down": "unavailable",
}

PROBLEMS: dict[str, Problem] = {
    "bad_request": Problem(400, "Something about the request is wrong; `error` says what."),
    "unauthorized": Problem(401, "The certificate or the signature of the request is not valid."),
    "forbidden": Problem(403, "Whoever asks may not do this, or the proof of the author is not valid."),
    "not_found": Problem(404, "No collection has documents at this path."),
    "conflict": Problem(
        409,
        "`non_monotonic_timestamp`: the time is not later than that of the last element; `append_limit_exceeded`: "
        "there are as many elements as there may be; `not_a_document`: another protocol has a log of this name.",
    ),
    "payload_too_large": Problem(413, "The body is larger than the collection takes."),
    "unsupported_media_type": Problem(
        415, "The body is not said to be JSON, or is compressed in another way than gzip."
    ),
    "rate_limited": Problem(429, "One request too many.", retry=True),
    "damaged_data": Problem(500, "`damaged_data`: a file with the elements is damaged or missing; `file` says which."),
    "internal": Problem(500, "Something is wrong with the server: its log has the details."),
    "not_supported": Problem(501, "`regular_documents_not_supported`: the collection is not append-only."),
    "unavailable": Problem(
        503, "The server starts or stops, or the topic that an append is told in does not take it. Nothing was stored."
    ),
    "read_only": Problem(
        503,
        "`read_only`: the journal failed, and the server takes no writes until it is restarted. Pulling works. Of an "
        "append that was under way when it failed, the outcome is unknown.",
        retry=True,
    ),
    "no_room": Problem(507, "There is no room. Nothing was stored.", retry=False),
}

_PATH = Parameter(
    "path",
    "path",
    "The path of a document, as the collection says: its slashes need not be escaped.",
    {"type": "string", "minLength": 1},
    required=True,
)
_SOME_TEXT: Schema = {"type": "string", "minLength": 1}
_NUMBER: Schema = {"type": "string", "pattern": "^(0|[1-9][0-9]*)$"}
_ETAG = Header("ETag", "The hash of the document, if it has elements.", TEXT)
_CACHE = Header("Cache-Control", "For how long the answer may be kept.", TEXT)

_PUSH = """The body has the element under `data`. Whether its author has to sign it, and who may append, is said by the
collection; a signed request has the headers of the protocol. What was acknowledged is durable. The event of the
append, if the collection has one, is written in the same step."""
_PULL = f"""One bound is needed: `checkpoint` for the elements behind a time, `limit` or `last` for the newest so many
(both with a checkpoint: of those behind it), `full` for all. A strict collection that does not allow everything to be
pulled at once gives the oldest behind a checkpoint, up to its limit or {DEFAULT_PAGE}, and `more`."""
_BATCH = """`params` and `appendParams` are JSON: an object of arrays by the names of collections, one object with the
parameters of the path, and one with bounds (`since`, `last`, `limit`), per document. What is wrong with one document
is told in its place."""


def _query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required)


_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", PUSH): Operation(
        group=_GROUP,
        summary="Append an element to a document",
        description=_PUSH,
        body={JSON: PushRequest},
        needs_body=True,
        answers=shown(PushAnswer),
        parameters=(_PATH,),
        errors=("unauthorized", "forbidden", "not_found", "conflict", "not_supported", "read_only", "no_room"),
    ),
    ("GET", PULL): Operation(
        group=_GROUP,
        summary="Pull elements of a document",
        description=_PULL,
        answers=(
            Answer(200, "The elements.", {JSON: PullAnswer}, (_ETAG, _CACHE)),
            Answer(304, "The document is the one of `If-None-Match`."),
        ),
        parameters=(
            _PATH,
            _query("checkpoint", "Only elements of a later time.", _NUMBER),
            _query("limit", "Only the newest so many.", _NUMBER),
            _query("last", "The same; not looked at beside a limit.", _NUMBER),
            _query("full", "All elements.", {"type": "string", "enum": ["true", "1"]}),
            Parameter("If-None-Match", "header", "The ETag of a version that is known.", TEXT),
        ),
        errors=("bad_request", "unauthorized", "forbidden", "not_found", "conflict", "not_supported"),
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
                f"How many at the most; never more than {MAX_LIMIT}.",
                {"type": "integer", "minimum": 1, "default": DEFAULT_LIMIT},
            ),
            _query("after", "Only those behind this one."),
        ),
        errors=("bad_request", "unauthorized", "forbidden", "not_found", "not_supported"),
    ),
    ("GET", BATCH): Operation(
        group=_GROUP,
        summary="Pull elements of several documents",
        description=_BATCH,
        answers=shown(BatchAnswer),
        parameters=(
            _query("collections", "Names of collections, separated by commas.", _SOME_TEXT, required=True),
            _query("params", "Which documents."),
            _query("appendParams", "Which elements."),
        ),
        errors=("bad_request",),
    ),
}  # fmt: skip

_CONFIG = Operation(
    group=_GROUP,
    summary="Which collections there are",
    description="Where it is turned on: all of them, or those that whoever asks has a role for.",
    answers=shown(ConfigAnswer),
    errors=("not_found",),
)


def describe(mounts: Iterable[str]) -> Described:
    """``mounts`` are what paths begin with."""
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
        codes=_CODES,
        descriptions=DESCRIPTIONS,
    )


def _preflight(operation: Operation) -> Operation:
    headers = tuple(
        Header(f"Access-Control-{name}", words, TEXT)
        for name, words in (
            ("Allow-Methods", "The methods that there are."),
            ("Allow-Headers", "The headers that may be sent."),
            ("Max-Age", "For how many seconds this holds."),
        )
    )
    return Operation(
        group=_GROUP,
        summary="Ask what may be sent",
        answers=(Answer(204, "What may be sent, by pages that may.", headers=headers),),
        parameters=tuple(parameter for parameter in operation.parameters if parameter.place == "path"),
    )

"""The routes of this face, described for those who call them."""

from __future__ import annotations

from typing import Any

from strandline.engine.record import MAX_SEQ
from strandline.history.pieces import BATCH_ROWS
from strandline.protocols.arrow import wire
from strandline.protocols.arrow.decoder import MAX_ROWS
from strandline.protocols.arrow.encoder import COMPRESSIONS, MEDIA_TYPE
from strandline.protocols.arrow.errors import PROBLEMS
from strandline.protocols.arrow.logs import DEFAULT_LOGS, MAX_LOGS
from strandline.protocols.arrow.progress import AFTER, BEFORE, MAX_WRITER
from strandline.protocols.arrow.read import MAX_BATCH_ROWS
from strandline.protocols.arrow.routes import LOG, LOGS, PROGRESS, RECORDS
from strandline.service.openapi import TEXT, Answer, Described, Header, Operation, Parameter, Schema, shown
from strandline.service.problems import ErrorAnswer

_GROUP = "arrow"
_BINARY: Schema = {"type": "string", "format": "binary"}
_SEQ: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}
_TIME: Schema = {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]}
_JSON_OBJECT = "A JSON object; what is not ASCII is escaped."


def _query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required)


def _whole(low: int, high: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "default": default}


def _flag(name: str, description: str) -> Parameter:
    return _query(name, description, {"type": "boolean", "default": False})


_NAME = Parameter(
    "name",
    "path",
    "The log's name, which may contain slashes: they need not be escaped.",
    {"type": "string", "minLength": 1},
    required=True,
)
_EPOCH = _query("epoch", "Which log of this name is meant: if it is another one by now, 409.", _SEQ)
_WRITER_SCHEMA: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_WRITER}

_RECORDS = """An Arrow IPC stream of the visible records, in order, with the columns `log` (string), `epoch` and `seq`
(int64), `ts` (timestamp[us, UTC]), `key` and `node` (string), `meta` and `data` (binary). It ends with the record
`through`, by default the last one there was when the request came; it does not wait for more. What was deleted or lost
is simply not there. If the connection ends before the stream does, ask again from behind the last record on.

A batch has up to `batch_rows` records, and fewer if they are large."""

_APPEND = f"""The body is an Arrow IPC stream with a column `data` (strings or binary, no nulls) and, if need be,
`key`, `node` (strings) and `meta` (JSON), of up to {MAX_ROWS} rows. Each row becomes a record; all of them are
appended, or none is. A log that holds JSON takes JSON only.

With `writer` and the header `{AFTER}` the log notes how far the writer has come, in one step with the append. The
header `{BEFORE}` says what its progress was before, `absent` (or nothing) if there was none. If it is not that,
nothing is appended and 409 says what it is: so a writer that repeats itself, or that meets its double, appends nothing
twice. Without rows only the progress is noted."""

_SHOWN = (
    Header("Strandline-Epoch", "The epoch of the log.", {"type": "integer"}, required=True),
    Header("Strandline-Earliest", "The first seq that is there.", {"type": "integer"}, required=True),
    Header("Strandline-Through", "The seq that the stream goes up to.", {"type": "integer"}, required=True),
)

_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", LOGS): Operation(
        group=_GROUP,
        summary="List logs",
        description="In the order of their names, those that the key may read. `next` is the `after` of the next page.",
        answers=shown(wire.LogsAnswer),
        parameters=(
            _query("prefix", "Only names that begin like this."),
            _query("after", "Only names behind this one."),
            _query("limit", "How many at the most.", _whole(1, MAX_LOGS, DEFAULT_LOGS)),
            _flag("internal", "Also the server's own logs, and what is kept only for its forks, as far as one may."),
        ),
        errors=("invalid_request",),
    ),
    ("GET", LOG): Operation(
        group=_GROUP,
        summary="Look at a log",
        description="With the seqs that readers see, as inclusive ranges; some in them may never have held anything.",
        answers=shown(wire.OneLogAnswer),
        parameters=(
            _NAME,
            _EPOCH,
            _query("writer", "Also tell how far this writer has come.", _WRITER_SCHEMA),
        ),
        errors=("invalid_request", "log_not_found", "epoch_changed"),
    ),
    ("GET", RECORDS): Operation(
        group=_GROUP,
        summary="Read records as Arrow",
        description=_RECORDS,
        answers=(Answer(200, "The records.", {MEDIA_TYPE: _BINARY}, _SHOWN),),
        parameters=(
            _NAME,
            _query("after", "Only records behind this seq.", {**_SEQ, "default": 0}),
            _query("through", "Only records up to this seq.", _SEQ),
            _query("since", "Only records of this time or later: milliseconds since 1970, or by RFC 3339.", _TIME),
            _query("until", "Only records of before this time.", _TIME),
            _query("key", "Only records with this key."),
            _EPOCH,
            _query("batch_rows", "Records of one batch at the most.", _whole(1, MAX_BATCH_ROWS, BATCH_ROWS)),
            _query("compression", "How buffers are compressed; not, unless asked for.", {"enum": list(COMPRESSIONS)}),
        ),
        errors=("invalid_request", "log_not_found", "epoch_changed"),
    ),
    ("POST", RECORDS): Operation(
        group=_GROUP,
        summary="Append records as Arrow",
        description=_APPEND,
        body={MEDIA_TYPE: _BINARY},
        needs_body=True,
        answers=shown(wire.AppendAnswer, created="The log was made for it."),
        parameters=(
            _NAME,
            _flag("create", "Make the log, as a topic, if it is not there."),
            _query("writer", "Who it is whose progress is noted.", _WRITER_SCHEMA),
            _query("ts", "The time that the records are of, if it is not now. Not earlier than the last one's.", _TIME),
            Parameter(AFTER, "header", f"How far the writer has come with this. {_JSON_OBJECT}", TEXT),
            Parameter(BEFORE, "header", f"How far it had come before. {_JSON_OBJECT} Or `absent`.", TEXT),
        ),
        errors=(
            "not_json", "record_too_large", "log_not_found", "progress_conflict", "not_writable", "log_full",
            "read_only", "disk_full",
        ),
    ),
    ("DELETE", PROGRESS): Operation(
        group=_GROUP,
        summary="Forget how far a writer has come",
        answers=shown(wire.ForgottenAnswer),
        parameters=(_NAME, _query("writer", "Whose progress is forgotten.", _WRITER_SCHEMA, required=True)),
        errors=("invalid_request", "log_not_found", "read_only", "disk_full"),
    ),
}  # fmt: skip

_LOG_FIELDS = {
    "epoch": "Which log of this name it is: every log ever made has another one, and a higher.",
    "head": "The highest seq that readers can see; 0 when nothing was ever written.",
    "earliest": "The first seq that is there.",
    "floor": "Everything below was lost to a cap or to time.",
    "last_ts": "The time of the last record.",
    "media_type": "What the records are.",
    "ephemeral": "Whether the records are in memory only, and gone when the server ends.",
    "registry": "The schema registry, if the log has one.",
    "base": "If the log is a fork: of which epoch the log is that it begins with, and up to which seq.",
    "records": "How many records of its own there are; without those that a fork shares.",
    "gaps": "Seqs of its own that hold nothing although nobody removed them: the first and the last of each range.",
}

ARROW = Described(
    name="arrow",
    groups={_GROUP: "Records in bulk, as Arrow: for Spark, DuckDB, Polars, pandas."},
    operations=_OPERATIONS,
    problems=PROBLEMS,
    error=ErrorAnswer,
    descriptions={
        "LogAnswer": _LOG_FIELDS,
        "OneLogAnswer": {
            **_LOG_FIELDS,
            "directory": "Which data directory the log is in.",
            "standing": "The seqs that readers see: the first and the last of each range.",
            "progress": "How far the writer has come; null if it has noted nothing.",
        },
        "LogsAnswer": {
            "directory": "Which data directory the logs are in.",
            "next": "The name to ask for more behind; null if these are all.",
        },
        "AppendAnswer": {
            "first": "The seq of the first record; the next one there will be if nothing was appended.",
            "ts": "The time of the records.",
            "progress": "How far the writer has come, if it said so.",
        },
    },
)

"""The OpenAPI descriptions of the Arrow protocol."""

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
from strandline.protocols.arrow.routes import LOG, LOGS, PROGRESS, RECORDS, STAGED
from strandline.protocols.arrow.staged import SELECTION
from strandline.service.openapi import JSON, TEXT, AnswerShape, Described, Header, Operation, Parameter, Schema, shown
from strandline.service.problems import ErrorAnswer

_GROUP = "arrow"
_BINARY: Schema = {"type": "string", "format": "binary"}
_SEQ: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}
_TIME: Schema = {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]}
_JSON_OBJECT = "A JSON object in ASCII; escape all other characters."


def _query(name: str, description: str, schema: Schema = TEXT, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", description, schema, required)


def _whole(low: int, high: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "default": default}


def _flag(name: str, description: str) -> Parameter:
    return _query(name, description, {"type": "boolean", "default": False})


_NAME = Parameter(
    "name",
    "path",
    "The name of the log. Slashes in it need not be escaped.",
    {"type": "string", "minLength": 1},
    required=True,
)
_EPOCH = _query("epoch", "The expected epoch of the log. If the log has another epoch, the answer is 409.", _SEQ)
_WRITER_SCHEMA: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_WRITER}

_RECORDS = """An Arrow IPC stream of the visible records, in order, with the columns `log` (string), `epoch` and `seq`
(int64), `ts` (timestamp[us, UTC]), `key` and `node` (string), `meta` and `data` (binary). The stream ends with the
record `through`, by default the last record when the request arrived; it does not wait for new records. Deleted and
lost records are left out. If the connection ends before the stream does, repeat the request with `after` set to the
seq of the last record you got.

A batch has at most `batch_rows` records, and fewer if they are large."""

_APPEND = f"""The body is an Arrow IPC stream with a column `data` (strings or binary, no nulls) and, optionally,
`key`, `node` (strings) and `meta` (JSON), with at most {MAX_ROWS} rows. Each row becomes a record. Either all records
are appended, or none. If the log holds JSON, `data` must be JSON.

To write exactly once, send `writer` and the header `{AFTER}`: the log stores the progress of the writer in one step
with the append. The header `{BEFORE}` states the progress that you expect the writer to have; send `absent`, or leave
it out, if the writer has no progress yet. If the expectation is wrong, nothing is appended and the answer is 409 with
the current progress. So neither a repeated request nor a second instance of a writer appends records twice. A body
without rows only stores the progress.

Instead of rows, the body can select staged rows, as `{SELECTION}`:
`{{"parts": ["id", …], "rows": [[0, 0, 100], …]}}` appends the rows 0 to 99 of the first part, and so on, in this
order."""

_STAGE = """Rows for a later append. The body and the checks are those of an append, but no log changes. When all parts
of a batch are staged, one request appends them in one step, in any order (`POST /arrow/records/{name}`). Remove the
staged rows afterwards; what remains expires after a day."""

_SELECTION: Schema = {
    "type": "object",
    "properties": {
        "parts": {"type": "array", "items": {"type": "string"}, "description": "Ids of staged rows."},
        "rows": {
            "type": "array",
            "description": "Runs of rows: the index of the part, the first row, and the number of rows.",
            "items": {"type": "array", "items": _SEQ, "minItems": 3, "maxItems": 3},
        },
    },
    "required": ["parts", "rows"],
    "additionalProperties": False,
}

_SHOWN = (
    Header("Strandline-Epoch", "The epoch of the log.", {"type": "integer"}, required=True),
    Header("Strandline-Earliest", "The first seq that is available.", {"type": "integer"}, required=True),
    Header("Strandline-Through", "The last seq of the stream.", {"type": "integer"}, required=True),
)

_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", LOGS): Operation(
        group=_GROUP,
        summary="List logs",
        description="The logs that the API key may read, by name. `next` is the `after` of the next page.",
        answers=shown(wire.LogsAnswer),
        parameters=(
            _query("prefix", "Only logs whose name starts with this prefix."),
            _query("after", "Only logs whose name sorts after this one."),
            _query("limit", "Maximum number of logs.", _whole(1, MAX_LOGS, DEFAULT_LOGS)),
            _flag("internal", "Include internal logs (admin scope only) and dropped logs kept for forks."),
        ),
        errors=("invalid_request",),
    ),
    ("GET", LOG): Operation(
        group=_GROUP,
        summary="Get a log",
        description="The answer includes the visible seqs as inclusive ranges. A range may contain unused seqs.",
        answers=shown(wire.OneLogAnswer),
        parameters=(
            _NAME,
            _EPOCH,
            _query("writer", "Include the progress of this writer.", _WRITER_SCHEMA),
        ),
        errors=("invalid_request", "log_not_found", "epoch_changed"),
    ),
    ("GET", RECORDS): Operation(
        group=_GROUP,
        summary="Read records as Arrow",
        description=_RECORDS,
        answers=(AnswerShape(200, "The records.", {MEDIA_TYPE: _BINARY}, _SHOWN),),
        parameters=(
            _NAME,
            _query("after", "Only records after this seq.", {**_SEQ, "default": 0}),
            _query("through", "Only records up to and including this seq.", _SEQ),
            _query("since", "Only records from this time on: milliseconds since 1970, or RFC 3339.", _TIME),
            _query("until", "Only records before this time.", _TIME),
            _query("key", "Only records with this key."),
            _EPOCH,
            _query("batch_rows", "Maximum number of records per batch.", _whole(1, MAX_BATCH_ROWS, BATCH_ROWS)),
            _query("compression", "The compression of buffers; none by default.", {"enum": list(COMPRESSIONS)}),
            _query("columns", "Only these columns, separated by commas, in the order above; all by default."),
        ),
        errors=("invalid_request", "log_not_found", "epoch_changed"),
    ),
    ("POST", RECORDS): Operation(
        group=_GROUP,
        summary="Append records as Arrow",
        description=_APPEND,
        body={MEDIA_TYPE: _BINARY, SELECTION: _SELECTION},
        needs_body=True,
        answers=shown(wire.AppendAnswer, created="The append created the log."),
        parameters=(
            _NAME,
            _flag("create", "Create the log, as a topic, if it does not exist."),
            _query("writer", "The name of the writer whose progress is stored.", _WRITER_SCHEMA),
            _query("ts", "The time of the records, by default now; not before the time of the last record.", _TIME),
            Parameter(AFTER, "header", f"The progress of the writer after this append. {_JSON_OBJECT}", TEXT),
            Parameter(BEFORE, "header", f"The progress before this append. {_JSON_OBJECT} Or `absent`.", TEXT),
        ),
        errors=(
            "not_json", "record_too_large", "log_not_found", "progress_conflict", "staged_not_found", "not_writable",
            "log_full", "read_only", "disk_full",
        ),
    ),
    ("POST", STAGED): Operation(
        group=_GROUP,
        summary="Stage records as Arrow",
        description=_STAGE,
        body={MEDIA_TYPE: _BINARY},
        needs_body=True,
        answers=(AnswerShape(201, "The rows are staged.", {JSON: wire.StagedAnswer}),),
        parameters=(_NAME, _flag("create", "Accept a log that does not exist.")),
        errors=(
            "invalid_request", "not_json", "record_too_large", "log_not_found", "not_writable", "read_only",
            "disk_full",
        ),
    ),
    ("DELETE", STAGED): Operation(
        group=_GROUP,
        summary="Remove staged records",
        answers=shown(wire.UnstagedAnswer),
        parameters=(_NAME, _query("ids", "The ids, separated by commas.", required=True)),
        errors=("invalid_request", "staged_not_found"),
    ),
    ("DELETE", PROGRESS): Operation(
        group=_GROUP,
        summary="Delete the progress of a writer",
        answers=shown(wire.ForgottenAnswer),
        parameters=(_NAME, _query("writer", "The writer whose progress is deleted.", _WRITER_SCHEMA, required=True)),
        errors=("invalid_request", "log_not_found", "read_only", "disk_full"),
    ),
}  # fmt: skip

_LOG_FIELDS = {
    "epoch": "The number of the log. A log that is dropped and created again has a higher epoch.",
    "head": "The highest seq that readers can see; 0 if nothing was ever appended.",
    "earliest": "The first seq that is available.",
    "floor": "All seqs below it were lost to retention.",
    "last_ts": "The time of the last record.",
    "media_type": "The content type of the records.",
    "ephemeral": "Whether the records are only in memory and are lost when the server stops.",
    "registry": "The schema registry, if the log has one.",
    "owner": "The table or the collection that the log belongs to. `versions`: each record replaces the earlier ones. "
    "`part`: whether the log of a table has `rows`, `changes` or a `feed`.",
    "base": "For a fork: the epoch of the log that it begins with, and the last seq that it shares.",
    "records": "The number of records, without those that a fork shares.",
    "size": "The bytes of these records: their data and meta.",
    "gaps": "The seqs that hold no record although no caller deleted one: the first and the last seq of each range.",
}

ARROW = Described(
    name="arrow",
    groups={_GROUP: "Records in bulk, as Arrow: for Spark, DuckDB, Polars and pandas."},
    operations=_OPERATIONS,
    problems=PROBLEMS,
    error=ErrorAnswer,
    descriptions={
        "LogAnswer": _LOG_FIELDS,
        "OneLogAnswer": {
            **_LOG_FIELDS,
            "directory": "The id of the data directory.",
            "standing": "The seqs that readers see: the first and the last seq of each range.",
            "progress": "The progress of the writer; null if it has stored none.",
        },
        "LogsAnswer": {
            "directory": "The id of the data directory.",
            "next": "The `after` of the next page; null on the last page.",
        },
        "StagedAnswer": {"staged": "The id of the rows.", "rows": "The number of rows."},
        "UnstagedAnswer": {"removed": "The number of ids that existed."},
        "AppendAnswer": {
            "first": "The seq of the first record; if nothing was appended, the next seq.",
            "ts": "The time of the records.",
            "progress": "The progress of the writer, if the request stored it.",
        },
    },
)

"""The descriptions of the server's own routes. Their errors have the shared codes and shape."""

from __future__ import annotations

from strandline.server.answers import Alive, HealthState, MetricsState, ReadyState, SeriesCount
from strandline.server.audit_routes import MAX_PAGE, PAGE, AuditPage
from strandline.server.backup_routes import BackupsAnswer
from strandline.server.client_routes import CLIENT_NOT_FOUND, MAX_CLIENTS, ClientDisconnected, ClientList
from strandline.server.clients import KINDS
from strandline.server.key_routes import KeyAdded, KeyList, KeyRequest, KeyRevoked, KeyRotated, KeyRotation
from strandline.server.pipeline.routes import PIPELINE_MISSING, PIPELINE_OFF, PipelineAnswer, RunAnswer
from strandline.service.api_keys import KEY_CONFIGURED, KEY_NOT_FOUND, KEYS_OFF
from strandline.service.openapi import JSON, TEXT, AnswerShape, Described, Operation, Parameter, preflight, shown
from strandline.service.problems import (
    DAMAGED_DATA,
    FORBIDDEN,
    INTERNAL,
    INVALID_REQUEST,
    NOT_READY,
    PAYLOAD_TOO_LARGE,
    READ_ONLY,
    SHUTTING_DOWN,
    STANDBY,
    THROTTLED,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA_TYPE,
    ErrorAnswer,
    by_code,
)

DOCUMENT_PATH = "/openapi.json"

_GROUP = "server"
_KEYS = "API keys"
_KEY_ID = Parameter("id", "path", "The id of the API key, as in the list of keys.", {"type": "string"}, True)
_HEALTH = Operation(
    group=_GROUP,
    summary="Get the health of the server",
    description="The status code is 200 while the process runs. `status` reports problems.",
    answers=shown(HealthState),
)
_READY = Operation(
    group=_GROUP,
    summary="Check whether the server accepts requests",
    description="The status code is 503 while the server stands by, replays its journal or stops, and after the "
    "journal failed.",
    answers=shown(ReadyState),
    errors=("not_ready", "standby", "shutting_down", "read_only"),
)
_FIGURES = "The metrics as Prometheus text, or as JSON if the client accepts `application/json`."
_PIPELINE = """The pipeline processes the history of logs on Spark. The server starts its process when enough new
records have accumulated, and stops it when there is little to do. The state is one of:

- `off`: this server does not run the pipeline;
- `missing`: Spark or Java is not installed; `missing` says how to install it;
- `idle`: too little has changed to start the pipeline;
- `running` and `stopping`: the process is running;
- `backing_off`: the process failed, and the server starts it again after `retry_seconds`;
- `elsewhere`: another process runs a pipeline on the same lake.

`status` is the pipeline's own report: its rounds, their speed, and the progress of each table. It leaves out logs that
the API key may not access."""

SERVER = Described(
    name="server",
    groups={
        _GROUP: "Health, metrics and the pipeline of the server.",
        _KEYS: "API keys that are added, rotated and revoked while the server runs. All routes need the scope `admin`.",
    },
    operations={
        ("GET", "/v0/health"): _HEALTH,
        ("GET", "/healthz"): _HEALTH,
        ("GET", "/health"): Operation(group=_GROUP, summary="Check whether the process is alive", answers=shown(Alive)),
        ("OPTIONS", "/health"): preflight(_GROUP),
        ("GET", "/metrics"): Operation(
            group=_GROUP,
            summary="Get the metrics as Prometheus text, or count the series of the metrics stream",
            description="A request that accepts `text/plain`, as those of Prometheus do, gets the same text as from "
            "`/v0/metrics`. Other requests get JSON: the number of series in the stream `__stream_metrics__`.",
            answers=(
                AnswerShape(200, "The metrics, or the number of series.", {JSON: SeriesCount, "text/plain": TEXT}),
            ),
        ),
        ("GET", "/v0/ready"): _READY,
        ("GET", "/readyz"): _READY,
        ("GET", "/v0/metrics"): Operation(
            group=_GROUP,
            summary="Get the metrics",
            answers=(AnswerShape(200, _FIGURES, {"text/plain": TEXT, JSON: MetricsState}),),
        ),
        ("GET", "/v0/keys"): Operation(
            group=_KEYS,
            summary="List the API keys",
            description="The keys that this key may manage: those that may do no more than itself. Without secrets.",
            answers=shown(KeyList),
        ),
        ("POST", "/v0/keys"): Operation(
            group=_KEYS,
            summary="Add an API key",
            description="The key works at once. It may do no more than the key that adds it, and expires no later.",
            body={JSON: KeyRequest},
            answers=(AnswerShape(201, "The new key, and the secret that belongs to it.", {JSON: KeyAdded}),),
            errors=("keys_off", "read_only"),
        ),
        ("POST", "/v0/keys/{id}/rotate"): Operation(
            group=_KEYS,
            summary="Rotate an API key",
            description="Replaces the key by one with the same rights and, if it expires, the same lifetime from now. "
            "The old secret works for `keep_ms` longer.",
            body={JSON: KeyRotation},
            parameters=(_KEY_ID,),
            answers=shown(KeyRotated),
            errors=("key_not_found", "key_configured", "keys_off", "read_only"),
        ),
        ("DELETE", "/v0/keys/{id}"): Operation(
            group=_KEYS,
            summary="Revoke an API key",
            description="The key stops working at once. Event streams, WebSockets and waiting reads of the key end.",
            parameters=(_KEY_ID,),
            answers=shown(KeyRevoked),
            errors=("key_not_found", "key_configured", "keys_off", "read_only"),
        ),
        ("GET", "/v0/audit"): Operation(
            group=_GROUP,
            summary="Read the audit log",
            description="Who changed the server and its logs, when, and with which outcome, newest first.",
            parameters=(
                Parameter(
                    "before", "query", "Only entries before this sequence number.", {"type": "integer", "minimum": 1}
                ),
                Parameter(
                    "limit",
                    "query",
                    "Number of entries.",
                    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": PAGE},
                ),
            ),
            answers=shown(AuditPage),
            errors=("invalid_request",),
        ),
        ("GET", "/v0/clients"): Operation(
            group=_GROUP,
            summary="List the connected clients",
            description="The open connections: whose they are, what they do, and how far behind they are; those with "
            "the most unread data first. An API key gets the connections of keys that may do no more than itself.",
            parameters=(
                Parameter("kind", "query", "Only connections of this kind.", {"enum": list(KINDS)}),
                Parameter(
                    "limit",
                    "query",
                    "Maximum number of clients.",
                    {"type": "integer", "minimum": 1, "maximum": MAX_CLIENTS, "default": MAX_CLIENTS},
                ),
            ),
            answers=shown(ClientList),
            errors=("invalid_request",),
        ),
        ("DELETE", "/v0/clients/{id}"): Operation(
            group=_GROUP,
            summary="End a connection",
            description="A live response sends its last message before the connection closes. A request that waits "
            "gets no answer. The client may connect again; to keep it out, revoke its API key.",
            parameters=(
                Parameter("id", "path", "The id of the connection, as in the list.", {"type": "string"}, True),
            ),
            answers=shown(ClientDisconnected),
            errors=("client_not_found",),
        ),
        ("GET", "/v0/backups"): Operation(
            group=_GROUP,
            summary="List the backups, and the state of the replica and of the cold tier",
            description="What survives the loss of this machine. The backups are those at the location in the setting "
            "`backups`. What the stores answered is used for 15 s; `checked_at` says when that was. The API key must "
            "have access to all names.",
            answers=shown(BackupsAnswer),
        ),
        ("GET", "/pipeline"): Operation(
            group=_GROUP,
            summary="Get the state of the pipeline",
            description=_PIPELINE,
            answers=shown(PipelineAnswer),
        ),
        ("POST", "/pipeline/run"): Operation(
            group=_GROUP,
            summary="Run the pipeline now",
            description="The pipeline runs even if little has changed. The answer does not wait for the run; "
            "`GET /pipeline` shows its progress.",
            answers=(
                AnswerShape(202, "The pipeline will run. `state` is its state before the run.", {JSON: RunAnswer}),
            ),
            errors=("pipeline_off", "pipeline_missing"),
        ),
        ("GET", DOCUMENT_PATH): Operation(
            group=_GROUP,
            summary="Get this document",
            answers=(AnswerShape(200, "The OpenAPI document.", {JSON: {"type": "object"}}),),
        ),
    },
    problems=by_code(
        [
            UNAUTHORIZED,
            FORBIDDEN,
            INVALID_REQUEST,
            PAYLOAD_TOO_LARGE,
            UNSUPPORTED_MEDIA_TYPE,
            KEY_NOT_FOUND,
            KEY_CONFIGURED,
            KEYS_OFF,
            CLIENT_NOT_FOUND,
            PIPELINE_OFF,
            PIPELINE_MISSING,
            THROTTLED,
            DAMAGED_DATA,
            INTERNAL,
            NOT_READY,
            STANDBY,
            SHUTTING_DOWN,
            READ_ONLY,
        ]
    ),
    error=ErrorAnswer,
)

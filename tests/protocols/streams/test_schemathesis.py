"""The server held against what the OpenAPI document says of the streams protocol."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import BaseSchema, Case, GenerationMode
from support.openapi_fuzz import CHECKS, TIMEOUT_SECONDS, fuzz, not_utf_8, strict_document
from support.schema_builders import STRING, lens_document, object_of, op
from support.server_process import ServerProcess
from support.streams_client import JSON, TEXT, StreamsClient
from support.webhook_receiver import WebhookReceiver

from strandline.protocols.streams.openapi import STREAMS
from strandline.protocols.streams.openapi.parameters import ONE
from strandline.server.openapi_routes import DOCUMENT_PATH

#: Requests that are made up for each operation and each of the streams that it is about.
EXAMPLES = 3

OCTETS = "application/octet-stream"
PROTOBUF = "application/x-protobuf"
SUBSCRIPTION = "/v1/stream/__ds/subscriptions/{id}"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True},
        "word": {
            "kind": "keyword",
            "bindings": [{"version": 1, "jsonPointer": "/word"}],
            "exact": True,
            "prefix": True,
            "sortable": True,
            "column": True,
        },
        "size": {
            "kind": "float",
            "bindings": [{"version": 1, "jsonPointer": "/size"}],
            "column": True,
            "aggregatable": True,
        },
    },
    "rollups": {
        "sizes": {
            "dimensions": ["word"],
            "intervals": ["1h"],
            "measures": {
                "all": {"kind": "count"},
                "size": {"kind": "summary", "field": "size", "histogram": "log2_v1"},
            },
        }
    },
}
PULL = {"type": "pull-wake", "streams": ["plain"], "wake_stream": "wakes"}
PROFILES = ("generic", "evlog", "metrics", "otel-traces", "state-protocol")
SPANS = [
    {
        "traceId": TRACE,
        "spanId": SPAN,
        "name": "root",
        "startUnixNano": 10**18,
        "endUnixNano": 10**18 + 1,
        "requestId": "r",
    }
]
CHANGE = {"type": "posts", "key": "1", "value": {"id": 1}, "headers": {"operation": "insert"}}
TEMPLATE = {"entity": "posts", "fields": [{"name": "id", "encoding": "int64"}]}
INTERVAL = {"metric": "m", "unit": "ms", "windowStart": 0, "windowEnd": 10, "count": 1, "sum": 2}
POINT = {"timeUnixNano": "1774432800000000000", "asInt": "1"}
OTLP_LOGS = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "a"}, "traceId": TRACE}]}]}]}
OTLP_METRICS = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m", "gauge": {"dataPoints": [POINT]}}]}]}]}
OTLP = {
    "resourceSpans": [
        {
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": TRACE,
                            "spanId": SPAN,
                            "name": "a",
                            "startTimeUnixNano": "1",
                            "endTimeUnixNano": "2",
                        },
                        {"traceId": "", "spanId": "", "name": "rejected"},
                    ]
                }
            ]
        }
    ]
}

#: All content types that the streams below have.
KINDS = {"plain": JSON, "text": TEXT, "bytes": OCTETS, "a/b/keyed": JSON, "closed": JSON, "absent": OCTETS}
#: Which streams an operation is about; the others are about ``plain`` ones.
ABOUT = {
    ONE + "/_otlp/v1/traces": ["traces", "plain"],
    ONE + "/_otlp/v1/logs": ["events", "plain"],
    ONE + "/_otlp/v1/metrics": ["numbers", "plain"],
    ONE + "/touch/meta": ["state", "plain"],
    ONE + "/touch/wait": ["state"],
    ONE + "/touch/templates/activate": ["state"],
    ONE + "/_search": ["a/b/keyed", "events"],
    ONE + "/_aggregate": ["a/b/keyed", "absent"],
    ONE + "/_routing_keys": ["a/b/keyed", "plain"],
    ONE + "/_details": ["a/b/keyed", "traces", "absent"],
    ONE + "/_index_status": ["a/b/keyed", "state"],
    ONE + "/_schema": ["shaped", "fresh", "absent"],
    ONE + "/_profile": ["fresh", "events"],
}


@schemathesis.serializer(PROTOBUF)
def as_it_is(context: object, value: Any) -> bytes:
    """Bytes are sent as they are; anything else is no protobuf, but something that a client could send."""
    return value if isinstance(value, bytes) else str(value).encode()


#: What changes nothing though it has a body.
ASKING = ("/_search", "/_aggregate", "/v1/observe/request")
FURNISHED = (
    "fork", "plain", "a/b/keyed", "closed", "text", "bytes", "absent", "traces", "events", "numbers", "state", "fresh",
    "new/one", "wakes", "shaped",
)  # fmt: skip


def furnish(url: str) -> Claimed:
    """Something of everything, so that requests have something to be about. Returns the token of a claimed wake."""
    client = StreamsClient(url)
    for name in FURNISHED:
        client.request("DELETE", name)
    for name in ("s", "hook"):
        client.request("DELETE", f"/v1/stream/__ds/subscriptions/{name}")
    client.create("plain", JSON, [1, {"a": 2}, "three"], stream_ttl="3600")
    client.append("plain", [4], stream_key="k")
    client.create("text", "text/plain; charset=utf-8", "line\nline\n")
    client.create("bytes", OCTETS, b"\x00\xff", stream_expires_at="2100-01-01T00:00:00Z")
    client.create("closed", JSON, [1], stream_closed="true")
    client.create("fresh")
    client.create("shaped")
    assert client.request("POST", "shaped/_schema", {"schema": object_of(a=STRING)}).status_code == 200
    client.create("a/b/keyed")
    update = {"schema": {}, "search": SEARCH, "routingKey": {"jsonPointer": "/word", "required": False}}
    assert client.request("POST", "a/b/keyed/_schema", update).status_code == 200
    client.append("a/b/keyed", [{"at": "2026-03-25T10:00:00Z", "word": "one", "size": 1.5}, {"word": "two"}, 3])
    for name, profile, records in (
        ("traces", {"kind": "otel-traces"}, SPANS),
        ("events", {"kind": "evlog"}, [{"requestId": "r", "traceId": TRACE, "status": 500, "message": "no"}]),
        ("numbers", {"kind": "metrics"}, [INTERVAL]),
        ("state", {"kind": "state-protocol", "touch": {"enabled": True}}, [CHANGE]),
    ):
        client.create(name)
        assert client.request("POST", f"{name}/_profile", {"profile": profile}).status_code == 200
        client.append(name, records)
    assert client.request("PUT", "/v1/stream/__ds/subscriptions/s", PULL).status_code == 201
    client.append("plain", [5])
    claimed = client.request("POST", "/v1/stream/__ds/subscriptions/s/claim", {"worker": "w"}).json()
    client.close()
    return Claimed(claimed["token"], claimed["wake_id"], claimed["generation"])


class Claimed(NamedTuple):
    token: str
    wake_id: str
    generation: int


class Bed:
    """A server, what its document says, and a connection to it."""

    def __init__(self, server: ServerProcess, schema: BaseSchema, session: requests.Session) -> None:
        self.server = server
        self.schema = schema
        self.session = session
        self._furnished = False

    def prepare(self, method: str, path: str) -> None:
        """Have everything in its place for such a request. It still is if there were only reads since."""
        if not self._furnished:
            furnish(self.server.url)
        self._furnished = method in ("GET", "HEAD") or path.endswith(ASKING)

    def furnish(self) -> Claimed:
        """Have everything in its place for anything."""
        self._furnished = False
        return furnish(self.server.url)


@pytest.fixture(scope="module")
def bed(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A server of its own, since nobody knows what will be left of its streams. Nothing waits for long there."""
    settings = {"sse_rotate_seconds": 0.01, "long_poll_ms": 2, "metrics_flush_ms": 0, "stream_durability": "memory",
                "otlp_traces_stream": "otlp", "otlp_logs_stream": "otlp-logs", "otlp_metrics_stream": "otlp-metrics",
                "otlp_auto_create": True, "webhook_allow_loopback": True}  # fmt: skip
    process = ServerProcess(
        tmp_path_factory.mktemp(f"fuzzed-{lane}") / "data", fast_lane=lane == "fast", settings=dict(settings)
    )
    with requests.Session() as session:
        session.trust_env = False
        try:
            process.start()
            document = session.get(process.url + DOCUMENT_PATH).json()
            yield Bed(process, schemathesis.openapi.from_dict(strict_document(document)), session)
        finally:
            process.end()


# --- requests that make sense --------------------------------------------------------------------------------------

Parts = dict[str, Any]


def about(name: str, **more: Any) -> Parts:
    return {"path_parameters": {"name": name}, **more}


def subscribed(id: str, **more: Any) -> Parts:
    return {"path_parameters": {"id": id}, **more}


DAY = {"rollup": "sizes", "from": "2026-03-25T00:00:00Z", "to": "2026-03-26T00:00:00Z", "interval": "1h"}
LENS_UPDATE = {
    "schema": object_of(b=STRING),
    "lens": lens_document(op("rename", from_="/a", to="/b"), source=1, schema="shaped"),
}
PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
OBSERVE = {"streams": {"events": "events", "traces": "traces"}, "lookup": {"requestId": "r"}}
WEBHOOK = {"type": "webhook", "pattern": "**", "webhook": {"url": "http://127.0.0.1:9/hook"}}

#: Every status that is no refusal, of every operation, as a request that gets it.
SENSIBLE: list[tuple[str, str, int, Parts]] = [
    ("PUT", ONE, 201, about("new/one", media_type=JSON, body=[1, 2], headers={"Stream-TTL": "60s"})),
    ("PUT", ONE, 201, about("fork", headers={"Stream-Forked-From": "/v1/stream/plain"})),
    ("PUT", ONE, 200, about("fresh", headers={"Content-Type": JSON})),
    ("POST", ONE, 204, about("plain", media_type=JSON, body={"a": 1})),
    ("POST", ONE, 200, about("plain", media_type=JSON, body=[1], headers=PRODUCER)),
    ("POST", ONE, 204, about("plain", headers={"Stream-Closed": "true"})),
    ("POST", ONE, 409, about("closed", media_type=JSON, body=[1])),
    ("POST", ONE, 409, about("plain", media_type=JSON, body=[1], headers=PRODUCER | {"Producer-Seq": "7"})),
    *(("GET", ONE, 200, about(name)) for name in KINDS if name != "absent"),
    ("GET", ONE, 200, about("a/b/keyed", query={"filter": "word:one", "key": "one"})),
    ("GET", ONE, 200, about("plain", query={"offset": "-1", "live": "sse"})),
    ("GET", ONE, 200, about("bytes", query={"offset": "now", "live": "sse"})),
    ("GET", ONE, 200, about("plain", query={"offset": "-1", "live": "long-poll"})),
    ("GET", ONE, 204, about("plain", query={"offset": "now", "live": "true", "timeout": "1ms"})),
    ("GET", ONE, 304, about("plain", headers={"If-None-Match": "*"})),
    ("GET", ONE + "/pk/{key}", 200, {"path_parameters": {"name": "plain", "key": "k"}}),
    ("GET", ONE + "/pk/{key}", 204, {"path_parameters": {"name": "plain", "key": "k"},
                                     "query": {"offset": "now", "live": "1", "timeout_ms": "1"}}),
    ("GET", ONE + "/pk/{key}", 304, {"path_parameters": {"name": "plain", "key": "k"},
                                     "headers": {"If-None-Match": "*"}}),
    ("HEAD", ONE, 200, about("plain")),
    ("HEAD", ONE, 200, about("closed")),
    ("HEAD", ONE, 404, about("absent")),
    ("DELETE", ONE, 204, about("plain")),
    ("GET", ONE + "/_schema", 200, about("a/b/keyed")),
    ("GET", ONE + "/_schema", 200, about("traces")),
    ("POST", ONE + "/_schema", 200, about("fresh", body={"schema": {"type": "object"}})),
    ("POST", ONE + "/_schema", 200, about("shaped", body=LENS_UPDATE)),
    ("POST", ONE + "/_schema", 200, about("a/b/keyed", body={"search": None})),
    ("GET", ONE + "/_profile", 200, about("state")),
    *(("POST", ONE + "/_profile", 200, about("fresh", body={"profile": {"kind": kind}})) for kind in PROFILES),
    ("GET", ONE + "/_search", 200, about("a/b/keyed", query={"q": "word:one OR size:>1", "sort": "word:asc"})),
    ("GET", ONE + "/_search", 408, about("a/b/keyed", query={"q": "word:one", "timeout_ms": 0})),
    ("POST", ONE + "/_search", 200, about("a/b/keyed", body={"q": "has:word", "size": 1})),
    ("POST", ONE + "/_search", 200, about("events", body={"q": "no", "search_after": None})),
    ("POST", ONE + "/_search", 408, about("a/b/keyed", body={"q": "word:one", "timeout_ms": 0})),
    ("POST", ONE + "/_aggregate", 200, about("a/b/keyed", body={**DAY, "group_by": ["word"]})),
    ("GET", ONE + "/_routing_keys", 200, about("a/b/keyed", query={"limit": 1})),
    ("POST", ONE + "/_otlp/v1/traces", 200, about("traces", media_type=JSON, body=OTLP)),
    ("POST", ONE + "/_otlp/v1/traces", 200, about("traces", media_type=PROTOBUF, body=b"")),
    ("POST", "/v1/traces", 200, {"media_type": JSON, "body": OTLP}),
    ("POST", ONE + "/_otlp/v1/logs", 200, about("events", media_type=JSON, body=OTLP_LOGS)),
    ("POST", ONE + "/_otlp/v1/logs", 200, about("events", media_type=PROTOBUF, body=b"")),
    ("POST", "/v1/logs", 200, {"media_type": JSON, "body": OTLP_LOGS}),
    ("POST", ONE + "/_otlp/v1/metrics", 200, about("numbers", media_type=JSON, body=OTLP_METRICS)),
    ("POST", ONE + "/_otlp/v1/metrics", 200, about("numbers", media_type=PROTOBUF, body=b"")),
    ("POST", "/v1/metrics", 200, {"media_type": JSON, "body": OTLP_METRICS}),
    ("POST", "/v1/observe/request", 200, {"body": OBSERVE}),
    ("POST", "/v1/observe/request", 200, {"body": {**OBSERVE, "include": {"raw": True}}}),
    ("GET", ONE + "/touch/meta", 200, about("state", query={"settle": "flush"})),
    ("POST", ONE + "/touch/wait", 200, about("state", body={"cursor": "now", "keys": ["a"], "timeoutMs": 1})),
    ("POST", ONE + "/touch/wait", 200, about("state", body={"cursor": "0" * 16 + ":0", "keys": ["a"]})),
    ("POST", ONE + "/touch/templates/activate", 200, about("state", body={"templates": [TEMPLATE]})),
    ("GET", "/v1/streams", 200, {"query": {"limit": 1000}}),
    *(("GET", ONE + "/_details", 200, about(name)) for name in ("plain", "a/b/keyed", "traces", "events", "state")),
    ("GET", ONE + "/_details", 304, about("plain", headers={"If-None-Match": "*"})),
    ("GET", ONE + "/_index_status", 200, about("a/b/keyed")),
    ("GET", ONE + "/_index_status", 304, about("plain", headers={"If-None-Match": "*"},
                                               query={"live": "1", "timeout": "1"})),
    ("GET", "/v1/server/_details", 200, {}),
    ("GET", "/v1/server/_mem", 200, {}),
    ("GET", "/v1/stream/__ds/jwks.json", 200, {}),
    ("PUT", SUBSCRIPTION, 201, subscribed("hook", body=WEBHOOK)),
    ("PUT", SUBSCRIPTION, 200, subscribed("s", body=PULL)),
    ("GET", SUBSCRIPTION, 200, subscribed("s")),
    ("DELETE", SUBSCRIPTION, 204, subscribed("s")),
    ("POST", SUBSCRIPTION + "/streams", 204, subscribed("s", body={"streams": ["text"]})),
    ("DELETE", SUBSCRIPTION + "/streams/{stream}", 204, {"path_parameters": {"id": "s", "stream": "a/b"}}),
    ("POST", SUBSCRIPTION + "/claim", 409, subscribed("s", body={"worker": "other"})),
]  # fmt: skip


def ask(bed: Bed, method: str, path: str, parts: Parts) -> int:
    """The status of the answer, which is as the document says."""
    case = bed.schema[path][method].Case(**parts)
    response = case.call_and_validate(
        base_url=bed.server.url, session=bed.session, checks=CHECKS, timeout=TIMEOUT_SECONDS
    )
    return response.status_code


@pytest.mark.parametrize(("method", "path", "status", "parts"), SENSIBLE)
def test_a_request_that_makes_sense_is_answered_as_the_document_says(
    bed: Bed, method: str, path: str, status: int, parts: Parts
) -> None:
    bed.prepare(method, path)
    assert ask(bed, method, path, parts) == status


def held(id: str, token: str, wake_id: str, generation: int) -> Parts:
    """What whoever has a wake says of it."""
    body = {"wake_id": wake_id, "generation": generation, "acks": [], "done": False}
    return subscribed(id, headers={"Authorization": f"Bearer {token}"}, body=body)


def test_a_worker_that_holds_a_wake_is_answered_as_the_document_says(bed: Bed) -> None:
    wake = held("s", *bed.furnish())
    assert ask(bed, "POST", SUBSCRIPTION + "/ack", wake) == 200
    assert ask(bed, "POST", SUBSCRIPTION + "/callback", wake) == 400
    assert ask(bed, "POST", SUBSCRIPTION + "/release", wake) == 204
    assert ask(bed, "POST", SUBSCRIPTION + "/claim", subscribed("s", body={"worker": "other"})) == 200
    assert ask(bed, "POST", SUBSCRIPTION + "/ack", wake) == 409


def test_a_webhook_that_calls_back_is_answered_as_the_document_says(bed: Bed) -> None:
    bed.furnish()
    receiver = WebhookReceiver()
    try:
        webhook = {"type": "webhook", "streams": ["text"], "webhook": {"url": receiver.url}}
        assert ask(bed, "PUT", SUBSCRIPTION, subscribed("hook", body=webhook)) == 201
        assert ask(bed, "POST", ONE, about("text", media_type=TEXT, body="more")) == 204
        told = receiver.next().body
        wake = held("hook", told["callback_token"], told["wake_id"], told["generation"])
        assert ask(bed, "POST", SUBSCRIPTION + "/callback", wake) == 200
        assert ask(bed, "POST", SUBSCRIPTION + "/ack", wake) == 400
    finally:
        assert ask(bed, "DELETE", SUBSCRIPTION, subscribed("hook")) == 204
        receiver.close()


def test_browsers_are_told_at_every_path_what_they_may_send(bed: Bed) -> None:
    for method, path in STREAMS.operations:
        if method == "OPTIONS":
            names = dict.fromkeys(re.findall(r"{(\w+)}", path), "x")
            assert ask(bed, method, path, {"path_parameters": names}) == 204


def test_every_answer_that_is_no_refusal_was_asked_for() -> None:
    """Otherwise nothing would be known of it."""
    asked = {(method, path, status) for method, path, status, _ in SENSIBLE}
    asked |= {("POST", f"{SUBSCRIPTION}/{what}", 200) for what in ("ack", "callback", "claim")}
    asked.add(("POST", f"{SUBSCRIPTION}/release", 204))
    described = {
        (method, path, answer.status)
        for (method, path), operation in STREAMS.operations.items()
        for answer in operation.answers
        if method != "OPTIONS"
    }
    assert described <= asked


def test_no_body_that_is_not_utf_8_is_an_error_of_the_server(bed: Bed) -> None:
    document = bed.session.get(bed.server.url + DOCUMENT_PATH).json()
    bed.furnish()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if JSON not in operation.get("requestBody", {}).get("content", {}):
                continue
            names = defaultdict(lambda: "x", name="state" if "touch" in path else "fresh", id="s")
            url = bed.server.url + path.format_map(names)
            for body in not_utf_8(document, path, method):
                response = bed.session.request(method, url, data=body, headers={"content-type": JSON})
                assert response.status_code < 500, (method, url, body, response.text)


# --- requests that are made up -------------------------------------------------------------------------------------


def tame(case: Case, data: st.DataObject, name: str) -> None:
    """Point the request at something that is there, and let nothing wait."""
    for parameter, value in {"name": name, "id": "s", "stream": "text"}.items():
        if parameter in case.path_parameters:
            case.path_parameters[parameter] = value
    # The bodies are not compressed, whatever that header would say.
    case.headers.pop("Content-Encoding", None)
    for parameter in ("timeout", "timeout_ms", "timeoutMs"):
        if parameter in case.query:
            case.query[parameter] = data.draw(st.sampled_from(["1", "x", "2ms"]))
    if isinstance(case.body, dict) and "timeoutMs" in case.body:
        case.body["timeoutMs"] = 1
    if case.path == ONE and case.method in ("PUT", "POST"):
        kind = data.draw(st.sampled_from([KINDS[name], JSON, TEXT]))
        case.media_type = kind
        if kind != JSON:
            case.body = data.draw(st.binary(max_size=50))
            case.headers["Content-Type"] = kind
            case.media_type = OCTETS


OPERATIONS = [key for key in STREAMS.operations if key[0] != "OPTIONS"]
#: What can be got wrong: everything that has a body or a parameter, but for names, which are chosen here.
FALLIBLE = [
    key
    for key in OPERATIONS
    if STREAMS.operations[key].body or any(each.place != "path" for each in STREAMS.operations[key].parameters)
]


def make_up(bed: Bed, method: str, path: str, mode: GenerationMode) -> set[int]:
    statuses: set[int] = set()
    names = ABOUT.get(path, list(KINDS) if path == ONE else ["plain"])
    for name in names if "{name}" in path else ["plain"]:
        bed.prepare(method, path)

        def tamed(case: Case, data: st.DataObject, name: str = name) -> None:
            tame(case, data, name)

        operation = bed.schema[path][method]
        statuses |= fuzz(operation, mode, EXAMPLES, tamed, bed.server.url, bed.session)
    assert bed.server.running
    return statuses


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_what_is_made_up_by_the_rules_is_answered_as_the_document_says(bed: Bed, method: str, path: str) -> None:
    make_up(bed, method, path, GenerationMode.POSITIVE)


@pytest.mark.parametrize(("method", "path"), FALLIBLE)
def test_what_is_made_up_against_the_rules_is_answered_as_the_document_says(bed: Bed, method: str, path: str) -> None:
    make_up(bed, method, path, GenerationMode.NEGATIVE)

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_documents import documents

from strandline.schema.errors import SchemaError
from strandline.schema.profiles import OtelTraces, load_profile

TRACE, SPAN, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "b9c7c989f97918e1"
START = 1_774_432_800_123_456_789
LEAST: dict[str, Any] = {"traceId": TRACE, "spanId": SPAN, "startUnixNano": str(START)}


def profile(**settings: Any) -> OtelTraces:
    made = load_profile({"kind": "otel-traces", **settings})
    assert isinstance(made, OtelTraces)
    return made


TRACES = profile()
REGISTRY = TRACES.registry("traces")


def span(record: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    return profile(**settings).span(LEAST | (record or {}))


def test_a_span_of_which_little_is_known_gets_every_field() -> None:
    stored = span()
    assert stored["identity"].pop("dedupeKey").isalnum()
    assert stored == {
        "schemaVersion": 1, "signal": "trace.span", "timestamp": "2026-03-25T10:00:00.123Z",
        "endTimestamp": "2026-03-25T10:00:00.123Z", "startUnixNano": str(START), "endUnixNano": str(START),
        "duration": 0.0, "traceId": TRACE, "spanId": SPAN, "parentSpanId": None, "traceState": None,
        "traceFlags": {"sampled": False, "raw": 0}, "name": "", "kind": "unspecified",
        "status": {"code": "unset", "message": None}, "service": None, "serviceNamespace": None,
        "serviceInstanceId": None, "environment": None, "version": None, "region": None, "requestId": None,
        "http": dict.fromkeys(("method", "route", "path", "target", "url", "statusCode", "userAgent")),
        "db": dict.fromkeys(("system", "name", "operation", "statement")),
        "rpc": dict.fromkeys(("system", "service", "method")),
        "messaging": dict.fromkeys(("system", "destination", "operation")),
        "error": {"isError": False, "type": None, "message": None, "stacktrace": None},
        "instrumentationScope": {"name": None, "version": None, "schemaUrl": None, "attributes": {}},
        "resource": {"schemaUrl": None, "attributes": {}}, "attributes": {}, "events": [], "eventNames": [],
        "links": [], "dropped": {"attributes": 0, "events": 0, "links": 0}, "redaction": {"keys": []},
        "identity": {"spanKey": f"{TRACE}:{SPAN}"},
    }  # fmt: skip


def test_fields_are_made_of_attributes() -> None:
    stored = span({
        "name": "GET /cart",
        "kind": "SERVER",
        "endUnixNano": START + 1_500_000,
        "parentSpanId": PARENT,
        "traceFlags": {"raw": 257},
        "attributes": {
            "http.request.method": "GET",
            "http.route": "/cart/{id}",
            "url.full": "https://user:pass@shop.test/cart/7?card=4711#top",
            "http.response.status_code": 503,
            "user_agent.original": "curl",
            "db.system": "postgresql",
            "rpc.method": "Get",
            "messaging.destination.name": "orders",
            "http.request.header.x-request-id": ["r-1"],
        },
        "resource": {"attributes": {"service.name": "cart", "deployment.environment": "prod", "cloud.region": "eu"}},
    })  # fmt: skip
    assert (stored["kind"], stored["duration"], stored["parentSpanId"]) == ("server", 1.5, PARENT)
    assert stored["traceFlags"] == {"sampled": True, "raw": 257}
    assert (stored["service"], stored["environment"], stored["region"]) == ("cart", "prod", "eu")
    assert stored["http"] == {
        "method": "GET", "route": "/cart/{id}", "path": "/cart/7", "target": None,
        "url": "https://shop.test/cart/7", "statusCode": 503, "userAgent": "curl",
    }  # fmt: skip
    assert stored["attributes"]["url.full"] == "https://shop.test/cart/7"
    assert (stored["db"]["system"], stored["rpc"]["method"]) == ("postgresql", "Get")
    assert stored["messaging"]["destination"] == "orders"
    assert stored["requestId"] == "r-1"
    assert stored["error"]["isError"]


def test_urls_can_be_kept_whole() -> None:
    attributes = {"http.target": "/cart?x=1", "url.query": "x=1"}
    stored = span({"attributes": attributes}, urlMode="raw")
    assert (stored["http"]["target"], stored["http"]["path"]) == ("/cart?x=1", "/cart")
    assert stored["attributes"] == attributes
    assert span({"attributes": attributes})["attributes"] == {"http.target": "/cart"}
    assert span({"http": {"url": "http://x/?secret"}})["http"]["url"] == "http://x/"


def test_statements_are_dropped_unless_they_are_wanted() -> None:
    record = {"attributes": {"db.statement": "select 1", "db.query.text": "select 2", "db.name": "shop"}}
    dropped = span(record)
    assert (dropped["db"]["statement"], dropped["attributes"]) == (None, {"db.name": "shop"})
    assert span({"db": {"statement": "select 1"}})["db"]["statement"] is None
    kept = span(record, dbStatementMode="raw", attributeLimits={"maxStatementBytes": 6})
    assert kept["db"]["statement"] == "select"
    assert kept["attributes"]["db.statement"] == "select"


@pytest.mark.parametrize(
    "name",
    [
        "password", "PASSWORD", "user.password", "db.user-password", "http.request.header.authorization",
        "http.request.header.x-api-key", "http.request.header.x_api_key", "x.api.key", "apiKey", "my.api-key", "token",
        "set-cookie", "http.response.header.set_cookie", "client_secret", "ssn", "patient.ssn", "tax.id", "my-tax-id",
    ],
)  # fmt: skip
def test_secret_names_are_recognised_however_they_are_written(name: str) -> None:
    stored = span({"attributes": {name: "x"}}, redactKeys=["ssn", "tax_id"])
    assert stored["attributes"] == {name: "[REDACTED]"}
    assert stored["redaction"]["keys"] == [f"attributes.{name}"]


@pytest.mark.parametrize("name", ["passwords", "tokens.used", "key", "api", "cookies", "secretary", "x-api-keys"])
def test_names_that_only_resemble_secret_ones_are_kept(name: str) -> None:
    assert span({"attributes": {name: "x"}})["attributes"] == {name: "x"}


def test_secrets_are_redacted_wherever_they_are() -> None:
    secret = {"token": 1}
    stored = span({
        "resource": {"attributes": secret},
        "instrumentationScope": {"attributes": secret},
        "events": [{"name": "e", "timeUnixNano": "1", "attributes": {"deep": [{"password": 1, "x": 2}]}}],
        "links": [{"traceId": TRACE, "spanId": SPAN, "attributes": secret}],
    })  # fmt: skip
    assert stored["redaction"]["keys"] == [
        "resource.attributes.token", "events.0.attributes.deep.0.password", "links.0.attributes.token",
        "instrumentationScope.attributes.token",
    ]  # fmt: skip
    assert stored["events"][0]["attributes"] == {"deep": [{"password": "[REDACTED]", "x": 2}]}
    assert b":1}" not in msgspec.json.encode([stored["resource"], stored["links"][0]["attributes"]])


def test_a_redacted_attribute_does_not_come_back_as_a_field() -> None:
    stored = span({"attributes": {"http.user_agent": "x", "url.full": "y"}}, redactKeys=["url.full", "user_agent"])
    assert (stored["http"]["userAgent"], stored["http"]["url"]) == ("[REDACTED]", "[REDACTED]")


def test_what_is_too_much_is_cut_and_counted() -> None:
    limits = {"maxAttributesPerSpan": 2, "maxEventsPerSpan": 1, "maxLinksPerSpan": 0, "maxAttributeValueBytes": 4}
    link = {"traceId": TRACE, "spanId": SPAN}
    record = {
        "attributes": {"a": "äöü", "b": ["123456"], "c": 3, "d": 4},
        "events": [{"name": name, "timeUnixNano": 5, "attributes": {"a": 1, "b": 2, "c": 3}} for name in "xyz"],
        "links": [link, link],
        "dropped": {"attributes": 10},
    }
    stored = span(record, attributeLimits=limits)
    assert stored["attributes"] == {"a": "äö", "b": ["1234"]}
    assert stored["dropped"] == {"attributes": 12, "events": 2, "links": 2}
    assert stored["events"][0]["droppedAttributes"] == 1
    assert stored["eventNames"] == ["x"]


def test_raw_parts_need_not_be_stored() -> None:
    off = {"rawResourceAttributes": False, "rawSpanAttributes": False, "rawEvents": False, "rawLinks": False}
    record = {
        "attributes": {"http.method": "GET", "error.type": "E"},
        "resource": {"attributes": {"service.name": "api"}},
        "events": [{"name": "exception", "timeUnixNano": 5, "attributes": {"exception.type": "Boom"}}],
        "links": [{"traceId": TRACE, "spanId": SPAN}],
    }
    stored = span(record, store=off)
    assert (stored["attributes"], stored["resource"]["attributes"]) == ({}, {})
    assert (stored["events"], stored["links"]) == ([], [])
    assert (stored["service"], stored["http"]["method"], stored["eventNames"]) == ("api", "GET", ["exception"])
    assert stored["error"] == {"isError": True, "type": "Boom", "message": None, "stacktrace": None}
    assert profile(store=off).span(stored) == stored


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"status": {"code": "error", "message": "no"}}, (True, None, "no")),
        ({"status": {"code": "ok", "message": "no"}}, (False, None, None)),
        ({"attributes": {"http.status_code": "500"}}, (True, None, None)),
        ({"attributes": {"http.status_code": 404, "error.type": "404"}}, (False, "404", None)),
        ({"attributes": {"exception.type": "Boom", "exception.message": "m"}}, (True, "Boom", "m")),
    ],
)
def test_what_counts_as_an_error(record: dict[str, Any], error: tuple[bool, str | None, str | None]) -> None:
    found = span(record)["error"]
    assert (found["isError"], found["type"], found["message"]) == error


def test_the_attributes_with_the_id_of_the_request_can_be_named() -> None:
    attributes = {"request.id": "a", "my.id": 7}
    assert span({"attributes": attributes})["requestId"] == "a"
    assert span({"attributes": attributes}, requestIdAttributes=["other", "my.id"])["requestId"] == "7"


def test_times_may_be_written_readably() -> None:
    record = {
        "traceId": TRACE,
        "spanId": SPAN,
        "timestamp": "2026-03-25T10:00:00.5Z",
        "endTimestamp": "2026-03-25T10:00:01Z",
    }
    stored = TRACES.span(record)
    assert (stored["startUnixNano"], stored["duration"]) == ("1774432800500000000", 500.0)


def test_the_same_span_has_the_same_identity() -> None:
    assert span({"attributes": {"a": 1}})["identity"] == span()["identity"]
    assert span({"name": "other"})["identity"] != span()["identity"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"traceId": "0" * 32}, "traceId must be 32 hexadecimal digits that are not all zero"),
        ({"traceId": TRACE + "0"}, "traceId must be 32 hexadecimal digits that are not all zero"),
        ({"spanId": 5}, "spanId must be 16 hexadecimal digits that are not all zero"),
        ({"parentSpanId": "x"}, "parentSpanId must be 16 hexadecimal digits that are not all zero"),
        ({"startUnixNano": "soon"}, "startUnixNano must be nanoseconds since 1970"),
        ({"startUnixNano": -1}, "startUnixNano must be nanoseconds since 1970"),
        ({"startUnixNano": None}, "startUnixNano must be nanoseconds since 1970"),
        ({"endUnixNano": 5}, "endUnixNano must be >= startUnixNano"),
        ({"startUnixNano": None, "timestamp": "x"}, "timestamp must be a timestamp"),
        ({"kind": "x"}, "kind must be unspecified|internal|server|client|producer|consumer"),
        ({"status": {"code": 2}}, "status.code must be unset|ok|error"),
        ({"status": []}, "status must be an object"),
        ({"status": {"x": 1}}, "status.x is not supported"),
        ({"name": 1}, "name must be a string"),
        ({"attributes": []}, "attributes must be an object"),
        ({"events": {}}, "events must be an array of objects"),
        ({"events": [1]}, "events must be an array of objects"),
        ({"events": [{"name": "e"}]}, "events.0.timeUnixNano must be nanoseconds since 1970"),
        ({"links": [{"traceId": TRACE}]}, "links.0.spanId must be 16 hexadecimal digits that are not all zero"),
        ({"eventNames": [1]}, "eventNames must be an array of strings"),
        ({"dropped": {"links": -1}}, "dropped.links must be an integer >= 0"),
        ({"traceFlags": {"raw": 1 << 32}}, "traceFlags.raw must be an integer between 0 and 4294967295"),
        ({"tags": {}}, "tags is not supported"),
    ],
)
def test_what_is_wrong_with_a_span_is_said(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        TRACES.normalise([LEAST, LEAST | change], 0)
    assert str(caught.value) == f"element 1: otel-traces record.{message}"


def test_a_span_is_an_object() -> None:
    with pytest.raises(SchemaError, match=r"^otel-traces records must be JSON objects$"):
        TRACES.normalise([7], 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"x": 1}, "profile.x is not supported"),
        ({"attributeLimits": {"x": 1}}, "profile.attributeLimits.x is not supported"),
        (
            {"attributeLimits": {"maxStatementBytes": 0}},
            "profile.attributeLimits.maxStatementBytes must be an integer >= 1",
        ),
        ({"store": {"rawLinks": "no"}}, "profile.store.rawLinks must be boolean"),
        ({"store": {"x": True}}, "profile.store.x is not supported"),
        ({"dbStatementMode": "hash"}, "profile.dbStatementMode must be drop|raw"),
        ({"urlMode": None}, "profile.urlMode must be drop_query|raw"),
        ({"otlpLimits": {"x": 1}}, "profile.otlpLimits.x is not supported"),
        (
            {"otlpLimits": {"maxAnyValueDepth": 65}},
            "profile.otlpLimits.maxAnyValueDepth must be an integer between 1 and 64",
        ),
        (
            {"observability": {"request": {"tracesStream": "x"}}},
            "profile.observability.request.tracesStream is not supported; did you mean 'eventsStream'?",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_settings_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        profile(**settings)
    assert str(caught.value) == message


def test_what_can_be_searched_and_rolled_up() -> None:
    assert REGISTRY is not None
    document = msgspec.to_builtins(REGISTRY.document())
    assert document["routingKey"] == {"jsonPointer": "/traceId", "required": True}
    rollups = document["search"]["rollups"]
    assert rollups["spans"]["dimensions"] == ["service", "kind", "status.code"]
    assert rollups["http_server"]["include"] == "kind:server"
    assert rollups["http_server"]["measures"]["latency"]["histogram"] == "log2_v1"
    assert TRACES.keys_of([span()]) == [TRACE]


_NAMES = [
    "http.method", "url.full", "http.target", "db.statement", "exception.type", "exception.message", "service.name",
    "password", "request.id", "http.status_code", "message", "type", "code", "url", "statement", "isError", "keys",
]  # fmt: skip
_ANY = documents(_NAMES)
_MAPS = st.dictionaries(st.sampled_from(_NAMES) | st.text(st.characters(exclude_categories=("Cs",)), max_size=8), _ANY)
_EVENTS = st.lists(
    st.fixed_dictionaries({"timeUnixNano": st.integers(0, 10)}, optional={"attributes": _MAPS}), max_size=3
)
_RECORDS = st.fixed_dictionaries(
    {"traceId": st.just(TRACE), "spanId": st.just(SPAN), "startUnixNano": st.integers(0, (1 << 64) - 1)},
    optional={
        "attributes": _MAPS,
        "resource": st.fixed_dictionaries({"attributes": _MAPS}),
        "events": _EVENTS | _ANY,
        "status": st.fixed_dictionaries({"code": st.sampled_from(["error", "ok"]), "message": _ANY}) | _ANY,
        "service": _ANY,
        "requestId": _ANY,
        "http": st.dictionaries(st.sampled_from(["url", "target", "statusCode", "path"]), _ANY) | _ANY,
        "db": st.fixed_dictionaries({"statement": _ANY}),
        "error": st.dictionaries(st.sampled_from(["isError", "type", "message", "stacktrace"]), _ANY) | _ANY,
        "eventNames": _ANY,
        "redaction": _ANY,
        "dropped": _ANY,
        "links": _ANY,
        "parentSpanId": _ANY,
    },
)
_PROFILES = st.sampled_from([
    TRACES,
    profile(
        urlMode="raw", dbStatementMode="raw", attributeLimits={"maxAttributeValueBytes": 3, "maxStatementBytes": 2}
    ),
    profile(store={"rawSpanAttributes": False, "rawEvents": False}, attributeLimits={"maxAttributesPerSpan": 1}),
])  # fmt: skip


@given(_PROFILES, _RECORDS | _ANY)
def test_whatever_comes_is_refused_or_conforms_and_stays(traces: OtelTraces, record: Any) -> None:
    assert REGISTRY is not None
    before = msgspec.json.encode(record)
    try:
        once = traces.normalise([record], 0)
    except SchemaError:
        return
    assert msgspec.json.encode(record) == before
    REGISTRY.check(once)
    assert traces.normalise(once, 0) == once

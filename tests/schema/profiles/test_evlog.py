from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from support.json_documents import documents

from strandline.schema.errors import SchemaError
from strandline.schema.profiles import Evlog, load_profile

NOW = 1_774_432_800_123
EVLOG = load_profile({"kind": "evlog"})
REGISTRY = EVLOG.registry("events")
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
NAMES = [
    "timestamp", "level", "service", "status", "duration", "requestId", "traceId", "spanId", "traceContext", "sampling",
    "traceparent", "context", "redaction", "why", "password", "Token", "headers", "message",
]  # fmt: skip


def normalised(record: Any, **settings: Any) -> dict[str, Any]:
    [document] = load_profile({"kind": "evlog", **settings}).normalise([record], NOW)
    return dict(document)


def test_an_empty_event_gets_every_field() -> None:
    assert normalised({}) == {
        "timestamp": "2026-03-25T10:00:00.123Z", "level": "info", "service": None, "environment": None, "version": None,
        "region": None, "requestId": None, "traceId": None, "spanId": None, "method": None, "path": None,
        "status": None, "duration": None, "message": None, "why": None, "fix": None, "link": None, "sampling": None,
        "context": {}, "redaction": {"keys": []},
    }  # fmt: skip


def test_texts_are_trimmed_and_other_values_are_none() -> None:
    event = normalised({"service": " api ", "region": "  ", "version": 3, "timestamp": " 10 o'clock "})
    assert (event["service"], event["region"], event["version"]) == ("api", None, None)
    assert event["timestamp"] == "10 o'clock"


@pytest.mark.parametrize(
    ("record", "level"),
    [
        ({"level": " WARN "}, "warn"),
        ({"level": "fatal"}, "info"),
        ({"level": "debug", "status": 500}, "debug"),
        ({"why": "no stock", "status": 200}, "error"),
        ({"link": "https://x"}, "error"),
        ({"fix": " "}, "info"),
        ({"status": 500}, "error"),
        ({"status": "404"}, "warn"),
        ({"status": 399}, "info"),
    ],
)
def test_the_level_follows_from_what_happened(record: dict[str, Any], level: str) -> None:
    assert normalised(record)["level"] == level


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (200, 200), (200.0, 200), (" 200 ", 200), (2**70, 2**70), (200.5, None), ("200.5", None), (True, None),
        ([200], None), ("", None),
    ],
)  # fmt: skip
def test_the_status_is_an_integer_or_nothing(given: Any, status: int | None) -> None:
    found = normalised({"status": given})["status"]
    assert found == status
    assert found is None or type(found) is int


@pytest.mark.parametrize(
    ("given", "duration"),
    [
        (12, 12),
        (12.5, 12.5),
        ("12.5", 12.5),
        ("1e3", 1000.0),
        ("12ms", None),
        ("1e999", None),
        ("nan", None),
        (True, None),
    ],
)
def test_the_duration_is_a_finite_number_or_nothing(given: Any, duration: float | None) -> None:
    assert normalised({"duration": given})["duration"] == duration


def test_the_request_id_is_looked_for_in_order() -> None:
    assert normalised({"requestId": " r1 ", "context": {"requestId": "r2"}})["requestId"] == "r1"
    assert normalised({"requestId": " ", "context": {"requestId": "r2"}})["requestId"] == "r2"
    fields = {"correlation": {"requestIdFields": ["http.headers.id", "id"]}}
    assert normalised({"requestId": "r1", "id": "r3"}, **fields)["requestId"] == "r3"
    assert normalised({"id": "r3", "http": {"headers": {"id": "r4"}}}, **fields)["requestId"] == "r4"


@pytest.mark.parametrize(
    "record",
    [
        {"traceId": TRACE, "spanId": SPAN},
        {"traceContext": {"traceId": TRACE, "spanId": SPAN}},
        {"traceparent": f"00-{TRACE.upper()}-{SPAN}-01"},
        {"traceparent": f"01-{TRACE}-{SPAN}-01-more"},
        {"traceContext": {"traceparent": f"00-{TRACE}-{SPAN}-01"}},
        {"context": {"traceparent": f"00-{TRACE}-{SPAN}-00"}},
        {"headers": {"traceparent": f" 00-{TRACE}-{SPAN}-01 "}},
        {"traceId": TRACE, "traceparent": f"00-{'1' * 32}-{SPAN}-01"},
    ],
)
def test_trace_and_span_are_found_wherever_they_are(record: dict[str, Any]) -> None:
    event = normalised(record)
    assert (event["traceId"], event["spanId"]) == (TRACE, SPAN)


@pytest.mark.parametrize(
    "text",
    [
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{'0' * 16}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        "x",
    ],
)
def test_a_traceparent_that_says_nothing_is_ignored(text: str) -> None:
    event = normalised({"traceparent": text})
    assert (event["traceId"], event["spanId"]) == (None, None)


def test_an_invalid_traceparent_leaves_the_place_to_the_next_one() -> None:
    invalid, valid = f"00-{'1' * 32}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-01"
    event = normalised({"traceparent": invalid, "headers": {"traceparent": valid}})
    assert (event["traceId"], event["spanId"]) == (TRACE, SPAN)


def test_a_traceparent_can_be_left_alone() -> None:
    event = normalised({"traceparent": f"00-{TRACE}-{SPAN}-01"}, correlation={"parseTraceparent": False})
    assert event["traceId"] is None


def test_configured_places_of_the_trace_come_first() -> None:
    fields = {"correlation": {"traceContextFields": ["otel.traceId", "otel.spanId", "other"]}}
    event = normalised({"otel": {"traceId": "t2"}, "traceId": "t1", "spanId": "s1"}, **fields)
    assert (event["traceId"], event["spanId"]) == ("t2", "s1")


def test_the_context_is_everything_else_and_the_top_level_wins() -> None:
    record = {"context": {"user": 1, "plan": "pro"}, "user": 2, "service": "api"}
    assert normalised(record)["context"] == {"user": 2, "plan": "pro"}
    assert record["context"] == {"user": 1, "plan": "pro"}, "what was given stays as it is"


@pytest.mark.parametrize("context", ["text", [1], 5, False])
def test_a_context_that_is_no_object_is_kept_inside_one(context: Any) -> None:
    assert normalised({"context": context})["context"] == {"context": context}


def test_secrets_are_redacted_at_any_depth_and_said_where() -> None:
    record = {
        "Password": "x",
        "list": [{"token": {"deep": 1}}, [{"apiKey": None}]],
        "context": {"user": {"ssn": "1", "name": "n"}},
        "message": "password",
    }
    event = normalised(record, redactKeys=[" SSN ", "ssn"])
    assert event["context"] == {
        "user": {"ssn": "[REDACTED]", "name": "n"},
        "Password": "[REDACTED]",
        "list": [{"token": "[REDACTED]"}, [{"apiKey": "[REDACTED]"}]],
    }
    assert event["redaction"] == {"keys": ["user.ssn", "Password", "list.0.token", "list.1.0.apiKey"]}
    assert event["message"] == "password"
    assert record["Password"] == "x"


def test_the_key_is_the_request_or_else_the_trace() -> None:
    events = EVLOG.normalise([{"requestId": "r", "traceId": "t"}, {"traceId": "t"}, {}], NOW)
    assert EVLOG.keys_of(events) == ["r", "t", None]


@pytest.mark.parametrize("record", [1, None, [], "x"])
def test_an_event_is_an_object(record: Any) -> None:
    with pytest.raises(SchemaError, match=r"^element 1: evlog records must be JSON objects$"):
        EVLOG.normalise([{}, record], NOW)
    with pytest.raises(SchemaError, match=r"^evlog records must be JSON objects$"):
        EVLOG.normalise([record], NOW)


def test_sampling_is_an_object_or_nothing() -> None:
    assert normalised({"sampling": {"rate": 1}})["sampling"] == {"rate": 1}
    with pytest.raises(SchemaError, match=r"^evlog record\.sampling must be an object or null$"):
        normalised({"sampling": 0.5})


def test_an_event_that_is_nested_too_deeply_is_refused() -> None:
    record: Any = {"password": 1}
    for _ in range(5000):
        record = {"a": record}
    with pytest.raises(SchemaError, match="nested too deeply"):
        normalised(record)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"redactKeys": "x"}, "profile.redactKeys must be an array of strings"),
        ({"redactKeys": ["x"] * 65}, "profile.redactKeys must have at most 64 entries"),
        ({"redactKeys": ["x", " "]}, "profile.redactKeys[1] must be a non-empty string"),
        ({"redactKeys": [1]}, "profile.redactKeys[0] must be a non-empty string"),
        ({"other": 1}, "profile.other is not supported"),
        ({"correlation": []}, "profile.correlation must be an object"),
        ({"correlation": {"x": 1}}, "profile.correlation.x is not supported"),
        ({"correlation": {"parseTraceparent": 1}}, "profile.correlation.parseTraceparent must be boolean"),
        ({"correlation": {"requestIdFields": None}}, "profile.correlation.requestIdFields must be an array of strings"),
        ({"observability": {"x": 1}}, "profile.observability.x is not supported"),
        (
            {"observability": {"request": {"eventsStream": "x"}}},
            "profile.observability.request.eventsStream is not supported; did you mean 'tracesStream'?",
        ),
        (
            {"observability": {"request": {"tracesStream": ""}}},
            "profile.observability.request.tracesStream must be a non-empty string",
        ),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        load_profile({"kind": "evlog", **settings})
    assert str(caught.value) == message


def test_the_settings_are_stored_trimmed_and_once() -> None:
    profile = load_profile({"kind": "evlog", "redactKeys": [" SSN", "ssn", "Pin"]})
    assert profile.document() == {"kind": "evlog", "redactKeys": ["ssn", "pin"]}
    observed = load_profile({"kind": "evlog", "observability": {"request": {"tracesStream": " traces "}}})
    assert isinstance(observed, Evlog)
    assert observed.traces_stream == "traces"


def test_what_can_be_searched() -> None:
    assert REGISTRY is not None
    search = msgspec.to_builtins(REGISTRY.document().search)
    assert REGISTRY.routing_key is None
    assert "rollups" not in search
    assert search["primaryTimestampField"] == "timestamp"
    assert set(search["aliases"]) == {"env", "msg", "req", "span", "time", "trace", "ts"}
    assert search["fields"]["error.message"]["bindings"] == [{"version": 1, "jsonPointer": "/context/error/message"}]
    schema = REGISTRY.schemas[1]
    assert len(schema["required"]) == 20
    assert schema["additionalProperties"] is False


@given(documents(NAMES))
def test_whatever_comes_is_refused_or_conforms_and_stays(record: Any) -> None:
    assert REGISTRY is not None
    before = msgspec.json.encode(record)
    try:
        once = EVLOG.normalise([record], NOW)
    except SchemaError:
        return
    assert msgspec.json.encode(record) == before
    REGISTRY.check(once)
    assert EVLOG.normalise(once, NOW + 1) == once
    EVLOG.keys_of(once)

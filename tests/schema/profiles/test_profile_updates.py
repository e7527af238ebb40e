from __future__ import annotations

import msgspec
import pytest

from strandline.schema.errors import SchemaError
from strandline.schema.profiles import GENERIC, METRICS, StateProtocol, load_profile, parse_profile_update, show


def update(profile: object, **more: object) -> bytes:
    return msgspec.json.encode({"profile": profile, **more})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "profile update must be valid JSON"),
        (b"", "profile update must be valid JSON"),
        (b"\xff", "profile update must be valid JSON"),
        (b'{"profile":{"kind":"\xff"}}', "profile update must be valid JSON"),
        (b"[" * 100_000, "profile update must be valid JSON"),
        (b"[]", "profile update must be a JSON object"),
        (b'{"profile":{"kind":"generic"},"touch":1}', "profileUpdate.touch is not supported"),
        (update({"kind": "generic"}, apiVersion="v2"), "invalid profile apiVersion"),
        (update({"kind": "generic"}, apiVersion=None), "invalid profile apiVersion"),
        (b"{}", "missing profile"),
        (update(None), "missing profile"),
        (update({}), "profile.kind must be a non-empty string"),
        (update({"kind": ""}), "profile.kind must be a non-empty string"),
        (update({"kind": ["evlog"]}), "profile.kind must be a non-empty string"),
        (update({"kind": "queue"}), "profile.kind must be evlog|generic|metrics|otel-traces|state-protocol"),
        (update({"kind": "generic", "touch": {}}), "profile.touch is not supported"),
        (update({"kind": "metrics", "touch": {}}), "profile.touch is not supported"),
    ],
)
def test_what_is_wrong_with_an_update_is_said(body: bytes, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_profile_update(body)
    assert str(caught.value) == message
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "profile",
    [
        {"kind": "generic"},
        {"kind": "metrics"},
        {"kind": "evlog"},
        {"kind": "evlog", "redactKeys": ["ssn"], "correlation": {"requestIdFields": ["id"], "parseTraceparent": False}},
        {"kind": "evlog", "observability": {"request": {"tracesStream": "traces"}}},
        {"kind": "state-protocol"},
        {"kind": "state-protocol", "touch": {"enabled": True, "memory": {"k": 3}}},
        {"kind": "otel-traces"},
        {
            "kind": "otel-traces",
            "redactKeys": ["ssn"],
            "requestIdAttributes": ["my.id"],
            "attributeLimits": {"maxEventsPerSpan": 3},
            "store": {"rawEvents": False},
            "dbStatementMode": "raw",
            "urlMode": "raw",
            "otlpLimits": {"maxSpansPerRequest": 10},
            "observability": {"request": {"eventsStream": "events"}},
        },
    ],
)
def test_what_was_set_is_shown_and_survives_being_stored(profile: dict[str, object]) -> None:
    parsed = parse_profile_update(update(profile, apiVersion="durable.streams/profile/v1"))
    assert msgspec.to_builtins(show(parsed, lambda name: True)) == {
        "apiVersion": "durable.streams/profile/v1",
        "profile": profile,
    }
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(parsed.stored()))
    again = load_profile(stored)
    assert again.kind == parsed.kind
    assert again.document() == profile


@pytest.mark.parametrize("kind", ["evlog", "metrics", "state-protocol", "otel-traces"])
def test_all_but_generic_need_a_stream_of_json(kind: str) -> None:
    profile = parse_profile_update(update({"kind": kind}))
    with pytest.raises(SchemaError, match=f"^{kind} profile requires application/json stream content-type$"):
        profile.check_install(is_json=False, is_empty=True, current=GENERIC)
    profile.check_install(is_json=True, is_empty=True, current=GENERIC)
    GENERIC.check_install(is_json=False, is_empty=False, current=profile)


@pytest.mark.parametrize("kind", ["evlog", "otel-traces"])
def test_some_must_be_there_before_the_first_record(kind: str) -> None:
    profile = parse_profile_update(update({"kind": kind}))
    with pytest.raises(SchemaError, match=f"^{kind} profile must be installed before appending data$"):
        profile.check_install(is_json=True, is_empty=False, current=GENERIC)
    profile.check_install(is_json=True, is_empty=False, current=profile)


def test_others_may_come_later() -> None:
    METRICS.check_install(is_json=True, is_empty=False, current=GENERIC)
    StateProtocol(None, {}).check_install(is_json=True, is_empty=False, current=GENERIC)


def test_generic_and_state_protocol_keep_the_registry() -> None:
    assert GENERIC.registry("s") is None
    assert StateProtocol(None, {}).registry("s") is None


@pytest.mark.parametrize("kind", ["evlog", "metrics", "otel-traces"])
def test_the_others_bring_a_registry_that_can_be_stored(kind: str) -> None:
    registry = parse_profile_update(update({"kind": kind})).registry("my/stream")
    assert registry is not None
    assert (registry.schema, registry.current_version, registry.boundaries) == ("my/stream", 1, ((0, 1),))
    assert type(registry).load(registry.stored()).document() == registry.document()

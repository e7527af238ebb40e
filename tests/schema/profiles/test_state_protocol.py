from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from support.json_documents import documents

from strandline.schema.errors import SchemaError
from strandline.schema.profiles import StateProtocol, load_profile
from strandline.schema.profiles.touch_settings import TouchSettings

STATE = load_profile({"kind": "state-protocol"})
NAMES = [
    "type",
    "key",
    "value",
    "old_value",
    "headers",
    "operation",
    "control",
    "offset",
    "txid",
    "timestamp",
    "insert",
]


def change(**more: Any) -> dict[str, Any]:
    return {"type": "todo", "key": "1", "value": {"a": 1}, "headers": {"operation": "insert"}} | more


@pytest.mark.parametrize(
    "record",
    [
        change(),
        change(value=None),
        change(
            old_value=None, headers={"operation": "update", "txid": "9", "timestamp": "2026-03-25T10:00:00.123+02:00"}
        ),
        {"type": "todo", "key": "1", "headers": {"operation": "delete"}},
        {"headers": {"control": "reset"}},
        {"headers": {"control": "snapshot-start", "offset": "-1"}},
        {"headers": {"control": "snapshot-end", "offset": "0" * 26}},
    ],
)
def test_changes_and_marks_are_kept_as_they_came(record: dict[str, Any]) -> None:
    records = [record]
    assert STATE.normalise(records, 0) is records
    assert STATE.normalises is False
    assert STATE.keys_of(records) is None


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (5, "state-protocol records must be JSON objects"),
        ({}, "state-protocol record.headers must be an object"),
        ({"headers": []}, "state-protocol record.headers must be an object"),
        ({"headers": {}}, "state-protocol record.headers must contain operation or control"),
        (
            {"headers": {"operation": "insert", "control": "reset"}},
            "state-protocol record.headers cannot mix control and operation",
        ),
        (change(oldValue=1), "state-protocol record.oldValue is not supported"),
        (change(headers={"operation": "insert", "x": 1}), "state-protocol record.headers.x is not supported"),
        (change(type=""), "state-protocol record.type must be a non-empty string"),
        (change(key=1), "state-protocol record.key must be a non-empty string"),
        (
            change(headers={"operation": ["insert"]}),
            "state-protocol record.headers.operation must be insert, update, or delete",
        ),
        (
            {"type": "t", "key": "k", "headers": {"operation": "update"}},
            "state-protocol update records must include value",
        ),
        (
            change(headers={"operation": "insert", "txid": ""}),
            "state-protocol record.headers.txid must be a non-empty string",
        ),
        (
            change(headers={"operation": "insert", "timestamp": "2026-02-30T10:00:00Z"}),
            "state-protocol record.headers.timestamp must be an RFC 3339 timestamp",
        ),
        (
            change(headers={"operation": "insert", "timestamp": "2026-02-20"}),
            "state-protocol record.headers.timestamp must be an RFC 3339 timestamp",
        ),
        (
            {"headers": {"control": "reset"}, "type": "t"},
            "state-protocol record.type is not supported in control records",
        ),
        (
            {"headers": {"control": "stop"}},
            "state-protocol record.headers.control must be snapshot-start, snapshot-end, or reset",
        ),
        ({"headers": {"control": "reset", "txid": "1"}}, "state-protocol record.headers.txid is not supported"),
        (
            {"headers": {"control": "reset", "offset": "x"}},
            "state-protocol record.headers.offset must be a valid offset",
        ),
        (
            {"headers": {"control": "reset", "offset": -1}},
            "state-protocol record.headers.offset must be a valid offset",
        ),
    ],
)
def test_what_is_wrong_with_a_record_is_said(record: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        STATE.normalise([record], 0)
    assert str(caught.value) == message
    with pytest.raises(SchemaError) as caught:
        STATE.normalise([change(), change(), record], 0)
    assert str(caught.value) == f"element 2: {message}"


def touch(**settings: Any) -> TouchSettings | None:
    profile = load_profile({"kind": "state-protocol", "touch": settings})
    assert isinstance(profile, StateProtocol)
    return profile.touch


def test_touch_has_defaults() -> None:
    assert isinstance(STATE, StateProtocol)
    assert STATE.touch is None
    config = touch(enabled=True)
    assert config is not None
    assert config.enabled
    assert msgspec.to_builtins(config) == msgspec.to_builtins(TouchSettings(enabled=True))
    assert (config.coarse_interval_ms, config.memory.filter_pow2, config.templates.gc_interval_ms) == (100, 22, 60_000)


def test_touch_can_be_set_in_every_part() -> None:
    config = touch(
        enabled=True, onMissingBefore="error", fineBurstTokens=0, memory={"k": 8.0}, templates={"gcIntervalMs": 5}
    )
    assert config is not None
    assert (config.on_missing_before, config.fine_burst_tokens) == ("error", 0)
    assert (config.memory.k, config.templates.gc_interval_ms) == (8, 5)


def test_of_touch_that_is_not_enabled_only_that_is_kept() -> None:
    profile = load_profile({"kind": "state-protocol", "touch": {"enabled": False, "memory": {"k": 3}}})
    assert profile.document() == {"kind": "state-protocol", "touch": {"enabled": False}}
    assert isinstance(profile, StateProtocol)
    assert profile.touch == TouchSettings()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], "profile.touch must be an object"),
        ({"enabled": 1}, "profile.touch.enabled must be boolean"),
        ({"enabled": True, "storage": "x"}, "profile.touch.storage is not supported"),
        ({"enabled": False, "storage": "x"}, "profile.touch.storage is not supported"),
        ({"coarseIntervalMs": 0}, "profile.touch.coarseIntervalMs must be an integer >= 1"),
        ({"fineBurstTokens": 1.5}, "profile.touch.fineBurstTokens must be an integer >= 0"),
        ({"fineBurstTokens": True}, "profile.touch.fineBurstTokens must be an integer >= 0"),
        ({"onMissingBefore": "guess"}, "profile.touch.onMissingBefore must be coarse|skipBefore|error"),
        ({"memory": {"filterPow2": 31}}, "profile.touch.memory.filterPow2 must be an integer between 10 and 30"),
        ({"memory": {"k": 9}}, "profile.touch.memory.k must be an integer between 1 and 8"),
        ({"memory": {"x": 9}}, "profile.touch.memory.x is not supported"),
        ({"templates": {"x": 9}}, "profile.touch.templates.x is not supported"),
        ({"templates": {"gcIntervalMs": "5"}}, "profile.touch.templates.gcIntervalMs must be an integer >= 1"),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(settings: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        load_profile({"kind": "state-protocol", "touch": settings})
    assert str(caught.value) == message


@given(documents(NAMES))
def test_whatever_comes_is_refused_or_kept(record: Any) -> None:
    try:
        assert STATE.normalise([record], 0) == [record]
    except SchemaError:
        pass

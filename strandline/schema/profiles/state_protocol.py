"""The state-protocol profile: records are changes to rows, or control messages. They are checked and stored unchanged.

The option ``touch`` configures live invalidation for the stream; see :mod:`.touch_settings`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType

from strandline.schema.errors import SchemaError
from strandline.schema.options import DeclaredOptions, read_options
from strandline.schema.profiles.profile import Profile, in_batch
from strandline.schema.profiles.touch_settings import TouchSettings

OPERATIONS = ("insert", "update", "delete")
CONTROLS = ("snapshot-start", "snapshot-end", "reset")

_CHANGE_KEYS = frozenset({"type", "key", "value", "old_value", "headers"})
_CHANGE_HEADERS = frozenset({"operation", "txid", "timestamp"})
_CONTROL_HEADERS = frozenset({"control", "offset"})
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
#: This protocol's form of an offset: 128 bits in Crockford's base 32.
_OFFSET = re.compile(r"[0-9A-HJKMNP-TV-ZOILa-hjkmnp-tv-zoil]{26}", re.ASCII)


class StateProtocolProfile(DeclaredOptions, frozen=True, tag_field="kind", tag="state-protocol"):
    """Changes of rows, and control messages between them."""

    touch: TouchSettings | UnsetType = UNSET


class StateProtocol(Profile):
    """``touch`` is None if the document has no such option. It may also be present and not enabled."""

    kind = "state-protocol"

    def __init__(self, touch: TouchSettings | None, document: dict[str, Any]) -> None:
        self.touch = touch
        self._document = document

    def document(self) -> dict[str, Any]:
        return self._document

    @classmethod
    def parse(cls, document: dict[str, Any]) -> StateProtocol:
        """If touch is not enabled, its other options are checked and dropped."""
        options, given = read_options(StateProtocolProfile, document, "profile")
        touch = None if options.touch is UNSET else options.touch
        if touch is not None and not touch.enabled:
            touch, given["touch"] = TouchSettings(), {"enabled": False}
        return cls(touch, {"kind": cls.kind, **given})

    def normalise(self, documents: list[Any], now: int) -> list[Any]:
        for index, document in enumerate(documents):
            try:
                _check(document)
            except SchemaError as error:
                raise in_batch(error, index, len(documents)) from None
        return documents


def _check(record: Any) -> None:
    if not isinstance(record, dict):
        raise SchemaError("state-protocol records must be JSON objects")
    headers = record.get("headers")
    if not isinstance(headers, dict):
        raise SchemaError("state-protocol record.headers must be an object")
    if "operation" in headers:
        if "control" in headers:
            raise SchemaError("state-protocol record.headers cannot mix control and operation")
        _check_change(record, headers)
    elif "control" in headers:
        _check_control(record, headers)
    else:
        raise SchemaError("state-protocol record.headers must contain operation or control")


def _check_change(record: dict[str, Any], headers: dict[str, Any]) -> None:
    if not record.keys() <= _CHANGE_KEYS:
        raise SchemaError(f"state-protocol record.{_first(record, _CHANGE_KEYS)} is not supported")
    if not headers.keys() <= _CHANGE_HEADERS:
        raise SchemaError(f"state-protocol record.headers.{_first(headers, _CHANGE_HEADERS)} is not supported")
    for name in ("type", "key"):
        value = record.get(name)
        if not isinstance(value, str) or not value:
            raise SchemaError(f"state-protocol record.{name} must be a non-empty string")
    operation = headers["operation"]
    if operation not in OPERATIONS:
        raise SchemaError("state-protocol record.headers.operation must be insert, update, or delete")
    if operation != "delete" and "value" not in record:
        raise SchemaError(f"state-protocol {operation} records must include value")
    if "txid" in headers and not (isinstance(headers["txid"], str) and headers["txid"]):
        raise SchemaError("state-protocol record.headers.txid must be a non-empty string")
    if "timestamp" in headers and not _is_time(headers["timestamp"]):
        raise SchemaError("state-protocol record.headers.timestamp must be an RFC 3339 timestamp")


def _check_control(record: dict[str, Any], headers: dict[str, Any]) -> None:
    if len(record) > 1:
        raise SchemaError(f"state-protocol record.{_first(record, {'headers'})} is not supported in control records")
    if not headers.keys() <= _CONTROL_HEADERS:
        raise SchemaError(f"state-protocol record.headers.{_first(headers, _CONTROL_HEADERS)} is not supported")
    if headers["control"] not in CONTROLS:
        raise SchemaError("state-protocol record.headers.control must be snapshot-start, snapshot-end, or reset")
    if "offset" in headers:
        offset = headers["offset"]
        if not isinstance(offset, str) or (offset != "-1" and _OFFSET.fullmatch(offset) is None):
            raise SchemaError("state-protocol record.headers.offset must be a valid offset")


def _first(document: dict[str, Any], allowed: frozenset[str] | set[str]) -> str:
    return next(name for name in document if name not in allowed)


def _is_time(value: object) -> bool:
    match = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return False
    try:
        datetime.fromisoformat(f"{match[1]}T{match[2]}")
    except ValueError:
        return False
    return True

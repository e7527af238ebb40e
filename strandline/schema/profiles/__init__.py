"""Profiles: what kind of stream it is, beyond its content type. One module per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from strandline.schema.errors import SchemaError
from strandline.schema.profiles.evlog import Evlog
from strandline.schema.profiles.generic import GENERIC, Generic
from strandline.schema.profiles.metrics import METRICS, Metrics
from strandline.schema.profiles.options import Options
from strandline.schema.profiles.otel_traces import OtelTraces
from strandline.schema.profiles.profile import Profile
from strandline.schema.profiles.state_protocol import StateProtocol
from strandline.schema.profiles.touch_config import TouchConfig, TouchMemory, TouchTemplates

__all__ = [
    "API_VERSION",
    "GENERIC",
    "METRICS",
    "Evlog",
    "Metrics",
    "OtelTraces",
    "Profile",
    "StateProtocol",
    "TouchConfig",
    "TouchMemory",
    "TouchTemplates",
    "load_profile",
    "parse_profile_update",
    "show",
]

API_VERSION = "durable.streams/profile/v1"

#: In the order in which they are listed to whoever names another.
_KINDS: dict[str, Callable[[Options], Profile]] = {
    "evlog": Evlog.parse,
    "generic": Generic.parse,
    "metrics": Metrics.parse,
    "otel-traces": OtelTraces.parse,
    "state-protocol": StateProtocol.parse,
}


def load_profile(stored: Mapping[str, Any]) -> Profile:
    """The profile that ``stored()`` gave this."""
    return _make(dict(stored))


def parse_profile_update(body: bytes) -> Profile:
    """The profile that an update asks for. Raises SchemaError."""
    try:
        update = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SchemaError("profile update must be valid JSON") from None
    if not isinstance(update, dict):
        raise SchemaError("profile update must be a JSON object")
    for name in update:
        if name not in ("apiVersion", "profile"):
            raise SchemaError(f"profileUpdate.{name} is not supported")
    if "apiVersion" in update and update["apiVersion"] != API_VERSION:
        raise SchemaError("invalid profile apiVersion")
    profile = update.get("profile")
    if not isinstance(profile, dict):
        raise SchemaError("missing profile")
    return _make(profile)


def show(profile: Profile) -> dict[str, Any]:
    """The profile as the protocol shows it."""
    return {"apiVersion": API_VERSION, "profile": profile.document()}


def _make(document: dict[str, Any]) -> Profile:
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise SchemaError("profile.kind must be a non-empty string")
    parse = _KINDS.get(kind)
    if parse is None:
        raise SchemaError(f"profile.kind must be {'|'.join(_KINDS)}")
    return parse(Options(document, "profile"))

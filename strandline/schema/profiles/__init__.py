"""Profiles: the kind of a stream beyond its content type. One module per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from strandline.nearest_name import did_you_mean
from strandline.schema.errors import SchemaError
from strandline.schema.profiles.evlog import Evlog
from strandline.schema.profiles.metrics import METRICS, Metrics
from strandline.schema.profiles.otel_traces import OtelTraces
from strandline.schema.profiles.profile import GENERIC, Generic, Profile, ProfileOptions
from strandline.schema.profiles.state_protocol import StateProtocol

__all__ = [
    "API_VERSION",
    "GENERIC",
    "METRICS",
    "Evlog",
    "Metrics",
    "OtelTraces",
    "Profile",
    "StateProtocol",
    "load_profile",
    "parse_profile_update",
    "show",
]

API_VERSION = "durable.streams/profile/v1"

#: In the order of the error message for an unknown kind.
_KINDS: dict[str, Callable[[ProfileOptions], Profile]] = {
    "evlog": Evlog.parse,
    "generic": Generic.parse,
    "metrics": Metrics.parse,
    "otel-traces": OtelTraces.parse,
    "state-protocol": StateProtocol.parse,
}

_UPDATE_KEYS = ("apiVersion", "profile")


def load_profile(stored: Mapping[str, Any]) -> Profile:
    """Return the profile from the result of ``stored()``."""
    return _make(dict(stored))


def parse_profile_update(body: bytes) -> Profile:
    """Return the profile that an update requests. Raises SchemaError."""
    try:
        update = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SchemaError("profile update must be valid JSON") from None
    if not isinstance(update, dict):
        raise SchemaError("profile update must be a JSON object")
    for name in update:
        if name not in _UPDATE_KEYS:
            raise SchemaError(f"profileUpdate.{name} is not supported{did_you_mean(name, _UPDATE_KEYS)}")
    if "apiVersion" in update and update["apiVersion"] != API_VERSION:
        raise SchemaError("invalid profile apiVersion")
    profile = update.get("profile")
    if not isinstance(profile, dict):
        raise SchemaError("missing profile")
    return _make(profile)


def show(profile: Profile) -> dict[str, Any]:
    """Return the profile as the protocol shows it."""
    return {"apiVersion": API_VERSION, "profile": profile.document()}


def _make(document: dict[str, Any]) -> Profile:
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise SchemaError("profile.kind must be a non-empty string")
    parse = _KINDS.get(kind)
    if parse is None:
        raise SchemaError(f"profile.kind must be {'|'.join(_KINDS)}")
    return parse(ProfileOptions(document, "profile"))

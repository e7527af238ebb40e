"""Profiles: the kind of a stream beyond its content type. One module per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from strandline.schema.errors import SchemaError
from strandline.schema.options import check_members
from strandline.schema.profiles.evlog import Evlog, EvlogProfile
from strandline.schema.profiles.metrics import METRICS, Metrics, MetricsProfile
from strandline.schema.profiles.otel_limits import OtelTracesProfile
from strandline.schema.profiles.otel_traces import OtelTraces
from strandline.schema.profiles.profile import GENERIC, Generic, GenericProfile, Profile, ProfileKind
from strandline.schema.profiles.state_protocol import StateProtocol, StateProtocolProfile

__all__ = [
    "GENERIC",
    "METRICS",
    "Evlog",
    "Metrics",
    "OtelTraces",
    "Profile",
    "ProfileDocument",
    "ProfileKind",
    "ProfileUpdate",
    "StateProtocol",
    "keep_hidden",
    "load_profile",
    "parse_profile_update",
    "show",
    "shown_document",
]

#: Says whether somebody may touch the stream of a name.
MayTouch = Callable[[str], bool]
#: The member of a profile that names other streams.
NAMES_STREAMS = "observability"

ApiVersion = Literal["durable.streams/profile/v1"]
_API_VERSION: ApiVersion = "durable.streams/profile/v1"
_Declared = EvlogProfile | GenericProfile | MetricsProfile | OtelTracesProfile | StateProtocolProfile

#: In the order of the error message for an unknown kind.
_KINDS: dict[str, type[Profile]] = {
    profile.kind: profile for profile in (Evlog, Generic, Metrics, OtelTraces, StateProtocol)
}


class ProfileUpdate(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    api_version: ApiVersion | UnsetType = UNSET
    profile: _Declared


class ProfileDocument(msgspec.Struct, rename="camel"):
    """What is shown: of the profile, the options that were set."""

    api_version: ApiVersion
    profile: _Declared


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
    check_members(update, ProfileUpdate, "profileUpdate")
    if update.get("apiVersion", _API_VERSION) != _API_VERSION:
        raise SchemaError("invalid profile apiVersion")
    profile = update.get("profile")
    if not isinstance(profile, dict):
        raise SchemaError("missing profile")
    return _make(profile)


def show(profile: Profile, may_touch: MayTouch) -> ProfileDocument:
    """Return the profile as the protocol shows it to a reader who may touch some streams."""
    return ProfileDocument(_API_VERSION, cast(_Declared, shown_document(profile, may_touch)))


def shown_document(profile: Profile, may_touch: MayTouch) -> dict[str, Any]:
    """Return the document of the profile, without the names of other streams if the reader may not touch them."""
    document = profile.document()
    if all(map(may_touch, profile.named_streams)):
        return document
    return {name: value for name, value in document.items() if name != NAMES_STREAMS}


def keep_hidden(wanted: Profile, current: Profile, may_touch: MayTouch) -> Profile:
    """Return the wanted profile, with the names of other streams in the current one that the caller can neither see nor
    name, and so cannot have meant to remove."""
    hidden = not all(map(may_touch, current.named_streams))
    if wanted.kind != current.kind or wanted.named_streams or not hidden:
        return wanted
    return _make({**wanted.document(), NAMES_STREAMS: current.document()[NAMES_STREAMS]})


def _make(document: dict[str, Any]) -> Profile:
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise SchemaError("profile.kind must be a non-empty string")
    profile = _KINDS.get(kind)
    if profile is None:
        raise SchemaError(f"profile.kind must be {'|'.join(_KINDS)}")
    return profile.parse(document)

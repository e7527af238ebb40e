"""The configuration of a log, as clients send and see it, and its translation to the engine's configuration."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strandline.engine import Config
from strandline.engine.record import PLAIN_NAME, Discard, Durability
from strandline.service.access import FULL_ACCESS, Access
from strandline.service.problems import invalid, may_not_touch

Kind = Literal["log", "queue"]
Count = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]
Number = Annotated[int, Meta(ge=0)]

#: The name of a topic in a body. Names are checked only when a topic is created; the schema here is documentation for
#: authors of clients.
NameField = Annotated[str, Meta(extra_json_schema={"pattern": f"^{PLAIN_NAME.pattern}$"})]
#: The shortest and the longest lease.
LEASE_MS = (100, 86_400_000)
MAX_CLAIM_JITTER_MS = 5_000


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of a topic in a request. Members that are left out have their defaults."""

    type: Kind | UnsetType = UNSET
    ttl_ms: Count = 0
    cap_records: Count = 0
    cap_bytes: Count = 0
    discard: Discard = "old"
    compact: bool = False
    durable: bool | None = None
    durability: Durability | None = None
    priority: Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)] | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: Count = 120_000
    dedupe_node: bool = True
    lease_ms: Count = 30_000
    claim_jitter_ms: Count = 0
    max_deliveries: Count = 0
    dead_letter: NameField | None = None
    leases_durable: bool = False

    def kind(self, default: Kind = "log") -> Kind:
        """The requested type, or the default."""
        return default if isinstance(self.type, UnsetType) else self.type


class ConfigShown(msgspec.Struct, kw_only=True):
    """The whole configuration in an answer, including defaults."""

    type: Kind
    ttl_ms: Number
    cap_records: Number
    cap_bytes: Number
    discard: Discard
    compact: bool
    durable: bool
    durability: Durability
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: Number
    dedupe_node: bool
    lease_ms: Number
    claim_jitter_ms: Number
    max_deliveries: Number
    dead_letter: str | None
    leases_durable: bool


class Traits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a topic's configuration that the engine does not know. It is stored in the log's attributes."""

    type: Kind = "log"
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False


#: The attribute of a log that holds the traits.
ATTRIBUTE = "topics"


def check_name(name: str) -> str:
    if PLAIN_NAME.fullmatch(name) is None:
        raise invalid(
            f"{name!r} is not a topic name: expected 1 to 255 letters, digits and . _ : -, first a letter or digit",
        )
    return name


def engine_config(name: str, wanted: TopicConfig, kind: Kind) -> Config:
    """The engine's configuration for a request."""
    if wanted.dead_letter is not None:
        _check_dead_letter(name, wanted.dead_letter)
    if wanted.compact and kind == "queue":
        raise invalid("compact is not supported for queues", {"topic": name})
    traits = Traits(
        type=kind,
        priority=wanted.priority,
        auto_priority=wanted.auto_priority,
        auto_create=wanted.auto_create,
        dedupe_node=wanted.dedupe_node,
        lease_ms=clamp_lease(wanted.lease_ms),
        claim_jitter_ms=min(wanted.claim_jitter_ms, MAX_CLAIM_JITTER_MS),
        max_deliveries=wanted.max_deliveries,
        dead_letter=wanted.dead_letter,
        leases_durable=wanted.leases_durable,
    )
    return Config(
        durability=wanted.durability or ("fsync" if wanted.durable else "disk"),
        ttl_ms=wanted.ttl_ms,
        cap_records=wanted.cap_records,
        cap_bytes=wanted.cap_bytes,
        discard=wanted.discard,
        compact=wanted.compact,
        idempotency_window_ms=wanted.idempotency_window_ms,
        attributes={ATTRIBUTE: msgspec.to_builtins(traits)},
    )


def default_config() -> Config:
    """The configuration of a log that is created without one."""
    return engine_config("", TopicConfig(), "log")


def check_config(wanted: TopicConfig, access: Access) -> None:
    """Refuse a configuration that names a topic which the key may not access."""
    if wanted.dead_letter is not None and not access.may_touch(wanted.dead_letter):
        raise may_not_touch(wanted.dead_letter, "dead_letter")


def keep_hidden(wanted: TopicConfig, traits: Traits, access: Access) -> TopicConfig:
    """The requested configuration, with the parts that the key can neither see nor name: the request keeps them."""
    hidden = traits.dead_letter
    if wanted.dead_letter is not None or hidden is None or access.may_touch(hidden):
        return wanted
    return msgspec.structs.replace(wanted, dead_letter=hidden)


def clamp_lease(lease_ms: int) -> int:
    return max(LEASE_MS[0], min(LEASE_MS[1], lease_ms))


def _check_dead_letter(name: str, dead_letter: str) -> None:
    if PLAIN_NAME.fullmatch(dead_letter) is None or dead_letter == name:
        why = "a queue cannot be its own dead-letter topic" if dead_letter == name else "not a valid topic name"
        raise invalid(f"invalid dead_letter {dead_letter!r}: {why}", {"dead_letter": dead_letter})


def traits_of(config: Config) -> Traits:
    """The traits of a log; the defaults if another protocol created it."""
    return msgspec.convert(config.attributes.get(ATTRIBUTE, {}), Traits)


def kind_of(config: Config) -> Kind:
    """The type alone, which is fast enough to check for every log."""
    kind: Kind = config.attributes.get(ATTRIBUTE, {}).get("type", "log")
    return kind


def shown_config(config: Config, traits: Traits, access: Access = FULL_ACCESS) -> ConfigShown:
    """The whole configuration, as all answers show it, without names that the key may not access."""
    dead_letter = traits.dead_letter
    return ConfigShown(
        type=traits.type,
        ttl_ms=config.ttl_ms,
        cap_records=config.cap_records,
        cap_bytes=config.cap_bytes,
        discard=config.discard,
        compact=config.compact,
        durable=config.durability == "fsync",
        durability=config.durability,
        priority=traits.priority,
        auto_priority=traits.auto_priority,
        auto_create=traits.auto_create,
        idempotency_window_ms=config.idempotency_window_ms,
        dedupe_node=traits.dedupe_node,
        lease_ms=traits.lease_ms,
        claim_jitter_ms=traits.claim_jitter_ms,
        max_deliveries=traits.max_deliveries,
        dead_letter=dead_letter if dead_letter is None or access.may_touch(dead_letter) else None,
        leases_durable=traits.leases_durable,
    )

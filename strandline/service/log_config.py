"""Translates the configuration of a log between requests and answers on one side and the engine on the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strandline.delivery.queues.backoff import NO_BACKOFF, clamp_delay
from strandline.engine import Config
from strandline.engine.ownership import REGISTRY
from strandline.engine.record import FLUSHED, PLAIN_NAME, Discard, Durability
from strandline.query.config import SearchConfig
from strandline.query.declaration import SearchDeclaration
from strandline.schema.errors import SchemaError
from strandline.schema.log_search import checked_search, log_search, with_search
from strandline.service.access import FULL_ACCESS, Access
from strandline.service.problems import invalid, may_not_touch

T = TypeVar("T")

Kind = Literal["log", "queue"]
Count = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]
Number = Annotated[int, Meta(ge=0)]

#: The name of a topic in a body. The pattern documents valid names in the OpenAPI schema. The server checks it only
#: when it creates a topic, not when it looks one up.
NameField = Annotated[str, Meta(extra_json_schema={"pattern": f"^{PLAIN_NAME.pattern}$"})]
#: The shortest and the longest lease.
LEASE_MS = (100, 86_400_000)
MAX_CLAIM_JITTER_MS = 5_000
Factor = Annotated[float, Meta(ge=1, le=1000)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
#: A search configuration in a body. ``wanted_search`` checks it, with the messages of the streams protocol.
SearchField = Annotated[
    Any,
    Meta(extra_json_schema={"anyOf": [{"$ref": "#/components/schemas/SearchDeclaration"}, {"type": "null"}]}),
]


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of a topic in a request. A missing member has its default, except that the type and the search
    configuration of an existing topic stay as they are."""

    type: Kind | UnsetType = UNSET
    ttl_ms: Count = 0
    cap_records: Count = 0
    cap_bytes: Count = 0
    discard: Discard = "old"
    compact: bool = False
    retain_until_in_lake: bool = False
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
    retry_delay_ms: Count = NO_BACKOFF.delay_ms
    retry_backoff: Factor = NO_BACKOFF.factor
    retry_max_ms: Count = NO_BACKOFF.max_ms
    retry_jitter: Fraction = NO_BACKOFF.jitter
    search: SearchField = UNSET

    def kind(self, default: Kind = "log") -> Kind:
        """The requested type, or the default if the request names none."""
        return default if isinstance(self.type, UnsetType) else self.type


class ConfigShown(msgspec.Struct, kw_only=True):
    """The configuration in an answer, including defaults. Members that the protocol got later are left out while they
    have their default, because clients compare the configuration with one that has no such members."""

    type: Kind
    ttl_ms: Number
    cap_records: Number
    cap_bytes: Number
    discard: Discard
    compact: bool | UnsetType = UNSET
    retain_until_in_lake: bool | UnsetType = UNSET
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
    retry_delay_ms: Number | UnsetType = UNSET
    retry_backoff: float | UnsetType = UNSET
    retry_max_ms: Number | UnsetType = UNSET
    retry_jitter: float | UnsetType = UNSET
    search: SearchDeclaration | UnsetType = UNSET


class Traits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a topic's configuration that the engine does not interpret. It is stored in the log's attributes."""

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
    retry_delay_ms: int = NO_BACKOFF.delay_ms
    retry_backoff: float = NO_BACKOFF.factor
    retry_max_ms: int = NO_BACKOFF.max_ms
    retry_jitter: float = NO_BACKOFF.jitter


#: The traits as they are without a configuration.
DEFAULTS = Traits()

#: The name of the log attribute that holds the traits.
ATTRIBUTE = "topics"


def check_name(name: str) -> str:
    if PLAIN_NAME.fullmatch(name) is None:
        raise invalid(
            f"invalid topic name {name!r}: expected 1 to 255 letters, digits and . _ : -, first a letter or digit"
        )
    return name


def engine_config(name: str, wanted: TopicConfig, kind: Kind) -> Config:
    """The engine's configuration for a requested one. Raises a refusal if the request is not valid."""
    if wanted.dead_letter is not None:
        _check_dead_letter(name, wanted.dead_letter)
    if wanted.compact and kind == "queue":
        raise invalid("compact is not supported for queues", {"topic": name})
    retry_delay_ms, retry_max_ms = clamp_delay(wanted.retry_delay_ms), clamp_delay(wanted.retry_max_ms)
    if retry_delay_ms > retry_max_ms:
        # The first delay would be cut, perhaps to the default of the longest one.
        raise invalid(f"retry_delay_ms {retry_delay_ms} is longer than retry_max_ms {retry_max_ms}: raise retry_max_ms")
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
        retry_delay_ms=retry_delay_ms,
        retry_backoff=wanted.retry_backoff,
        retry_max_ms=retry_max_ms,
        retry_jitter=wanted.retry_jitter,
    )
    return Config(
        durability=wanted.durability or ("fsync" if wanted.durable else "disk"),
        ttl_ms=wanted.ttl_ms,
        cap_records=wanted.cap_records,
        cap_bytes=wanted.cap_bytes,
        discard=wanted.discard,
        compact=wanted.compact,
        retain_until_in_lake=wanted.retain_until_in_lake,
        idempotency_window_ms=wanted.idempotency_window_ms,
        attributes={ATTRIBUTE: msgspec.to_builtins(traits)},
    )


def wanted_search(wanted: TopicConfig) -> SearchConfig | UnsetType | None:
    """The requested search configuration: UNSET to leave it as it is, None to remove it. Raises a refusal."""
    if isinstance(wanted.search, UnsetType):
        return UNSET
    try:
        return checked_search(wanted.search)
    except SchemaError as error:
        raise invalid(str(error)) from None


def search_note(name: str, notes: Mapping[str, Any], search: SearchConfig | UnsetType | None) -> dict[str, Any]:
    """The change of a log's notes that gives it this search configuration; empty if it has it already."""
    if isinstance(search, UnsetType):
        return {}
    before = notes.get(REGISTRY)
    after = with_search(before, name, search)
    return {} if after == before else {REGISTRY: after}


def default_config() -> Config:
    """The configuration of a log that is created without one."""
    return engine_config("", TopicConfig(), "log")


def check_config(wanted: TopicConfig, access: Access) -> None:
    """Refuse a configuration that names a topic which the API key may not access."""
    if wanted.dead_letter is not None and not access.may_touch(wanted.dead_letter):
        raise may_not_touch(wanted.dead_letter, "dead_letter")


def keep_hidden(wanted: TopicConfig, traits: Traits, access: Access) -> TopicConfig:
    """The wanted configuration, with the current dead-letter topic if the API key may not access that topic. Such a key
    cannot see or name the topic, so a missing name is no request to remove it."""
    hidden = traits.dead_letter
    if wanted.dead_letter is not None or hidden is None or access.may_touch(hidden):
        return wanted
    return msgspec.structs.replace(wanted, dead_letter=hidden)


def clamp_lease(lease_ms: int) -> int:
    return max(LEASE_MS[0], min(LEASE_MS[1], lease_ms))


def _check_dead_letter(name: str, dead_letter: str) -> None:
    if PLAIN_NAME.fullmatch(dead_letter) is None or dead_letter == name:
        why = "must be another topic than the queue" if dead_letter == name else "is not a valid topic name"
        raise invalid(f"dead_letter {dead_letter!r} {why}", {"dead_letter": dead_letter})


def traits_of(config: Config) -> Traits:
    """The traits of a log. A log that another protocol created has the defaults."""
    return msgspec.convert(config.attributes.get(ATTRIBUTE, {}), Traits)


def kind_of(config: Config) -> Kind:
    """The type of a log, without decoding all traits: quick enough to call for every log."""
    kind: Kind = config.attributes.get(ATTRIBUTE, {}).get("type", "log")
    return kind


def has_delivery_limit(config: Config) -> bool:
    """Whether the log is a queue with a maximum number of deliveries. As quick as ``kind_of``."""
    return kind_of(config) == "queue" and config.attributes[ATTRIBUTE].get("max_deliveries", 0) > 0


def shown_config(config: Config, traits: Traits, notes: Mapping[str, Any], access: Access = FULL_ACCESS) -> ConfigShown:
    """The complete configuration for an answer. A dead-letter topic that the API key may not access is left out."""
    dead_letter = traits.dead_letter
    search = log_search(notes.get(REGISTRY))
    return ConfigShown(
        type=traits.type,
        ttl_ms=config.ttl_ms,
        cap_records=config.cap_records,
        cap_bytes=config.cap_bytes,
        discard=config.discard,
        compact=config.compact or UNSET,
        retain_until_in_lake=config.retain_until_in_lake or UNSET,
        durable=config.durability in FLUSHED,
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
        retry_delay_ms=_unless_default(traits.retry_delay_ms, DEFAULTS.retry_delay_ms),
        retry_backoff=_unless_default(traits.retry_backoff, DEFAULTS.retry_backoff),
        retry_max_ms=_unless_default(traits.retry_max_ms, DEFAULTS.retry_max_ms),
        retry_jitter=_unless_default(traits.retry_jitter, DEFAULTS.retry_jitter),
        search=UNSET if search is None else cast(SearchDeclaration, search.config.document()),
    )


def _unless_default(value: T, default: T) -> T | UnsetType:
    return UNSET if value == default else value

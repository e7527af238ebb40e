"""The settings of live invalidation, declared by the option ``touch`` of the state-protocol profile."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, get_args

import msgspec

from strandline.schema.profiles.profile import MAX_WHOLE, ProfileOptions

#: What a change without the old row touches: ``coarse`` notifies all waits on the templates of its entity,
#: ``skipBefore`` uses the new row alone, ``error`` counts it as an error and notifies all waits.
OnMissingBefore = Literal["coarse", "skipBefore", "error"]


class MemorySettings(msgspec.Struct, frozen=True, kw_only=True):
    #: The longest time that a bucket is open.
    bucket_ms: int = 100
    #: The filter has 2 to this power cells of 4 bytes, and every key sets ``k`` of them.
    filter_pow2: int = 22
    k: int = 4
    #: A bucket with more keys counts as one that touches everything.
    pending_max_keys: int = 100_000
    #: A wait on more keys is not found by key, but checked after every bucket.
    key_index_max_keys: int = 32
    #: How long keys and templates are still recorded after their last waiter has gone.
    hot_key_ttl_ms: int = 10_000
    hot_template_ttl_ms: int = 10_000
    hot_max_keys: int = 1_000_000
    hot_max_templates: int = 4096


class TemplateSettings(msgspec.Struct, frozen=True, kw_only=True):
    #: A template that no client names for this long is retired.
    default_inactivity_ttl_ms: int = 3_600_000
    #: How often the time of last use of templates is stored.
    last_seen_persist_interval_ms: int = 300_000
    gc_interval_ms: int = 60_000
    max_active_per_entity: int = 256
    max_active_per_stream: int = 2048
    activation_rate_per_minute: int = 100


class TouchSettings(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = False
    #: The key of a table is touched at most once in this time.
    coarse_interval_ms: int = 100
    #: Under load, changes within this time are reported together.
    coalesce_window_ms: int = 100
    on_missing_before: OnMissingBefore = "coarse"
    #: With a lag of this many records, single rows are no longer reported; below the second number they are again.
    lag_degrade: int = 5000
    lag_recover: int = 1000
    #: How many row keys one batch of records may touch, and all batches per second, with a burst on top.
    fine_budget_per_batch: int = 2000
    fine_tokens_per_second: int = 200_000
    fine_burst_tokens: int = 400_000
    #: How many template keys a batch may touch while it lags.
    lag_reserved_budget_per_batch: int = 200
    memory: MemorySettings = MemorySettings()
    templates: TemplateSettings = TemplateSettings()


T = TypeVar("T", MemorySettings, TemplateSettings, TouchSettings)

#: The name of each option, the field it sets, and the lowest and highest value of a number.
_TOUCH = {
    "enabled": ("enabled", 0, 0),
    "coarseIntervalMs": ("coarse_interval_ms", 1, MAX_WHOLE),
    "touchCoalesceWindowMs": ("coalesce_window_ms", 1, MAX_WHOLE),
    "onMissingBefore": ("on_missing_before", 0, 0),
    "lagDegradeFineTouchesAtSourceOffsets": ("lag_degrade", 0, MAX_WHOLE),
    "lagRecoverFineTouchesAtSourceOffsets": ("lag_recover", 0, MAX_WHOLE),
    "fineTouchBudgetPerBatch": ("fine_budget_per_batch", 0, MAX_WHOLE),
    "fineTokensPerSecond": ("fine_tokens_per_second", 0, MAX_WHOLE),
    "fineBurstTokens": ("fine_burst_tokens", 0, MAX_WHOLE),
    "lagReservedFineTouchBudgetPerBatch": ("lag_reserved_budget_per_batch", 0, MAX_WHOLE),
    "memory": ("memory", 0, 0),
    "templates": ("templates", 0, 0),
}
_MEMORY = {
    "bucketMs": ("bucket_ms", 1, MAX_WHOLE),
    "filterPow2": ("filter_pow2", 10, 30),
    "k": ("k", 1, 8),
    "pendingMaxKeys": ("pending_max_keys", 1, MAX_WHOLE),
    "keyIndexMaxKeys": ("key_index_max_keys", 1, 1024),
    "hotKeyTtlMs": ("hot_key_ttl_ms", 1, MAX_WHOLE),
    "hotTemplateTtlMs": ("hot_template_ttl_ms", 1, MAX_WHOLE),
    "hotMaxKeys": ("hot_max_keys", 1, MAX_WHOLE),
    "hotMaxTemplates": ("hot_max_templates", 1, MAX_WHOLE),
}
_TEMPLATES = {
    "defaultInactivityTtlMs": ("default_inactivity_ttl_ms", 1, MAX_WHOLE),
    "lastSeenPersistIntervalMs": ("last_seen_persist_interval_ms", 1, MAX_WHOLE),
    "gcIntervalMs": ("gc_interval_ms", 1, MAX_WHOLE),
    "maxActiveTemplatesPerEntity": ("max_active_per_entity", 1, MAX_WHOLE),
    "maxActiveTemplatesPerStream": ("max_active_per_stream", 1, MAX_WHOLE),
    "activationRateLimitPerMinute": ("activation_rate_per_minute", 0, MAX_WHOLE),
}


def parse_touch(options: ProfileOptions) -> TouchSettings:
    """Parse the settings. Raises SchemaError. If touch is not enabled, the other options are checked and dropped."""
    settings = _parse(options, TouchSettings(), _TOUCH)
    if not settings.enabled:
        options.given.clear()
        options.given["enabled"] = False
        return TouchSettings()
    return settings


def _parse(options: ProfileOptions | None, defaults: T, fields: dict[str, tuple[str, int, int]]) -> T:
    if options is None:
        return defaults
    options.allow(*fields)
    found: dict[str, Any] = {}
    for name, (field, low, high) in fields.items():
        default = getattr(defaults, field)
        if isinstance(default, bool):
            found[field] = options.flag(name, default)
        elif isinstance(default, str):
            found[field] = options.choice(name, get_args(OnMissingBefore), default)
        elif isinstance(default, MemorySettings):
            found[field] = _parse(options.section(name), default, _MEMORY)
        elif isinstance(default, TemplateSettings):
            found[field] = _parse(options.section(name), default, _TEMPLATES)
        else:
            found[field] = options.whole(name, default, low, high)
    return type(defaults)(**found)

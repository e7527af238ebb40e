"""How a state-protocol stream tells its watchers that something has changed."""

from __future__ import annotations

import msgspec

from strandline.schema.profiles.options import Options

ON_MISSING_BEFORE = ("coarse", "skipBefore", "error")


class TouchMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal of touched keys may hold."""

    bucket_ms: int = 100
    #: The filter has 2 to this power positions of four bytes.
    filter_pow2: int = 22
    k: int = 4
    pending_max_keys: int = 100_000
    key_index_max_keys: int = 32
    hot_key_ttl_ms: int = 10_000
    hot_template_ttl_ms: int = 10_000
    hot_max_keys: int = 1_000_000
    hot_max_templates: int = 4096


class TouchTemplates(msgspec.Struct, frozen=True, kw_only=True):
    """How many templates there can be, and when they are forgotten."""

    default_inactivity_ttl_ms: int = 3_600_000
    last_seen_persist_interval_ms: int = 300_000
    gc_interval_ms: int = 60_000
    max_active_templates_per_entity: int = 256
    max_active_templates_per_stream: int = 2048
    activation_rate_limit_per_minute: int = 100


class TouchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set about touch; what was not set has its default."""

    enabled: bool = False
    coarse_interval_ms: int = 100
    touch_coalesce_window_ms: int = 100
    #: What becomes of an update that does not say what it changed: coarse, skipBefore or error.
    on_missing_before: str = "coarse"
    lag_degrade_fine_touches_at_source_offsets: int = 5000
    lag_recover_fine_touches_at_source_offsets: int = 1000
    fine_touch_budget_per_batch: int = 2000
    fine_tokens_per_second: int = 200_000
    fine_burst_tokens: int = 400_000
    lag_reserved_fine_touch_budget_per_batch: int = 200
    memory: TouchMemory = TouchMemory()
    templates: TouchTemplates = TouchTemplates()


def parse_touch(options: Options) -> TouchConfig:
    """Raises SchemaError. Touch that is not enabled has no other settings: they are checked, and forgotten."""
    options.allow(
        "enabled", "coarseIntervalMs", "touchCoalesceWindowMs", "onMissingBefore",
        "lagDegradeFineTouchesAtSourceOffsets", "lagRecoverFineTouchesAtSourceOffsets", "fineTouchBudgetPerBatch",
        "fineTokensPerSecond", "fineBurstTokens", "lagReservedFineTouchBudgetPerBatch", "memory", "templates",
    )  # fmt: skip
    config = TouchConfig(
        enabled=options.flag("enabled", False),
        coarse_interval_ms=options.whole("coarseIntervalMs", 100, 1),
        touch_coalesce_window_ms=options.whole("touchCoalesceWindowMs", 100, 1),
        on_missing_before=options.choice("onMissingBefore", ON_MISSING_BEFORE, "coarse"),
        lag_degrade_fine_touches_at_source_offsets=options.whole("lagDegradeFineTouchesAtSourceOffsets", 5000, 0),
        lag_recover_fine_touches_at_source_offsets=options.whole("lagRecoverFineTouchesAtSourceOffsets", 1000, 0),
        fine_touch_budget_per_batch=options.whole("fineTouchBudgetPerBatch", 2000, 0),
        fine_tokens_per_second=options.whole("fineTokensPerSecond", 200_000, 0),
        fine_burst_tokens=options.whole("fineBurstTokens", 400_000, 0),
        lag_reserved_fine_touch_budget_per_batch=options.whole("lagReservedFineTouchBudgetPerBatch", 200, 0),
        memory=_memory(options.section("memory")),
        templates=_templates(options.section("templates")),
    )
    if not config.enabled:
        options.given.clear()
        options.given["enabled"] = False
        return TouchConfig()
    return config


def _memory(options: Options | None) -> TouchMemory:
    if options is None:
        return TouchMemory()
    options.allow(
        "bucketMs", "filterPow2", "k", "pendingMaxKeys", "keyIndexMaxKeys", "hotKeyTtlMs", "hotTemplateTtlMs",
        "hotMaxKeys", "hotMaxTemplates",
    )  # fmt: skip
    return TouchMemory(
        bucket_ms=options.whole("bucketMs", 100, 1),
        filter_pow2=options.whole("filterPow2", 22, 10, 30),
        k=options.whole("k", 4, 1, 8),
        pending_max_keys=options.whole("pendingMaxKeys", 100_000, 1),
        key_index_max_keys=options.whole("keyIndexMaxKeys", 32, 1, 1024),
        hot_key_ttl_ms=options.whole("hotKeyTtlMs", 10_000, 1),
        hot_template_ttl_ms=options.whole("hotTemplateTtlMs", 10_000, 1),
        hot_max_keys=options.whole("hotMaxKeys", 1_000_000, 1),
        hot_max_templates=options.whole("hotMaxTemplates", 4096, 1),
    )


def _templates(options: Options | None) -> TouchTemplates:
    if options is None:
        return TouchTemplates()
    options.allow(
        "defaultInactivityTtlMs", "lastSeenPersistIntervalMs", "gcIntervalMs", "maxActiveTemplatesPerEntity",
        "maxActiveTemplatesPerStream", "activationRateLimitPerMinute",
    )  # fmt: skip
    return TouchTemplates(
        default_inactivity_ttl_ms=options.whole("defaultInactivityTtlMs", 3_600_000, 1),
        last_seen_persist_interval_ms=options.whole("lastSeenPersistIntervalMs", 300_000, 1),
        gc_interval_ms=options.whole("gcIntervalMs", 60_000, 1),
        max_active_templates_per_entity=options.whole("maxActiveTemplatesPerEntity", 256, 1),
        max_active_templates_per_stream=options.whole("maxActiveTemplatesPerStream", 2048, 1),
        activation_rate_limit_per_minute=options.whole("activationRateLimitPerMinute", 100, 0),
    )

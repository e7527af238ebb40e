"""The settings of live invalidation, declared by the option ``touch`` of the state-protocol profile."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from strandline.schema.options import Count, DeclaredOptions, Positive

#: What a change without the old row touches: ``coarse`` notifies all waits on the templates of its entity,
#: ``skipBefore`` uses the new row alone, ``error`` counts it as an error and notifies all waits.
OnMissingBefore = Literal["coarse", "skipBefore", "error"]


class MemorySettings(DeclaredOptions, frozen=True):
    #: The longest time that a bucket is open.
    bucket_ms: Positive = 100
    #: The filter has 2 to this power cells of 4 bytes, and every key sets ``k`` of them.
    filter_pow2: Annotated[int, Meta(ge=10, le=30)] = 22
    k: Annotated[int, Meta(ge=1, le=8)] = 4
    #: A bucket with more keys counts as one that touches everything.
    pending_max_keys: Positive = 100_000
    #: A wait on more keys is not found by key, but checked after every bucket.
    key_index_max_keys: Annotated[int, Meta(ge=1, le=1024)] = 32
    #: How long keys and templates are still recorded after their last waiter has gone.
    hot_key_ttl_ms: Positive = 10_000
    hot_template_ttl_ms: Positive = 10_000
    hot_max_keys: Positive = 1_000_000
    hot_max_templates: Positive = 4096


class TemplateSettings(DeclaredOptions, frozen=True):
    #: A template that no client names for this long is retired.
    default_inactivity_ttl_ms: Positive = 3_600_000
    #: How often the time of last use of templates is stored.
    last_seen_persist_interval_ms: Positive = 300_000
    gc_interval_ms: Positive = 60_000
    max_active_per_entity: Positive = field(name="maxActiveTemplatesPerEntity", default=256)
    max_active_per_stream: Positive = field(name="maxActiveTemplatesPerStream", default=2048)
    activation_rate_per_minute: Count = field(name="activationRateLimitPerMinute", default=100)


class TouchSettings(DeclaredOptions, frozen=True):
    enabled: bool = False
    #: The key of a table is touched at most once in this time.
    coarse_interval_ms: Positive = 100
    #: Under load, changes within this time are reported together.
    coalesce_window_ms: Positive = field(name="touchCoalesceWindowMs", default=100)
    on_missing_before: OnMissingBefore = "coarse"
    #: With a lag of this many records, single rows are no longer reported; below the second number they are again.
    lag_degrade: Count = field(name="lagDegradeFineTouchesAtSourceOffsets", default=5000)
    lag_recover: Count = field(name="lagRecoverFineTouchesAtSourceOffsets", default=1000)
    #: How many row keys one batch of records may touch, and all batches per second, with a burst on top.
    fine_budget_per_batch: Count = field(name="fineTouchBudgetPerBatch", default=2000)
    fine_tokens_per_second: Count = 200_000
    fine_burst_tokens: Count = 400_000
    #: How many template keys a batch may touch while it lags.
    lag_reserved_budget_per_batch: Count = field(name="lagReservedFineTouchBudgetPerBatch", default=200)
    memory: MemorySettings = MemorySettings()
    templates: TemplateSettings = TemplateSettings()

"""How live invalidation of one log works, in numbers. What a face lets its users set ends up here."""

from __future__ import annotations

from typing import Literal

import msgspec

#: What to do about a change that does not say what the row was like before: tell everybody who waits on the templates
#: of its entity; go by what the row is like now; or take it for an error, and tell everybody.
OnMissingBefore = Literal["coarse", "skipBefore", "error"]


class MemorySettings(msgspec.Struct, frozen=True, kw_only=True):
    #: No bucket is open for longer.
    bucket_ms: int = 100
    #: The filter has 2 to this power cells of 4 bytes, and every key sets ``k`` of them.
    filter_pow2: int = 22
    k: int = 4
    #: A bucket with more keys counts as one that touches everything.
    pending_max_keys: int = 100_000
    #: Who waits on more keys is not found by key, but asked after every bucket.
    key_index_max_keys: int = 32
    #: So long after the last waiter has gone, its keys and templates are still recorded.
    hot_key_ttl_ms: int = 10_000
    hot_template_ttl_ms: int = 10_000
    hot_max_keys: int = 1_000_000
    hot_max_templates: int = 4096


class TemplateSettings(msgspec.Struct, frozen=True, kw_only=True):
    #: A template that nobody names for so long is retired.
    default_inactivity_ttl_ms: int = 3_600_000
    #: How often it is written down when templates were last named.
    last_seen_persist_interval_ms: int = 300_000
    gc_interval_ms: int = 60_000
    max_active_per_entity: int = 256
    max_active_per_stream: int = 2048
    activation_rate_per_minute: int = 100


class TouchSettings(msgspec.Struct, frozen=True, kw_only=True):
    #: The key of a table is touched at most once in this time.
    coarse_interval_ms: int = 100
    #: Under load, changes of so long a time are told together.
    coalesce_window_ms: int = 100
    on_missing_before: OnMissingBefore = "coarse"
    #: So many records behind, rows are no longer told apart; and so many, they are again.
    lag_degrade: int = 5000
    lag_recover: int = 1000
    #: How many keys of rows one batch of records may touch, and all of them in a second, with so much in reserve.
    fine_budget_per_batch: int = 2000
    fine_tokens_per_second: int = 200_000
    fine_burst_tokens: int = 400_000
    #: How many keys of templates a batch may touch while it is behind.
    lag_reserved_budget_per_batch: int = 200
    memory: MemorySettings = MemorySettings()
    templates: TemplateSettings = TemplateSettings()

"""Live invalidation: being told that something was touched."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from strandline.delivery.invalidation.waiters import Kind
from strandline.protocols.streams.invalidation import DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS, ActivateBody, WaitBody
from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.answers import Digits, Milliseconds, Number, Offset, StreamError
from strandline.protocols.streams.openapi.parameters import NAME, ONE, Operations
from strandline.service.openapi import JSON, Answer, Operation


class TouchMeta(msgspec.Struct, rename="camel"):
    """How live invalidation of the stream stands. Totals count from when it began."""

    mode: Literal["memory"]
    cursor: str
    epoch: str
    generation: Number
    bucket_ms: Number
    coalesce_ms: Milliseconds
    filter_size: Number
    k: Number
    pending_keys: Number
    overflow_buckets: Number
    active_waiters: Number
    bucket_max_source_offset_seq: Digits
    last_flush_at_ms: Number
    flush_interval_ms_max_last_10s: Milliseconds = field(name="flushIntervalMsMaxLast10s")
    flush_interval_ms_p95_last_10s: Milliseconds = field(name="flushIntervalMsP95Last10s")
    settled: bool
    coarse_interval_ms: Number
    touch_coalesce_window_ms: Number
    active_templates: Number
    lag_source_offsets: Number
    touch_mode: Literal["idle", "fine", "restricted", "coarseOnly"]
    hot_fine_keys: Number
    hot_templates: Number
    hot_fine_keys_active: Number
    hot_fine_keys_grace: Number
    hot_templates_active: Number
    hot_templates_grace: Number
    fine_waiters_active: Number
    coarse_waiters_active: Number
    broad_fine_waiters_active: Number
    hot_key_filtering_enabled: bool
    hot_template_filtering_enabled: bool
    scan_rows_total: Number
    scan_batches_total: Number
    scanned_but_emitted_0_batches_total: Number = field(name="scannedButEmitted0BatchesTotal")
    processed_through_delta_total: Number
    touches_emitted_total: Number
    touches_table_total: Number
    touches_template_total: Number
    fine_touches_dropped_due_to_budget_total: Number
    fine_touches_skipped_cold_template_total: Number
    fine_touches_skipped_cold_key_total: Number
    fine_touches_skipped_template_bucket_total: Number
    wait_touched_total: Number
    wait_timeout_total: Number
    wait_stale_total: Number
    journal_flushes_total: Number
    journal_notify_wakeups_total: Number
    journal_notify_wake_ms_total: Milliseconds
    journal_timeouts_fired_total: Number
    journal_timeout_sweep_ms_total: Milliseconds
    journal_notify_wake_ms_max: Milliseconds
    wal_scanned_through: Offset | None


class WaitAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """``touched`` or ``stale`` says what has happened; ``epoch``, ``generation`` and ``error`` come with the latter."""

    touched: bool | UnsetType = UNSET
    stale: bool | UnsetType = UNSET
    cursor: str
    epoch: str | UnsetType = UNSET
    generation: Number | UnsetType = UNSET
    effective_wait_kind: Kind
    bucket_max_source_offset_seq: Digits
    flush_at_ms: Number
    bucket_start_ms: Number
    error: StreamError | UnsetType = UNSET


class ActivatedTemplate(msgspec.Struct, rename="camel"):
    template_id: str
    state: Literal["active"]
    active_from_touch_offset: str


class DeniedTemplate(msgspec.Struct, rename="camel"):
    template_id: str
    reason: str


class TemplateLimits(msgspec.Struct, rename="camel"):
    max_active_templates_per_stream: Number
    max_active_templates_per_entity: Number


class ActivateAnswer(msgspec.Struct):
    activated: list[ActivatedTemplate]
    denied: list[DeniedTemplate]
    limits: TemplateLimits


DESCRIPTIONS: dict[str, dict[str, str]] = {
    "WaitBody": {
        "cursor": "`now`, or the cursor of an earlier answer.",
        "keys": "Touch keys, as text.",
        "keyIds": "The same, as their 32-bit numbers.",
        "interestMode": "`coarse`: it is enough to know that something of the entity was touched.",
        "exact": "Compare whole keys: nothing is told that did not happen. For up to 16 keys.",
        "templateIdsUsed": "The templates that the keys are of.",
        "declareTemplates": "Activate these first.",
        "inactivityTtlMs": "For how long the declared templates stay active without being used.",
    },
    "ActivateBody": {"inactivityTtlMs": "For how long they stay active without being used."},
    "TouchMeta": {
        "cursor": "Where a wait can go on.",
        "settled": "Whether everything that was appended has been looked at.",
        "walScannedThrough": "The last record that was looked at.",
    },
    "WaitAnswer": {
        "touched": "False: nothing happened in time.",
        "stale": "The cursor that was given is of another epoch: query anew.",
        "cursor": "Where to go on.",
    },
    "DeniedTemplate": {"reason": "Such as `rate_limited` or `invalid`."},
}

_GROUP = "touch"
_ERRORS = ("bad_request", "not_found", "gone")

TOUCH: Operations = {
    ("GET", ONE + "/touch/meta"): Operation(
        group=_GROUP,
        summary="Show how live invalidation stands",
        answers=(Answer(200, "The figures.", {JSON: TouchMeta}, (p.NO_STORE,)),),
        parameters=(
            NAME,
            p.in_query("settle", "`flush`: wait until `settled`.", {"type": "string", "enum": ["flush"]}),
            p.in_query("timeoutMs", "For how long.", p.whole(0, MAX_TIMEOUT_MS, DEFAULT_TIMEOUT_MS)),
        ),
        errors=_ERRORS,
    ),
    ("POST", ONE + "/touch/wait"): Operation(
        group=_GROUP,
        summary="Wait until a key is touched",
        description="Of a stream whose profile is state-protocol with `touch` enabled.",
        body={JSON: WaitBody},
        answers=(Answer(200, "What has happened.", {JSON: WaitAnswer}, (p.NO_STORE,)),),
        parameters=(NAME,),
        errors=_ERRORS,
    ),
    ("POST", ONE + "/touch/templates/activate"): Operation(
        group=_GROUP,
        summary="Activate templates",
        description="From then on changes touch the keys of these templates.",
        body={JSON: ActivateBody},
        answers=(Answer(200, "What has become of each.", {JSON: ActivateAnswer}, (p.NO_STORE,)),),
        parameters=(NAME,),
        errors=_ERRORS,
    ),
}

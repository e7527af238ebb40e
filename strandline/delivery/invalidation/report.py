"""How live invalidation of a log stands, in numbers; see docs/touch.md for what each of them means."""

from __future__ import annotations

from strandline.delivery.invalidation.runtime import Runtime

#: What the ticks tell the growth of.
Totals = dict[str, int | float]


def totals_of(runtime: Runtime) -> Totals:
    """Everything that only ever grows."""
    processor, follower, telling = runtime.processor, runtime.follower, runtime.telling
    return {
        "scanRowsTotal": follower.rows,
        "scanBatchesTotal": follower.batches,
        "scannedButEmitted0BatchesTotal": follower.empty_batches,
        "processedThroughDeltaTotal": follower.advanced,
        "touchesEmittedTotal": processor.touches,
        "touchesTableTotal": processor.touches_table,
        "touchesTemplateTotal": processor.touches_template,
        "fineTouchesDroppedDueToBudgetTotal": processor.dropped_by_budget,
        "fineTouchesSkippedColdTemplateTotal": processor.skipped_cold_template,
        "fineTouchesSkippedColdKeyTotal": processor.skipped_cold_key,
        "fineTouchesSkippedTemplateBucketTotal": processor.skipped_template_bucket,
        "waitTouchedTotal": telling.counts["touched"],
        "waitTimeoutTotal": telling.counts["timeout"],
        "waitStaleTotal": telling.counts["stale"],
        "journalFlushesTotal": runtime.journal.flushes,
        "journalNotifyWakeupsTotal": telling.wakeups,
        "journalNotifyWakeMsTotal": round(telling.wake_ms, 3),
        "journalTimeoutsFiredTotal": runtime.timeouts_fired,
        "journalTimeoutSweepMsTotal": round(runtime.sweep_ms, 3),
    }


def meta_of(runtime: Runtime, now: float) -> dict[str, object]:
    """Everything but where the log was scanned through, which every protocol writes in its own way."""
    journal, waiters, settings = runtime.journal, runtime.waiters, runtime.settings
    keys, templates = waiters.keys, waiters.templates
    longest, usual = journal.flush_intervals(now)
    return {
        "mode": "memory",
        "cursor": f"{runtime.epoch}:{journal.generation}",
        "epoch": runtime.epoch,
        "generation": journal.generation,
        "bucketMs": settings.memory.bucket_ms,
        "coalesceMs": round(runtime.window_ms, 3),
        "filterSize": journal.filter.size,
        "k": journal.filter.k,
        "pendingKeys": len(journal.pending) + runtime.processor.owed,
        "overflowBuckets": journal.overflow_buckets,
        "activeWaiters": len(waiters),
        "bucketMaxSourceOffsetSeq": str(journal.last.source_seq - 1),
        "lastFlushAtMs": journal.last.flushed_at,
        "flushIntervalMsMaxLast10s": round(longest, 3),
        "flushIntervalMsP95Last10s": round(usual, 3),
        "settled": runtime.settled,
        "coarseIntervalMs": settings.coarse_interval_ms,
        "touchCoalesceWindowMs": settings.coalesce_window_ms,
        "activeTemplates": len(runtime.templates),
        "lagSourceOffsets": runtime.follower.lag,
        "touchMode": runtime.mode,
        "hotFineKeys": len(keys),
        "hotTemplates": len(templates),
        "hotFineKeysActive": keys.active,
        "hotFineKeysGrace": keys.in_grace,
        "hotTemplatesActive": templates.active,
        "hotTemplatesGrace": templates.in_grace,
        "fineWaitersActive": waiters.fine,
        "coarseWaitersActive": waiters.coarse,
        "broadFineWaitersActive": waiters.broad_fine,
        "hotKeyFilteringEnabled": runtime.processor.filters_keys,
        "hotTemplateFilteringEnabled": runtime.processor.filters_templates,
        **totals_of(runtime),
        "journalNotifyWakeMsMax": round(runtime.telling.wake_ms_max, 3),
    }

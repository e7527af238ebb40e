"""Answers about the server: its configuration and its state. Values of parts that it does not have are 0."""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.protocols.streams.wire.values import Number, Time

#: Values by name; the set of names may change.
Figures = dict[str, Number]


class AutoTune(msgspec.Struct):
    """This server tunes nothing automatically: every setting has a default."""

    enabled: bool = False
    requested_memory_mb: Number | None = None
    preset_mb: Number | None = None
    effective_memory_limit_mb: Number | None = None


class ConfiguredLimits(msgspec.Struct, kw_only=True):
    caches: Figures
    concurrency: Figures
    ingest: Figures
    search: Figures
    segmenting: Figures
    timeouts: Figures
    memory: Figures


class HeldBytes(msgspec.Struct, kw_only=True):
    stream: str
    bytes: Number
    wal_retained_bytes: Number
    segment_cache_bytes: Number
    index_cache_bytes: Number


class PendingBytes(msgspec.Struct, kw_only=True):
    stream: str
    pending_wal_bytes: Number
    pending_rows: Number


class TouchBytes(msgspec.Struct):
    stream: str
    bytes: Number


class StreamWaiters(msgspec.Struct):
    stream: str
    waiters: Number


class TopStreams(msgspec.Struct, kw_only=True):
    """The streams that use the most, by several measures."""

    local_storage_bytes: list[HeldBytes]
    pending_wal_bytes: list[PendingBytes]
    touch_journal_filter_bytes: list[TouchBytes]
    notifier_waiters: list[StreamWaiters]


class GarbageCollection(msgspec.Struct):
    """Nothing forces garbage collections here, and nothing writes heap snapshots."""

    forced_gc_count: Number = 0
    forced_gc_reclaimed_bytes_total: Number = 0
    last_forced_gc_at_ms: Number | None = None
    last_forced_gc_before_bytes: Number | None = None
    last_forced_gc_after_bytes: Number | None = None
    last_forced_gc_reclaimed_bytes: Number | None = None
    heap_snapshots_written: Number = 0
    last_heap_snapshot_at_ms: Number | None = None


class RuntimeBytes(msgspec.Struct, kw_only=True):
    """Estimates of the memory of each part."""

    heap_estimates: Figures
    mapped_files: Figures
    disk_caches: Figures
    configured_budgets: Figures
    pipeline_buffers: Figures
    sqlite_runtime: Figures


class RuntimeSubsystems(RuntimeBytes, kw_only=True):
    counts: Figures


class HighWater(msgspec.Struct, kw_only=True):
    """The highest value of each measure, as ``value``, and when it was reached, as ``at``."""

    process: dict[str, Any]
    process_breakdown: dict[str, Any]
    sqlite: dict[str, Any]
    runtime_bytes: dict[str, Any]
    runtime_totals: dict[str, Any]


class RuntimeMemory(msgspec.Struct, kw_only=True):
    pressure_active: bool = False
    pressure_limit_bytes: Number = 0
    last_rss_bytes: Number
    max_rss_bytes: Number
    process: Figures
    process_breakdown: dict[str, Number | str]
    sqlite: dict[str, Number | bool | str]
    gc: GarbageCollection
    subsystems: RuntimeSubsystems
    totals: Figures
    high_water: HighWater


class IngestQueue(msgspec.Struct, kw_only=True):
    requests: Number
    bytes: Number
    full: bool


class LocalBackpressure(msgspec.Struct, kw_only=True):
    enabled: bool = False
    current_bytes: Number
    max_bytes: Number = 0
    over_limit: bool = False


class Uploads(msgspec.Struct):
    pending_segments: Number


class ConcurrencyGate(msgspec.Struct, kw_only=True):
    configured_limit: Number
    current_limit: Number
    active: Number
    queued: Number


class ConcurrencyGates(msgspec.Struct, kw_only=True):
    ingest: ConcurrencyGate
    read: ConcurrencyGate
    search: ConcurrencyGate
    async_index: ConcurrencyGate


class ServerRuntime(msgspec.Struct, kw_only=True):
    memory: RuntimeMemory
    ingest_queue: IngestQueue
    local_backpressure: LocalBackpressure
    uploads: Uploads
    concurrency: ConcurrencyGates
    top_streams: TopStreams


class ServerDetailsAnswer(msgspec.Struct, kw_only=True):
    auto_tune: AutoTune
    configured_limits: ConfiguredLimits
    runtime: ServerRuntime


class ServerMemory(msgspec.Struct, kw_only=True):
    ts: Time
    process: Figures
    process_breakdown: dict[str, Number | str]
    sqlite: dict[str, Number | bool | str]
    gc: GarbageCollection
    high_water: HighWater
    counters: Figures
    runtime_counts: Figures
    runtime_bytes: RuntimeBytes
    runtime_totals: Figures
    top_streams: TopStreams

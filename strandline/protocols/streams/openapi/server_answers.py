"""What is told about the server: how it is set up, and how it is doing. Figures about what it does not have are 0."""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.protocols.streams.openapi.answers import Number, Time

_Figures = dict[str, Number]


class AutoTune(msgspec.Struct):
    enabled: bool
    requested_memory_mb: Number | None
    preset_mb: Number | None
    effective_memory_limit_mb: Number | None


class ConfiguredLimits(msgspec.Struct):
    caches: _Figures
    concurrency: _Figures
    ingest: _Figures
    search: _Figures
    segmenting: _Figures
    timeouts: _Figures
    memory: _Figures


class HeldBytes(msgspec.Struct):
    stream: str
    bytes: Number
    wal_retained_bytes: Number
    segment_cache_bytes: Number
    index_cache_bytes: Number


class PendingBytes(msgspec.Struct):
    stream: str
    pending_wal_bytes: Number
    pending_rows: Number


class TouchBytes(msgspec.Struct):
    stream: str
    bytes: Number


class StreamWaiters(msgspec.Struct):
    stream: str
    waiters: Number


class TopStreams(msgspec.Struct):
    """Those that take the most, in several respects."""

    local_storage_bytes: list[HeldBytes]
    pending_wal_bytes: list[PendingBytes]
    touch_journal_filter_bytes: list[TouchBytes]
    notifier_waiters: list[StreamWaiters]


class GarbageCollection(msgspec.Struct):
    forced_gc_count: Number
    forced_gc_reclaimed_bytes_total: Number
    last_forced_gc_at_ms: Number | None
    last_forced_gc_before_bytes: Number | None
    last_forced_gc_after_bytes: Number | None
    last_forced_gc_reclaimed_bytes: Number | None
    heap_snapshots_written: Number
    last_heap_snapshot_at_ms: Number | None


class RuntimeBytes(msgspec.Struct):
    """Estimates of what each part takes."""

    heap_estimates: _Figures
    mapped_files: _Figures
    disk_caches: _Figures
    configured_budgets: _Figures
    pipeline_buffers: _Figures
    sqlite_runtime: _Figures


class RuntimeSubsystems(RuntimeBytes):
    counts: _Figures


class HighWater(msgspec.Struct):
    """The highest value that each figure had, as ``value``, and when, as ``at``."""

    process: dict[str, Any]
    process_breakdown: dict[str, Any]
    sqlite: dict[str, Any]
    runtime_bytes: dict[str, Any]
    runtime_totals: dict[str, Any]


class RuntimeMemory(msgspec.Struct):
    pressure_active: bool
    pressure_limit_bytes: Number
    last_rss_bytes: Number
    max_rss_bytes: Number
    process: _Figures
    process_breakdown: dict[str, Number | str]
    sqlite: dict[str, Number | bool | str]
    gc: GarbageCollection
    subsystems: RuntimeSubsystems
    totals: _Figures
    high_water: HighWater


class IngestQueue(msgspec.Struct):
    requests: Number
    bytes: Number
    full: bool


class LocalBackpressure(msgspec.Struct):
    enabled: bool
    current_bytes: Number
    max_bytes: Number
    over_limit: bool


class Uploads(msgspec.Struct):
    pending_segments: Number


class ConcurrencyGate(msgspec.Struct):
    configured_limit: Number
    current_limit: Number
    active: Number
    queued: Number


class ConcurrencyGates(msgspec.Struct):
    ingest: ConcurrencyGate
    read: ConcurrencyGate
    search: ConcurrencyGate
    async_index: ConcurrencyGate


class ServerRuntime(msgspec.Struct):
    memory: RuntimeMemory
    ingest_queue: IngestQueue
    local_backpressure: LocalBackpressure
    uploads: Uploads
    concurrency: ConcurrencyGates
    top_streams: TopStreams


class ServerDetailsAnswer(msgspec.Struct):
    auto_tune: AutoTune
    configured_limits: ConfiguredLimits
    runtime: ServerRuntime


class ServerMemory(msgspec.Struct):
    ts: Time
    process: _Figures
    process_breakdown: dict[str, Number | str]
    sqlite: dict[str, Number | bool | str]
    gc: GarbageCollection
    high_water: HighWater
    counters: _Figures
    runtime_counts: _Figures
    runtime_bytes: RuntimeBytes
    runtime_totals: _Figures
    top_streams: TopStreams

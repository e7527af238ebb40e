"""Answers about one stream: its row in a list, its routing keys, its indexes, and everything about it."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from strandline.protocols.streams.wire.values import Digits, Milliseconds, Number, Time
from strandline.query.config import Kind
from strandline.query.search import Family
from strandline.schema.profiles import ProfileDocument, ProfileKind
from strandline.schema.registry import RegistryDocument


class RequestStreams(msgspec.Struct):
    events_stream: str
    traces_stream: str


class Observability(msgspec.Struct):
    """The pair of streams that describe the same requests: events of the evlog profile, and spans of otel-traces."""

    request: RequestStreams


class StreamRow(msgspec.Struct, kw_only=True):
    name: str
    created_at: Time
    expires_at: Time | None
    epoch: Number
    next_offset: Digits
    sealed_through: Digits
    uploaded_through: Digits
    profile: ProfileKind
    observability: Observability | UnsetType = UNSET


# --- routing keys ----------------------------------------------------------------------------------------------------


class KeySource(msgspec.Struct):
    kind: Literal["routing_key"] = "routing_key"
    name: str = ""


class KeyCoverage(msgspec.Struct, kw_only=True):
    """Every segment has an index of its keys, so the answer is always complete; only the tail is scanned."""

    complete: bool = True
    indexed_segments: Number
    scanned_uploaded_segments: Number = 0
    scanned_local_segments: Number = 0
    scanned_wal_rows: Number
    possible_missing_uploaded_segments: Number = 0
    possible_missing_local_segments: Number = 0


class KeyTiming(msgspec.Struct, kw_only=True):
    """The lexicon of the protocol is the key indexes, one per segment."""

    lexicon_run_get_ms: Milliseconds
    #: Blocks of an index are decoded while they are enumerated.
    lexicon_decode_ms: Milliseconds = 0
    lexicon_enumerate_ms: Milliseconds
    lexicon_merge_ms: Milliseconds
    fallback_scan_ms: Milliseconds
    fallback_segment_get_ms: Milliseconds = 0
    fallback_wal_scan_ms: Milliseconds
    lexicon_runs_loaded: Number


class RoutingKeysAnswer(msgspec.Struct, kw_only=True):
    stream: str
    source: KeySource
    took_ms: Milliseconds
    coverage: KeyCoverage
    timing: KeyTiming
    keys: list[str]
    next_after: str | None


# --- indexes ---------------------------------------------------------------------------------------------------------


class SegmentCounts(msgspec.Struct, kw_only=True):
    total_count: Number
    uploaded_count: Number


class ManifestStatus(msgspec.Struct, kw_only=True):
    """There is one manifest for all streams, and it is not uploaded. The generation of a stream is the number of the
    newest segment that has records of it, so it grows with every segment of the stream."""

    generation: Number
    uploaded_generation: Number
    last_uploaded_at: Time | None = None
    last_uploaded_etag: str | None = None
    last_uploaded_size_bytes: Digits | None = None


class KeyIndexStatus(msgspec.Struct, kw_only=True):
    configured: bool
    indexed_segment_count: Number
    lag_segments: Number
    lag_ms: Digits | None
    bytes_at_rest: Digits = "0"
    object_count: Number = 0
    active_run_count: Number
    retired_run_count: Number = 0
    fully_indexed_uploaded_segments: bool = True
    updated_at: Time | None


class ExactIndexStatus(msgspec.Struct, kw_only=True):
    name: str
    kind: Kind
    indexed_segment_count: Number
    lag_segments: Number
    lag_ms: Digits | None
    bytes_at_rest: Digits
    object_count: Number
    active_run_count: Number
    retired_run_count: Number = 0
    fully_indexed_uploaded_segments: bool
    stale_configuration: bool
    updated_at: Time | None


class CompanionStatus(msgspec.Struct, kw_only=True):
    object_count: Number
    bytes_at_rest: Digits
    fully_indexed_uploaded_segments: bool


class FamilyStatus(msgspec.Struct, kw_only=True):
    family: Family
    fields: list[str]
    plan_generation: Number
    covered_segment_count: Number
    contiguous_covered_segment_count: Number
    lag_segments: Number
    lag_ms: Digits | None
    bytes_at_rest: Digits
    object_count: Number
    stale_segment_count: Number
    fully_indexed_uploaded_segments: bool
    updated_at: Time | None


class IndexProgressStatus(msgspec.Struct, kw_only=True):
    """How far the background is with indexing the records. The rate and the remaining time are null while nothing is
    being indexed."""

    indexed_records: Number
    records: Number
    records_per_second: float | None
    remaining_ms: Number | None
    complete: bool


class IndexStatus(msgspec.Struct, kw_only=True):
    stream: str
    profile: ProfileKind
    desired_index_plan_generation: Number
    segments: SegmentCounts
    manifest: ManifestStatus
    routing_key_index: KeyIndexStatus
    routing_key_lexicon: KeyIndexStatus
    exact_indexes: list[ExactIndexStatus]
    bundled_companions: CompanionStatus
    search_families: list[FamilyStatus]
    progress: IndexProgressStatus | UnsetType = UNSET


# --- details -------------------------------------------------------------------------------------------------------


class StreamFacts(msgspec.Struct, kw_only=True):
    name: str
    content_type: str
    profile: ProfileKind
    observability: Observability | UnsetType = UNSET
    created_at: Time
    updated_at: Time
    expires_at: Time | None
    ttl_seconds: Number | None
    stream_seq: str | None
    closed: bool
    compact: bool
    retain_until_in_lake: bool
    epoch: Number
    next_offset: Digits
    sealed_through: Digits
    uploaded_through: Digits
    segment_count: Number
    uploaded_segment_count: Number
    pending_rows: Digits
    pending_bytes: Digits
    total_size_bytes: Digits
    wal_rows: Digits
    wal_bytes: Digits
    last_append_at: Time | None
    last_segment_cut_at: Time | None


class ObjectStorage(msgspec.Struct, kw_only=True):
    total_bytes: Digits
    segments_bytes: Digits
    indexes_bytes: Digits
    manifest_and_meta_bytes: Digits
    manifest_bytes: Digits = "0"
    schema_registry_bytes: Digits
    segment_object_count: Number
    routing_index_object_count: Number = 0
    routing_lexicon_object_count: Number = 0
    exact_index_object_count: Number = 0
    bundled_companion_object_count: Number


class LocalStorage(msgspec.Struct, kw_only=True):
    total_bytes: Digits
    wal_retained_bytes: Digits
    pending_tail_bytes: Digits
    pending_sealed_segment_bytes: Digits
    segment_cache_bytes: Digits = "0"
    routing_index_cache_bytes: Digits = "0"
    exact_index_cache_bytes: Digits = "0"
    lexicon_index_cache_bytes: Digits = "0"
    companion_cache_bytes: Digits
    sqlite_shared_total_bytes: Digits = "0"


class CompanionFamilies(msgspec.Struct, kw_only=True):
    exact_bytes: Digits
    col_bytes: Digits
    fts_bytes: Digits
    agg_bytes: Digits
    mblk_bytes: Digits


class StreamStorage(msgspec.Struct, kw_only=True):
    object_storage: ObjectStorage
    local_storage: LocalStorage
    companion_families: CompanionFamilies


class ArtifactRequests(msgspec.Struct):
    artifact: str
    puts: Digits = "0"
    gets: Digits = "0"
    heads: Digits = "0"
    lists: Digits = "0"
    deletes: Digits = "0"
    reads: Digits = "0"


class AllStoreRequests(msgspec.Struct, kw_only=True):
    """Streams share segments, so no request is made for a single stream."""

    puts: Digits = "0"
    reads: Digits = "0"
    gets: Digits = "0"
    heads: Digits = "0"
    lists: Digits = "0"
    deletes: Digits = "0"
    by_artifact: list[ArtifactRequests]


class StreamDetails(msgspec.Struct, kw_only=True):
    stream: StreamFacts
    profile: ProfileDocument
    schema: RegistryDocument
    index_status: IndexStatus
    storage: StreamStorage
    object_store_requests: AllStoreRequests

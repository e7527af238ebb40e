"""What is told about a stream: in a list, about its indexes, and everything there is."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from strandline.protocols.streams.openapi.answers import Digits, Number, Time
from strandline.protocols.streams.openapi.profiles import ProfileAnswer
from strandline.protocols.streams.openapi.schemas import RegistryAnswer
from strandline.query.config import Kind

_ProfileKind = Literal["generic", "evlog", "metrics", "otel-traces", "state-protocol"]


class StreamRow(msgspec.Struct, kw_only=True):
    name: str
    created_at: Time | None
    expires_at: Time | None
    epoch: Number
    next_offset: Digits
    sealed_through: Digits
    uploaded_through: Digits
    profile: _ProfileKind
    observability: dict[str, Any] | UnsetType = UNSET


class StreamFacts(StreamRow, kw_only=True):
    content_type: str
    updated_at: Time | None
    ttl_seconds: Number | None
    stream_seq: str | None
    closed: bool
    compact: bool
    segment_count: Number
    uploaded_segment_count: Number
    pending_rows: Digits
    pending_bytes: Digits
    total_size_bytes: Digits
    wal_rows: Digits
    wal_bytes: Digits
    last_append_at: Time | None
    last_segment_cut_at: Time | None


# --- indexes -------------------------------------------------------------------------------------------------------


class SegmentCounts(msgspec.Struct):
    total_count: Number
    uploaded_count: Number


class ManifestStatus(msgspec.Struct):
    generation: Number
    uploaded_generation: Number
    last_uploaded_at: Time | None
    last_uploaded_etag: str | None
    last_uploaded_size_bytes: Digits | None


class KeyIndexStatus(msgspec.Struct):
    configured: bool
    indexed_segment_count: Number
    lag_segments: Number
    lag_ms: Digits | None
    bytes_at_rest: Digits
    object_count: Number
    active_run_count: Number
    retired_run_count: Number
    fully_indexed_uploaded_segments: bool
    updated_at: Time | None


class ExactIndexStatus(msgspec.Struct):
    name: str
    kind: Kind
    indexed_segment_count: Number
    lag_segments: Number
    lag_ms: Digits | None
    bytes_at_rest: Digits
    object_count: Number
    active_run_count: Number
    retired_run_count: Number
    fully_indexed_uploaded_segments: bool
    stale_configuration: bool
    updated_at: Time | None


class CompanionStatus(msgspec.Struct):
    object_count: Number
    bytes_at_rest: Digits
    fully_indexed_uploaded_segments: bool


class FamilyStatus(msgspec.Struct):
    family: Literal["exact", "col", "fts", "agg", "mblk"]
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


class IndexStatus(msgspec.Struct):
    stream: str
    profile: _ProfileKind
    desired_index_plan_generation: Number
    segments: SegmentCounts
    manifest: ManifestStatus
    routing_key_index: KeyIndexStatus
    routing_key_lexicon: KeyIndexStatus
    exact_indexes: list[ExactIndexStatus]
    bundled_companions: CompanionStatus
    search_families: list[FamilyStatus]


# --- everything ----------------------------------------------------------------------------------------------------


class ObjectStorage(msgspec.Struct):
    total_bytes: Digits
    segments_bytes: Digits
    indexes_bytes: Digits
    manifest_and_meta_bytes: Digits
    manifest_bytes: Digits
    schema_registry_bytes: Digits
    segment_object_count: Number
    routing_index_object_count: Number
    routing_lexicon_object_count: Number
    exact_index_object_count: Number
    bundled_companion_object_count: Number


class LocalStorage(msgspec.Struct):
    total_bytes: Digits
    wal_retained_bytes: Digits
    pending_tail_bytes: Digits
    pending_sealed_segment_bytes: Digits
    segment_cache_bytes: Digits
    routing_index_cache_bytes: Digits
    exact_index_cache_bytes: Digits
    lexicon_index_cache_bytes: Digits
    companion_cache_bytes: Digits
    sqlite_shared_total_bytes: Digits


class CompanionFamilies(msgspec.Struct):
    exact_bytes: Digits
    col_bytes: Digits
    fts_bytes: Digits
    agg_bytes: Digits
    mblk_bytes: Digits


class StreamStorage(msgspec.Struct):
    object_storage: ObjectStorage
    local_storage: LocalStorage
    companion_families: CompanionFamilies


class StoreRequests(msgspec.Struct):
    puts: Digits
    reads: Digits
    gets: Digits
    heads: Digits
    lists: Digits
    deletes: Digits


class ArtifactRequests(StoreRequests):
    artifact: str


class AllStoreRequests(StoreRequests):
    by_artifact: list[ArtifactRequests]


class StreamDetails(msgspec.Struct):
    stream: StreamFacts
    profile: ProfileAnswer
    schema: RegistryAnswer
    index_status: IndexStatus
    storage: StreamStorage
    object_store_requests: AllStoreRequests


_PLACES = {
    "epoch": "Which of all streams that ever had this name it is.",
    "next_offset": "How many records were ever appended: the number of the next one.",
    "sealed_through": "The number of the last record that is in a segment; -1: none.",
    "uploaded_through": "The same, of segments in the cold tier.",
}
DESCRIPTIONS: dict[str, dict[str, str]] = {
    "StreamRow": _PLACES,
    "StreamFacts": {
        **_PLACES,
        "stream_seq": "The `Stream-Seq` of the last append that had one.",
        "pending_rows": "Records that are in the journal and not in a segment yet.",
    },
    "KeyIndexStatus": {"lag_ms": "From the last record that is covered to the last there is."},
    "IndexStatus": {
        "desired_index_plan_generation": "How many search configurations there were since the server was started.",
    },
}

"""The document with all details of a stream, in the words of the protocol.

The write-ahead log of a stream is its tail: the records that are in the journal and not in a segment yet. Parts that
exist per server and not per stream (manifest, journal files, caches of blocks) count as 0 here; the server's own
document has them. Bytes are those of uncompressed payloads of the records that readers see. A fork counts only its own
records, since it shares the others with its source.
"""

from __future__ import annotations

from strandline.engine.ownership import REGISTRY
from strandline.protocols.streams import offsets
from strandline.protocols.streams.grammar import iso
from strandline.protocols.streams.index_status import Inspected, family_sizes, index_status
from strandline.protocols.streams.list import profile_of, time
from strandline.protocols.streams.stream import STREAM_SEQ
from strandline.protocols.streams.wire.inspection import (
    AllStoreRequests,
    ArtifactRequests,
    CompanionFamilies,
    LocalStorage,
    ObjectStorage,
    StreamDetails,
    StreamFacts,
    StreamStorage,
)
from strandline.schema.profiles import show

#: The kinds of requests to object stores.
_ARTIFACTS = (
    "manifest", "schema_registry", "routing_index", "routing_key_lexicon", "exact_index", "segment",
    "bundled_companion", "meta",
)  # fmt: skip
_NO_REQUESTS = AllStoreRequests(by_artifact=[ArtifactRequests(artifact) for artifact in _ARTIFACTS])


def details(seen: Inspected) -> StreamDetails:
    return StreamDetails(
        stream=_facts(seen),
        profile=show(seen.stream.profile, seen.access.may_touch),
        schema=seen.stream.registry.document(),
        index_status=index_status(seen),
        storage=StreamStorage(
            object_storage=_object_storage(seen),
            local_storage=_local_storage(seen),
            companion_families=CompanionFamilies(
                **{f"{family}_bytes": str(size) for family, size in family_sizes(seen).items()}
            ),
        ),
        object_store_requests=_NO_REQUESTS,
    )


def _facts(seen: Inspected) -> StreamFacts:
    stream, holdings = seen.stream, seen.holdings
    created_at = stream.log.created_at
    kind, observability = profile_of(stream, seen.access)
    return StreamFacts(
        name=stream.name,
        content_type=stream.content_type,
        profile=kind,
        observability=observability,
        created_at=iso(created_at),
        # The times of changes of schema and profile are not stored.
        updated_at=iso(max(created_at, holdings.last_ts)),
        expires_at=time(stream.expires_at),
        ttl_seconds=stream.traits.ttl_seconds,
        stream_seq=stream.log.notes.get(STREAM_SEQ),
        closed=stream.closed,
        compact=stream.log.config.compact,
        retain_until_in_lake=stream.log.config.retain_until_in_lake,
        epoch=offsets.EPOCH,
        next_offset=str(stream.log.head),
        sealed_through=str(holdings.sealed_through - 1),
        uploaded_through=str(holdings.cold_through - 1),
        segment_count=len(holdings.sealed),
        uploaded_segment_count=len(seen.uploaded),
        pending_rows=str(holdings.tail_records),
        pending_bytes=str(holdings.tail_size),
        total_size_bytes=str(holdings.size),
        wal_rows=str(holdings.tail_records),
        wal_bytes=str(holdings.tail_size),
        last_append_at=time(holdings.last_ts),
        last_segment_cut_at=time(seen.cut_at),
    )


def _object_storage(seen: Inspected) -> ObjectStorage:
    """The final place of segments: the cold tier, or the data directory if there is none; and index files in the
    lake."""
    segments = sum(part.size for part in seen.uploaded)
    registry = len(seen.stream.log.notes.get(REGISTRY, b""))
    companions = 0 if seen.held is None else seen.held.index_files.size
    return ObjectStorage(
        total_bytes=str(segments + registry + companions),
        segments_bytes=str(segments),
        indexes_bytes=str(companions),
        manifest_and_meta_bytes=str(registry),
        schema_registry_bytes=str(registry),
        segment_object_count=len(seen.uploaded),
        bundled_companion_object_count=0 if seen.held is None else len(seen.held.index_files.ranges),
    )


def _local_storage(seen: Inspected) -> LocalStorage:
    """Data that is only on this machine: the tail, segments that are not in the cold tier yet, and the index in
    memory."""
    tail = seen.holdings.tail_size
    waiting = sum(part.size for part in seen.holdings.sealed) - sum(part.size for part in seen.uploaded)
    index = 0 if seen.held is None else seen.held.size
    return LocalStorage(
        total_bytes=str(tail + waiting + index),
        wal_retained_bytes=str(tail),
        pending_tail_bytes=str(tail),
        pending_sealed_segment_bytes=str(waiting),
        companion_cache_bytes=str(index),
    )

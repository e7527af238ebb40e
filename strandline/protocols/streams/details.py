"""Everything about a stream in one document, in the words of the protocol.

The write-ahead log of a stream is its tail: the records that are in the journal and not in a segment yet. What is kept
per server and not per stream (manifest, journal files, caches of blocks) counts here as nothing, and is told by the
server's own document. Bytes are those of payloads, uncompressed, of the records that readers see; a fork has its own
only, since it shares the others with its source.
"""

from __future__ import annotations

from strandline.engine.ownership import REGISTRY
from strandline.protocols.streams import offsets
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

#: What object stores are asked for.
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
    created_at = stream.traits.created_at
    kind, observability = profile_of(stream, seen.access)
    return StreamFacts(
        name=stream.name,
        content_type=stream.content_type,
        profile=kind,
        observability=observability,
        created_at=time(created_at),
        # Changes of schema and profile leave no time behind.
        updated_at=time(max(created_at, holdings.last_ts)),
        expires_at=time(stream.expires_at),
        ttl_seconds=stream.traits.ttl_seconds,
        stream_seq=stream.log.notes.get(STREAM_SEQ),
        closed=stream.closed,
        compact=stream.log.config.compact,
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
    """Where segments come to rest: the cold tier, or the data directory where there is none; and companions in the
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
    """What is only here: the tail, segments that are still to go to the cold tier, and the index in memory."""
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

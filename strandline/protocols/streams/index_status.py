"""The state of a stream's indexes, in the words of the protocol.

There are two kinds of indexes. The index of routing keys is a part of every segment and of the tail: it is always
complete, and has no objects and no bytes of its own. The index of searched fields is in index files, which the server
builds in the background and the pipeline in the lake, and in memory for the newest records. A *segment* of a stream is
the part of the stream in one segment file. *Uploaded* are the segments in the cold tier, or all segments if there is
none. Objects of the second kind are index files and pieces in memory. Their bytes count as "at rest", each
field once: under the family that answers for it first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, get_args

from msgspec import UNSET

from strandline.engine.reads.status import LogStatus, SealedPart
from strandline.protocols.streams.list import time
from strandline.protocols.streams.stream import Stream
from strandline.protocols.streams.wire.inspection import (
    CompanionStatus,
    ExactIndexStatus,
    FamilyStatus,
    IndexProgressStatus,
    IndexStatus,
    KeyIndexStatus,
    ManifestStatus,
    SegmentCounts,
)
from strandline.query.config import Field, SearchConfig
from strandline.query.index_files.indexer import IndexProgress
from strandline.query.search import Family
from strandline.query.searcher import LogIndexStatus
from strandline.service.access import Access

#: In the order in which they are shown.
FAMILIES: tuple[Family, ...] = get_args(Family)


class Inspected(NamedTuple):
    """A stream at one moment. ``has_cold_tier``: segments are moved to the cold tier; otherwise they stay."""

    stream: Stream
    holdings: LogStatus
    has_cold_tier: bool
    #: None if the stream has no search configuration.
    held: LogIndexStatus | None
    #: How far the background is with indexing; None if this is not known.
    progress: IndexProgress | None
    #: How many search configurations of the stream the server has seen since it started.
    plan_generation: int
    #: When the newest segment was written, in milliseconds; None if unknown.
    cut_at: int | None
    #: The access of the API key that reads the document.
    access: Access

    @property
    def uploaded(self) -> tuple[SealedPart, ...]:
        sealed = self.holdings.sealed
        return tuple(part for part in sealed if part.is_cold) if self.has_cold_tier else sealed


def index_status(seen: Inspected) -> IndexStatus:
    sealed, uploaded = seen.holdings.sealed, seen.uploaded
    keys = _keys_status(seen)
    return IndexStatus(
        stream=seen.stream.name,
        profile=seen.stream.profile.kind,
        desired_index_plan_generation=seen.plan_generation,
        segments=SegmentCounts(total_count=len(sealed), uploaded_count=len(uploaded)),
        manifest=ManifestStatus(
            generation=sealed[-1].segment if sealed else 0,
            uploaded_generation=uploaded[-1].segment if uploaded else 0,
        ),
        routing_key_index=keys,
        routing_key_lexicon=keys,
        exact_indexes=_exact_indexes(seen),
        bundled_companions=_companions(seen),
        search_families=_families(seen),
        progress=UNSET if seen.progress is None else _progress(seen.progress),
    )


def _progress(progress: IndexProgress) -> IndexProgressStatus:
    return IndexProgressStatus(
        indexed_records=progress.indexed_records,
        records=progress.records,
        records_per_second=None if progress.records_per_second is None else round(progress.records_per_second, 1),
        remaining_ms=progress.remaining_ms,
        complete=progress.complete,
    )


def _keys_status(seen: Inspected) -> KeyIndexStatus:
    configured = seen.stream.registry.routing_key is not None
    covered = seen.holdings.sealed if configured else ()
    return KeyIndexStatus(
        configured=configured,
        indexed_segment_count=len(covered),
        lag_segments=0,
        lag_ms=_lag_ms(seen, covered),
        active_run_count=sum(part.has_keys for part in covered),
        updated_at=time(seen.cut_at) if configured else None,
    )


def _lag_ms(seen: Inspected, covered: tuple[SealedPart, ...]) -> str | None:
    """The time between the last record of the covered segments and the last record of the stream."""
    return str(max(seen.holdings.last_ts - covered[-1].ts_last, 0)) if covered else None


# --- searched fields -------------------------------------------------------------------------------------------------


def _covered(seen: Inspected) -> tuple[SealedPart, ...]:
    """The segments whose records are all indexed."""
    held = seen.held
    if held is None:
        return ()
    return tuple(part for part in seen.holdings.sealed if held.covers(part.first, part.last))


def _contiguous(seen: Inspected) -> int:
    """How many segments, from the first on, are indexed without a gap."""
    covered = _covered(seen)
    return len(covered) if covered and covered[0] == seen.holdings.sealed[0] else 0


def _is_full(seen: Inspected) -> bool:
    return set(seen.uploaded) <= set(_covered(seen))


def _exact_indexes(seen: Inspected) -> list[ExactIndexStatus]:
    held, search = seen.held, seen.stream.search
    if held is None or search is None:
        return []
    covered = _covered(seen)
    return [
        ExactIndexStatus(
            name=field.name,
            kind=field.kind,
            indexed_segment_count=len(covered),
            lag_segments=len(seen.holdings.sealed) - len(covered),
            lag_ms=_lag_ms(seen, covered),
            bytes_at_rest=str(held.size_of(field.name)),
            object_count=held.objects,
            active_run_count=held.objects,
            fully_indexed_uploaded_segments=_is_full(seen),
            stale_configuration=held.is_stale,
            updated_at=time(held.index_files.built_at),
        )
        for field in sorted(search.config.fields.values(), key=lambda field: field.name)
        if field.exact
    ]


def _companions(seen: Inspected) -> CompanionStatus:
    held = seen.held
    return CompanionStatus(
        object_count=0 if held is None else held.objects,
        bytes_at_rest=str(sum(family_sizes(seen).values())),
        fully_indexed_uploaded_segments=held is None or _is_full(seen),
    )


def _families(seen: Inspected) -> list[FamilyStatus]:
    held, search = seen.held, seen.stream.search
    if held is None or search is None:
        return []
    covered, sizes = _covered(seen), family_sizes(seen)
    sealed = seen.holdings.sealed
    return [
        FamilyStatus(
            family=family,
            fields=fields,
            plan_generation=seen.plan_generation,
            covered_segment_count=len(covered),
            contiguous_covered_segment_count=_contiguous(seen),
            lag_segments=len(sealed) - len(covered),
            lag_ms=_lag_ms(seen, covered),
            bytes_at_rest=str(sizes[family]),
            object_count=held.objects,
            stale_segment_count=len(sealed) if held.is_stale else 0,
            fully_indexed_uploaded_segments=_is_full(seen),
            updated_at=time(held.index_files.built_at),
        )
        for family, fields in families_of(search.config).items()
    ]


def families_of(config: SearchConfig) -> dict[Family, list[str]]:
    """The families that are configured, and for which fields, rollups, or records of metrics."""
    fields = sorted(config.fields.values(), key=lambda field: field.name)
    wanted: dict[Family, list[str]] = {
        "exact": _names(field for field in fields if field.exact),
        "col": _names(field for field in fields if field.column),
        "fts": _names(field for field in fields if field.kind == "text" or field.prefix),
        "agg": sorted(config.rollups),
        "mblk": ["metrics"] if config.profile == "metrics" else [],
    }
    return {family: names for family, names in wanted.items() if names}


def _names(fields: Iterable[Field]) -> list[str]:
    return [field.name for field in fields]


def family_sizes(seen: Inspected) -> dict[Family, int]:
    """The bytes of each family, in memory and in files. A column that serves several families counts for the first of
    them. Values that only rollups add up count for rollups. The records of metrics use the same columns."""
    sizes = dict.fromkeys(FAMILIES, 0)
    held, search = seen.held, seen.stream.search
    if held is None or search is None:
        return sizes
    for name in held.sizes.keys() | held.index_files.sizes.keys():
        size = held.size_of(name)
        field = search.config.fields.get(name)
        if field is None:
            sizes["agg"] += size
        elif field.kind == "text":
            sizes["fts"] += size
        elif field.exact:
            sizes["exact"] += size
        elif field.prefix:
            sizes["fts"] += size
        else:
            sizes["col"] += size
    return sizes

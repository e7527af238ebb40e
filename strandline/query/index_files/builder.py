"""Build index files from records or from other index files::

    made = build(origin, config, batches)
    made = merge([index_file, index_file], config, live=ranges)

Both return the bytes of the file and its entry in the table of index files; the caller stores them. An index file
states what was indexed and how (:func:`plan_id`, :func:`rollup_id`), so that it is only used for queries that it can
answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from strandline.engine.state.ranges import inside
from strandline.query.bound import Bound, bind_search
from strandline.query.chunk import Chunk, Ranges, join_chunks
from strandline.query.config import Measure, Rollup, SearchConfig
from strandline.query.extraction import Extractor
from strandline.query.index import BATCH_ROWS, IndexPlan, Versions, plan_of, stretches_of
from strandline.query.index_files.file import IndexFile, Info, plain_column, store_column, store_seqs, write_index_file
from strandline.query.index_files.rollups import store_rollup, sum_up

#: A part of every name. Increase it when the code indexes records differently.
_GENERATION = "2"


def plan_id(plan: IndexPlan) -> str:
    """Return the name of a plan. Only equal plans have the same name."""
    return _name(msgspec.json.encode(plan))


def plan_id_of(config: SearchConfig) -> str:
    return plan_id(plan_of(config))


def rollup_id(rollup: Rollup, config: SearchConfig) -> str:
    """Return a name that identifies everything that affects the sums of a rollup. For example, a changed alias in a
    query may change it."""
    measures = [
        (name, measure.kind, _bound(measure, config), measure.field, measure.histogram, measure.pointers)
        for name, measure in sorted(rollup.measures.items())
    ]
    intervals = sorted(set(rollup.intervals.values()))
    facts = rollup.name, rollup.timestamp_field, intervals, rollup.dimensions, _bound(rollup, config), measures
    # The repr of a bound query contains the classes of its parts; its JSON does not.
    return _name(repr(facts).encode())


def rollups_id(config: SearchConfig) -> str:
    """Return the name of all rollups of a configuration."""
    return _name(*(rollup_id(config.rollups[name], config).encode() for name in sorted(config.rollups)))


def versions_between(versions: Versions, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """Return the schema versions of the records from ``first`` to ``last``, with the first seq of each."""
    before = [version for start, version in versions if start <= first]
    found = [(first, before[-1] if before else 0)]
    for start, version in versions:
        if first < start <= last and version != found[-1][1]:
            found.append((start, version))
    return tuple(found)


def _bound(asked: Rollup | Measure, config: SearchConfig) -> Bound | None:
    return None if asked.include is None else bind_search(asked.include, config)


def _name(*parts: bytes) -> str:
    digest = sha256(_GENERATION.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


Seqs = npt.NDArray[np.int64]


class Origin(Struct, frozen=True, kw_only=True):
    """The records that an index file covers: all records of a log from ``first`` to ``last``, in the data directory
    with this id.

    ``versions`` has the first seq of each schema version, from the log's registry. ``erasures`` is the head of the log
    of erasures before the first record was read (0: it does not exist yet). ``rewrites`` is as in :class:`Info`.
    """

    directory: str
    log: str
    epoch: int
    first: int
    last: int
    versions: tuple[tuple[int, int], ...] = ()
    erasures: int = 0
    rewrites: int = -1


class Made(NamedTuple):
    """``content`` is the bytes-like file; ``checksum`` is over all of it."""

    info: Info
    content: Any
    checksum: str

    @property
    def size(self) -> int:
        return len(self.content)


class CannotMerge(Exception):
    """These index files cannot be merged: they are not consecutive, not of one log, or not of this plan."""


class Builder:
    """Builds an index file from records that are added in the order of the log."""

    def __init__(self, origin: Origin, config: SearchConfig) -> None:
        self._origin = origin
        self._config = config
        self._plan = plan_of(config)
        self._extractor = Extractor(self._plan.fields, self._plan.histograms)
        self._chunks: list[Chunk] = []

    def add(self, seqs: Sequence[int] | Seqs, data: Sequence[bytes]) -> None:
        """Add records with their payloads. Records that are not JSON objects are omitted, as in searches."""
        for start in range(0, len(data), BATCH_ROWS):
            end = start + BATCH_ROWS
            self._add(np.asarray(seqs[start:end], np.int64), data[start:end])

    def _add(self, seqs: Seqs, data: Sequence[bytes]) -> None:
        for start, end, version in stretches_of(seqs.tolist(), self._origin.versions):
            rows, columns = self._extractor.extract(data[start:end], version)
            if rows:
                self._chunks.append(Chunk(seqs[start:end][rows], columns))

    def finish(self) -> Made:
        origin = self._origin
        chunk = join_chunks(self._chunks) if self._chunks else _empty(self._extractor)
        versions = versions_between(origin.versions, origin.first, origin.last)
        return _made(
            Info(
                directory=origin.directory,
                log=origin.log,
                epoch=origin.epoch,
                first=origin.first,
                last=origin.last,
                versions=versions,
                plan=plan_id(self._plan),
                rollups=rollups_id(self._config),
                erasures=origin.erasures,
                records=len(chunk),
                rewrites=origin.rewrites,
            ),
            chunk,
            self._config,
        )


def build(origin: Origin, config: SearchConfig, batches: Iterable[Any]) -> Made:
    """Build the index file of Arrow record batches with columns ``seq`` and ``data``, in the order of the log."""
    builder = Builder(origin, config)
    for batch in batches:
        builder.add(batch.column("seq").to_numpy(), batch.column("data").to_pylist())
    return builder.finish()


def merge(
    index_files: Sequence[IndexFile],
    config: SearchConfig,
    *,
    live: Ranges | None = None,
    without: Iterable[int] = (),
    erasures: int | None = None,
) -> Made:
    """Merge one or several consecutive index files into one.

    Records outside of the ``live`` ranges (ascending, inclusive), if given, or among the seqs ``without`` are omitted,
    with all of their data. Rollups are computed with ``config``, whose plan must be that of the index files.
    ``erasures`` is for callers that have applied later erasures too; the default is the lowest of all inputs.
    """
    plan = plan_of(config)
    info = _merged_info(index_files, plan, config)
    excluded = np.fromiter(without, np.int64)
    kept = [_kept(chunk, live, excluded) for each in index_files if (chunk := each.chunk()) is not None]
    chunks = [chunk for chunk in kept if len(chunk)]
    chunk = join_chunks(chunks) if chunks else _empty(Extractor(plan.fields, plan.histograms))
    known = min(each.info.erasures for each in index_files) if erasures is None else erasures
    return _made(replace(info, records=len(chunk), erasures=known), chunk, config)


def _merged_info(index_files: Sequence[IndexFile], plan: IndexPlan, config: SearchConfig) -> Info:
    if not index_files:
        raise CannotMerge("no index files to merge")
    infos = [index_file.info for index_file in index_files]
    for before, behind in pairwise(infos):
        if (behind.directory, behind.epoch) != (before.directory, before.epoch) or behind.first != before.last + 1:
            raise CannotMerge(f"{behind} does not follow {before}")
    name = plan_id(plan)
    for info in infos:
        if info.plan != name:
            raise CannotMerge(f"{info} has another plan than {name}")
    first, last = infos[0].first, infos[-1].last
    versions = versions_between([each for info in infos for each in info.versions], first, last)
    # The merged file is as old as the oldest of its parts.
    rewrites = min(info.rewrites for info in infos)
    return replace(infos[-1], first=first, last=last, versions=versions, rollups=rollups_id(config), rewrites=rewrites)


def _kept(chunk: Chunk, live: Ranges | None, without: Seqs) -> Chunk:
    kept = np.ones(len(chunk), np.bool_) if live is None else inside(chunk.seqs, live)
    kept &= ~np.isin(chunk.seqs, without)
    plain = Chunk(chunk.seqs, {name: plain_column(column) for name, column in chunk.columns.items()})
    return plain if kept.all() else plain.only(kept)


def _empty(extractor: Extractor) -> Chunk:
    return Chunk(np.empty(0, np.int64), extractor.extract([], 0).columns)


def _made(info: Info, chunk: Chunk, config: SearchConfig) -> Made:
    arrays = store_seqs(chunk.ranges)
    columns, rollups = [], []
    for name, column in chunk.columns.items():
        field = config.fields.get(name)
        stored, parts = store_column(name, column, field is not None and field.positions)
        columns.append(stored)
        arrays |= parts
    for name, rollup in sorted(config.rollups.items()):
        sums, parts = store_rollup(name, rollup_id(rollup, config), sum_up(chunk, rollup, config))
        rollups.append(sums)
        arrays |= parts
    content = write_index_file(info, tuple(columns), tuple(rollups), arrays)
    return Made(info, content, xxhash.xxh3_64_hexdigest(content))

"""The work of tasks for companions: build them from records or from other companions, and write them into the lake.

A companion that cannot be built does not stop the others: it is reported with its log and seq. Only errors that affect
all of them (no disk space, no memory) fail the task.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from strandline.engine.state.ranges import inside
from strandline.history.source import AnyPiece
from strandline.lake.location import Lake
from strandline.lake.record_files import concerns_everything
from strandline.lake.reporter import describe
from strandline.query.config import SearchConfig
from strandline.query.index_files.builder import Builder, Made, Origin, merge
from strandline.query.index_files.file import SEQS, DamagedIndexFile, IndexFile, open_index_file, read_index_file
from strandline.query.index_files.shared_file import (
    MAX_PART_BYTES,
    MAX_SHARED_BYTES,
    file_of,
    part_of,
    shared_file,
)
from strandline.query.index_files.table import FOLDER, IndexEntry
from strandline.schema.log_search import log_search

Ranges = list[tuple[int, int]]


class CompanionBuild(msgspec.Struct, frozen=True, kw_only=True, tag="build"):
    """Build a companion from records. ``registry`` is the stored registry of the log."""

    origin: Origin
    registry: bytes
    pieces: list[AnyPiece]

    @property
    def first(self) -> int:
        return self.origin.first

    @property
    def log(self) -> str:
        return self.origin.log

    @property
    def epoch(self) -> int:
        return self.origin.epoch


class CompanionMerge(msgspec.Struct, frozen=True, kw_only=True, tag="merge"):
    """Build a companion from consecutive ones, or from one, with the rollups that the registry declares now. It
    contains only records in the ranges ``kept``, if given, and not ``without``. ``only_if_other``: build nothing if
    that would change nothing. ``erasures``: see :func:`merge`."""

    log: str
    epoch: int
    first: int
    paths: list[str]
    registry: bytes
    kept: Ranges | None = None
    without: list[int] = []
    erasures: int | None = None
    only_if_other: bool = False


Work = CompanionBuild | CompanionMerge


class CompanionItem(msgspec.Struct, frozen=True):
    """``built_at`` is the recorded build time in milliseconds."""

    lake: Lake
    built_at: int
    work: list[Work]


class CompanionFailure(msgspec.Struct, frozen=True, kw_only=True):
    """``damaged`` is the path of an unusable companion."""

    log: str
    epoch: int
    first: int
    seq: int
    message: str
    damaged: str | None = None


class CompanionOutcome(msgspec.Struct, frozen=True):
    """The result of an item. ``unchanged`` are the paths of companions that stay as they are."""

    made: list[IndexEntry]
    failed: list[CompanionFailure]
    unchanged: list[str]


def make(item: CompanionItem) -> CompanionOutcome:
    """Build all companions of an item, in new files that are not referenced yet."""
    made: list[IndexEntry] = []
    small: list[Made] = []
    failed: list[CompanionFailure] = []
    unchanged: list[str] = []
    for work in item.work:
        result = _made(item.lake, work)
        if result is None:
            assert isinstance(work, CompanionMerge)
            unchanged += work.paths
            continue
        if isinstance(result, CompanionFailure):
            failed.append(result)
            continue
        if result.size > MAX_PART_BYTES:
            made.append(_written(item, result))
            continue
        small.append(result)
        if sum(each.size for each in small) > MAX_SHARED_BYTES:
            made += _written_together(item, small)
            small = []
    return CompanionOutcome(made + _written_together(item, small), failed, unchanged)


def _written(item: CompanionItem, made: Made) -> IndexEntry:
    path = f"{FOLDER}/{made.info.epoch}/{uuid.uuid4().hex}.arrow"
    item.lake.write(path, made.content.to_pybytes())
    return IndexEntry.of(made, path, item.built_at)


def _written_together(item: CompanionItem, small: list[Made]) -> list[IndexEntry]:
    """Write small companions into one file."""
    if len(small) < 2:
        return [_written(item, each) for each in small]
    parts, content = shared_file(uuid.uuid4().hex, [each.content for each in small])
    item.lake.write(parts[0].file, content)
    return [IndexEntry.of(each, part.path, item.built_at) for each, part in zip(small, parts, strict=True)]


def _made(lake: Lake, work: Work) -> Made | CompanionFailure | None:
    try:
        search = log_search(work.registry)
        assert search is not None, "only logs with a search configuration have companions"
        return _built(work, search.config) if isinstance(work, CompanionBuild) else _merged(lake, work, search.config)
    except _Unreadable as error:
        return _failure(work, error.seq, str(error))
    except DamagedIndexFile as error:
        paths = [] if isinstance(work, CompanionBuild) else work.paths
        return _failure(work, work.first, str(error), next((path for path in paths if path == error.path), None))
    except Exception as error:
        if concerns_everything(error):
            raise
        return _failure(work, work.first, describe(error))


def _failure(work: Work, seq: int, message: str, damaged: str | None = None) -> CompanionFailure:
    return CompanionFailure(log=work.log, epoch=work.epoch, first=work.first, seq=seq, message=message, damaged=damaged)


# --- from records --------------------------------------------------------------------------------------------------


class _Unreadable(Exception):
    """A record cannot be read or indexed."""

    def __init__(self, seq: int, error: Exception) -> None:
        super().__init__(describe(error))
        self.seq = seq


def _built(work: CompanionBuild, config: SearchConfig) -> Made:
    builder = Builder(work.origin, config)
    for batch in _batches(work):
        seqs, data = batch.column("seq").to_numpy(), batch.column("data").to_pylist()
        try:
            builder.add(seqs, data)
        except Exception as error:
            if concerns_everything(error):
                raise
            raise _Unreadable(_culprit(work.origin, config, seqs.tolist(), data), error) from error
    return builder.finish()


def _batches(work: CompanionBuild) -> Iterator[Any]:
    at = work.origin.first
    for piece in work.pieces:
        at = max(at, piece.first)
        batches = piece.read()
        while True:
            try:
                batch = next(batches, None)
            except Exception as error:
                if concerns_everything(error):
                    raise
                raise _Unreadable(at, error) from error
            if batch is None:
                break
            if batch.num_rows:
                at = int(batch.column("seq")[-1].as_py()) + 1
                yield batch


def _culprit(origin: Origin, config: SearchConfig, seqs: list[int], data: list[bytes]) -> int:
    """The seq of the first record that cannot be indexed, found by bisection; the first of all if no single one
    fails."""
    low, high = 0, len(seqs)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            Builder(origin, config).add(seqs[low:middle], data[low:middle])
        except Exception:
            high = middle
        else:
            low = middle
    return seqs[low]


# --- from companions -----------------------------------------------------------------------------------------------


def _merged(lake: Lake, work: CompanionMerge, config: SearchConfig) -> Made | None:
    companions = [opened(lake, path) for path in work.paths]
    if work.only_if_other and not any(_would_be_other(companion, work) for companion in companions):
        return None
    return merge(companions, config, live=work.kept, without=work.without, erasures=work.erasures)


def _would_be_other(companion: IndexFile, work: CompanionMerge) -> bool:
    """Whether the companion would change. Reads only its seqs."""
    if not companion.info.records:
        return False
    seqs = companion.array(SEQS)
    is_kept = True if work.kept is None else bool(inside(seqs, work.kept).all())
    return not is_kept or bool(np.isin(seqs, np.array(work.without, np.int64)).any())


def opened(lake: Lake, path: str) -> IndexFile:
    """The companion at a path of the lake. Raises DamagedIndexFile with that path, also if the file is missing."""
    directory, part = lake.directory, part_of(path)
    try:
        if directory is not None:
            return open_index_file(str(directory / file_of(path)), path, part)
        content = lake.read(path) if part is None else lake.read_range(*part)
        if content is None:
            raise FileNotFoundError(path)
        return read_index_file(content, path)
    except FileNotFoundError:
        raise DamagedIndexFile(path, "the file is missing") from None

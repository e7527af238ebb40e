"""The jobs that write index files into a data directory: from sealed records, or from other index files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import time_ns
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from strandline.engine.disk import PIECE_BYTES, Disk
from strandline.engine.errors import DamagedFile
from strandline.engine.reads.sealed_rows import OpenSegment, SealedRows, open_on, read_rows
from strandline.query.config_parser import parse_search_config
from strandline.query.index import BATCH_BYTES, BATCH_ROWS
from strandline.query.index_files.builder import Builder, Made, Origin, merge
from strandline.query.index_files.directory import FOLDER, file_name, folder_of
from strandline.query.index_files.file import DamagedIndexFile, IndexFile, open_index_file
from strandline.query.index_files.table import IndexEntry


class BuildJob(Struct, array_like=True, frozen=True, tag="build"):
    """Index the records ``rows``, which are all visible records of the range in ``origin``. ``config`` is the document
    of the search configuration."""

    origin: Origin
    config: dict[str, Any]
    rows: list[SealedRows]


class JoinJob(Struct, array_like=True, frozen=True, tag="join"):
    """Make one index file of consecutive ones, without the records outside of the ``live`` ranges. A single file is
    rewritten."""

    epoch: int
    config: dict[str, Any]
    paths: list[str]
    live: list[tuple[int, int]]
    #: Records whose values in the files are no longer right: they are left out.
    without: list[int]


IndexJob = BuildJob | JoinJob


def run(disk: Disk, job: IndexJob, open_segment: OpenSegment | None = None) -> IndexEntry:
    """Write the file and return its entry. Raises DamagedFile (also for an index file), MissingFile and OSError."""
    config = parse_search_config(job.config)
    if isinstance(job, BuildJob):
        builder = Builder(job.origin, config)
        for seqs, payloads in in_batches(_blocks(job, open_segment or open_on(disk))):
            builder.add(seqs, payloads)
        made, epoch = builder.finish(), job.origin.epoch
    else:
        try:
            files = [_opened(disk, path) for path in job.paths]
            made, epoch = merge(files, config, live=job.live, without=job.without), job.epoch
        except DamagedIndexFile as error:
            raise DamagedFile(error.path, error.why) from error
    folder = folder_of(epoch)
    disk.make_directory(FOLDER)
    disk.make_directory(folder)
    path = f"{folder}/{file_name(made.info, made.checksum)}"
    disk.write_file(path, _pieces(made))
    return IndexEntry.of(made, path, time_ns() // 1_000_000)


#: Seqs and payloads.
_Records = tuple[NDArray[np.int64], list[bytes]]


def _blocks(job: BuildJob, open_segment: OpenSegment) -> Iterator[_Records]:
    for rows in job.rows:
        yield from read_rows(rows, open_segment)


def in_batches(blocks: Iterable[_Records]) -> Iterator[_Records]:
    """Gather blocks of records. The blocks of a segment are small, and each extraction has a fixed cost."""
    seqs: list[NDArray[np.int64]] = []
    payloads: list[bytes] = []
    size = 0
    for more_seqs, more_payloads in blocks:
        seqs.append(more_seqs)
        payloads += more_payloads
        size += sum(map(len, more_payloads))
        if len(payloads) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield np.concatenate(seqs), payloads
            seqs, payloads, size = [], [], 0
    if seqs:
        yield np.concatenate(seqs), payloads


def _opened(disk: Disk, path: str) -> IndexFile:
    try:
        return open_index_file(disk.local_path(path), path)
    except FileNotFoundError:
        raise DamagedIndexFile(path, "the file is missing") from None


def _pieces(made: Made) -> Iterator[bytes]:
    for start in range(0, made.size, PIECE_BYTES):
        yield made.content.slice(start, min(PIECE_BYTES, made.size - start)).to_pybytes()

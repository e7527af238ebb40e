"""Upkeep of the lake: few files, no old ones, short transaction logs.

Small files of ``records`` and of typed tables are merged in tiers: eight of about the same size become one, so that a
record is rewritten only a few times, however many rounds there are. Replaced files are kept for a while for readers of
earlier versions. Files that no version references, which killed tasks have left, are removed as well, but only when
they are old, because a young one may be about to be committed.

The stage of companions maintains its own files.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from strandline.lake import layout
from strandline.lake.files import DataFile
from strandline.lake.location import Lake
from strandline.lake.record_files import FILE_BYTES, RowsWriter
from strandline.lake.table import KnownFile, LakeTable, TableSnapshot
from strandline.lake.transaction_log import LOG
from strandline.lake.typed_tables import folders, typed_table
from strandline.late_import import LateModule
from strandline.pipeline.round import Round
from strandline.pipeline.typed_tables.stage import memory_of

if TYPE_CHECKING:
    import duckdb
else:
    duckdb = LateModule("duckdb")

STAGE = "upkeep"
#: The number of files of a tier that are merged.
FILES_PER_TIER = 8
#: Files of the first tier are smaller than this, and those of each further tier smaller than eight times as much.
FIRST_TIER_BYTES = 1 << 20
#: The memory limit of a task that sorts; the rest spills to disk.
SORT_MEMORY = "512MB"
#: Seconds between sweeps. Listing all files of a lake costs requests.
SWEEP_EVERY = 3600

#: A transaction id of ``records``: the time of the last sweep in milliseconds.
SWEPT = "swept"


class CompactItem(msgspec.Struct, frozen=True, array_like=True):
    """Files of a table to merge. ``columns``: the serialized schema of the table."""

    number: int
    lake: Lake
    table: str
    columns: bytes
    paths: list[str]


class CompactDone(msgspec.Struct, frozen=True, array_like=True):
    number: int
    files: list[DataFile]


def run(round: Round) -> None:
    records = layout.records(round.lake).snapshot(round.fence)
    if not records.exists:
        return
    compact(round, records)
    changed = memory_of(round).changed
    while changed:
        compact(round, typed_table(round.lake, changed.pop()).snapshot(round.fence))
    if is_sweep_due(records.progress(), round.now()):
        typed = [typed_table(round.lake, folder) for folder in folders(round.lake)]
        for table in (records.table, layout.latest(round.lake), layout.keys(round.lake), *typed):
            if table.exists:
                sweep(round, table)
                table.open().cleanup_metadata()
        records.commit(progress={SWEPT: round.now()})


def is_sweep_due(progress: Mapping[str, int], now: int) -> bool:
    """Whether the last sweep is long enough ago. A time in the future comes from a wrong clock and is ignored."""
    return not now - SWEEP_EVERY * 1000 < progress.get(SWEPT, 0) <= now


# --- small files -----------------------------------------------------------------------------------------------------


def compact(round: Round, table: TableSnapshot) -> None:
    groups = list(groups_of(table.files()))
    if not groups:
        return
    name, columns = table.table.name, table.columns().serialize().to_pybytes()
    items = [
        CompactItem(number, round.lake, name, columns, [file.path for file in group])
        for number, group in enumerate(groups)
    ]
    with round.reporter.stage(STAGE, sum(file.rows for group in groups for file in group)) as stage:
        for results in round.workers.waves(put_together, items, CompactItem, CompactDone):
            made = [file for result in results for file in result.files]
            replaced = [file for result in results for file in groups[result.number]]
            table.commit(add=made, remove=replaced, is_rearranged=True, now=round.now())
            rows = sum(file.rows for file in made)
            stage.advance(rows, sum(file.size for file in made))
            round.done[STAGE] = round.done.get(STAGE, 0) + rows


def groups_of(files: list[KnownFile]) -> Iterator[list[KnownFile]]:
    """The files to merge: of the same tier, neighbours by log and seq, and not too large together."""
    tiers: dict[int, list[KnownFile]] = {}
    for file in files:
        if file.size < FILE_BYTES // 2:
            tiers.setdefault(_tier(file.size), []).append(file)
    for tier in tiers.values():
        if len(tier) < FILES_PER_TIER:
            continue
        group: list[KnownFile] = []
        size = 0
        for file in sorted(tier, key=_place):
            if group and size + file.size > FILE_BYTES:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.size
        if len(group) > 1:
            yield group


def _tier(size: int) -> int:
    tier, limit = 0, FIRST_TIER_BYTES
    while size >= limit:
        tier, limit = tier + 1, limit * FILES_PER_TIER
    return tier


def _place(file: KnownFile) -> tuple[str, int]:
    log, seq = file.bounds.get("log") or file.bounds.get("parent"), file.bounds.get("seq")
    return "" if log is None else log[0], 0 if seq is None else seq[0]


def put_together(item: CompactItem) -> CompactDone:
    """Merge several files into one, or into as few as possible, in the order of logs (or parents) and seqs."""
    schema = pa.ipc.read_schema(pa.BufferReader(item.columns))
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-"))
        paths = [_local(item.lake, f"{item.table}/{path}", place) for path in item.paths]
        database = stack.enter_context(
            duckdb.connect(config={"threads": 1, "memory_limit": SORT_MEMORY, "temp_directory": f"{place}/sorting"})
        )
        writer = stack.enter_context(RowsWriter(LakeTable(item.lake, item.table, schema)))
        for batch in _sorted(database, paths, schema):
            writer.write(batch)
        return CompactDone(item.number, writer.close())


def _sorted(database: Any, paths: list[str], schema: Any) -> Iterator[Any]:
    files = "read_parquet($paths, hive_partitioning = false, union_by_name = true)"
    known = set(database.sql(f"select * from {files} limit 0", params={"paths": paths}).columns)
    # Files from before a table got a column do not have it.
    columns = ", ".join(_quoted(name) for name in schema.names if name in known)
    query = f"select {columns} from {files} order by {_quoted(schema.names[0])}, epoch, seq"
    for batch in database.sql(query, params={"paths": paths}).to_arrow_reader(65_536):
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        nothing = pa.nulls(batch.num_rows)
        yield pa.record_batch([found.get(field.name, nothing).cast(field.type) for field in schema], schema=schema)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _local(lake: Lake, name: str, place: str) -> str:
    """A local path of a file."""
    if lake.directory is not None:
        return str(lake.directory / name)
    data = lake.read(name)
    if data is None:
        raise FileNotFoundError(lake.place_of(name))
    copy = Path(place) / name.replace("/", "-")
    copy.write_bytes(data)
    return str(copy)


# --- old files -------------------------------------------------------------------------------------------------------


def sweep(round: Round, table: LakeTable) -> list[str]:
    """Remove files that have not been part of the table for long enough. Returns what was removed."""
    now = round.now()
    there = round.lake.names(f"{table.name}/")
    snapshot = table.snapshot()
    current = {file.path for file in snapshot.files()}
    replaced = snapshot.replaced()
    late = now / 1000 - time.time()
    old = []
    for name, seconds in there.items():
        path = name[len(table.name) + 1 :]
        if seconds < 0:
            # Written with a wrong clock: give it the current time. The transaction log is shortened by file times too.
            round.lake.touch(name)
        if path in current or path.startswith(f"{LOG}/"):
            continue
        age = seconds + late
        if path not in replaced:
            is_old = age >= round.keeping.orphans
        elif replaced[path] <= now:
            is_old = now - replaced[path] >= round.keeping.versions * 1000
        else:
            # The recorded replacement time comes from a wrong clock. The file itself is at least that old.
            is_old = age >= round.keeping.versions
        if is_old:
            old.append(name)
    round.remove(old)
    return old

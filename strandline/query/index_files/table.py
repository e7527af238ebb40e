"""The lake table of index files: what is indexed, by which plan, and where the file is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from strandline.arrow import pa
from strandline.late_import import LateModule
from strandline.query.index_files.builder import Made
from strandline.query.index_files.file import IndexFile, Info
from strandline.query.index_files.rollups import load_sums, rows_of

table_schemas: Any = LateModule("strandline.query.index_files.table_schemas")

#: The name of the table in the lake, and of the folder with the files.
TABLE = "companions"
FOLDER = "pieces"

#: The progress of the table under this name: all erasures up to there are applied in all index files that it lists.
ERASURES = "erasures"


class IndexEntry(Struct, frozen=True):
    """A row of the table of index files."""

    info: Info
    path: str
    size: int
    checksum: str
    built_at: int

    @classmethod
    def of(cls, made: Made, path: str, built_at: int) -> IndexEntry:
        """``path`` is relative to the lake, ``built_at`` in milliseconds."""
        return cls(made.info, path, made.size, made.checksum, built_at)


def listed_table(entries: list[IndexEntry]) -> Any:
    """Return rows for the table."""
    return pa.Table.from_pylist([_row(entry) for entry in entries], schema=table_schemas.LISTED)


_PLAIN = ("directory", "log", "epoch", "plan", "rollups", "first", "last", "erasures", "records")


def listed_in(table: Any) -> list[IndexEntry]:
    """Return the entries of the table, or of a part of it."""
    return [_entry(row) for row in table.to_pylist()]


def _row(entry: IndexEntry) -> dict[str, Any]:
    info = entry.info
    return {
        "directory": info.directory,
        "log": info.log,
        "epoch": info.epoch,
        "plan": info.plan,
        "rollups": info.rollups,
        "first": info.first,
        "last": info.last,
        "versions": [f"{first}:{version}" for first, version in info.versions],
        "erasures": info.erasures,
        "records": info.records,
        "path": entry.path,
        "size": entry.size,
        "checksum": entry.checksum,
        "built_at": datetime.fromtimestamp(entry.built_at / 1000, UTC),
    }


def _entry(row: dict[str, Any]) -> IndexEntry:
    versions = [text.partition(":") for text in row["versions"]]
    info = Info(
        versions=tuple((int(first), int(version)) for first, _, version in versions),
        **{name: row[name] for name in _PLAIN},
    )
    return IndexEntry(info, row["path"], row["size"], row["checksum"], round(row["built_at"].timestamp() * 1000))


def rollup_rows(index_file: IndexFile) -> Any:
    """Return the sums of an index file as rows of the table of rollups (``ROLLUP_ROWS``): one per group and measure."""
    info = index_file.info
    tables = [table_schemas.ROLLUP_ROWS.empty_table()]
    for stored in index_file.head.rollups:
        for interval_ms in stored.intervals:
            constants = {
                "log": info.log,
                "epoch": info.epoch,
                "first": info.first,
                "last": info.last,
                "rollup": stored.name,
                "interval_ms": interval_ms,
            }
            sums = load_sums(stored, interval_ms, index_file.array)
            if len(sums):
                tables.append(rows_of(sums, constants))
    return pa.concat_tables(tables)

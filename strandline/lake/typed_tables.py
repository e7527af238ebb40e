"""Typed tables: where they are in the lake, and their columns before those of the payloads.

A log with a schema, and a declared table with all of its parents, has a Delta table of its own under ``tables/``. The
folder is named after the log or the table if the name is a safe file name; otherwise it is the part of the name that is
safe, and a digest.
"""

from __future__ import annotations

import re
from hashlib import sha256

import pyarrow as pa

from strandline.lake.location import Lake
from strandline.lake.table import LakeTable

FOLDER = "tables"

_TIME = pa.timestamp("us", tz="UTC")
#: The first columns of a row of a log.
LOG_ROW = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", _TIME, nullable=False),
        pa.field("key", pa.string()),
    ]
)
#: The first columns of a row of a declared table.
TABLE_ROW = pa.schema(
    [
        pa.field("parent", pa.string(), nullable=False),
        *(LOG_ROW.field(name) for name in LOG_ROW.names[1:]),
        pa.field("userId", pa.string()),
        pa.field("updatedAt", _TIME, nullable=False),
    ]
)

#: Transaction ids of a typed table besides those of the logs: a digest of what its rows are made with, ...
SHAPE = "shape"
#: ... and the version of the schema.
VERSION = "version"

#: Names that are folders as they are. Others get a digest, which no safe name ends with: it follows a tilde.
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_SHOWN = 60


def folder_of(name: str) -> str:
    """The folder of the typed table of this name, below ``tables/``."""
    if _SAFE.fullmatch(name):
        return name
    return f"{_UNSAFE.sub('_', name)[:_SHOWN].lstrip('_.-')}~{sha256(name.encode()).hexdigest()[:16]}"


def typed_table(lake: Lake, folder: str, schema: pa.Schema | None = None) -> LakeTable:
    return LakeTable(lake, f"{FOLDER}/{folder}", schema)


def folders(lake: Lake) -> list[str]:
    """The folders of all typed tables, also of those to which nothing was ever committed."""
    return lake.folders(f"{FOLDER}/")

"""The tables of the lake."""

from __future__ import annotations

import pyarrow as pa

from strandline.lake.location import Lake
from strandline.lake.table import Table

#: Every record. A payload is ``data`` if it is text and ``bytes`` if it is not. ``version`` is that of the record's
#: schema, 0 where it has none.
RECORDS = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.string()),
        pa.field("node", pa.string()),
        pa.field("meta", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("data", pa.string()),
        pa.field("bytes", pa.binary()),
    ]
)


def records(lake: Lake) -> Table:
    return Table(lake, "records", RECORDS)


#: What audits found: rows of one run have the same ``run``. A row without a log (an empty name) says what was looked at
#: in all of them; further rows are about single logs. ``first_seq`` is the first one concerned, and ``count`` how many
#: are. There is nothing of any record in here.
AUDIT = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("log", pa.string(), nullable=False),
        pa.field("check", pa.string(), nullable=False),
        pa.field("ok", pa.bool_(), nullable=False),
        pa.field("first_seq", pa.int64()),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)


def audit(lake: Lake) -> Table:
    return Table(lake, "audit", AUDIT)


#: The last record of every key.
LATEST = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("data", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("bucket", pa.string(), nullable=False),
    ]
)

#: Every key: where it first and last was, and how many records of ``records`` have it.
KEYS = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("first_seq", pa.int64(), nullable=False),
        pa.field("first_ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("last_seq", pa.int64(), nullable=False),
        pa.field("last_ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("bucket", pa.string(), nullable=False),
    ]
)


def latest(lake: Lake) -> Table:
    return Table(lake, "latest", LATEST, ["bucket"])


def keys(lake: Lake) -> Table:
    return Table(lake, "keys", KEYS, ["bucket"])

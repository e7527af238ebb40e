"""The options of the data source, validated together before anything is read or written.

They have the names of Spark's own sources where possible, and are case-insensitive. Unknown options are refused,
because silently ignoring an option would produce a wrong result. The names of the Kafka source are accepted for options
with the same meaning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Literal, cast

import msgspec

from strandline.pipeline.source.option_values import COLD_PREFIX, BadOption, GivenOptions, PerLog

Payload = Literal["string", "bytes", "variant", "columns"]

PAYLOADS = ("string", "bytes", "variant", "columns")
#: About fifty megabytes, and a second of work for a task.
ROWS_PER_PARTITION = 250_000
#: Records per append: enough to make the round trip cheap, few enough to repeat.
ROWS_PER_APPEND = 10_000
#: Rows per batch that is passed to Spark.
BATCH_ROWS = 16_384
#: Kafka's default for maxTriggerDelay.
DELAY_MS = 15 * 60_000
#: A start after the last record.
LATEST = -1
#: The maximum number of partitions per log. A larger number is a mistake.
MAX_SPLITS = 100_000

_PLACE = ("url", "key", "path", "cold")
_READING = (
    *_PLACE, "log", "logs", "prefix", "logPattern", "startSeq", "endSeq", "startTime", "endTime", "rowsPerPartition",
    "splitsPerLog", "keys", "columns", "batchRows", "payload", "own",
)  # fmt: skip
#: The options of each purpose. docs/reference/python/spark.md lists them.
BATCH = (*_READING, "pushdown", "table", "lake")
#: The options of a read of a declared table, whose rows are in the files of the lake.
TABLE = ("table", "lake", "path", "columns")
STREAMING = (
    *_READING, "minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay",
    "failOnDataLoss",
)  # fmt: skip
WRITING = (*_PLACE, "log", "create", "batchRows")
STREAM_WRITING = (*WRITING, "writer", "checkpointLocation")
#: A table or a view is read and written with the same options. So an option of another purpose has no effect.
ALL = frozenset((*BATCH, *STREAMING, *STREAM_WRITING))
#: The names of Spark's Kafka source for options with the same meaning.
KAFKA_NAMES = {
    "subscribe": "logs", "subscribePattern": "logPattern", "topic": "log",
    "startingOffsets": "startSeq", "startingTimestamp": "startTime", "startingOffsetsByTimestamp": "startTime",
    "endingTimestamp": "endTime", "endingOffsetsByTimestamp": "endTime",
}  # fmt: skip
#: Names that a user may expect, with what to use instead.
_INSTEAD = {
    "endingOffsets": "use endSeq, which is the last sequence number to read; Kafka's endingOffsets is the one after it",
    "assign": "use logs: a log has no partitions",
    "kafka.bootstrap.servers": "use url",
    "rowsPerBatch": "use maxOffsetsPerTrigger",
    "maxRecordsPerPartition": "use rowsPerPartition",
    "minPartitions": "use splitsPerLog",
}


class LogLocation(msgspec.Struct, frozen=True):
    """Where logs are: the URL of a server, or a data directory."""

    url: str = ""
    key: str | None = None
    path: str = ""
    cold: str = ""
    cold_options: dict[str, str | bool] = {}

    def __str__(self) -> str:
        return self.url or self.path


class TriggerLimits(msgspec.Struct, frozen=True):
    """How much a micro-batch reads. It waits for ``min_offsets``, for ``delay_ms`` at most."""

    min_offsets: int | None = None
    max_offsets: int | None = None
    max_bytes: int | None = None
    delay_ms: int = DELAY_MS


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``since`` and ``until`` are in milliseconds. ``starts``, ``ends`` and ``since`` are inclusive, ``until``
    exclusive. A start of LATEST is after the last record."""

    place: LogLocation
    logs: tuple[str, ...] | None = None
    prefix: str = ""
    pattern: str | None = None
    starts: PerLog = PerLog()
    ends: PerLog = PerLog()
    since: PerLog = PerLog()
    until: PerLog = PerLog()
    columns: tuple[str, ...] | None = None
    rows_per_partition: int = ROWS_PER_PARTITION
    splits_per_log: int | None = None
    batch_rows: int = BATCH_ROWS
    payload: Payload = "string"
    own: bool = False
    keys: frozenset[str] | None = None
    # Only for batches.
    pushdown: bool = False
    #: A declared table, instead of logs, and the lake that has it.
    table: str | None = None
    lake: str = ""
    # Only for streams.
    limits: TriggerLimits | None = None
    fail_on_data_loss: bool = True

    def after(self, log: str) -> int:
        """The seq after which a log is read, as far as ``startSeq`` says."""
        return max((self.starts.of(log) or 1) - 1, 0)

    def is_latest(self, log: str) -> bool:
        return self.starts.of(log) == LATEST

    def selects(self, log: str) -> bool:
        """Whether a log has the right name. Logs that are named one by one may be internal."""
        if self.logs is not None:
            return log in self.logs
        return log.startswith(self.prefix) and (self.pattern is None or bool(re.fullmatch(self.pattern, log)))


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``log`` is the target of all rows; None takes it from each row. Progress is stored under the name ``writer``."""

    place: LogLocation
    log: str | None = None
    create: bool = True
    batch_rows: int = ROWS_PER_APPEND
    writer: str | None = None
    checkpoint: str | None = None


def read_options(given: Mapping[str, str], *, stream: bool | None = None) -> ReadOptions:
    """``stream``: whether the options are for a stream; None if not known yet. Raises BadOption."""
    said = GivenOptions(given, ALL, KAFKA_NAMES, _INSTEAD)
    if said.has("table") or said.has("lake"):
        return _table_options(said, stream)
    logs, keys = said.names("logs"), said.names("keys")
    said.only_one("logs", "prefix", "logPattern")
    said.only_one("rowsPerPartition", "splitsPerLog")
    log = said.text("log")
    if log is not None and not any(said.has(name) for name in ("logs", "prefix", "logPattern")):
        logs = (log,)
    options = ReadOptions(
        place=_place(said),
        logs=logs,
        prefix=said.text("prefix") or "",
        pattern=said.pattern("logPattern"),
        starts=said.positions("startSeq", {"earliest": 1, "latest": LATEST}),
        ends=said.positions("endSeq", {"latest": None}),
        since=said.times("startTime"),
        until=said.times("endTime"),
        columns=said.names("columns"),
        rows_per_partition=said.number("rowsPerPartition", 1) or ROWS_PER_PARTITION,
        splits_per_log=said.number("splitsPerLog", 1, MAX_SPLITS),
        batch_rows=said.number("batchRows", 1, 1 << 20) or BATCH_ROWS,
        payload=cast(Payload, said.choice("payload", PAYLOADS, "string")),
        own=said.flag("own", False),
        keys=None if keys is None else frozenset(keys),
        pushdown=said.flag("pushdown", False),
        limits=_limits(said),
        fail_on_data_loss=said.flag("failOnDataLoss", True),
    )
    _check_starts(options, said, stream)
    return options


def _table_options(said: GivenOptions, stream: bool | None) -> ReadOptions:
    """The options of a read of a declared table."""
    table = said.text("table")
    if table is None:
        raise BadOption("lake requires table, the name of a declared table: to read logs, give url or path")
    if stream:
        raise BadOption(
            f"table {table!r} cannot be read as a stream: give the table the property strandline.log, and read that log"
        )
    others = said.others(TABLE)
    if others:
        raise BadOption(f"{others[0]} cannot be combined with table, which is read with {', '.join(TABLE)}")
    path, lake = said.text("path") or "", said.text("lake") or ""
    if bool(path) == bool(lake):
        raise BadOption("table requires either lake (the directory of the lake) or path (a data directory with a lake)")
    return ReadOptions(
        place=LogLocation(path=path),
        columns=said.names("columns"),
        table=table,
        lake=lake or os.path.join(path, "lake"),
    )


def _check_starts(options: ReadOptions, said: GivenOptions, stream: bool | None) -> None:
    latest = LATEST in (options.starts.all, *options.starts.logs.values())
    if latest and stream is False:
        raise BadOption("startSeq 'latest' is only for streams: a batch that starts after the last record is empty")
    if latest and said.has("startTime"):
        raise BadOption("startSeq 'latest' and startTime cannot be combined: give one of them")
    for name, bounds in (
        ("startSeq", options.starts), ("endSeq", options.ends), ("startTime", options.since), ("endTime", options.until)
    ):  # fmt: skip
        for log in bounds.logs:
            if not options.selects(log):
                raise BadOption(f"{name} names log {log!r}, which is not one of the logs to read: add it to them")


def _limits(said: GivenOptions) -> TriggerLimits | None:
    low, high = said.number("minOffsetsPerTrigger", 1), said.number("maxOffsetsPerTrigger", 1)
    size, delay = said.size("maxBytesPerTrigger"), said.duration("maxTriggerDelay")
    if low is not None and high is not None and low > high:
        raise BadOption(f"minOffsetsPerTrigger ({low}) must not be more than maxOffsetsPerTrigger ({high})")
    if delay is not None and low is None:
        raise BadOption("maxTriggerDelay requires minOffsetsPerTrigger: it limits how long a stream waits for them")
    if low is None and high is None and size is None:
        return None
    return TriggerLimits(low, high, size, DELAY_MS if delay is None else delay)


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises BadOption."""
    # Spark passes the name of a query as an option too.
    given = {name: value for name, value in given.items() if name.lower() != "queryname"}
    said = GivenOptions(given, ALL, KAFKA_NAMES, _INSTEAD)
    if said.has("table"):
        raise BadOption(
            "a declared table is only written by its pipeline: to append to a log, set log instead of table"
        )
    place = _place(said)
    if place.cold:
        raise BadOption("cold is only for reading: records are written to the directory itself")
    if said.has("logs") and not said.has("log"):
        raise BadOption("logs selects the logs to read: set log to the log to append to")
    return WriteOptions(
        place=place,
        log=said.text("log"),
        create=said.flag("create", True),
        batch_rows=said.number("batchRows", 1, 1 << 20) or ROWS_PER_APPEND,
        writer=said.text("writer"),
        checkpoint=said.text("checkpointLocation"),
    )


def _place(said: GivenOptions) -> LogLocation:
    url, path = said.text("url") or "", said.text("path") or ""
    if bool(url) == bool(path):
        raise BadOption("give either url (of a server) or path (of a data directory)")
    if url and not re.match(r"https?://[^/]", url):
        raise BadOption(f"invalid url {url!r}: it must start with http:// or https://")
    for name in ("key",) if path else ("cold",):
        if said.has(name):
            raise BadOption(f"{name} cannot be combined with {'path' if path else 'url'}")
    cold = said.text("cold") or ""
    if said.cold_options and not cold:
        raise BadOption(f"{COLD_PREFIX}… options require cold, the URL of the cold tier")
    return LogLocation(url.rstrip("/"), said.text("key"), path, cold, said.cold_options)

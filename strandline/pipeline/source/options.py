"""The options of the data source, validated together before anything is read or written.

They have the names of Spark's own sources where possible, and are case-insensitive. Unknown options are refused,
because silently ignoring an option would produce a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, cast

import msgspec

Payload = Literal["string", "bytes", "variant", "columns"]

PAYLOADS = ("string", "bytes", "variant", "columns")
#: About fifty megabytes, and a second of work for a task.
ROWS_PER_PARTITION = 250_000
#: Records per append: enough to make the round trip cheap, few enough to repeat.
ROWS_PER_APPEND = 10_000
#: Rows per batch that is passed to Spark.
BATCH_ROWS = 16_384
#: The maximum number of partitions per log. A larger number is a mistake.
MAX_SPLITS = 100_000

_PLACE = ("url", "key", "path", "cold")
_READING = (
    *_PLACE, "logs", "prefix", "startSeq", "endSeq", "startTime", "endTime", "rowsPerPartition", "splitsPerLog",
    "keys", "batchRows", "payload", "own",
)  # fmt: skip
#: The options of each purpose. docs/reference/python/spark.md lists them.
BATCH = (*_READING, "pushdown")
STREAMING = (*_READING, "startingOffsets", "rowsPerBatch", "failOnDataLoss")
WRITING = (*_PLACE, "log", "create", "batchRows")
STREAM_WRITING = (*WRITING, "writer", "checkpointLocation")
#: The prefix of options for the object store of the cold tier.
_COLD = "cold."


class BadOption(ValueError):
    """An unknown or invalid option. The message names it and the valid ones."""


class LogLocation(msgspec.Struct, frozen=True):
    """Where logs are: the URL of a server, or a data directory."""

    url: str = ""
    key: str | None = None
    path: str = ""
    cold: str = ""
    cold_options: dict[str, str | bool] = {}

    def __str__(self) -> str:
        return self.url or self.path


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``since`` and ``until`` are in milliseconds. ``since`` and ``through`` are inclusive, ``after`` and ``until``
    exclusive."""

    place: LogLocation
    logs: tuple[str, ...] | None = None
    prefix: str = ""
    after: int = 0
    through: int | None = None
    since: int | None = None
    until: int | None = None
    rows_per_partition: int = ROWS_PER_PARTITION
    splits_per_log: int | None = None
    batch_rows: int = BATCH_ROWS
    payload: Payload = "string"
    own: bool = False
    keys: frozenset[str] | None = None
    # Only for batches.
    pushdown: bool = False
    # Only for streams.
    latest: bool = False
    rows_per_batch: int | None = None
    fail_on_data_loss: bool = True


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
    known = {None: {*BATCH, *STREAMING}, True: STREAMING, False: BATCH}[stream]
    said = _Said(given, known, "reading a stream" if stream else "reading")
    logs, keys = said.names("logs"), said.names("keys")
    if logs is not None and said.has("prefix"):
        raise BadOption("logs and prefix cannot be combined: give one of them")
    starts = [name for name in ("startSeq", "startTime", "startingOffsets") if said.has(name)]
    if len(starts) > 1 and "startingOffsets" in starts:
        raise BadOption(f"{' and '.join(starts)} cannot be combined: give one of them")
    if said.has("rowsPerPartition") and said.has("splitsPerLog"):
        raise BadOption("rowsPerPartition and splitsPerLog cannot be combined: give one of them")
    splits = said.number("splitsPerLog", 1, MAX_SPLITS)
    end = said.number("endSeq", 1)
    return ReadOptions(
        place=_place(said),
        logs=logs,
        prefix=said.text("prefix") or "",
        after=(said.number("startSeq", 1) or 1) - 1,
        through=end,
        since=said.moment("startTime"),
        until=said.moment("endTime"),
        rows_per_partition=said.number("rowsPerPartition", 1) or ROWS_PER_PARTITION,
        splits_per_log=splits,
        batch_rows=said.number("batchRows", 1, 1 << 20) or BATCH_ROWS,
        payload=cast(Payload, said.choice("payload", PAYLOADS, "string")),
        own=said.flag("own", False),
        keys=None if keys is None else frozenset(keys),
        pushdown=said.flag("pushdown", False),
        latest=said.choice("startingOffsets", ("earliest", "latest"), "earliest") == "latest",
        rows_per_batch=said.number("rowsPerBatch", 1),
        fail_on_data_loss=said.flag("failOnDataLoss", True),
    )


def write_options(given: Mapping[str, str], *, stream: bool) -> WriteOptions:
    """Raises BadOption."""
    said = _Said(given, STREAM_WRITING if stream else WRITING, "writing a stream" if stream else "writing")
    place = _place(said)
    if place.cold:
        raise BadOption("cold is only for reading: records are written to the directory itself")
    return WriteOptions(
        place=place,
        log=said.text("log"),
        create=said.flag("create", True),
        batch_rows=said.number("batchRows", 1, 1 << 20) or ROWS_PER_APPEND,
        writer=said.text("writer"),
        checkpoint=said.text("checkpointLocation"),
    )


def _place(said: _Said) -> LogLocation:
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
        raise BadOption(f"{_COLD}… options require cold, the URL of the cold tier")
    return LogLocation(url.rstrip("/"), said.text("key"), path, cold, said.cold_options)


class _Said:
    """The given options."""

    def __init__(self, given: Mapping[str, str], known: Collection[str], purpose: str) -> None:
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        self.cold_options: dict[str, str | bool] = {}
        for name, value in given.items():
            if name.lower().startswith(_COLD) and "cold" in names:
                self.cold_options[name[len(_COLD) :].lower()] = _boolean(value) if _is_boolean(value) else value
            elif name.lower() in names:
                self._values[names[name.lower()]] = value
            else:
                raise BadOption(f"unknown option {name!r} for {purpose}; available are {', '.join(sorted(known))}")

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        text = self._values.get(name)
        if text is not None and not text.strip():
            raise BadOption(f"{name} must not be empty")
        return text

    def names(self, name: str) -> tuple[str, ...] | None:
        text = self._values.get(name)
        if text is None:
            return None
        names = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
        if not names:
            raise BadOption(f"{name} must not be an empty list")
        return names

    def number(self, name: str, low: int, high: int = (1 << 63) - 1) -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,19}", text.strip(), re.ASCII) or not low <= int(text) <= high:
            raise BadOption(f"{name} must be an integer from {low} to {high}, got {text!r}")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        text = self._values.get(name)
        if text is None:
            return default
        if not _is_boolean(text):
            raise BadOption(f"{name} must be true or false, got {text!r}")
        return _boolean(text)

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        text = self._values.get(name, default).strip().lower()
        if text not in choices:
            raise BadOption(f"{name} must be one of {', '.join(choices)}, got {text!r}")
        return text

    def moment(self, name: str) -> int | None:
        """Milliseconds, or an ISO 8601 time, which is in UTC unless it has a zone."""
        text: Any = self._values.get(name)
        if text is None:
            return None
        if re.fullmatch(r"[0-9]{1,16}", text.strip(), re.ASCII):
            return int(text)
        try:
            time = datetime.fromisoformat(text.strip())
        except ValueError:
            raise BadOption(f"{name} must be milliseconds since 1970 or an ISO 8601 time, got {text!r}") from None
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _is_boolean(text: str) -> bool:
    return text.strip().lower() in ("true", "false")


def _boolean(text: str) -> bool:
    return text.strip().lower() == "true"

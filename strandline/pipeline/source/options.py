"""What can be said to the data source with ``option``: checked as a whole, before anything is read or written.

Names are those of Spark's own sources where they have one, and their case does not matter. Whatever is not understood
is refused, with everything that is: an option that is silently ignored is a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, cast

import msgspec

Payload = Literal["string", "bytes", "variant", "columns"]

PAYLOADS = ("string", "bytes", "variant", "columns")
#: So many records are about fifty megabytes, and a second's work for one task.
ROWS_PER_PARTITION = 250_000
#: Records of one append: enough that the way to the server does not matter, few enough to be repeated.
ROWS_PER_APPEND = 10_000
#: Rows of the batches that go to Spark.
BATCH_ROWS = 16_384
#: Larger numbers of partitions are mistakes.
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
#: Whatever begins so is said to the object store of the cold tier.
_COLD = "cold."


class BadOption(ValueError):
    """An option that does not exist, or makes no sense. The message says which, and what there is."""


class LogLocation(msgspec.Struct, frozen=True):
    """Where logs are: behind a server's url, or in a directory."""

    url: str = ""
    key: str | None = None
    path: str = ""
    cold: str = ""
    cold_options: dict[str, str | bool] = {}

    def __str__(self) -> str:
        return self.url or self.path


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``since`` and ``until`` are milliseconds, ``until`` not included; ``after`` is not included, ``through`` is."""

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
    # What only batches have.
    pushdown: bool = False
    # What only streams have.
    latest: bool = False
    rows_per_batch: int | None = None
    fail_on_data_loss: bool = True


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``log`` is where everything goes; without it every row says so itself. ``writer`` is whose progress is noted."""

    place: LogLocation
    log: str | None = None
    create: bool = True
    batch_rows: int = ROWS_PER_APPEND
    writer: str | None = None
    checkpoint: str | None = None


def read_options(given: Mapping[str, str], *, stream: bool | None = None) -> ReadOptions:
    """``stream``: whether it is for a stream; None: not known yet. Raises BadOption."""
    known = {None: {*BATCH, *STREAMING}, True: STREAMING, False: BATCH}[stream]
    said = _Said(given, known, "reading a stream" if stream else "reading")
    logs, keys = said.names("logs"), said.names("keys")
    if logs is not None and said.has("prefix"):
        raise BadOption("give either logs or prefix, not both")
    starts = [name for name in ("startSeq", "startTime", "startingOffsets") if said.has(name)]
    if len(starts) > 1 and "startingOffsets" in starts:
        raise BadOption(f"give either {' or '.join(starts)}: they say different things")
    if said.has("rowsPerPartition") and said.has("splitsPerLog"):
        raise BadOption("give either rowsPerPartition or splitsPerLog, not both")
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
        raise BadOption("cold is for reading: what is written goes into the directory itself")
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
        raise BadOption("say where the logs are: either url (of a server) or path (of its data directory)")
    if url and not re.match(r"https?://[^/]", url):
        raise BadOption(f"url must begin with http:// or https://, not be {url!r}")
    for name in ("key",) if path else ("cold",):
        if said.has(name):
            raise BadOption(f"{name} has no meaning with {'path' if path else 'url'}")
    cold = said.text("cold") or ""
    if said.cold_options and not cold:
        raise BadOption(f"{_COLD}… is said, but not where the cold tier is (cold)")
    return LogLocation(url.rstrip("/"), said.text("key"), path, cold, said.cold_options)


class _Said:
    """The options as they were given."""

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
                raise BadOption(f"{purpose} has no option {name!r}; there are {', '.join(sorted(known))}")

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        text = self._values.get(name)
        if text is not None and not text.strip():
            raise BadOption(f"{name} is empty")
        return text

    def names(self, name: str) -> tuple[str, ...] | None:
        text = self._values.get(name)
        if text is None:
            return None
        names = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
        if not names:
            raise BadOption(f"{name} is an empty list")
        return names

    def number(self, name: str, low: int, high: int = (1 << 63) - 1) -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,19}", text.strip(), re.ASCII) or not low <= int(text) <= high:
            raise BadOption(f"{name} must be a whole number from {low} to {high}, not {text!r}")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        text = self._values.get(name)
        if text is None:
            return default
        if not _is_boolean(text):
            raise BadOption(f"{name} must be true or false, not {text!r}")
        return _boolean(text)

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        text = self._values.get(name, default).strip().lower()
        if text not in choices:
            raise BadOption(f"{name} must be one of {', '.join(choices)}, not {text!r}")
        return text

    def moment(self, name: str) -> int | None:
        """Milliseconds, or a time by ISO 8601, which is in UTC unless it says otherwise."""
        text: Any = self._values.get(name)
        if text is None:
            return None
        if re.fullmatch(r"[0-9]{1,16}", text.strip(), re.ASCII):
            return int(text)
        try:
            time = datetime.fromisoformat(text.strip())
        except ValueError:
            raise BadOption(f"{name} must be milliseconds since 1970 or a time by ISO 8601, not {text!r}") from None
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _is_boolean(text: str) -> bool:
    return text.strip().lower() in ("true", "false")


def _boolean(text: str) -> bool:
    return text.strip().lower() == "true"

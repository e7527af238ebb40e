"""The JSON answers of the Arrow protocol."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from strandline.engine.ownership import LogOwner
from strandline.history.log_info import ForkOrigin, LogInfo

Number = Annotated[int, Meta(ge=0)]
#: The progress of a writer: a position for each of its sources.
Progress = dict[str, Any]


class LogAnswer(msgspec.Struct, kw_only=True):
    name: str
    epoch: Number
    head: Number
    earliest: Number
    floor: Number
    last_ts: Number
    media_type: str
    registry: Raw | None
    owner: LogOwner | None
    base: ForkOrigin | None
    ephemeral: bool
    records: Number
    size: Number
    gaps: list[tuple[Number, Number]]

    @classmethod
    def fields_of(cls, info: LogInfo) -> dict[str, Any]:
        fields = {name: getattr(info, name) for name in LogInfo.__struct_fields__}
        fields["registry"] = None if info.registry is None else Raw(info.registry)
        return fields

    @classmethod
    def of(cls, info: LogInfo) -> LogAnswer:
        return cls(**cls.fields_of(info))


class OneLogAnswer(LogAnswer, kw_only=True):
    #: The id of the data directory.
    directory: str
    standing: list[tuple[Number, Number]]
    progress: Progress | UnsetType | None = UNSET


class LogsAnswer(msgspec.Struct, kw_only=True):
    directory: str
    logs: list[LogAnswer]
    next: str | None


class AppendAnswer(msgspec.Struct, kw_only=True):
    first: Number
    last: Number
    ts: Number
    count: Number
    progress: Progress | None


class StagedAnswer(msgspec.Struct, kw_only=True):
    staged: str
    rows: Number


class UnstagedAnswer(msgspec.Struct, kw_only=True):
    removed: Number


class ForgottenAnswer(msgspec.Struct, kw_only=True):
    forgotten: bool

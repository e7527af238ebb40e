"""Values that many answers share, and the body of an error."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

Number = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[float, Meta(ge=0)]
Offset = Annotated[str, Meta(pattern="^[0-9A-HJKMNP-TV-Z]{26}$")]
#: A time in UTC, as in RFC 3339.
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
#: An integer as text, because it may exceed the integers of JavaScript.
Digits = Annotated[str, Meta(pattern="^-?[0-9]+$")]


class StreamError(msgspec.Struct):
    """The members after ``message`` are facts that only some errors have."""

    code: str
    message: str
    current_holder: str | UnsetType = UNSET
    generation: Number | UnsetType = UNSET
    stream: str | UnsetType = UNSET
    file: str | UnsetType = UNSET
    max: Number | UnsetType = UNSET
    retry_after_ms: Number | UnsetType = UNSET
    replay_progress: float | UnsetType = UNSET


class StreamErrorAnswer(msgspec.Struct):
    error: StreamError

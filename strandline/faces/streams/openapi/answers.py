"""What the answers of the protocol look like. The handlers write them as they go; these types describe them to others.

A field that has UNSET as its default is left out where there is nothing to say.
"""

from __future__ import annotations

import msgspec


class StreamError(msgspec.Struct):
    """Some errors have further members, which their descriptions name."""

    code: str
    message: str


class StreamErrorAnswer(msgspec.Struct):
    error: StreamError

"""Pages of a list: sizes and opaque cursors."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode

import msgspec

from strandline.service.http import Call
from strandline.service.problems import invalid

DEFAULT_PAGE = 100
MAX_PAGE = 1000


class _Position(msgspec.Struct):
    after: str = ""


def page_size(call: Call) -> int:
    try:
        wanted = int(call.query.get("page_size", DEFAULT_PAGE))
    except ValueError:
        wanted = DEFAULT_PAGE
    return max(1, min(MAX_PAGE, wanted))


def start_after(call: Call) -> str:
    """The name that the page starts after."""
    cursor = call.query.get("cursor", "")
    if not cursor:
        return ""
    try:
        return msgspec.json.decode(b64decode(cursor, validate=True), type=_Position).after
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise invalid("invalid cursor: expected next_cursor of an earlier answer") from None


def cursor_behind(name: str) -> str:
    return b64encode(msgspec.json.encode(_Position(name))).decode()

"""The bytes of server-sent events.

A frame consists of lines of the form ``field: value`` and ends with an empty line. Frames that are sent often can be
built once as templates: every function here accepts data that contains ``%b`` and ``%d``.
"""

from __future__ import annotations

import re

#: The start of a data line.
DATA = b"data: "
#: The same without a space, as the published streams protocol requires.
BARE_DATA = b"data:"

_LINE_BREAK = re.compile(rb"\r\n|\r|\n")


def frame(event: bytes, data: bytes, id: bytes = b"", *, prefix: bytes = DATA) -> bytes:
    """One event. Each line of the data becomes a separate field, so that data cannot imitate another event."""
    if b"\n" in data or b"\r" in data:
        data = _LINE_BREAK.sub(b"\n" + prefix, data)
    return b"%bevent: %b\n%b%b\n\n" % (id_line(id) if id else b"", event, prefix, data)


def id_line(id: bytes) -> bytes:
    """The line before a frame with the position from which a client can resume."""
    return b"id: %b\n" % id


def comment(text: bytes = b"") -> bytes:
    """A comment, which clients ignore. It keeps the connection alive."""
    return b": %b\n\n" % text


def retry(milliseconds: int) -> bytes:
    """Sets how long the client waits before it reconnects."""
    return b"retry: %d\n\n" % milliseconds

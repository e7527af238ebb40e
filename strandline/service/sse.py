"""Server-sent events: the one place that writes their bytes.

A frame is a few lines of ``field: value`` that end with an empty line. Frames that are sent often can be made once, as
templates: every function here accepts data with ``%b`` and ``%d`` in it.
"""

from __future__ import annotations

import re

#: How a line of data begins.
DATA = b"data: "
#: The same without a space, as the published format of streams has it.
BARE_DATA = b"data:"

_LINE_BREAK = re.compile(rb"\r\n|\r|\n")


def frame(event: bytes, data: bytes, id: bytes = b"", *, prefix: bytes = DATA) -> bytes:
    """One event. Each line of the data gets a field of its own, so that no data can pass for another event."""
    if b"\n" in data or b"\r" in data:
        data = _LINE_BREAK.sub(b"\n" + prefix, data)
    return b"%bevent: %b\n%b%b\n\n" % (id_line(id) if id else b"", event, prefix, data)


def id_line(id: bytes) -> bytes:
    """The line in front of a frame that names the position to resume from."""
    return b"id: %b\n" % id


def comment(text: bytes = b"") -> bytes:
    """A line that clients ignore. It shows that the connection is alive."""
    return b": %b\n\n" % text


def retry(milliseconds: int) -> bytes:
    """How long a client waits before it connects again."""
    return b"retry: %d\n\n" % milliseconds

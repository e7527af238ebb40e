"""A parser for server-sent events."""

from __future__ import annotations

import re

import msgspec

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(msgspec.Struct, frozen=True):
    """One event. ``name`` defaults to ``message``; ``id`` is None if the server sent none."""

    name: str
    data: str
    id: str | None = None


class EventParser:
    """Assembles events from chunks of any size. An incomplete event is never returned."""

    __slots__ = ("_data", "_id", "_name", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._forget()

    def _forget(self) -> None:
        self._name = ""
        self._data: list[bytes] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes."""
        *lines, rest = _LINE_END.split(self._rest + chunk)
        if (self._rest + chunk).endswith(b"\r"):
            # It may be the first half of a CRLF.
            lines, rest = lines[:-1], lines[-1] + b"\r"
        self._rest = rest
        events: list[Event] = []
        for line in lines:
            if line:
                self._field(line)
            else:
                if self._data:
                    events.append(Event(self._name or "message", b"\n".join(self._data).decode(), self._id))
                self._forget()
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode()
        elif name == b"id":
            self._id = value.decode()

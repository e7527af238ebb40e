"""What the tail of a stream knows: how far it has come, and what the server's events mean."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from strandline.client import stream_calls as calls
from strandline.client.calls import Answer, Reading, Request, get
from strandline.client.server_events import Event
from strandline.client.stream_types import StreamPage

T = TypeVar("T")


class _Control(msgspec.Struct, rename="camel"):
    stream_next_offset: str
    up_to_date: bool = False
    stream_closed: bool = False
    stream_cursor: str | None = None


_control = Reading(_Control)


class TailState(Generic[T]):
    """The state of one tail, without its connection. Data counts when the event that says where it ends has come."""

    def __init__(self, path: str, offset: str, values: Reading[list[T]], query: dict[str, Any]) -> None:
        self._path = path
        self._values = values
        self._query = query
        self._cursor: str | None = None
        self._data: list[T] = []
        self.offset = offset
        #: There will be no more.
        self.over = False

    def events(self) -> Request:
        self._data = []
        return get(self._path, self._asked() | {"live": "sse"})

    def poll(self) -> Request:
        return calls.poll(self._path, **self._asked())

    def _asked(self) -> dict[str, Any]:
        return {**self._query, "offset": self.offset, "cursor": self._cursor}

    def opened(self, headers: Any) -> None:
        """An event stream has begun: from now on it is known where."""
        self.offset = headers.get("stream-next-offset", self.offset)

    def take(self, event: Event) -> StreamPage[T] | None:
        if event.name == "data":
            self._data = self._values(event.data)
            return None
        if event.name != "control":
            return None
        control = _control(event.data)
        values, self._data = self._data, []
        return self._moved(
            StreamPage(values, b"", control.stream_next_offset, control.up_to_date, control.stream_closed),
            control.stream_cursor,
        )

    def answered(self, answer: Answer) -> StreamPage[T] | None:
        """The answer to a long-poll."""
        page: StreamPage[T] = calls.page(answer, self._values)
        return self._moved(page, answer.headers.get("stream-cursor"))

    def _moved(self, page: StreamPage[T], cursor: str | None) -> StreamPage[T] | None:
        self.offset = page.next_offset
        self._cursor = cursor
        self.over = page.closed
        return page if page.values or page.data else None

"""The state of live readers of tables, collections and streams: their positions, and the meaning of the server's
events."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from strandline.client import stream_calls as calls
from strandline.client import table_types as types
from strandline.client.calls import Answer, AnswerReader, Request, get
from strandline.client.errors import BadAnswer, refusal
from strandline.client.server_events import Event
from strandline.client.stream_calls import StreamPage

if TYPE_CHECKING:
    from strandline.client.collection_calls import DocumentVersion, Element
    from strandline.client.elements import Opening
    from strandline.client.table_calls import TableCalls

T = TypeVar("T")
E_co = TypeVar("E_co", covariant=True)

#: The server sends something at least every 15 s.
SILENCE_SECONDS = 35.0
#: The statuses of codes that end a live stream temporarily.
PASSING = {"THROTTLED": 429, "UNAVAILABLE": 503}
_STATUSES = {
    "NOT_AUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "DAMAGED_DATA": 500,
    "INTERNAL": 500,
    **PASSING,
}


class Following(Protocol[E_co]):
    """The state of a live reader, without its connection."""

    @property
    def cursor(self) -> str | None:
        """The id of the last event, from which the reader continues; None if there was none."""

    def request(self) -> Request:
        """The request for the next connection."""

    def take(self, event: Event) -> E_co | None:
        """The meaning of an event; None if the reader does not get it. Raises StrandlineError if the stream ended."""


class LiveState(Generic[T]):
    """The state of a live reader of a table."""

    def __init__(self, calls: TableCalls[T], parent: str | None, after: str | None) -> None:
        """Without a ``parent``, the reader follows the feed of the table."""
        self._calls = calls
        self._parent = parent
        #: None starts at the beginning.
        self.cursor = after

    def request(self) -> Request:
        operation = "feed/live" if self._parent is None else "live"
        asked = self._calls.read(operation, parent=self._parent, after=self.cursor)
        return get(asked.target)

    def take(self, event: Event) -> types.LiveEvent[T] | None:
        told = self._told(event)
        if event.id:
            self.cursor = event.id
        return told

    def _told(self, event: Event) -> types.LiveEvent[T] | None:
        try:
            shown = msgspec.json.decode(event.data)
            return self._meaning(event, shown)
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise BadAnswer(f"the server sent an unexpected {event.name} event: {error}") from error

    def _meaning(self, event: Event, shown: Any) -> types.LiveEvent[T] | None:
        match event.name:
            case "append":
                return types.Appended(self._calls.row(shown))
            case "update":
                return types.Updated(self._calls.row(shown))
            case "rm":
                return types.Removed(shown["id"], shown["seq"], shown["soft"])
            case "restore":
                return types.Back(self._calls.row(shown))
            case "purge":
                return types.AllRemoved(shown.get("parent"), shown["soft"])
            case "restoreAll":
                return types.AllBack(shown.get("parent"))
            case "ready":
                return types.Ready(shown["cursor"])
            case "end":
                code = shown["error"]["code"]
                raise refusal(_STATUSES.get(code, 400), {}, event.data.encode())
        return None


# --- documents of collections ---------------------------------------------------------------------------------------

#: The statuses of the errors that end a live response. All others are about the connection: the reader reconnects.
_ENDINGS = {"Unauthorized": 401, "not_a_document": 409, "damaged_data": 500}


class DocumentState(Generic[T]):
    """The state of a live reader of a document. ``sign`` signs a request; each connection has its own signature.
    ``parameter`` is the name under which a request has the position of the reader."""

    def __init__(
        self,
        target: str,
        parameter: str,
        cursor: str | None,
        opening: Opening[T],
        sign: Callable[[Request], Request],
    ) -> None:
        self._target = target
        self._parameter = parameter
        self._opening = opening
        self._sign = sign
        self.cursor = cursor

    def request(self) -> Request:
        return self._sign(get(self._target, {self._parameter: self.cursor}))

    @staticmethod
    def _check_end(event: Event) -> None:
        if event.name == "end":
            error = msgspec.json.decode(event.data, type=_End).error
            raise refusal(_ENDINGS.get(error, 429), {}, event.data.encode())


class ElementsState(DocumentState[T]):
    """The position is the time of the last element; None starts with new elements."""

    def __init__(self, target: str, since: int | None, opening: Opening[T], sign: Callable[[Request], Request]) -> None:
        super().__init__(target, "checkpoint", None if since is None else str(since), opening, sign)

    def take(self, event: Event) -> Element[T] | None:
        """Raises WrongAuthor or Unreadable; the position stays before that element."""
        self._check_end(event)
        if event.name != "element":
            return None
        try:
            from strandline.client.collection_calls import Element

            element = msgspec.json.decode(event.data, type=Element[dict[str, Any]])
        except msgspec.DecodeError as error:
            raise BadAnswer(f"the server sent an unexpected element: {error}") from error
        opened = self._opening.open(element)
        self.cursor = str(element.ts)
        return opened


class VersionsState(DocumentState[T]):
    """The position is the hash of the last version of a regular document; None starts with the current version."""

    def __init__(self, target: str, hash: str | None, opening: Opening[T], sign: Callable[[Request], Request]) -> None:
        super().__init__(target, "baseHash", hash, opening, sign)

    def take(self, event: Event) -> DocumentVersion[T] | None:
        """Raises WrongAuthor or Unreadable; the position stays before that version."""
        self._check_end(event)
        if event.name != "document":
            return None
        from strandline.client.collection_calls import read_version

        opened = self._opening.open_version(read_version(event.data.encode()))
        self.cursor = opened.hash
        return opened


class _End(msgspec.Struct):
    error: str


# --- tails of streams -----------------------------------------------------------------------------------------------


class _Control(msgspec.Struct, rename="camel"):
    stream_next_offset: str
    up_to_date: bool = False
    stream_closed: bool = False
    stream_cursor: str | None = None


_control = AnswerReader(_Control)


class TailState(Generic[T]):
    """The state of a tail, without its connection. Data takes effect with the control event that gives its offset."""

    def __init__(self, path: str, offset: str, values: AnswerReader[list[T]], query: dict[str, Any]) -> None:
        self._path = path
        self._values = values
        self._query = query
        self._cursor: str | None = None
        self._data: list[T] = []
        self.offset = offset
        #: Whether the stream has ended.
        self.over = False

    def events(self) -> Request:
        self._data = []
        return get(self._path, self._asked() | {"live": "sse"})

    def poll(self) -> Request:
        return calls.poll(self._path, **self._asked())

    def _asked(self) -> dict[str, Any]:
        return {**self._query, "offset": self.offset, "cursor": self._cursor}

    def opened(self, headers: Any) -> None:
        """An event stream was opened: take its start offset from the headers."""
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

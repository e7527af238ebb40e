"""What a live reader of a table knows: how far it has come, and what the server's events mean."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from strandline.client import table_types as types
from strandline.client.calls import Request, get
from strandline.client.errors import BadAnswer, refusal
from strandline.client.server_events import Event
from strandline.client.table_calls import TableCalls

T = TypeVar("T")

#: The server says something at least every 15 s.
SILENCE_SECONDS = 35.0
#: What the end of a live stream means, by its code, where it is not for good.
PASSING = {"THROTTLED": 429, "UNAVAILABLE": 503}
_STATUSES = {"NOT_AUTHENTICATED": 401, "FORBIDDEN": 403, "NOT_FOUND": 404, "CONFLICT": 409, "INTERNAL": 500, **PASSING}


class LiveState(Generic[T]):
    """The state of one live reader, without its connection."""

    def __init__(self, calls: TableCalls[T], parent: str, after: str | None) -> None:
        self._calls = calls
        self._parent = parent
        #: The id of the last event: where to go on. None: from the beginning.
        self.cursor = after

    def request(self) -> Request:
        asked = self._calls.read("live", parent=self._parent, after=self.cursor)
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
            raise BadAnswer(f"the event {event.name} is not what was expected: {error}") from error

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
                return types.AllRemoved(shown["parent"], shown["soft"])
            case "restoreAll":
                return types.AllBack(shown["parent"])
            case "ready":
                return types.Ready(shown["cursor"])
            case "end":
                code = shown["error"]["code"]
                raise refusal(_STATUSES.get(code, 400), {}, event.data.encode())
        return None

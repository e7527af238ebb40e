"""The state of a watch of topics: its request, its positions, and the meaning of the server's events.

After a lost connection the watch creates a new session. It cannot use the old one, because the server splits records
between two connections of a session while it considers the old connection open.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from strandline.client import topic_types as types
from strandline.client.calls import ALWAYS, Answer, AnswerReader, Request, get, post
from strandline.client.errors import BadAnswer, Refused, StrandlineError, Unreachable
from strandline.client.server_events import Event
from strandline.client.topic_calls import Match, given

T = TypeVar("T")

#: The server sends something at least this often. A connection that is silent for longer than twice that is dead.
HEARTBEAT_MS = 15_000
SILENCE_SECONDS = 2 * HEARTBEAT_MS / 1000 + 5.0


class Start(msgspec.Struct, frozen=True):
    """Where the watch of a topic starts: after the seq ``after``, or at the end (None). ``match`` and ``since_ts``
    apply to this topic only."""

    after: int | None = 0
    match: Match | None = None
    since_ts: int | None = None


class _Place(msgspec.Struct):
    from_seq: int


class _Session(msgspec.Struct):
    stream_url: str
    topics: dict[str, _Place]


class _LostRange(types.Tombstone, frozen=True):
    topic: str = ""


_session = AnswerReader(_Session)
_lost = AnswerReader(_LostRange)
_caught_up = AnswerReader(types.CaughtUp)
_deleted = AnswerReader(types.Deleted)

WatchEvent = types.Arrived[T] | types.CaughtUp | types.Lost | types.Deleted


class WatchState(Generic[T]):
    """The state of a watch, without its connection."""

    def __init__(self, topics: Mapping[str, Start | int | None], kind: Any, options: Mapping[str, Any]) -> None:
        self._topics = {
            name: start if isinstance(start, Start) else Start(start) for name, start in sorted(topics.items())
        }
        self._options = options
        self._arrived: AnswerReader[types.Arrived[T]] = AnswerReader(types.Arrived[kind])
        self._begun = False
        #: The position in each topic.
        self.positions: dict[str, int] = {}

    @property
    def over(self) -> bool:
        """Whether no topic is left to watch."""
        return not self._topics

    def session(self) -> Request:
        """The request that creates a session at the current positions."""
        topics = {}
        for name, start in self._topics.items():
            topics[name] = given(match=start.match, since_ts=start.since_ts)
            if not self._begun:
                # In later sessions, a topic without a position was created in between and is read from the start.
                topics[name] |= {"tail": True} if start.after is None else {"from_seq": start.after}
        body: dict[str, Any] = {"topics": topics, "heartbeat_ms": HEARTBEAT_MS, **self._options}
        if self._begun:
            body |= {"cursor": _encode(self.positions), "lenient": True}
        # Repeatable, because the server discards a session that no client opens.
        return post("/v0/watch", body, repeatable=ALWAYS)

    def begin(self, answer: Answer) -> tuple[Request, list[types.Deleted]]:
        """The request for the event stream of a session, and the topics that were deleted in the meantime."""
        session = _session(answer)
        gone: list[types.Deleted] = []
        if self._begun:
            missing = [name for name in self.positions if name not in session.topics]
            gone = [types.Deleted(name, self.positions[name]) for name in missing]
            for name in missing:
                self._forget(name)
        for name, place in session.topics.items():
            self.positions.setdefault(name, place.from_seq)
        self._begun = True
        return get(session.stream_url), gone

    def take(self, event: Event) -> WatchEvent[T] | None:
        """The event for the program, or None. Raises an error if the event ends the connection."""
        told: WatchEvent[T]
        if event.name == "record":
            told = self._arrived(event.data)
        elif event.name == "caught-up":
            told = _caught_up(event.data)
        elif event.name == "tombstone":
            lost = _lost(event.data)
            told = types.Lost(lost.topic, msgspec.convert(lost, types.Tombstone, from_attributes=True))
        elif event.name == "topic-deleted":
            told = _deleted(event.data)
        else:
            return self._complaint(event)
        if event.id:
            self.positions |= _decode(event.id)
        if isinstance(told, types.Deleted):
            self._forget(told.topic)
        return told

    def _forget(self, name: str) -> None:
        self.positions.pop(name, None)
        self._topics.pop(name, None)

    @staticmethod
    def _complaint(event: Event) -> None:
        if event.name != "error":
            return
        error = msgspec.json.decode(event.data)
        code = error.get("code")
        if code == 429 and "topics" in error:
            # The server resumes sending when it is less busy.
            return
        message = str(error.get("error") or error.get("message") or code)
        if isinstance(code, int) and code >= 500:
            raise Refused(code, "", message)
        raise Unreachable(message, sent=True)


def goes_on(error: StrandlineError) -> StrandlineError:
    """Turn an error that ends a session into one that allows a retry: the positions are known, so nothing is lost."""
    if isinstance(error, Refused) and (error.status, error.code) == (404, "not_found"):
        return Unreachable(f"the watch session has ended: {error}", sent=True)
    return error


def _encode(positions: Mapping[str, int]) -> str:
    return urlsafe_b64encode(msgspec.json.encode(positions)).rstrip(b"=").decode()


def _decode(cursor: str) -> dict[str, int]:
    try:
        return msgspec.json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=dict[str, int])
    except (ValueError, msgspec.DecodeError) as error:
        raise BadAnswer(f"invalid watch cursor {cursor!r} from the server") from error

"""Topics over a WebSocket: subscribing and publishing on one connection, with the same rules as over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from strandline.delivery.watch import FeedPosition
from strandline.engine.errors import SOON_MS
from strandline.nearest_name import with_nearest
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.errors import (
    INVALID_JSON,
    SERVER_SHUTTING_DOWN,
    UNSUPPORTED_MESSAGE,
    cannot_read,
    refusal_of,
)
from strandline.protocols.topics.message_frames import (
    CaughtUp,
    Command,
    MessageView,
    Ping,
    Pong,
    Publish,
    Subscribe,
    Subscribed,
    TopicDeletedMessage,
    Unsubscribe,
    Unsubscribed,
    ack_message,
    command_decoder,
    error_message,
    request_id_of,
    text_of,
)
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.watch import TopicWatches
from strandline.protocols.topics.watch_request import Watcher, WatchRequest, resolve, topic_of, view_maker
from strandline.protocols.topics.wire import TopicOptions
from strandline.protocols.topics.write import TopicWrites
from strandline.service.access import Access
from strandline.service.http import Call, Head, Later, Reply, Unread
from strandline.service.live import CUT_OFF_SECONDS, Ending, Following, SocketResponse
from strandline.service.problems import (
    FORBIDDEN,
    THROTTLED,
    UNAUTHORIZED,
    Refusal,
    internal,
    invalid,
    lacks_scope,
    may_not_touch,
)

log = logging.getLogger(__name__)

DEFAULT_LIMIT = 1000
#: How many bytes may wait to be sent before deliveries to a socket stop; they resume from the log when it is less.
MAX_WAITING_MESSAGES = 16
MAX_WAITING_BYTES = 1 << 20
#: With this number of publishes in progress, no further command is read.
MAX_UNDER_WAY = 256
#: The elements of smaller messages are not counted: creating all their objects takes only a few milliseconds.
COUNTED_FROM_CHARACTERS = 64 << 10
#: The close codes for a stopping server, and for a slow client.
POLICY_VIOLATION = 1008
SERVICE_RESTART = 1012
TRY_AGAIN_LATER = 1013

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class WebSockets:
    """Serves sockets."""

    def __init__(self, context: Context, watching: TopicWatches, writing: TopicWrites) -> None:
        self.context = context
        self.watching = watching
        self.writing = writing

    async def serve(
        self,
        accept: Callable[[], Awaitable[None]],
        receive: Receive,
        send: Send,
        access: Access,
        unread: Unread | None = None,
        opened: Callable[[SocketResponse], None] | None = None,
    ) -> None:
        """Accept a connection and serve it until the client or the server closes it. Bytes that wait to be sent count
        as ``unread``. ``opened`` gets the response. Raises Refusal, without accepting, if too many are open."""
        socket = Socket(self, access, unread)
        if opened is not None:
            opened(socket)
        with self.context.live.connection(socket, access):
            await accept()
            await socket.run(receive, send)


class Socket(Watcher):
    """One connection. Its subscriptions are pulled from the logs as fast as the client reads."""

    __slots__ = (
        "_blocked", "_close_code", "_fresh", "_heads", "_open", "_outbox", "_relief", "_something", "_task",
        "_too_slow", "_under_way", "_unread", "_waiting_bytes", "_writing",
    )  # fmt: skip

    def __init__(self, sockets: WebSockets, access: Access, unread: Unread | None) -> None:
        super().__init__(sockets.context, sockets.watching.feeds, access)
        self._unread = unread
        self._writing = sockets.writing
        self._outbox: deque[str] = deque()
        self._waiting_bytes = 0
        self._something = asyncio.Event()
        self._relief: asyncio.Future[None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._open = True
        self._close_code = 0
        self._under_way = 0
        #: Whether deliveries have stopped because the client is too slow.
        self._blocked = False
        self._too_slow = False
        #: Topics that were not reported as caught up yet.
        self._fresh: set[FeedPosition] = set()
        self._heads = {flag: _publish_head(access, flag) for flag in (True, False)}

    # --- the connection --------------------------------------------------------------------------------------------

    async def run(self, receive: Receive, send: Send) -> None:
        self._task = asyncio.current_task()
        sender = asyncio.ensure_future(self._send_all(send))
        try:
            while True:
                received = await receive()
                if received["type"] == "websocket.disconnect":
                    break
                text = received.get("text")
                if text is not None:
                    self._obey(text)
                else:
                    refusal = Refusal(UNSUPPORTED_MESSAGE, "messages must be text, not binary")
                    self.put(error_message(UNSET, refusal))
                while self._crowded() and not sender.done():
                    self._relief = self.context.hub.loop.create_future()
                    await self._relief
        except asyncio.CancelledError:
            if not self._too_slow:
                raise
        finally:
            self._open = False
            self.leave()
            if self._unread is not None:
                self._unread.remove(self)
            sender.cancel()

    async def _send_all(self, send: Send) -> None:
        outbox = self._outbox
        try:
            while True:
                while outbox:
                    text = outbox.popleft()
                    self._waiting_bytes -= len(text)
                    await send({"type": "websocket.send", "text": text})
                self._relieve()
                if outbox:
                    continue
                if self._close_code:
                    await send({"type": "websocket.close", "code": self._close_code})
                    return
                self._something.clear()
                await self._something.wait()
        except OSError:
            pass  # the client has disconnected: the receiving side handles it
        finally:
            self._relieve()

    def put(self, text: str) -> None:
        """Send a message."""
        if self._open:
            self._outbox.append(text)
            self._waiting_bytes += len(text)
            self._something.set()

    def close(self, code: int) -> None:
        """Close after all waiting messages are sent."""
        self._close_code = code
        self.leave()
        self._something.set()

    def _full(self) -> bool:
        return len(self._outbox) >= MAX_WAITING_MESSAGES or self._waiting_bytes >= MAX_WAITING_BYTES

    def _crowded(self) -> bool:
        """Whether the client must wait for answers before further commands are read."""
        return self._open and (self._under_way >= MAX_UNDER_WAY or self._full())

    def _relieve(self) -> None:
        """All waiting messages are sent."""
        if self._blocked:
            self._blocked = False
            if self._unread is not None:
                self._unread.remove(self)
            self.go_on()
        self._let_talk()

    def _let_talk(self) -> None:
        if self._relief is not None and not self._relief.done():
            self._relief.set_result(None)

    def shut_down(self) -> None:
        refusal = Refusal(SERVER_SHUTTING_DOWN, "the server is shutting down; reconnect later")
        self.put(error_message(Raw(b"null"), refusal))
        self.close(SERVICE_RESTART)

    def revoke(self) -> None:
        self._refuse_now(Refusal(UNAUTHORIZED, Ending.REVOKED.value))

    def disconnect(self) -> None:
        self._refuse_now(Refusal(FORBIDDEN, Ending.DISCONNECTED.value))

    def following(self, most: int) -> Following:
        return Following.of(self.places.values(), most)

    def _refuse_now(self, refusal: Refusal) -> None:
        """Send the reason instead of what waits to be sent, and close."""
        self._outbox.clear()
        self._waiting_bytes = 0
        self.put(error_message(Raw(b"null"), refusal))
        self.close(POLICY_VIOLATION)
        self._let_talk()
        self.context.hub.loop.call_later(CUT_OFF_SECONDS, self._abandon)

    @property
    def unread_bytes(self) -> int:
        return self._waiting_bytes

    def cut_off(self, grace: float) -> None:
        """Drop waiting messages, so that the client gets the close frame next."""
        if not grace:
            self._abandon()
        elif self._open and not self._close_code:
            self._outbox.clear()
            self._waiting_bytes = 0
            self.close(TRY_AGAIN_LATER)
            self._let_talk()
            self.context.hub.loop.call_later(grace, self._abandon)

    def _abandon(self) -> None:
        if self._open and self._task is not None:
            self._too_slow = True
            self._task.cancel()

    # --- commands --------------------------------------------------------------------------------------------------

    def _obey(self, text: str) -> None:
        # A message is much smaller than a body may be, so its elements can be counted on the event loop.
        elements = self._writing.elements
        if len(text) > COUNTED_FROM_CHARACTERS and elements.is_exceeded(text.encode()):
            self.put(error_message(UNSET, elements.refuse()))
            return
        try:
            command = command_decoder.decode(text)
        except msgspec.MsgspecError as error:
            if isinstance(error, msgspec.ValidationError):
                error = with_nearest(error, Command)
            refusal = Refusal(INVALID_JSON, str(error))
            self.put(error_message(request_id_of(text), refusal))
            return
        try:
            self._do(command)
        except Exception as error:
            self.put(error_message(command.request_id, _refusal_of(error)))

    def _do(self, command: Command) -> None:
        if isinstance(command, Publish):
            self._publish(command)
        elif isinstance(command, Subscribe):
            self._subscribe(command)
        elif isinstance(command, Unsubscribe):
            self._unsubscribe(command)
        elif isinstance(command, Ping):
            self.put(text_of(Pong(command.request_id)))

    def _publish(self, command: Publish) -> None:
        access, name = self.access, command.topic
        if not access.may("write"):
            raise lacks_scope("write")
        if not access.may_touch(name):
            raise may_not_touch(name, "topic")
        if command.config is not None and not access.may("admin"):
            raise Refusal(FORBIDDEN, "publishing with a config requires the admin scope", {"topic": name})
        call = Call(self._heads[command.return_seqs], b"", perf_counter())
        answer = self._writing.append(call, name, command, command.idempotency_key)
        if isinstance(answer, Reply):
            self.put(ack_message(command.request_id, answer, command.return_seqs))
            return
        self._under_way += 1
        if isinstance(answer, Later):
            answer.then(lambda later: self._published(command, later.result))
        else:
            future = asyncio.ensure_future(answer)
            future.add_done_callback(lambda done: self._published(command, done.result))

    def _published(self, command: Publish, result: Callable[[], Any]) -> None:
        self._under_way -= 1
        try:
            self.put(ack_message(command.request_id, result(), command.return_seqs))
        except Exception as error:
            self.put(error_message(command.request_id, _refusal_of(error)))
        if not self._crowded():
            self._let_talk()

    def _subscribe(self, command: Subscribe) -> None:
        if not self.access.may("read"):
            raise lacks_scope("read")
        topics = dict(command.topics or {})
        if command.topic is not None:
            topics[command.topic] = TopicOptions(command.from_seq, command.tail)
        if not topics:
            raise invalid("topic or topics is missing: name at least one topic")
        starts, patterns = resolve(
            self.context,
            self.access,
            WatchRequest(
                topics, view_maker(MessageView, command, self.context.settings, DEFAULT_LIMIT), command.lenient
            ),
        )
        maximum = self.context.settings.max_watch_topics
        if maximum and len(self.places.keys() | starts.keys()) > maximum:
            raise invalid(f"a socket can watch at most {maximum} topics", {"max": maximum})
        topics_shown = {name: starts[name].shown() for name in sorted(starts)}
        self.put(text_of(Subscribed(command.request_id, topics_shown)))
        if patterns:
            known = {pattern.prefix: pattern for pattern in (*self.patterns, *patterns)}
            self.patterns = tuple(sorted(known.values(), key=lambda pattern: len(pattern.prefix), reverse=True))
            self.listen()
        for name in sorted(starts):
            start = starts[name]
            self._drop(name)
            place = self.places[name] = FeedPosition(self, start.topic, start.cursor, start.view)
            if self.attach(place) and place.feed is not None:
                self._fresh.add(place)
                place.feed.queue(place)
            else:
                self.gone(place)

    def _unsubscribe(self, command: Unsubscribe) -> None:
        names = list(command.topics or [])
        if command.topic is not None:
            names.append(command.topic)
        if not names:
            raise invalid("topic or topics is missing: name at least one topic")
        for name in names:
            if name.endswith("*"):
                self.patterns = tuple(pattern for pattern in self.patterns if pattern.prefix != name[:-1])
                for covered in [known for known in self.places if known.startswith(name[:-1])]:
                    self._drop(covered)
            else:
                self._drop(name)
        self.put(text_of(Unsubscribed(command.request_id, names)))

    def _drop(self, name: str) -> None:
        place = self.places.pop(name, None)
        if place is not None:
            self._fresh.discard(place)
            self.feeds.detach(place)

    # --- events of feeds -------------------------------------------------------------------------------------------

    def deliver(self, place: FeedPosition) -> None:
        if self._full():
            self._block()
            return
        feed = place.feed
        piece = None if feed is None else feed.piece(place)
        if feed is None or piece is None:
            return
        place.move(piece)
        if piece.content is not None:
            for text in piece.content:
                self.put(text)
        elif piece.caught_up and place in self._fresh:
            self.put(text_of(CaughtUp(topic_of(place).name, piece.head)))
        if piece.caught_up:
            self._fresh.discard(place)
        else:
            feed.queue(place)

    def _block(self) -> None:
        if not self._blocked:
            self._blocked = True
            if self._unread is not None:
                self._unread.add(self)

    def gone(self, place: FeedPosition) -> None:
        topic = topic_of(place)
        self.places.pop(topic.name, None)
        self._fresh.discard(place)
        self.put(text_of(TopicDeletedMessage(topic.name, topic.log.head, "deleted")))
        self.cover_again(topic.name)

    def paced(self, place: FeedPosition) -> None:
        detail = {"retry_after_ms": SOON_MS, "topics": [topic_of(place).name]}
        self._say(Refusal(THROTTLED, "the server is busy and the topic has a low priority", detail))

    def failed(self, place: FeedPosition, error: Exception) -> None:
        name = topic_of(place).name
        self._drop(name)
        self._say(cannot_read(name, error))

    def added(self, place: FeedPosition) -> None:
        self._fresh.add(place)

    def crowded(self, topic: Topic) -> None:
        maximum = self.context.settings.max_watch_topics
        detail = {"limit": "max_watch_topics", "max": maximum, "topics": [topic.name]}
        self._say(Refusal(THROTTLED, "the socket already watches the maximum number of topics", detail))

    def _say(self, refusal: Refusal) -> None:
        self.put(error_message(Raw(b"null"), refusal))


def _publish_head(access: Access, return_seqs: bool) -> Head:
    head = Head("POST", "/v0/ws", "" if return_seqs else "return_seqs=false", {})
    head.access = access
    return head


def _refusal_of(error: Exception) -> Refusal:
    refusal = refusal_of(error)
    if refusal is None:
        log.error("a WebSocket command failed", exc_info=error)
        refusal = internal()
    return refusal

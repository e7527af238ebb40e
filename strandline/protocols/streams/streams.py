"""The streams there are: finding, making and removing them, and what becomes of those whose time is up.

A stream that others were forked from is not removed but hidden, and goes when the last of them goes.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from strandline.engine import Batch, Config, Engine, Log
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError
from strandline.engine.record import Durability
from strandline.protocols.access import FULL_ACCESS, Access
from strandline.protocols.ownership import GONE, is_hidden
from strandline.protocols.streams.errors import bad_request, gone, not_found, overloaded
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.streams.stream import Stream, StreamTraits, traits_of

log = logging.getLogger(__name__)

#: Streams that are kept decoded. More than this are looked up again when they are used.
MAX_KNOWN = 200_000
#: Names of deleted streams that are remembered, so that deleting one twice is no error.
MAX_DELETED = 10_000
#: The server's own streams that everybody may read.
METRICS_STREAM = "__stream_metrics__"
SYSTEM = frozenset({METRICS_STREAM})
MAX_NAME_BYTES = 512
#: When it is tried again to remove a stream that could not be.
RETRY_MS = 1000


def check_name(name: str) -> str:
    """Raise unless a stream can have this name."""
    if not name:
        raise bad_request("the name of the stream is missing")
    if name.startswith("_") and name not in SYSTEM:
        raise bad_request("names that start with an underscore are the server's own")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise bad_request("the name of the stream is not valid UTF-8") from None
    if size > MAX_NAME_BYTES or not name.isprintable():
        raise bad_request(f"the name of a stream has up to {MAX_NAME_BYTES} bytes of printable text")
    return name


class Streams:
    """``now`` gives milliseconds. Everything here happens on the loop."""

    def __init__(self, engine: Engine, settings: StreamsSettings, now: Callable[[], int]) -> None:
        self.engine = engine
        self._settings = settings
        self._now = now
        self._known: dict[str, Stream] = {}
        #: Those that expire are never forgotten: only in memory is it known when they were used last.
        self._timed: dict[str, Stream] = {}
        self._expiring: list[tuple[int, str]] = []
        self._deleted: dict[str, None] = {}
        #: The names of those that were deleted and are kept for their forks, in order.
        self.hidden: list[str] = []
        #: Called with every stream that is made, with every log before it is dropped, and with every log before this
        #: protocol drops it; on the loop, and quick.
        self.made: list[Callable[[Stream], None]] = []
        self.dropping: list[Callable[[Log], None]] = []
        self.removing: list[Callable[[Log], None]] = []
        #: Called before a stream is deleted for the holder of a key; each may refuse it.
        self.deleting: list[Callable[[Log, Access], None]] = []
        self._load()

    def _load(self) -> None:
        for book in list(self.engine.by_epoch.values()):
            traits = traits_of(book.config)
            if traits.ttl_seconds is not None or traits.expires_at is not None:
                self._note_expiry(self._timed.setdefault(book.name, self._made(self.engine.log(book.name))))
        heapify(self._expiring)
        for book in list(self.engine.by_epoch.values()):
            log = None if book.dropped else self.engine.log(book.name)
            if log is not None and is_hidden(log):
                insort(self.hidden, log.name)
                if not log.forks:
                    self._release(log)

    # --- finding -------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Stream | None:
        """The stream, hidden or not; None if there is none, or its time is up."""
        stream = self._known.get(name) or self._timed.get(name)
        if stream is None or stream.log.dropped:
            stream = self._look_up(name)
            if stream is None:
                return None
        if stream.expires_at is not None and stream.expired(self._now()):
            self._expire(stream)
            # One that cannot be removed now is not there all the same.
            return stream if stream.gone and not stream.log.dropped else None
        return stream

    def _look_up(self, name: str) -> Stream | None:
        self._known.pop(name, None)
        self._timed.pop(name, None)
        if name.startswith("_") and name not in SYSTEM:
            return None
        log = self.engine.find(name)
        if log is None:
            return None
        stream = self._made(log)
        if stream.expires_at is not None:
            self._timed[name] = stream
            self._note_expiry(stream)
        else:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[name] = stream
        return stream

    def _made(self, log: Log) -> Stream:
        stream = Stream(log)
        stream.correct_use(self._now())
        return stream

    def get(self, name: str) -> Stream:
        """The stream; refuses where there is none, or it was deleted."""
        stream = self._known.get(name)
        if stream is None or stream.log.dropped or stream.gone:
            stream = self.find(name)
            if stream is None:
                check_name(name)
                raise not_found()
            if stream.gone:
                self.sweep()
                if stream.log.dropped:
                    raise not_found()
                raise gone()
        return stream

    # --- making --------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        traits: StreamTraits,
        *,
        source: tuple[Log, int] | None = None,
        notes: dict[str, object] | None = None,
        batch: Batch | None = None,
        durability: Durability | None = None,
        compact: bool = False,
    ) -> tuple[Stream, Commit[Log]]:
        """Make a stream that is not there, with its first records, as one step. It can be used at once and is durable
        when the commit is done."""
        check_name(name)
        maximum = self._settings.max_streams
        if maximum and len(self.engine) >= maximum:
            raise overloaded(f"there are {maximum} streams already, which is the most there may be")
        config = Config(
            durability=durability or self._settings.stream_durability,
            compact=compact,
            attributes=traits.attributes,
        )
        if source is None:
            commit = self.engine.create(name, config, notes=notes, batch=batch)
        else:
            commit = self.engine.fork(name, *source, config, notes=notes, batch=batch)
        self._deleted.pop(name, None)
        stream = self._look_up(name)
        assert stream is not None
        for listener in self.made:
            listener(stream)
        return stream, commit

    # --- removing ------------------------------------------------------------------------------------------------

    def was_deleted(self, name: str) -> bool:
        """Whether there was a stream of this name that was deleted not too long ago."""
        return name in self._deleted

    def delete(self, stream: Stream, access: Access = FULL_ACCESS) -> Commit[Any]:
        """Remove the stream, or hide it while others were forked from it."""
        for check in self.deleting:
            check(stream.log, access)
        self._deleted[stream.name] = None
        if len(self._deleted) > MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]
        return self._remove(stream)

    def _remove(self, stream: Stream) -> Commit[Any]:
        if stream.log.forks:
            commit = stream.log.note({GONE: True})
            insort(self.hidden, stream.name)
            return commit
        return self._release(stream.log)

    def _release(self, log: Log) -> Commit[Any]:
        for listener in self.removing:
            listener(log)
        return self.drop_log(log)

    def drop_log(self, log: Log) -> Commit[None]:
        """Drop a log that nothing was forked from, whichever protocol it is of, and whatever was kept only for it."""
        base = log.base
        for listener in self.dropping:
            listener(log)
        commit = log.drop()
        self._known.pop(log.name, None)
        self._timed.pop(log.name, None)
        at = bisect_left(self.hidden, log.name)
        if self.hidden[at : at + 1] == [log.name]:
            del self.hidden[at]
        if base is not None:
            source = base[0]
            if is_hidden(source) and not source.forks:
                self._release(source)
        return commit

    # --- time ----------------------------------------------------------------------------------------------------

    def _note_expiry(self, stream: Stream) -> None:
        expires_at = stream.expires_at
        assert expires_at is not None
        heappush(self._expiring, (expires_at, stream.name))

    def _expire(self, stream: Stream) -> bool:
        """Remove what has expired, or hide it; False if that cannot be done now."""
        if stream.gone:
            return True
        try:
            self._remove(stream)
        except EngineError as error:
            log.error("stream %r has expired and cannot be removed: %s", stream.name, error)
            return False
        return True

    def sweep(self) -> None:
        """Remove what has expired. Whoever asks for such a stream does not find it, swept or not."""
        if not self.engine.writable:
            return
        now, heap = self._now(), self._expiring
        while heap and heap[0][0] <= now:
            _, name = heappop(heap)
            stream = self._timed.get(name)
            if stream is None or stream.log.dropped or stream.gone:
                continue
            if not stream.expired(now):
                self._note_expiry(stream)
            else:
                expired = False
                try:
                    expired = self._expire(stream)
                finally:
                    if not expired:
                        heappush(heap, (now + RETRY_MS, name))

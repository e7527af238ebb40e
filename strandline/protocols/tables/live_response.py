"""The common part of live responses of tables: slow work between events, errors, and the event ``ready``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from strandline.delivery.watch import FeedPosition, FeedReader
from strandline.engine.errors import DamagedFile
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.errors import error_body
from strandline.protocols.tables.wire import ReadyEvent, encode
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.live import Ending, LiveResponse
from strandline.tables import TableError, User

log = logging.getLogger(__name__)


class TableLiveResponse(LiveResponse, FeedReader):
    """A live response whose events come from logs of a table."""

    __slots__ = ("_busy", "_context", "_ready", "_task", "_user")

    def __init__(self, context: TablesContext, access: Access, user: User | None) -> None:
        super().__init__(context.live, access)
        self._context = context
        self._user = user
        #: The running task; a reference keeps it from being garbage-collected.
        self._task: asyncio.Task[None] | None = None
        #: Whether a worker thread looks something up; the next events wait for it.
        self._busy = False
        #: Whether the reader got the event ``ready``.
        self._ready = False

    @property
    def about(self) -> tuple[str, ...]:
        """What the response shows, for log lines."""
        raise NotImplementedError

    @property
    def position(self) -> str:
        """The cursor of the reader."""
        raise NotImplementedError

    def last_message(self, ending: Ending) -> bytes:
        if ending is Ending.SHUTDOWN:
            return b""
        return end_frame(TableError("NOT_AUTHENTICATED" if ending is Ending.REVOKED else "THROTTLED", ending.value))

    def be_ready(self) -> None:
        """Tell the reader once that it has everything that existed."""
        if not self._ready:
            self._ready = True
            self.write(sse.frame(b"ready", encode(ReadyEvent(self.position)), self.position.encode()))

    # --- slow work -------------------------------------------------------------------------------------------------

    def meanwhile(self, work: Coroutine[Any, Any, None]) -> None:
        """Run slow work; no further events are sent until it is done."""
        self._busy = True
        self._task = self._context.hub.loop.create_task(self._do(work))

    async def _do(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.fail(error)
        self._busy = False
        self.go_on()

    # --- access ----------------------------------------------------------------------------------------------------

    def ring(self, now: float) -> float | None:
        """Check from time to time whether the user must be identified again."""
        after = super().ring(now)
        user, engine = self._user, self._context.tables.engine
        if user is not None and user.expires_at is not None and user.expires_at <= engine.now():
            self.end(end_frame(TableError("NOT_AUTHENTICATED", "the user must be identified again; reconnect")))
        return after

    # --- calls of feeds --------------------------------------------------------------------------------------------

    def deliver(self, place: FeedPosition) -> None:
        self.go_on()

    def gone(self, place: FeedPosition) -> None:
        """A log was dropped. The client reconnects and reads the logs that exist then."""
        self.end()

    def paced(self, place: FeedPosition) -> None:
        pass

    def failed(self, place: FeedPosition, error: Exception) -> None:
        self.fail(error)

    def fail(self, error: Exception) -> None:
        log.warning("stopped the live response for %r at cursor %s: %s", self.about, self.position, error)
        damaged = isinstance(error, DamagedFile)
        self.end(end_frame(TableError("DAMAGED_DATA" if damaged else "INTERNAL", "the rows cannot be read")))


def end_frame(error: TableError) -> bytes:
    """The last event: the reason why the response ends."""
    return sse.frame(b"end", error_body(error.code, error.message, error.more))
